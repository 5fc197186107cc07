"""``flintmq plugins``: what is loaded, from where, which hooks it has, what it registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.plugins.cli import options

if TYPE_CHECKING:
    from flintmq.config import LoadedConfig
    from flintmq.core.kernel.kernel import Kernel


def plugins(
    config: options.ConfigFile = None, settings: options.Settings = None, as_json: options.AsJson = False
) -> None:
    """List the plugins a broker of this configuration would load."""
    from flintmq.config import load_config
    from flintmq.plugins.cli.output import print_json, print_table

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
    """The kernel a broker of this configuration would have. Raises ``PluginError``."""
    from flintmq.core.kernel.kernel import Kernel
    from flintmq.plugins.broker.processors import ProcessorsPlugin
    from flintmq.plugins.builtin import BUILTIN_PLUGINS

    return Kernel.assemble(
        loaded.config.plugins,
        (*BUILTIN_PLUGINS, ProcessorsPlugin()),
        disabled=loaded.config.disabled_plugins,
        config_path=file,
    )
