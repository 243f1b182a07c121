"""What `feducb agent init` writes: the lines of `agent.toml` that follow from its options."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feducb.agent import AgentSettings
from feducb.agent.agent_file import read_budgets
from feducb.cli.agent_options import NewAgent
from feducb.cli.agent_template import (
    BUDGET,
    KEEPERS,
    NO_ACTIONS,
    NO_BUDGET,
    NO_KEEPERS,
    NO_RECIPE,
    NUMBERS,
    POLICY,
    PRACTICAL_POLICY,
    RECIPE,
    ROOM,
    TEMPLATE,
)
from feducb.cli.recipe import parse_range
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.trust import Keepers, trust_with
from feducb.worlds.features import Recipe
from feducb.worlds.features.bounds import derive_bounds

__all__ = ["PRACTICAL", "agent_text", "budget_table", "now"]

HOLDOUT = 0.05
PRACTICAL: dict[str, Any] = {
    "policy": "optimistic",
    "exploration": 0.1,
}  # as `feducb evaluate` judges: practical play


def agent_text(new: NewAgent, settled: AgentSettings | None = None) -> str:
    """The configuration, with a word on each setting.

    Args:
        new: what was asked for.
        settled: what was read of it, so that the numbers of its plan are written down too.
    """
    of_all = {} if new.budgets is None else _read_budgets(new.budgets)
    own = of_all.get(new.name, Budget(epsilon=1.0, delta=1e-6))
    problem, bounds = _problem(new)
    low, high = bounds.reward_range
    trust, keepers = _trust(new)
    words = asdict(new) | {
        "budget": _budget(new, own),
        "start": _start(new),
        "schedule": _schedule(new, settled),
        "trust": json.dumps(trust),
        "keepers": keepers,
        "quorum": _line("quorum", new.quorum, "how many agents a sum needs at least; left out, all"),
        "play": json.dumps("own" if new.alone else new.play),
        "holdout": _holdout(new),
        "distance": _line(
            *("distance", None if new.distance is None else float(new.distance)),
            "under own play, the same at all agents: by how much they may differ, over S",
        ),
        "remember": new.remember if new.remember.isdigit() else json.dumps(new.remember),
        "discount": _line("discount", new.discount, "below 1: what was learnt counts so much less a season"),
        "drift": json.dumps(new.drift),
        "most_epsilon": _line(
            *("most_epsilon", new.most_epsilon),
            "the most that all seasons together may cost a person; left out: no limit",
        ),
        "policy": _policy(new),
        "contexts": json.dumps(new.contexts),
        "problem": problem,
        "default": min(max(0.0, low), high),
        "shadow": "true" if new.shadow else "false",
        "keep": json.dumps(new.keep_events or (new.season if new.shadow else "0s")),
    }
    return TEMPLATE.format(**words) + "".join(f"\n{budget_table(*one)}\n" for one in of_all.items())


def _policy(new: NewAgent) -> str:
    """The lines that say how the agent chooses."""
    exploration = new.exploration
    if exploration is None:
        described = new.recipe is not None or new.actions is not None
        exploration = PRACTICAL["exploration"] if described and new.play == "released" else 1.0
    return POLICY if exploration == 1.0 else PRACTICAL_POLICY.format(exploration=exploration)


def _holdout(new: NewAgent) -> float:
    """As given; else what costs no promise: after a close nothing leaves, before it something does."""
    if new.holdout is not None:
        return float(new.holdout)
    return HOLDOUT if new.play == "own" and not new.alone and not new.shadow else 0.0


def _budget(new: NewAgent, own: Budget) -> str:
    """Its lines."""
    if new.alone:
        return NO_BUDGET
    epsilon = own.epsilon if new.epsilon is None else new.epsilon
    return BUDGET.format(epsilon=epsilon, delta=own.delta if new.delta is None else new.delta)


def _problem(new: NewAgent) -> tuple[str, Problem]:
    """The lines of its table, and the bounds that they mean."""
    if new.recipe is None and new.actions is None:
        low, high = (-1.0, 1.0) if new.reward_range is None else parse_range(new.reward_range)
        bound, centre = (high - low) / 2.0, (low + high) / 2.0
        noise = 0.5 if new.reward_range is None else bound
        dim = 10 if new.dim is None else new.dim
        lines = NUMBERS.format(dim=dim, bound=bound, centre=centre, noise=noise)
        return lines, Problem(dim=dim, reward_bound=bound, reward_centre=centre)
    low, high = parse_range(new.reward_range or "0:1")
    recipe, said = _recipe(new)
    if new.dim not in (None, recipe.dim):
        whence = "--actions" if new.recipe is None else "--recipe"
        raise ConfigurationError(
            "--dim", new.dim, f"nothing beside {whence}, from which {recipe.dim} follows"
        )
    bounds = derive_bounds(recipe, (low, high)).problem
    return RECIPE.format(recipe=said, range=json.dumps([low, high]), **asdict(bounds)), bounds


def _recipe(new: NewAgent) -> tuple[Recipe, str]:
    """The recipe, and the line that names it."""
    if new.recipe is None:
        names = [part.strip() for part in str(new.actions).split(",") if part.strip()]
        return Recipe.of_actions(
            names
        ), f"actions = {json.dumps(names, ensure_ascii=False)}\n{ROOM}\n{NO_RECIPE}"
    if new.actions is not None:
        raise ConfigurationError("--actions", new.actions, "nothing beside --recipe, which has them")
    try:
        named = new.recipe.resolve().relative_to(new.path.resolve().parent)
    except ValueError:
        named = new.recipe.resolve()
    said = f"{f'recipe = {json.dumps(named.as_posix())}':30} # how visitors and actions become vectors"
    return Recipe.read(new.recipe), f"{said}\n{NO_ACTIONS}"


def _start(new: NewAgent) -> str:
    said = "common to all agents; one on its own may leave it out, and starts at once"
    if new.start is None:
        return f"# start = 2027-01-01T00:00:00Z # {said}"
    return f"start = {_instant(new.start)}   # {said}"


def _trust(new: NewAgent) -> tuple[str, str]:
    """Its name, and the lines of its numbers."""
    trust = trust_with(new.trust, away=new.away, colluding=new.colluding).among(new.agents)
    name = trust.name.partition(":")[0]
    if not isinstance(trust, Keepers):
        return name, NO_KEEPERS
    return name, KEEPERS.format(away=trust.away, colluding=trust.colluding)


def _schedule(new: NewAgent, settled: AgentSettings | None) -> str:
    """Its lines."""
    if new.alone and new.releases is None:
        return "# schedule, releases, first_release # of what leaves: nothing under trust self\n"
    name = new.schedule or ("planned" if new.releases is None else "geometric")
    lines, releases = [f'schedule = "{name}"'], new.releases
    if settled is not None:
        releases = settled.releases
    if name == "planned" and settled is not None:
        next_ones = "The next two" if settled.last_release is None else "The next three"
        lines = [
            f"{lines[0]:30} # few, once a sum of all agents is worth reading. {next_ones} follow from",
            "# agents, decisions, season, bounds and budgets: take them out to have them planned anew",
        ]
    lines += [] if releases is None else [f"releases = {releases}"]
    first = last = None
    if name == "planned" and settled is not None:
        first, last = settled.first_release, settled.last_release
    lines.append(_line("first_release", first, "seconds; left out, the schedule's own"))
    closes = "seconds, under own play: all close with it. Windows of what was planned are over then"
    lines.append(_line("last_release", last, closes))
    return "\n".join(lines) + "\n"


def now() -> str:
    """This moment, as TOML writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _line(name: str, value: object, said: str) -> str:
    """A setting's line; commented out where it is left at its default."""
    return f"{f'# {name}' if value is None else f'{name} = {value!r}':30} # {said}"


def _instant(text: str) -> str:
    """A moment, as TOML writes it."""
    expected = f"a time with its zone, such as {now()}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("--start", text, expected) from None
    if moment.tzinfo is None:
        raise ConfigurationError("--start", text, expected)
    return moment.isoformat()


def budget_table(name: str, budget: Budget) -> str:
    """An agent's own budget, as a configuration has it."""
    return f"[budgets.{name}]\nepsilon = {budget.epsilon!r}\ndelta = {budget.delta!r}"


def _read_budgets(path: Path) -> dict[str, Budget]:
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError("budgets", str(path), f"a TOML file: {error}") from None
    return read_budgets(plain.get("budgets", {}))
