"""Makes the reference pages of the client library and the command line from docstrings and help texts, for ``tools/docs.py``.

The reference pages are Markdown files, not the output of a plugin of the site's generator, so that they can also be read in the
repository.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from flintmq.client import sync
from flintmq.programs.cli.commands import COMMANDS
from flintmq.programs.cli.parser import ACCESS_SECTION, AccessOption, LazyGroup
from flintmq.remoting import client as library

_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")
_SECTION = re.compile(r"((?:Args|Raises|Returns|Yields)(?:, Raises)?):")
_DOC_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)\b")


def client_reference() -> str:
    """Return the text of docs/client-reference.md."""
    lines = [
        "# The client, name by name",
        "",
        "This page lists every name of `flintmq.client`. In `flintmq.client`, a program awaits the methods that are marked",
        "`async`. In `flintmq.client.sync` the same methods have the same parameters, and block. `flintmq.client.sync` lacks "
        + " and ".join(f"`{name}`" for name in library.__all__ if name not in sync.__all__)
        + ",",
        "because these need an event loop. The guide, with examples, is [client.md](client.md). `tools/docs.py` writes this",
        "page from the docstrings.",
    ]
    for name in library.__all__:
        one = getattr(library, name)
        lines += ["", f"## `{name}`", ""]
        if inspect.isclass(one):
            lines += _class(one)
        elif inspect.isfunction(one):
            lines += [*_signature(name, one), *_markdown(inspect.getdoc(one) or "")]
        else:
            told = " ".join(_told_in(inspect.getmodule(library.allocate_averagely)).get(name, "").split())
            lines += ["```text", f"{name} = {_plain(str(one))}", "```", "", told]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def cli_reference() -> str:
    """Return the text of docs/commands.md."""
    lines = [
        "# Commands",
        "",
        "This page has the `--help` text of every command. The exit codes are: 0 success, 1 failure, 2 wrong usage or",
        "configuration, 3 an error of the store, 4 an error of the network, 5 a fenced store (a sync failed). Commands of",
        "plugins are not listed. `tools/docs.py` writes this page.",
        "",
        "Your shell completes commands, options and their values if its configuration file has the line from this table:",
        "",
        "| shell | file | line |",
        "|---|---|---|",
        '| bash 4.4 or later | `~/.bashrc` | `eval "$(_FLINTMQ_COMPLETE=bash_source flintmq)"` |',
        '| zsh | `~/.zshrc` | `eval "$(_FLINTMQ_COMPLETE=zsh_source flintmq)"` |',
        "| fish | `~/.config/fish/completions/flintmq.fish` | `_FLINTMQ_COMPLETE=fish_source flintmq \\| source` |",
    ]
    access: dict[str, str] = {}
    root = LazyGroup(COMMANDS)
    for words, command in _commands(root, click.Context(root, info_name="flintmq")):
        context = click.Context(command, info_name=words, show_default=True)
        lines += ["", f"## `{words}`", "", *_paragraphs(command.help or "")]
        rows = []
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if isinstance(parameter, AccessOption) and record is not None:
                access[record[0]] = record[1]
            elif record is not None:
                rows.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
        if any(isinstance(parameter, AccessOption) for parameter in command.params):
            rows.append(f"| | and those for [access control and TLS](#{ACCESS_SECTION.lower().replace(' ', '-')}) |")
        if rows:
            lines += ["", "| option | meaning |", "|---|---|", *rows]
        examples = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
        if examples:
            lines += ["", "```text", *examples, "```"]
    lines += ["", f"## {ACCESS_SECTION}", "", "| option | meaning |", "|---|---|"]
    lines += [f"| `{_cell(option)}` | {_cell(told)} |" for option, told in access.items()]
    return "\n".join(lines) + "\n"


# --- reference of the client ---


def _class(one: type) -> Iterator[str]:
    """Yield the lines about a class: its signature, its docstring, its fields and its methods."""
    made = "" if issubclass(one, Exception) and not inspect.isfunction(one.__init__) else one.__name__
    fields = _told_in(one)
    if made and not _is_choice(one) and not getattr(one, "_is_protocol", False):
        yield from _signature(made, one)
    yield from _markdown(inspect.getdoc(one) or "")
    if fields:
        yield from ["", "| | |", "|---|---|"]
        yield from (f"| `{name}` | {_cell(told)} |" for name, told in fields.items())
    for name, member in _members(one):
        if isinstance(member, property):
            yield from ["", f"### `{one.__name__}.{name}`", ""]
            yield from _markdown(inspect.getdoc(member) or "")
        else:
            yield from ["", f"### `{one.__name__}.{name}()`", ""]
            yield from _signature(name, member)
            yield from _markdown(inspect.getdoc(member) or "")


def _is_choice(one: type) -> bool:
    return hasattr(one, "__members__")


def _members(one: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class in the order of their definition; inherited members come last."""
    seen = set()
    for owner in one.__mro__:
        if owner.__module__.startswith("flintmq"):
            for name, member in vars(owner).items():
                if (
                    not name.startswith("_")
                    and name not in seen
                    and (inspect.isfunction(member) or isinstance(member, property))
                ):
                    seen.add(name)
                    if inspect.getdoc(member):
                        yield name, member


