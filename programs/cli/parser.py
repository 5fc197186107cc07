"""click's command classes with lazily imported subcommands, and with a help section for the options of credentials and TLS.

A :class:`LazyGroup` names its subcommands in a table. A subcommand's module is imported when the command is called or its help
is shown, so the module can import whatever it needs at its top.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from flintmq.programs.cli.examples import EXAMPLES

ACCESS_SECTION: Final = "Access control and TLS"

Table = Mapping[str, "tuple[str | Table, str]"]
"""(module, help) of each command, keyed by the command's name. The module is ``module:object`` in ``flintmq.programs.cli``. A
group of commands has a table of its subcommands instead of the module. Lists of commands show the first line of the help."""


class AccessOption(click.Option):
    """An option for a client's credentials or TLS; the help lists these options in a separate section."""


class FileTextOption(click.Option):
    """An option whose text may name a file. Bytes that are not UTF-8 are kept, as in file names."""


class Command(click.Command):
    """A command whose help has a section for the options of credentials and TLS, and whose texts are UTF-8 in every locale."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command. Raises UsageError for an option's text that is not UTF-8."""
        for parameter in self.params:
            name = parameter.name
            is_text = isinstance(parameter.type, click.types.StringParamType)
            if name in ctx.params and is_text and not isinstance(parameter, FileTextOption):
                ctx.params[name] = _as_typed(ctx.params[name], parameter, ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of a command's help: first the command's own options, then the options for credentials and TLS."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], ACCESS_SECTION: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections[ACCESS_SECTION if isinstance(parameter, AccessOption) else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _as_typed(value: Any, parameter: click.Parameter, context: click.Context) -> Any:
    """Return text that the locale could not decode, decoded as UTF-8. Raises UsageError if the text is not UTF-8."""
    if isinstance(value, tuple):
        return tuple(_as_typed(one, parameter, context) for one in value)
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError as error:
        text = f"{parameter.opts[0]}: the text is not UTF-8"
        raise click.UsageError(text, context) from error


class Group(Command, click.Group):
    """A command with subcommands, which are of class :class:`Command`."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that a word names. The error for an unknown word suggests subcommands, even if they are not
        imported yet."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands in the order in which they were added."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of a group's help: first the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class ListingGroup(Group):
    """A group of commands that runs its command ``list``, with the same options, if no command is named."""

    def __init__(self, listing: click.Command) -> None:
        super().__init__(params=listing.params, callback=self._list, invoke_without_command=True)
        self.add_command(listing)

    def _list(self, **given: Any) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            context.invoke(self.commands["list"], **given)


class LazyGroup(Group):
    """A group of commands, whose modules are imported at their first use.

    Args:
        table: the commands in the order of the help.
        words: the words of the group on the command line, without the program; empty for the program itself.
    """

    def __init__(self, table: Table, words: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self._table = table
        self._words = words

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand with the given name; None if the table lacks the name. The command's help is its
        docstring or else the table's text."""
        if cmd_name in self._table and cmd_name not in self.commands:
            place, text = self._table[cmd_name]
            words = f"{self._words} {cmd_name}".strip()
            if isinstance(place, str):
                module, _, name = place.partition(":")
                command: click.Command = getattr(_imported(f"flintmq.programs.cli.{module}"), name)
                command.help = command.help or text
                _add_examples(command, words)
            else:
                command = LazyGroup(place, words, help=text, no_args_is_help=True)
                _add_examples(command, words)
            self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name of each subcommand and the first line of its help. Both come from this group's table of commands, so
        that no module of a subcommand is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(self.rows(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a word on the command line: subcommands and options. No subcommand is imported."""
        rows = [CompletionItem(name, help=line) for name, line in self.rows(ctx) if name.startswith(incomplete)]
        return rows + click.Command.shell_complete(self, ctx, incomplete)

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the names of all commands, each with the first line of its help."""
        return [(name, text.partition("\n")[0]) for name, (_place, text) in self._table.items()]


def _imported(module: str) -> ModuleType:
    if module in sys.modules:
        return sys.modules[module]
    with uncollected():
        return importlib.import_module(module)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection during imports, and exclude the imported objects from later collections.

    Nearly all imported objects are permanent; the first collections would slow down a start by milliseconds.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _add_examples(command: click.Command, words: str) -> None:
    """Add examples to the end of the help of a command and of the commands in its group."""
    if words in EXAMPLES:
        # click keeps the line breaks of a paragraph that begins with a backspace.
        title = "Examples:" if len(EXAMPLES[words]) > 1 else "Example:"
        command.epilog = "\n".join(("\b", title, *(f"  {line}" for line in EXAMPLES[words])))
    for name, inner in getattr(command, "commands", {}).items():
        _add_examples(inner, f"{words} {name}")
