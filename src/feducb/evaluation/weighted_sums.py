"""Off-policy estimators as sums over a log, so that a log of any length takes the same memory.

A log holds rewards r of actions that were drawn with known probabilities p. A target policy would have drawn
the logged action with probability π, so w = π/p weighs the record:

    IPS     Σ w r / n                        unbiased
    SNIPS   Σ w r / Σ w                      a little bias, less variance, never leaves the range of rewards
    DR      Σ (Σ_a π(a) q(a) + w (r − q)) / n   unbiased whatever the model q is, if it was fitted elsewhere
    replay  mean of r over accepted records  a record is accepted with probability w/w_max: unbiased, wasteful

Intervals are normal ones, from the spread over records, or Student's from the spread over agents, where
records of one agent are alike.
Where a policy is one of several draws (folds, noise), the spread over draws widens those of DR, and so does
what was learnt if it depends on which records it was learnt from (`crossfit.instability`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from feducb.config import require_probability
from feducb.errors import ConfigurationError
from feducb.types import Array, Indices

__all__ = ["Estimate", "PolicyValue", "Tally"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and how sure it is: NaN where there was nothing to estimate from, or to tell an error by."""

    value: float
    stderr: float
    level: float = 0.95  # of the interval
    freedom: int | None = None  # degrees of freedom of the standard error; None: as many as not to matter

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return self.margin_at(self.level)

    def margin_at(self, level: float) -> float:
        """Half an interval at another level."""
        share = 0.5 + level / 2.0
        quantile = ndtri(share) if self.freedom is None else stdtrit(self.freedom, share)
        return float(quantile) * self.stderr

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.margin

    def text(self, *, sign: str = "", digits: int = 4) -> str:
        """The value ± half the interval; ``sign`` is + where a sign is always wanted."""
        return f"{self.value:{sign}.{digits}f} ± {self.margin:.{digits}f}"

    def as_dict(self) -> dict[str, float | None]:
        """As plain data; what is not a number is None."""
        parts = {"value": self.value, "stderr": self.stderr, "low": self.low, "high": self.high}
        return {name: number if math.isfinite(number) else None for name, number in parts.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyValue:
    """What a log says of one policy."""

    ips: Estimate  # inverse propensity score
    snips: Estimate  # the same, self-normalised
    doubly_robust: Estimate  # with a model of rewards; without one it is IPS
    replay: Estimate  # over accepted records only
    records: int  # n
    accepted: int  # how many records replay accepted
    effective: float  # (Σw)²/Σw², records of the policy's own that would be as good
    mean_weight: Estimate  # must be about 1 if the propensities are right
    largest_weight: float  # how much the heaviest record counts


class Tally:
    """Sums for several policies on one log, a chunk at a time.

    Args:
        policies: how many.
        clusters: how many agents, if intervals are to come from the spread over them.
        draws: how many draws of each policy there are, if their spread is to count too.
        level: of the intervals.
    """

    def __init__(
        self, policies: int, *, clusters: int | None = None, draws: int = 1, level: float = 0.95
    ) -> None:
        self.level = require_probability("level", level)
        self.policies, self.records = policies, 0
        groups, self._clusters = clusters or 0, clusters
        self._w, self._ww, self._wr, self._wwr, self._wrwr = (np.zeros(policies) for _ in range(5))
        self._largest = np.zeros(policies)
        self._mean = np.zeros(policies)
        self._scatter, self._unstable = (np.zeros((policies, policies)) for _ in range(2))
        self._kept, self._kept_mean, self._kept_scatter = (np.zeros(policies) for _ in range(3))
        # weights, weighted rewards, doubly robust, accepted, their rewards
        self._by_agent = np.zeros((5, groups, policies))
        self._of_agent = np.zeros(groups)
        self._draws = np.zeros((draws, policies))

    def add(
        self,
        rewards: Array,
        weights: Array,
        *,
        doubly_robust: Array | None = None,
        accepted: NDArray[np.bool_] | None = None,
        agents: Indices | None = None,
        draws: Array | None = None,
        unstable: Array | None = None,
    ) -> None:
        """Take in n records.

        Args:
            rewards: (n,).
            weights: (n, P), π/p of the logged action under each policy.
            doubly_robust: (n, P), Σ_a π q + w (r − q); w r if not given.
            accepted: (n, P), which records replay accepts; none if not given.
            agents: (n,), by number, if intervals come from the spread over agents.
            draws: (D, P), sums of what the n records say of each draw, doubly robust.
            unstable: (P, P), to add to the scatter of ``doubly_robust``, where policies were learnt from
                other records of the same log.
        """
        if not len(rewards):
            return
        weighted = weights * rewards[:, None]
        robust = weighted if doubly_robust is None else doubly_robust
        self._w += weights.sum(axis=0)
        self._ww += (weights**2).sum(axis=0)
        self._wr += weighted.sum(axis=0)
        self._wwr += (weights * weighted).sum(axis=0)
        self._wrwr += (weighted**2).sum(axis=0)
        self._largest = np.maximum(self._largest, weights.max(axis=0))
        self._add_robust(robust)
        if accepted is not None:
            self._add_accepted(rewards, accepted)
        if self._clusters is not None:
            if agents is None:
                raise ConfigurationError("agents", None, "the agent of each record")
            self._of_agent += np.bincount(agents, minlength=self._clusters)
            kept = np.zeros_like(weights) if accepted is None else accepted.astype(np.float64)
            parts = (weights, weighted, robust, kept, kept * rewards[:, None])
            for sums, part in zip(self._by_agent, parts, strict=True):
                np.add.at(sums, agents, part)
        if draws is not None:
            self._draws += draws
        if unstable is not None:
            self._unstable += unstable
        self.records += len(rewards)

    def _add_robust(self, robust: Array) -> None:
        """Mean and scatter, merged so that a long log loses no digits."""
        count, mean = len(robust), robust.mean(axis=0)
        centred, shift, total = robust - mean, mean - self._mean, self.records + count
        self._scatter += centred.T @ centred + np.outer(shift, shift) * (self.records * count / total)
        self._mean += shift * (count / total)

    def _add_accepted(self, rewards: Array, accepted: NDArray[np.bool_]) -> None:
        count = accepted.sum(axis=0).astype(np.float64)
        mean = (accepted * rewards[:, None]).sum(axis=0) / np.maximum(count, 1.0)
        scatter = (accepted * (rewards[:, None] - mean) ** 2).sum(axis=0)
        total = np.maximum(self._kept + count, 1.0)
        shift = np.where(count > 0, mean - self._kept_mean, 0.0)
        self._kept_scatter += scatter + shift**2 * (self._kept * count / total)
        self._kept_mean += shift * count / total
        self._kept += count

    def value(self, policy: int) -> PolicyValue:
        """What the log says of one policy."""
        n, w, ww, wr = self.records, self._w[policy], self._ww[policy], self._wr[policy]
        ips, mean_weight = wr / n if n else math.nan, w / n if n else math.nan
        snips = wr / w if w > 0 else math.nan
        scatter = self._wrwr[policy] - n * ips**2
        residual = self._wrwr[policy] - 2 * snips * self._wwr[policy] + snips**2 * ww
        kept = int(self._kept[policy])
        replay = self._kept_mean[policy] if kept else math.nan
        return PolicyValue(
            ips=self._estimate(ips, self._error(scatter, self._by_agent[1][:, policy], ips)),
            snips=self._estimate(snips, self._ratio_error(policy, snips, residual)),
            doubly_robust=self.difference(policy, None),
            replay=self._estimate(replay, self._replay_error(policy, kept)),
            records=n,
            accepted=kept,
            effective=float(w**2 / ww) if ww > 0 else 0.0,
            mean_weight=self._estimate(mean_weight, self._over_records(ww - n * mean_weight**2)),
            largest_weight=float(self._largest[policy]),
        )

    def difference(self, policy: int, other: int | None) -> Estimate:
        """Doubly robust value of a policy, less that of another on the same records if one is given."""
        if self.records == 0:
            return self._estimate(math.nan, math.nan)
        contrast = np.zeros(len(self._mean))
        contrast[policy] += 1.0
        if other is not None:
            contrast[other] -= 1.0
        value = float(contrast @ self._mean)
        scatter = float(contrast @ self._scatter @ contrast)
        error = self._error(scatter, self._by_agent[2] @ contrast, value)
        unstable = self._over_records(float(contrast @ self._unstable @ contrast))
        return self._estimate(value, math.hypot(error, unstable, self._over_draws(contrast)))

    def _error(self, scatter: float, sums: Array, value: float) -> float:
        """Of a mean, from its scatter over records, or from the sums of the agents."""
        if self._clusters is None:
            return self._over_records(scatter)
        return self._spread(sums - self._of_agent * value) / self.records

    def _replay_error(self, policy: int, kept: int) -> float:
        if kept < 2:
            return math.nan
        if self._clusters is None:
            return _root(self._kept_scatter[policy] / (kept - 1) / kept)
        sums = self._by_agent[4][:, policy] - self._kept_mean[policy] * self._by_agent[3][:, policy]
        return self._spread(sums) / kept

    def _ratio_error(self, policy: int, ratio: float, residual: float) -> float:
        """Of Σwr/Σw, linearised: Σ w²(r − v)² / (Σw)²."""
        total = self._w[policy]
        if self.records < 2 or total <= 0:
            return math.nan
        if self._clusters is not None:
            sums = self._by_agent[1][:, policy] - ratio * self._by_agent[0][:, policy]
            return self._spread(sums) / float(total)
        small = self.records / (self.records - 1)
        return _root(residual * small / total**2)

    def _over_records(self, scatter: float) -> float:
        n = self.records
        return _root(scatter / (n - 1) / n) if n > 1 else math.nan

    def _over_draws(self, contrast: Array) -> float:
        if len(self._draws) < 2:
            return 0.0
        means = self._draws @ contrast / self.records
        return float(means.std(ddof=1)) / math.sqrt(len(means))

    def _spread(self, sums: Array) -> float:
        """Standard deviation of a total, from what each agent adds to it."""
        groups = int(np.count_nonzero(self._of_agent))
        return _root(float((sums**2).sum()) * groups / (groups - 1)) if groups > 1 else math.nan

    def _estimate(self, value: float, stderr: float) -> Estimate:
        freedom = None if self._clusters is None else max(1, int(np.count_nonzero(self._of_agent)) - 1)
        return Estimate(float(value), float(stderr), self.level, freedom)


def _root(value: float) -> float:
    return math.sqrt(max(float(value), 0.0))