def _signature(name: str, one: Any) -> Iterator[str]:
    """Yield a signature as a block of Markdown. A long signature has a line for each parameter."""
    signature = inspect.signature(one)
    taken = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    parameters = [_parameter(parameter) for parameter in taken]
    kinds = [parameter.kind for parameter in taken]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = signature.return_annotation
    after = "" if inspect.isclass(one) or returned is inspect.Signature.empty else f" -> {_plain(_written(returned))}"
    begin = f"{'async ' if inspect.iscoroutinefunction(one) else ''}{name}("
    flat = f"{begin}{', '.join(parameters)}){after}"
    yield "```text"
    yield from [flat] if len(flat) <= 100 else [begin, *(f"    {parameter}," for parameter in parameters), f"){after}"]
    yield "```"
    yield ""


def _parameter(one: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
    typed = "" if one.annotation is one.empty else f": {_plain(_written(one.annotation))}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    return f"{stars}{one.name}{typed} = {'…' if 'NOTHING' in repr(one.default) else _plain(repr(one.default))}"


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _plain(text: str) -> str:
    """Return an annotation or a default value as source code has it, without module names and addresses of objects."""
    # A member of an enumeration, shown as <Enum.NAME: value>, is replaced by Enum.NAME.
    text = re.sub(r"<(?:\w+\.)*(\w+\.\w+): [^>]*>", r"\1", text)
    text = re.sub(r"<[^>]*? object at 0x[0-9a-f]+>", "…", text)
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    return text.replace("typing.", "").replace("~", "")


def _told_in(one: Any) -> dict[str, str]:
    """Return the description of each public attribute of a class or module: the string below the attribute in the source, keyed
    by the attribute's name."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body
    except (OSError, TypeError):
        return {}
    if inspect.isclass(one) and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    told: dict[str, str] = {}
    for place, node in enumerate(body):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and not target.id.startswith("_"):
            below = body[place + 1] if place + 1 < len(body) else None
            is_text = (
                isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            )
            kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            said = _inline(" ".join(below.value.value.split())) if is_text else ""  # type: ignore[union-attr]
            told[target.id] = f"{f'`{kind}`. ' if kind else ''}{said}"
    return told


def _markdown(doc: str) -> Iterator[str]:
    """Yield a docstring as Markdown: sections become lists, literal blocks become code, roles become plain names."""
    in_list = in_code = begun = False
    blank = 0
    for line in doc.splitlines():
        indented = line.startswith("    ")
        if in_code:
            if indented or not line:
                blank += not line
                if line:
                    yield from [""] * (blank if begun else 0)
                    yield line[4:]
                    blank, begun = 0, True
                continue
            yield from ["```", ""]
            in_code = False
        if line.rstrip().endswith("::"):
            lead = _inline(line.rstrip()[:-2])
            if lead:
                yield f"{lead}:"
                yield ""
            yield "```text"
            in_code, in_list, begun, blank = True, False, False, 0
        elif section := _SECTION.fullmatch(line):
            in_list = True
            yield f"**{section[1]}**"
            yield ""
        elif in_list and indented and not line.startswith("     "):
            name, colon, told = line.strip().partition(":")
            yield (
                f"* `{name}`:{_inline(told)}"
                if colon and re.fullmatch(r"[\w, .*]+", name)
                else f"* {_inline(line.strip())}"
            )
        elif in_list and indented:
            yield f"  {_inline(line.strip())}"
        else:
            in_list = in_list and not line
            yield _inline(line)
    if in_code:
        yield "```"


def _inline(text: str) -> str:
    return _DOC_PAGE.sub(r"[\1](\1)", _ROLE.sub(r"`\1`", text)).replace("``", "`")


# --- reference of the commands ---


def _commands(
    group: click.Group, context: click.Context, words: str = "flintmq"
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command of the command line with its full name, such as ``flintmq config schema``, in the order of the
    help."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, context, f"{words} {name}")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a command's help text as Markdown. A paragraph that begins with a backspace character becomes a code
    block, because the library click keeps the line breaks of the paragraph."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ["", "```text", *paragraph.splitlines()[1:], "```"]
        else:
            yield from ["", " ".join(paragraph.split()).replace("*", "\\*").replace("<", "&lt;")]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
