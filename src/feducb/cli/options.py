"""Options, each said once: those that several commands take, and commands that take theirs as one object.

A command with many options takes a dataclass: a field is an option, with its name, type, default and help.
What has a field of the same name elsewhere (`Shortcuts`, `Study`, `Terms`) is filled by `picked`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

__all__ = [
    "Arms",
    "Away",
    "Backend",
    "Colluding",
    "Dim",
    "JsonFile",
    "Seed",
    "Threads",
    "option",
    "picked",
    "takes_options",
]

Arms = Annotated[
    int | None, typer.Option(help="K, candidates per visitor.", show_default="d², or d in the world one-hot")
]
Away = Annotated[
    int | None,
    typer.Option(
        help="D, agents that may miss a row under --trust keepers.",
        show_default="a tenth of all, or 0 on a graph",
    ),
]
Backend = Annotated[
    str, typer.Option(help="auto (the fastest that can), gpu, cpu, or reference (the readable one).")
]
Colluding = Annotated[
    int | None,
    typer.Option(
        help="C, agents that may tell the controller what they sent under --trust keepers; 1 or more.",
        show_default="a fifth of all",
    ),
]
Dim = Annotated[int, typer.Option(help="d, length of an action vector.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Threads = Annotated[int | None, typer.Option(help="Worker threads.", show_default="all processors")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output.")
]


def option(default: Any, text: str, *names: str, shown: str | bool = True, **more: Any) -> Any:
    """An option, as the default of a parameter or of a dataclass field.

    Args:
        default: what it is if it is not given.
        text: its help.
        names: as it is typed, if not by the parameter's own name.
        shown: what the help shows as default, if not the default itself.
        more: of `typer.Option`.
    """
    return typer.Option(default, *names, help=text, show_default=shown, **more)


def takes_options(command: Callable[[Any], None]) -> Callable[..., None]:
    """A function of one dataclass as a command with an option per field.

    Typer reads signatures, so the fields are written out as one; what is typed comes back as the object.
    """
    (settings,) = (kind for name, kind in get_type_hints(command).items() if name != "return")
    kinds = get_type_hints(settings, include_extras=True)

    @wraps(command)
    def typed(**given: Any) -> None:
        command(settings(**given))

    parameters = []
    for one in fields(settings):
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(one.name, keyword, default=default, annotation=kinds[one.name]))
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return typed


def picked(options: Any, kind: type) -> dict[str, Any]:
    """The options that a class of settings has too, by the same names; those that are None are left out."""
    values = {name: getattr(options, name, None) for name in kind.__annotations__}
    return {name: value for name, value in values.items() if value is not None}
