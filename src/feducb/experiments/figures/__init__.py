"""All figures, one module each, with its `FIGURE`."""

from __future__ import annotations

from importlib import import_module

from feducb.errors import ConfigurationError
from feducb.experiments.base import Figure

__all__ = ["NAMES", "figure"]

NAMES: dict[str, str] = {
    "adversaries": "adversaries",
    "prior": "prior",
}
"""Name → module in this package."""


def figure(name: str) -> Figure:
    """A figure by its name."""
    if name not in NAMES:
        raise ConfigurationError("figure", name, f"one of {', '.join(NAMES)}")
    found: Figure = import_module(f"feducb.experiments.figures.{NAMES[name]}").FIGURE
    return found
