"""What may stand in `agent.toml`: sections, their keys, and the types of their values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from feducb.errors import ConfigurationError

__all__ = ["SECTIONS", "TIME", "require_known"]

# Section → key → types that may stand there
_INT, _NUMBER, _TEXT = (int,), (int, float), (str,)
TIME, _MOMENT = (int, float, str), (datetime,)
SECTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "agent": {"name": _TEXT, "store": _TEXT},
    "problem": {
        "dim": _INT,
        **dict.fromkeys(("action_bound", "parameter_bound", "noise_scale"), _NUMBER),
        **dict.fromkeys(("reward_bound", "reward_centre"), _NUMBER),
        **{"recipe": _TEXT, "reserve": _INT},
        **dict.fromkeys(("actions", "added", "retired", "reward_range"), (list,)),
    },
    "privacy": {
        **dict.fromkeys(("epsilon", "delta"), _NUMBER),
        **dict.fromkeys(("records_per_person", "agents_per_person", "spacing"), _INT),
        **dict.fromkeys(("away", "colluding"), _INT),
        **dict.fromkeys(("trust", "mechanism", "contexts"), _TEXT),
    },
    "federation": {
        **dict.fromkeys(("agents", "decisions", "history", "groups", "quorum"), _INT),
        "alpha": _NUMBER,
    },
    "releases": {
        **dict.fromkeys(("season", "first_release", "last_release"), TIME),
        **{"releases": _INT, "schedule": _TEXT, "start": _MOMENT},
    },
    "decisions": {
        **dict.fromkeys(("exploration", "uniform_share", "holdout", "distance"), _NUMBER),
        **{"play": _TEXT, "policy": _TEXT, "shadow": (bool,), "follow_policy": _TEXT},
    },
    "rewards": {"window": TIME, "default_reward": _NUMBER},
    "seasons": {
        **{"remember": (int, str), "discount": _NUMBER, "drift": TIME, "first_season": _INT},
        **dict.fromkeys(("most_epsilon", "most_delta"), _NUMBER),
    },
    "retention": {"keep_events": TIME},
    "service": {
        **{"host": _TEXT, "port": _INT},
        **dict.fromkeys(("keys", "certificate", "private_key", "client_ca"), _TEXT),
        "largest_body": _INT,
    },
}


def require_known(plain: dict[str, Any]) -> None:
    """Raise at the first section, key or type that may not stand there."""
    for section, table in plain.items():
        if section not in SECTIONS:
            known = ", ".join((*SECTIONS, "recipe", "budgets", "engine", "keeper"))
            raise ConfigurationError(section, "a section", f"one of {known}")
        if not isinstance(table, dict):
            raise ConfigurationError(section, table, "a section")
        for key, value in table.items():
            if key not in SECTIONS[section]:
                known = ", ".join(SECTIONS[section])
                raise ConfigurationError(f"{section}.{key}", value, f"one of {known}")
            kinds = SECTIONS[section][key]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigurationError(f"{section}.{key}", value, f"of type {names}")
