"""What agents export, as a source of a comparison: JSON lines, one file per agent, streamed and never held.

Every line holds the vectors of all its candidates, as many as there were that time. Nothing is scaled: the
bounds are those that the agents promised, and rewards are less the centre that they promised, so that what is
learnt here is what they would have learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from feducb.config import Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.evaluation.lines import ENDING, Decided, Lines
from feducb.evaluation.sources import Facts, Progress, Rows, silent
from feducb.system import counted
from feducb.worlds.features import Recipe
from feducb.worlds.features.encoder import Encoder

__all__ = ["Exports", "open_exports"]

_ROWS_AT_ONCE = 20_000
_BLOCK = 2**21  # numbers in the vectors of decisions held at once
_TELL = 1000  # decisions between two words about progress
_NAMED = 3  # files that are named in a title


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports after their first reading; made by `open_exports`."""

    paths: tuple[Path, ...]
    facts: Facts
    rows_at_once: int = _ROWS_AT_ONCE  # how many decisions are held at most
    recipe: Recipe | None = None  # by which vectors are made anew, if they are

    def blocks(self) -> Iterator[Rows]:
        """The decisions once more; a block holds those with one number of candidates, so none is padded."""
        problem, shift = self.facts.problem, self.facts.shift
        bounds = {name: getattr(problem, name) for name in ("action_bound", "reward_bound")}
        bounds["reward_centre"] = shift
        agents = {name: index for index, name in enumerate(self.facts.agents)}
        held: dict[int, list[tuple[int, Decided]]] = {}
        done = rows = numbers = 0
        for done, one in enumerate(Lines(self.paths, bounds, _encoder(self.recipe)), start=1):
            if one.agent not in agents or done > self.facts.rows:
                raise ConfigurationError("exports", *_CHANGED)
            held.setdefault(len(one.candidates), []).append((done, one))
            rows, numbers = rows + 1, numbers + one.candidates.size
            if rows == self.rows_at_once or numbers >= _BLOCK:
                yield from _rows(held, agents, shift)
                held, rows, numbers = {}, 0, 0
        if done != self.facts.rows:
            raise ConfigurationError("exports", *_CHANGED)
        yield from _rows(held, agents, shift)


def open_exports(
    paths: Sequence[str | Path],
    *,
    action_bound: float | None = None,
    reward_range: tuple[float, float] | None = None,
    recipe: Recipe | None = None,
    rows_at_once: int = _ROWS_AT_ONCE,
    progress: Progress = silent,
) -> Exports:
    """Read exports once: every line is checked, and what cannot be used is counted.

    Args:
        paths: files that `feducb agent export` wrote, one per agent; several of one agent in their order.
        action_bound: L, no candidate is longer; if not given, what the exports say, or 1.
        reward_range: rewards are from c − B to c + B; if not given, what the exports say, or −1 to 1.
        recipe: makes vectors anew from the context and actions that the lines have in words.
        rows_at_once: how many decisions are held at most.
        progress: hears how many decisions were read.

    Raises:
        ConfigurationError: a line cannot be; the message names file and line. Or none is of use.
    """
    require_integer("rows_at_once", rows_at_once, at_least=1)
    files = tuple(Path(path) for path in paths)
    for path in files:
        if path.suffix != ENDING:
            raise ConfigurationError("export", str(path), f"a file that ends in {ENDING}")
        if not path.is_file():
            raise ConfigurationError("export", str(path), "a file that exists")
    bounds = {} if action_bound is None else {"action_bound": action_bound}
    if reward_range is not None:
        low, high = reward_range
        bounds |= {"reward_bound": (high - low) / 2.0, "reward_centre": (low + high) / 2.0}
    lines = Lines(files, bounds, _encoder(recipe))
    agents: dict[str, None] = {}  # in the order of their first lines
    sizes: set[int] = set()  # how many candidates there were
    rows, least = 0, 1.0
    for one in lines:
        agents[one.agent] = None
        sizes.add(len(one.candidates))
        rows, least = rows + 1, min(least, one.propensity)
        if rows % _TELL == 0:
            progress("checking", _TELL)
    progress("checking", rows % _TELL)
    if not rows:
        read = counted(lines.read, "line")
        raise ConfigurationError("exports", f"{read}: {_reasons(lines)}" if lines.left_out else read, _NEEDED)
    if max(sizes) < 2:
        raise ConfigurationError("features", "of one candidate each", "two or more to choose from")
    assert lines.problem is not None
    problem = lines.problem
    names = ", ".join(path.name for path in files[:_NAMED])
    facts = Facts(
        name=names if len(files) <= _NAMED else f"{names} and {len(files) - _NAMED} more",
        rows=rows,
        agents=tuple(agents),
        actions=None,
        problem=replace(problem, reward_centre=0.0),  # of rewards that are shifted already
        reward_range=problem.reward_range,
        shift=problem.reward_centre,
        scale=1.0,
        least_propensity=least,
        notes=tuple(_notes(lines, problem)),
        settings={
            "candidates": [min(sizes), max(sizes)],
            "action_bound": problem.action_bound,
            "lines_left_out": dict(sorted(lines.left_out.items())),
            "default_rewards": lines.defaulted,
            **({} if recipe is None else {"recipe": recipe.fingerprint}),
        },
        recipe=recipe,
    )
    return Exports(files, facts, rows_at_once, recipe)


def _encoder(recipe: Recipe | None) -> Encoder | None:
    return None if recipe is None else Encoder(recipe)


_CHANGED = ("changed while they were read", "files that nobody writes to")
_NEEDED = (
    "decisions whose window has closed, with all candidates and a known chance: agents keep them with "
    "keep_events above 0, and judging what was not shown needs uniform_share above 0"
)


def _reasons(lines: Lines) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(lines.left_out.items()))


def _notes(lines: Lines, problem: Problem) -> Iterator[str]:
    if lines.left_out:
        out, of = lines.left_out.total(), counted(lines.read, "line")
        yield f"{out:,} of {of} {'is' if out == 1 else 'are'} left out: {_reasons(lines)}"
    if lines.defaulted:
        they = "it counts" if lines.defaulted == 1 else "they count"
        count = counted(lines.defaulted, "decision")
        yield f"no reward came for {count}: {they} with the agents' default reward"
    if lines.stated is None:
        low, high = problem.reward_range
        bounds = f"L = {problem.action_bound:g}, rewards from {low:g} to {high:g}"
        yield f"the exports do not say their public bounds: {bounds} are taken"
    by_vectors = "candidates of exports are compared by their vectors, names or not"
    yield f"{by_vectors}: there is no best single action to hold learners against"


def _rows(held: dict[int, list[tuple[int, Decided]]], agents: dict[str, int], shift: float) -> Iterator[Rows]:
    """Blocks, by the number of candidates."""
    for _, some in sorted(held.items()):
        rewards = np.array([one.reward for _, one in some])
        yield Rows(
            agents=np.array([agents[one.agent] for _, one in some], dtype=np.int64),
            actions=np.array([one.index for _, one in some], dtype=np.int64),
            rewards=rewards,
            scaled=rewards - shift,
            propensities=np.array([one.propensity for _, one in some]),
            keys=np.array([key for key, _ in some], dtype=np.uint64),
            candidates=np.stack([one.candidates for _, one in some]),
        )
