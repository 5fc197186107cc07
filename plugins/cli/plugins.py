"""``flintmq plugins``: what is loaded, from where, which hooks it has, what it registered."""

from __future__ import annotations

from pathlib import Path

import click

from flintmq.config import LoadedConfig, load_config
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.broker.processors import ProcessorsPlugin
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.plugins.cli import options
from flintmq.plugins.cli.output import print_json, print_table
from flintmq.plugins.cli.parser import Command


@click.command(cls=Command)
@options.config_file
@options.settings
@options.as_json
def plugins(config: Path | None, settings: tuple[str, ...], as_json: bool) -> None:
    """List the plugins a broker of this configuration would load."""
    found = assembled(load_config(config, settings or ()), config).describe()
    if as_json:
        print_json(
            [
                {
                    "name": info.name,
                    "source": info.origin.source.value,
                    "place": info.origin.place,
                    "enabled": info.enabled,
                    "hooks": list(info.hooks),
                    "registered": list(info.registered),
                }
                for info in found
            ]
        )
        return
    print_table(
        ("plugin", "from", "hooks", "registered"),
        (
            (
                info.name,
                info.origin.place or info.origin.source.value,
                "\n".join(hook.removeprefix("flintmq_") for hook in info.hooks) if info.enabled else "switched off",
                "\n".join(info.registered),
            )
            for info in found
        ),
    )


def assembled(loaded: LoadedConfig, file: Path | None) -> Kernel:
    """Return the kernel a broker of this configuration would have. Raises ``PluginError``."""
    return Kernel.assemble(
        loaded.config.plugins,
        (*BUILTIN_PLUGINS, ProcessorsPlugin()),
        disabled=loaded.config.disabled_plugins,
        config_path=file,
    )
