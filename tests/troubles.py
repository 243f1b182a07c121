"""What is wrong, by kind, out of anything that says how an agent, a controller or a keeper stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["troubles"]


def troubles(told: Mapping[str, Any]) -> dict[str, str]:
    """Kinds and sentences."""
    return {one["kind"]: one["says"] for one in told["trouble"]}
