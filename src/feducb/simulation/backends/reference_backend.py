"""The readable reference as a backend: anything that can be planned."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from feducb.errors import ConfigurationError
from feducb.simulation.checkpoint import Checkpoint, Piece
from feducb.simulation.plan import Plan, Team
from feducb.simulation.reference import BlockResult, Observer, run_block
from feducb.system import single_threaded_blas

__all__ = ["ReferenceBackend"]

_AGENTS_AT_ONCE = 32  # enough agents in one numpy call to hide its overhead; never a matter of threads


class ReferenceBackend:
    """`reference.run_block`, blocks of runs of each team spread over threads.

    Attributes:
        observer: shown every step; then one thread is used.
    """

    name = "reference"

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer

    def refusal(self, plan: Plan) -> str | None:
        """None: the reference plays every plan."""
        return None

    def play(
        self, plan: Plan, *, threads: int, progress: Callable[[int], None], checkpoint: Checkpoint | None
    ) -> list[BlockResult]:
        """All runs of each team."""
        if checkpoint is not None:
            _require_kept(plan)
        blocks = [
            (number, team, block) for number, team in enumerate(plan.teams) for block in _blocks(plan, team)
        ]

        def work(block: tuple[int, Team, range]) -> BlockResult:
            number, team, runs = block
            piece = Piece(checkpoint, f"team-{number}-runs-{runs.start}")
            return run_block(plan, runs, team=team, progress=progress, observer=self.observer, piece=piece)

        with single_threaded_blas():
            if self.observer is not None or threads == 1 or len(blocks) == 1:
                results = [work(block) for block in blocks]
            else:
                with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
                    results = list(pool.map(work, blocks))
        in_order = iter(results)
        return [_join([next(in_order) for _ in _blocks(plan, team)]) for team in plan.teams]


def _require_kept(plan: Plan) -> None:
    """An environment of one's own may hold anything; say at once if it cannot be written down."""
    try:
        pickle.dumps(plan.environment)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        expected = f"an environment that can be kept, with functions of a module, not lambdas ({error})"
        raise ConfigurationError("checkpoint", type(plan.environment).__name__, expected) from None


def _blocks(plan: Plan, team: Team) -> list[range]:
    size = 1 if plan.runs_differ else max(1, _AGENTS_AT_ONCE // len(team.agents))
    return [range(first, min(first + size, plan.runs)) for first in range(0, plan.runs, size)]


def _join(blocks: list[BlockResult]) -> BlockResult:
    """All runs of a team."""
    return BlockResult(
        np.concatenate([block.regret for block in blocks]),
        tuple(rounds for block in blocks for rounds in block.release_rounds),
        tuple(asker for block in blocks for asker in block.requests),
    )
