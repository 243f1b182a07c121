"""How policies are compared: budgets, trust, folds, repeats, intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from feducb.config import Budget, require_integer, require_probability
from feducb.errors import ConfigurationError
from feducb.policies import parse_policy
from feducb.trust import CONTROLLER, NOBODY, Trust, require_trust
from feducb.worlds.data.data_set import Spread

__all__ = ["Study"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """How to compare.

    Attributes:
        epsilons: of the private federations.
        delta: theirs.
        trusts: who adds the noise, one federation each; names will do.
        releases: how often agents release while they learn; None: 8 on a log, what a simulation takes online.
        folds: parts of the log.
        repeats: how often folds and noise are drawn; None: 20, or 1 from 200,000 rows on.
        alpha: α of the confidence bounds.
        policy: how agents choose in ``played`` rows, as text (`policies.parse_policy`).
        level: of the intervals.
        spread: intervals from the spread over records, or over agents where records of one agent are alike.
        seed: of folds, noise and replay's coins.
    """

    epsilons: tuple[float, ...] = (1.0, 8.0)
    delta: float = 1e-6
    trusts: tuple[Trust, ...] = (NOBODY, CONTROLLER)
    releases: int | None = None
    folds: int = 5
    repeats: int | None = None
    alpha: float = 0.1
    level: float = 0.95
    spread: Spread = "records"
    seed: int = 0
    policy: str = "optimistic"

    def __post_init__(self) -> None:
        object.__setattr__(self, "trusts", tuple(require_trust(trust) for trust in self.trusts))
        require_integer("folds", self.folds, at_least=2)
        if self.releases is not None:
            require_integer("releases", self.releases, at_least=1)
        require_integer("seed", self.seed, at_least=0)
        if self.repeats is not None:
            require_integer("repeats", self.repeats, at_least=1)
        require_probability("alpha", self.alpha)
        require_probability("level", self.level)
        parse_policy(self.policy)
        self.budgets()
        if self.spread not in get_args(Spread):
            raise ConfigurationError("spread", self.spread, "records or agents")

    def describe_policy(self) -> dict[str, str]:
        """For the settings in a result; the optimistic policy goes without saying."""
        return {} if self.policy == "optimistic" else {"policy": self.policy}

    def budgets(self) -> list[tuple[Budget, Trust]]:
        """The private federations."""
        return [(Budget(epsilon=e, delta=self.delta), trust) for e in self.epsilons for trust in self.trusts]
