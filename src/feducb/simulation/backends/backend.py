"""What the runner asks of a backend, and a backend of its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import OwnDataPlay
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.plan import Plan
from feducb.simulation.reference import BlockResult
from feducb.types import Belief

__all__ = ["Backend", "Ints", "Kernels", "OwnDataSettings", "OwnPlay", "Stretch", "Sums"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Backend(Protocol):
    """Something that plays plans."""

    @property
    def name(self) -> str:
        """What ``--backend`` and results call it."""
        ...

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan cannot be played here; None if it can."""
        ...

    def play(
        self, plan: Plan, *, threads: int, progress: Callable[[int], None], checkpoint: Checkpoint | None
    ) -> list[BlockResult]:
        """All runs of each team, in the plan's order.

        Args:
            plan: what to play.
            threads: worker threads; the result does not depend on them.
            progress: told how many agent-steps were just done, from any thread.
            checkpoint: where to keep what is done, and to go on from.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sums:
    """What some rounds came to, for each agent (runs, agents) or summed over agents (runs,).

    Attributes:
        gram: (..., d, d), Σ x xᵀ of the chosen actions.
        moment: (..., d), Σ y x.
        squares: (...), Σ y².
        regret: (..., points), in the rounds up to each point and after the one before.
        drawn: (...), in how many rounds all candidates were drawn.
        trace: (..., rounds, 3 + d), index, mean, reward and action of each choice, if asked for.
    """

    gram: Array
    moment: Array
    squares: Array
    regret: Array
    drawn: Ints
    trace: Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Which agents of which runs play, and from when on.

    Attributes:
        runs: their numbers.
        agents: how many in each run.
        first_round: as kernels count.
        points: the rounds that end the intervals of the regret curve, rising.
    """

    runs: range
    agents: int
    first_round: int
    points: Sequence[int]


class OwnDataSettings(NamedTuple):
    """How agents play on their own data, as numbers for kernels.

    Widths are β = σ√max(A + log det V, 0) + constant, and b.

    Attributes:
        noise_scale: σ.
        logarithm: A = 2 ln(2Mn/α) − d ln Σρ_min.
        constant: added to the root: S Σ√ρ_max + Σκ.
        euclidean: b, which the paper's bound does not have: 0.
        exploration: scales both widths.
        threshold: D; an agent asks when log det(V + offset I) − log det S ≥ D/Δt, Δt counting this round.
            Infinite without a trigger.
        offset: M(ρ_max − ρ_min), what the trigger's matrix has more than V on its diagonal.
    """

    noise_scale: float
    logarithm: float
    constant: float
    euclidean: float
    exploration: float = 1.0
    threshold: float = math.inf
    offset: float = 0.0

    @property
    def watched(self) -> bool:
        """Whether there is a trigger."""
        return self.threshold < math.inf

    @classmethod
    def of(cls, rule: OwnDataPlay, *, exploration: float = 1.0) -> OwnDataSettings:
        """Those of a rule: its bound's width (`PaperBound.radius`), its trigger."""
        bound, problem, trigger = rule.bound, rule.bound.problem, rule.trigger
        union = 2.0 * math.log(2.0 * bound.agents * bound.releases / bound.alpha)
        logarithm = union - problem.dim * math.log(bound.rho_min)
        constant = problem.parameter_bound * bound.root_rho_max + bound.kappa
        widths = problem.noise_scale, logarithm, constant, 0.0
        asks = (math.inf, 0.0) if trigger is None else (trigger.threshold, trigger.offset)
        return cls(*widths, exploration, *asks)


class OwnPlay(Protocol):
    """Runs in which every agent acts on the last released sum plus its own records."""

    def advance(self, rounds: Ints) -> Ints:
        """Play on by (runs,) rounds, or to the end of the round in which an agent asks to synchronise.

        Returns:
            The positions of the runs in which one did.
        """
        ...

    @property
    def next_round(self) -> Ints:
        """(runs,), the number of the round that each run plays next."""
        ...

    @property
    def regret(self) -> Array:
        """(runs, points), summed over agents, since the start."""
        ...

    def pending(self, places: Ints) -> tuple[Array, Array]:
        """Records since the last synchronisation, summed over agents: Gram (n, d, d) and moment (n, d)."""
        ...

    def restart(self, places: Ints, gram: Array, moment: Array) -> None:
        """After a synchronisation: S is replaced, U ← 0."""
        ...

    def dump(self) -> object:
        """The state, to be pickled."""
        ...

    def load(self, state: object) -> None:
        """Go on from a state."""
        ...


class Kernels(Protocol):
    """Compiled play in the frame where θ* = ‖θ*‖ e₁: laws do not change under rotations.

    Random numbers are functions of (seed, run, agent, round) alone, so calls may be cut anywhere.
    """

    @property
    def work_at_once(self) -> float:
        """Agent-steps × K × d of one call that take a few seconds."""
        ...

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        """Rounds in which nobody learns; ``belief`` has the leading axis (runs,), None draws uniformly."""
        ...

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        """Agents that take their own records in at once."""
        ...
