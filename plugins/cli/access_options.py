"""The options by which every command that is a client signs and encrypts, said once."""

from typing import Annotated, Any

import typer
import typer.main

PANEL = "Access control and TLS"


def parameters(said: dict[str, str]) -> list[Any]:
    """Parameters for a command, each of which notes what it is given.

    Args:
        said: where to, by the name of the variable that says the same; see :mod:`flintmq.remoting.client.environment`.
    """

    def note(parameter: typer.CallbackParam, value: Any) -> None:
        if value:
            said[f"FLINT_{str(parameter.name).upper()}"] = "1" if value is True else str(value)

    def option(name: str, text: str, metavar: str | None = None) -> Any:
        variable = f"FLINT_{name.upper().replace('-', '_')}"
        return typer.Option(
            f"--{name}",
            metavar=metavar,
            envvar=variable,
            help=text,
            callback=note,
            expose_value=False,
            rich_help_panel=PANEL,
        )

    # Typer makes parameters of functions alone, whose annotations must therefore be no text (no future import here).
    def client(
        access_key: Annotated[
            str | None, option("access-key", "The account that requests are signed with.", "KEY")
        ] = None,
        secret_key_file: Annotated[
            str | None, option("secret-key-file", "Holds its secret key; or FLINT_SECRET_KEY does.", "FILE")
        ] = None,
        tls: Annotated[bool, option("tls", "Encrypt, and trust the system's authorities.")] = False,
        tls_ca: Annotated[
            str | None, option("tls-ca", "Encrypt, and trust these authorities or certificates (PEM).", "FILE")
        ] = None,
        tls_certificate: Annotated[
            str | None, option("tls-certificate", "Our own certificate, where one is asked for (PEM).", "FILE")
        ] = None,
        tls_key: Annotated[str | None, option("tls-key", "Its private key; else in the same file.", "FILE")] = None,
        tls_insecure: Annotated[bool, option("tls-insecure", "Encrypt, and trust whoever answers.")] = False,
    ) -> None:
        """Takes the options."""

    single = typer.Typer(add_completion=False)
    single.command()(client)
    made: Any = typer.main.get_command(single)
    return [parameter for parameter in made.params if parameter.name != "help"]
