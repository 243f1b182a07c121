"""Libraries that the ``[data]`` extra brings, imported only where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from feducb.errors import MissingExtraError

__all__ = ["need"]


def need(module: str, what_for: str) -> Any:
    """Import a module of the ``[data]`` extra, or say how to get it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        message = f"{what_for} needs {package}; it comes with the data extra: pip install 'feducb[data]'"
        raise MissingExtraError(message) from None
