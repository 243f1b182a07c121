"""When agents release.

A *public* schedule is a list of rounds that no private datum can move. The paper's determinant trigger reads
raw local data: neighbouring streams then synchronise at different rounds with certainty, so ε = ∞. Every
schedule says which it is, and whoever deploys an agent refuses one that reads private data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, PrivateScheduleError

__all__ = [
    "DEFAULT_RELEASES",
    "Determinant",
    "EveryRound",
    "Explicit",
    "Geometric",
    "Periodic",
    "Planned",
    "PublicSchedule",
    "Schedule",
    "parse_schedule",
    "require_public",
]

DEFAULT_RELEASES = 64


class Schedule(Protocol):
    """Anything that says when to release."""

    @property
    def reads_private_data(self) -> bool:
        """Whether records can move a release."""
        ...


class PublicSchedule(Schedule, Protocol):
    """A schedule fixed in advance."""

    def rounds(self, horizon: int) -> tuple[int, ...]:
        """The release rounds in 1..horizon, rising; a release holds the records of its own round too."""
        ...


def require_public(schedule: Schedule) -> PublicSchedule:
    """Return the schedule if no private datum can move it, else raise `PrivateScheduleError`."""
    if schedule.reads_private_data:
        expected = "one that reads no private data (planned, geometric, periodic, every-round or explicit)"
        raise PrivateScheduleError("schedule", type(schedule).__name__.lower(), expected)
    return schedule  # type: ignore[return-value]  # the only private schedule is Determinant


def _require_room(releases: int, first: int, horizon: int) -> None:
    if first > horizon:
        raise ConfigurationError("first_release", first, f"at most the horizon, {horizon}")
    room = horizon - first + 1
    if releases > room:
        expected = f"at most {room}, the rounds from {first} to {horizon}"
        raise ConfigurationError("releases", releases, expected)


@dataclass(frozen=True, kw_only=True, slots=True)
class Geometric:
    """Rounds in geometric progression from ``first``; colliding rounds are merged.

    Attributes:
        first: the first release round.
        releases: how many, spread up to the horizon (64, or as many as fit).
        growth: instead of ``releases``: each round at least this factor after the last.
    """

    reads_private_data: ClassVar[bool] = False
    first: int = 8
    releases: int | None = None
    growth: float | None = None

    def __post_init__(self) -> None:
        require_integer("first_release", self.first, at_least=1)
        if self.releases is not None:
            require_integer("releases", self.releases, at_least=1)
            if self.growth is not None:
                raise ConfigurationError("growth", self.growth, "nothing, since releases is given too")
        if self.growth is not None:
            require_finite("growth", self.growth, above=1)

    def rounds(self, horizon: int) -> tuple[int, ...]:
        """From ``first`` to exactly the horizon, or by ``growth`` as far as it reaches."""
        _require_room(self.releases or 1, self.first, horizon)
        if self.growth is not None:
            rounds = [self.first]
            while (later := max(rounds[-1] + 1, math.ceil(rounds[-1] * self.growth))) <= horizon:
                rounds.append(later)
            return tuple(rounds)
        steps = (self.releases or min(DEFAULT_RELEASES, horizon - self.first + 1)) - 1
        if steps == 0:
            return (self.first,)
        ratio = horizon / self.first
        return tuple(sorted({round(self.first * ratio ** (k / steps)) for k in range(steps + 1)}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """Few releases, in geometric progression from the first round at which a sum is worth reading.

    Each release that is read costs all others noise, and one that is not read is wasted. How many there are
    follows from that round and the horizon: the last stands for a stretch as long, by its factor, as the
    others (`estimators.plan_rounds`).

    Attributes:
        growth: about how much later each release is than the one before.
    """

    reads_private_data: ClassVar[bool] = False
    growth: float = 1.4

    def __post_init__(self) -> None:
        require_finite("growth", self.growth, above=1)

    def releases(self, first: int, horizon: int) -> int:
        """How many."""
        return max(1, round(math.log(horizon / first) / math.log(self.growth)))

    def rounds(self, first: int, horizon: int) -> tuple[int, ...]:
        """From ``first`` on; colliding rounds are merged."""
        steps = self.releases(first, horizon)
        return tuple(sorted({round(first * (horizon / first) ** (k / steps)) for k in range(steps)}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Periodic:
    """Every ``every`` rounds, or ``releases`` times evenly up to the horizon."""

    reads_private_data: ClassVar[bool] = False
    every: int | None = None
    releases: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None:
            require_integer("every", self.every, at_least=1)
        if self.releases is not None:
            require_integer("releases", self.releases, at_least=1)
        if self.every is not None and self.releases is not None:
            raise ConfigurationError("releases", self.releases, "nothing, since a period is given too")

    def rounds(self, horizon: int) -> tuple[int, ...]:
        """Multiples of the period."""
        if self.every is not None:
            if self.every > horizon:
                raise ConfigurationError("every", self.every, f"at most the horizon, {horizon}")
            return tuple(range(self.every, horizon + 1, self.every))
        count = self.releases or min(DEFAULT_RELEASES, horizon)
        _require_room(count, 1, horizon)
        return tuple(round(k * horizon / count) for k in range(1, count + 1))


@dataclass(frozen=True, slots=True)
class EveryRound:
    """A release after each round: the paper's O(MT) communication."""

    reads_private_data: ClassVar[bool] = False

    def rounds(self, horizon: int) -> tuple[int, ...]:
        """All from 1 to the horizon."""
        return tuple(range(1, horizon + 1))


