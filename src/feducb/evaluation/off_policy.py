"""Off-policy estimators of one policy, on arrays or on a plain data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from feducb.errors import ConfigurationError
from feducb.evaluation.weighted_sums import PolicyValue, Tally
from feducb.system import counted
from feducb.worlds.features.coded import require_column

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["effective_sample_size", "evaluate_arrays", "evaluate_frame", "overlap_warnings", "weights_off"]

_FEW = 100.0  # effective records below which a normal interval is not to be trusted
_SMALL_SHARE = 0.1
_HEAVY = 0.1  # of all weight on one record
_SURE = 4.0  # standard errors: false alarm 1 in 16,000


def effective_sample_size(weights: ArrayLike) -> float:
    """(Σw)²/Σw²; 0 if no record has weight."""
    given = np.asarray(weights, dtype=np.float64)
    squares = float((given**2).sum())
    return float(given.sum() ** 2) / squares if squares > 0 else 0.0


def evaluate_arrays(
    rewards: ArrayLike,
    propensities: ArrayLike,
    targets: ArrayLike,
    *,
    expected: ArrayLike | None = None,
    fitted: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> PolicyValue:
    """What a log says of one policy.

    Args:
        rewards: (n,), of the logged actions.
        propensities: (n,), the probability with which each was taken, in (0, 1].
        targets: (n,), the probability with which the policy would have taken it, in [0, 1].
        expected: (n,), Σ_a π(a) q(a), what a model of rewards, fitted on other records, expects of it.
        fitted: (n,), q: what it expects of the logged action. Both or neither; without them DR is IPS.
        level: of the intervals.
        seed: of replay's coins.

    Raises:
        ConfigurationError: a value cannot be; the message names the row, counted from 1.
    """
    reward = require_column("reward", rewards)
    propensity = require_column("propensity", propensities, low=0.0, high=1.0, above=True)
    target = require_column("target", targets, low=0.0, high=1.0)
    if (expected is None) != (fitted is None):
        raise ConfigurationError("expected", expected, "given together with fitted, or neither")
    given = {"expected": expected, "fitted": fitted}
    model = {name: require_column(name, column) for name, column in given.items() if column is not None}
    for name, column in {"propensity": propensity, "target": target, **model}.items():
        if column.shape != reward.shape:
            raise ConfigurationError(name, f"of shape {column.shape}", f"{reward.shape}, as the rewards")
    robust, weights = None, target / propensity
    if model:
        robust = (model["expected"] + weights * (reward - model["fitted"]))[:, None]
    coins = np.random.default_rng(seed).random(len(reward))
    largest = 1.0 / propensity.min(initial=1.0)
    tally = Tally(1, level=level)
    tally.add(reward, weights[:, None], doubly_robust=robust, accepted=(coins < weights / largest)[:, None])
    return tally.value(0)


class FrameColumns(TypedDict):
    """Columns of a data frame, each for the array of `evaluate_arrays` that it holds."""

    reward: str
    propensity: str
    target: str
    expected: NotRequired[str | None]
    fitted: NotRequired[str | None]


_ARRAYS = {"reward": "rewards", "propensity": "propensities", "target": "targets"}


def evaluate_frame(
    frame: pd.DataFrame, *, level: float = 0.95, seed: int = 0, **columns: Unpack[FrameColumns]
) -> PolicyValue:
    """What a log in a data frame says of one policy: `evaluate_arrays` of its columns, by their names.

    Args:
        frame: one row per record, counted from 1 in errors.
        level: of the intervals.
        seed: of replay's coins.
        columns: ``reward``, ``propensity`` and ``target``; with a model ``expected`` and ``fitted`` as well.
    """
    wanted: dict[str, Any] = {name: column for name, column in columns.items() if column is not None}
    missing = sorted(set(wanted.values()) - set(frame.columns))
    if missing:
        among = ", ".join(str(name) for name in frame.columns)
        raise ConfigurationError("column", missing[0], f"one of {among}")
    arrays = {_ARRAYS.get(name, name): frame[column].to_numpy() for name, column in wanted.items()}
    return evaluate_arrays(**arrays, level=level, seed=seed)


def weights_off(value: PolicyValue) -> bool:
    """Whether weights do not average 1 beyond chance (1 in 16,000): then no estimate is to be believed."""
    return abs(value.mean_weight.value - 1.0) > _SURE * value.mean_weight.stderr + 1e-9


def overlap_warnings(values: Mapping[str, PolicyValue]) -> list[str]:
    """Why not to believe the estimates for some policies, by their names: who is concerned, by reason."""
    concerned: dict[str, list[str]] = {}
    for name, value in values.items():
        for reason, size in _doubts(value):
            concerned.setdefault(reason, []).append(f"{name} {size}".strip())
    return [f"{reason}: {', '.join(names)}" for reason, names in concerned.items()]


def _doubts(value: PolicyValue) -> Iterator[tuple[str, str]]:
    """Reasons, each in words that are the same for all policies, and how bad it is for this one."""
    n, records = value.records, counted(value.records, "record")
    if value.effective == 0.0:
        yield "the log never does what a policy would do, so nothing can be said of it", ""
        return
    if value.effective < _FEW or value.effective < _SMALL_SHARE * n:
        yield (
            f"{records} {'is' if n == 1 else 'are'} worth few of a policy's own (little overlap, "
            "intervals are optimistic)",
            f"{value.effective:,.0f} ({100 * value.effective / n:.1f} %)",
        )
    if n > 1 and value.largest_weight > _HEAVY * n * value.mean_weight.value:
        share = value.largest_weight / (n * value.mean_weight.value)
        yield "one record carries much of all weight", f"{100 * share:.0f} %"
    if weights_off(value):
        yield (
            "weights do not average 1 where 1 is expected (the propensities are not those that drew the "
            "actions, or actions that a policy wants were never tried)",
            f"{value.mean_weight.value:.3f}",
        )
