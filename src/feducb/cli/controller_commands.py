"""`feducb controller`: run a controller, see how it is, and who may look at its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.options import option
from feducb.cli.output import show_keys, show_status
from feducb.controller.controller_file import ControllerSettings, read_status
from feducb.controller.controller_health import judge_controller
from feducb.errors import ConfigurationError
from feducb.protocol.engine_table import require_keys, require_text
from feducb.service.api_keys import add_key, revoke_key
from feducb.system import optional

__all__ = ["app"]

app = typer.Typer(
    help="The controller of a federation: collects releases, publishes their sums.", no_args_is_help=True
)
key_app = typer.Typer(help="API keys of the controller's page: make, list, revoke.", no_args_is_help=True)
app.add_typer(key_app, name="key")

_Config = Annotated[Path, typer.Option("--config", "-c", help="The controller's TOML file (docs/deploy.md).")]
_DEFAULT = Path("controller.toml")


@app.command()
def serve(config: _Config = _DEFAULT) -> None:
    """Run until SIGTERM; logs are JSON lines on standard error."""
    from feducb.carriers.controller_process import serve as run

    settings = ControllerSettings.read(config)
    if settings.page is not None:
        with optional("the [page] of a controller", "nats,service"):
            from feducb.service.controller_page import serve_beside

        serve_beside(settings, base=config.resolve().parent)
    run(settings)


@app.command()
def status(config: _Config = _DEFAULT) -> None:
    """What the controller last said of itself, as JSON. Status 0: green, 1: it does not run, 3: trouble."""
    show_status(read_status(ControllerSettings.read(config)), "controller", judge_controller)


@key_app.command("add")
def key_add(
    name: Annotated[str, typer.Argument(help="For people, such as ada-2027.")],
    config: _Config = _DEFAULT,
    role: str = option("operator", "operator or viewer: the page is only read, so either opens it."),
) -> None:
    """Make a key for the page and show it once; a running controller takes it within a second."""
    if role not in ("operator", "viewer"):
        raise ConfigurationError("role", role, "operator or viewer: no other opens the page")
    typer.echo(add_key(_page_keys(config), name, role))  # type: ignore[arg-type]


@key_app.command("list")
def key_list(config: _Config = _DEFAULT) -> None:
    """Names, roles and ages; never the keys."""
    show_keys(_page_keys(config))


@key_app.command("revoke")
def key_revoke(name: Annotated[str, typer.Argument(help="Which.")], config: _Config = _DEFAULT) -> None:
    """Take a key away; a running controller refuses it within a second."""
    revoke_key(_page_keys(config), name)
    typer.echo(f"{name} is revoked")


def _page_keys(config: Path) -> Path:
    page = ControllerSettings.read(config).page
    if page is None:
        raise ConfigurationError("page", None, 'a table, such as [page] with keys = "page.keys"')
    require_keys("page", page, needed=("keys",), known=tuple(page))
    return config.resolve().parent / require_text("page.keys", page["keys"])