@dataclass(frozen=True, slots=True)
class Explicit:
    """The given rounds, which must rise."""

    reads_private_data: ClassVar[bool] = False
    at: Sequence[int]

    def __post_init__(self) -> None:
        if not self.at:
            raise ConfigurationError("schedule", "explicit", "at least one round")
        for earlier, later in zip((0, *self.at), self.at, strict=False):
            require_integer("schedule round", later, at_least=1)
            if later <= earlier:
                raise ConfigurationError("schedule round", later, f"a round after {earlier} (rising)")

    def rounds(self, horizon: int) -> tuple[int, ...]:
        """As given; all must lie within the horizon."""
        if self.at[-1] > horizon:
            raise ConfigurationError("schedule round", self.at[-1], f"at most the horizon, {horizon}")
        return tuple(self.at)


@dataclass(frozen=True, slots=True)
class Determinant:
    """The paper's trigger (Alg. 1, l. 12): synchronise once log det has grown by D/(Δt + 1).

    Attributes:
        threshold: D; the one of Theorem 1 if not given.
    """

    reads_private_data: ClassVar[bool] = True
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None:
            require_finite("threshold", self.threshold, above=0)


def parse_schedule(
    text: str, *, releases: int | None = None, first_release: int | None = None
) -> PublicSchedule | Planned | Determinant:
    """Read a schedule as the command line writes it.

    Args:
        text: ``planned[:GROWTH]``, ``geometric[:GROWTH]``, ``periodic[:EVERY]``, ``every-round``,
            ``explicit:ROUND,ROUND,…`` or ``determinant[:D]``.
        releases: how many, for a geometric or periodic schedule.
        first_release: first round of a geometric schedule (8).
    """
    name, _, argument = text.partition(":")
    takes_count = name in ("geometric", "periodic") and not argument
    if releases is not None and not takes_count:
        expected = f"nothing: the schedule {text!r} fixes its own releases"
        raise ConfigurationError("releases", releases, expected)
    if first_release is not None and name != "geometric":
        raise ConfigurationError(
            "first_release", first_release, "nothing: only a geometric schedule takes it"
        )
    try:
        if name == "planned":
            return Planned(growth=float(argument)) if argument else Planned()
        if name == "geometric":
            growth = float(argument) if argument else None
            first = 8 if first_release is None else first_release
            return Geometric(first=first, releases=releases, growth=growth)
        if name == "periodic":
            return Periodic(every=int(argument) if argument else None, releases=releases)
        if name == "explicit":
            return Explicit(tuple(int(part) for part in argument.split(",") if part))
        if name == "every-round" and not argument:
            return EveryRound()
        if name == "determinant":
            return Determinant(float(argument) if argument else None)
    except ConfigurationError:
        raise
    except ValueError:
        pass
    expected = (
        "planned[:GROWTH], geometric[:GROWTH], periodic[:EVERY], every-round, explicit:ROUND,ROUND,… or "
        "determinant[:D]"
    )
    raise ConfigurationError("schedule", text, expected)
