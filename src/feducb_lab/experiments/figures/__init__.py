"""All figures, one module each, with its `FIGURE`."""

from __future__ import annotations

from importlib import import_module

from feducb.errors import ConfigurationError
from feducb_lab.experiments.experiment import Figure

__all__ = ["NAMES", "TABLES", "figure"]

NAMES: dict[str, str] = {
    "1a": "fig_1a",
    "1b": "fig_1b",
    "1c": "fig_1c",
    "gap": "gap",
    "decentralised": "decentralised",
    "federation": "paying",
    "mechanisms": "mechanisms",
    "worlds": "worlds",
    "adversaries": "adversaries",
    "prior": "prior",
    "expect": "expect",
    "own": "own",
}
"""Name → module in this package."""

TABLES = ("expect", "own")
"""Those that are tables of the documentation."""


def figure(name: str) -> Figure:
    """A figure by its name."""
    if name not in NAMES:
        raise ConfigurationError("figure", name, f"one of {', '.join(NAMES)}")
    chosen: Figure = import_module(f"feducb_lab.experiments.figures.{NAMES[name]}").FIGURE
    return chosen
