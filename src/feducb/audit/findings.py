"""What an audit comes to, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from feducb.trust import NOBODY

__all__ = ["AuditReport", "Broken", "Check", "ClaimResult", "ScoreResult"]

_HEADLINE = (
    "epsilon_claimed",
    "delta",
    "epsilon_lower_bound_gaussian",
    "epsilon_lower_bound",
    "mu_lower_bound",
    "trials",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it is called, whether it passed, and what was seen."""

    name: str
    passed: bool
    detail: str

    @property
    def kind(self) -> str:
        """Its name without what it was run on."""
        words = [word for word in self.name.split() if "=" not in word]
        return "encoder" if words[0] == "encoder" else " ".join(words)


@dataclass(frozen=True, slots=True)
class Broken:
    """A deliberately broken privatizer or agent: whether it was caught, and by which checks."""

    name: str
    caught: bool
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """What one score tells.

    Attributes:
        score: its name.
        placement: the canary's batch, from 1; 0 where all placements are pooled.
        mu: lower bound on μ, if scores are Gaussian.
        epsilon_gaussian: lower bound on ε, if scores are Gaussian.
        epsilon: lower bound on ε, whatever their law.
    """

    score: str
    placement: int
    mu: float
    epsilon_gaussian: float
    epsilon: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimResult:
    """What is claimed, and the most that an attack could show.

    Attributes:
        epsilon_claimed: ε.
        delta: δ.
        trust: who adds the noise, by name.
        trials: in each of the two worlds.
        mu_claimed: the μ of the claim.
        mu_lower_bound: the largest over the scores, under the Gaussian assumption.
        epsilon_lower_bound_gaussian: the same as ε.
        epsilon_lower_bound: the largest over the scores and thresholds, free of assumptions.
        scores: one by one.
    """

    epsilon_claimed: float
    delta: float
    trust: str
    trials: int
    mu_claimed: float
    mu_lower_bound: float
    epsilon_lower_bound_gaussian: float
    epsilon_lower_bound: float
    scores: tuple[ScoreResult, ...]

    @property
    def holds(self) -> bool:
        """Whether neither bound is above the claim."""
        return max(self.epsilon_lower_bound_gaussian, self.epsilon_lower_bound) <= self.epsilon_claimed

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {**asdict(self), "scores": [asdict(score) for score in self.scores], "holds": self.holds}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """Everything an audit saw.

    Attributes:
        claims: one for each ε, then those where the controller is trusted and where sums are secure.
        checks: deterministic and statistical checks of the shipped code.
        broken: what the audit made of deliberately broken code; empty without the self-test.
        false_alarm: the chance that it calls sound code broken.
        false_alarm_split: how that is spread over its parts.
        seconds: how long it took.
    """

    claims: tuple[ClaimResult, ...]
    checks: tuple[Check, ...]
    broken: tuple[Broken, ...]
    false_alarm: float
    false_alarm_split: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """No claim broken, every check passed, and everything broken caught."""
        return (
            all(claim.holds for claim in self.claims)
            and all(check.passed for check in self.checks)
            and all(one.caught for one in self.broken)
        )

    @property
    def headline(self) -> ClaimResult:
        """The claim with the largest ε where nobody is trusted: there attacks see most."""
        return max(
            (claim for claim in self.claims if claim.trust == NOBODY.name),
            key=lambda claim: claim.epsilon_claimed,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists; the keys on top are the `headline`'s, all claims are in ``claims``."""
        top = {name: getattr(self.headline, name) for name in _HEADLINE}
        claims = [claim.as_dict() for claim in self.claims]
        broken = [{**asdict(one), "by": list(one.by)} for one in self.broken]
        lists = {"claims": claims, "checks": [asdict(check) for check in self.checks], "broken": broken}
        return {**top, **asdict(self), **lists, "passed": self.passed}
