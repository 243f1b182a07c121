"""The paper's own constants, as printed in its section 4.3 (``paper`` mode only).

They are kept to be compared and read beside the paper, not to protect anybody: the printed noise is
11 to 14 times what (ε, δ) needs, and the printed trigger and own-data play leak whatever the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError

__all__ = ["PrintedConstants", "printed_constants", "tree_depth"]


def tree_depth(releases: int) -> int:
    """m = 1 + ⌈log₂ n⌉ (Alg. 2, l. 2; the base is the one of section 4.3's text)."""
    return 1 + (releases - 1).bit_length()


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedConstants:
    """What Alg. 2 and Proposition 4 print for one agent.

    Attributes:
        depth: m.
        noise_scale: σ_N, the standard deviation of one entry of N̂ at a tree node.
        operator_bound: Λ, said to bound ‖H‖.
        rho_min: ρ_min = Λ.
        rho_max: ρ_max = 3Λ.
        kappa: κ, said to bound ‖h‖_{H⁻¹}.
    """

    depth: int
    noise_scale: float
    operator_bound: float
    rho_min: float
    rho_max: float
    kappa: float

    @property
    def shift(self) -> float:
        """2Λ, added to the diagonal of every release so that H is positive definite."""
        return 2.0 * self.operator_bound


def printed_constants(
    problem: Problem, budget: Budget, *, agents: int, releases: int, alpha: float
) -> PrintedConstants:
    """Evaluate the printed formulas.

    Args:
        problem: the public bounds; B must be at most 1, as the printed sensitivity L² + 1 assumes.
        budget: the agent's (ε, δ).
        agents: M.
        releases: n (T under the determinant trigger).
        alpha: α.
    """
    if problem.reward_bound > 1.0:
        raise ConfigurationError(
            "reward_bound", problem.reward_bound, "at most 1 in paper mode (printed sensitivity L² + 1)"
        )
    depth = tree_depth(releases)
    sensitivity = problem.action_bound**2 + 1.0
    union = math.log(2.0 * releases * agents / alpha)
    root = math.sqrt(problem.dim)
    operator_bound = (
        math.sqrt(32.0)
        * depth
        * sensitivity
        * math.log(4.0 / budget.delta)
        * (4.0 * root + 2.0 * union)
        / budget.epsilon
    )
    noise = 4.0 * math.sqrt(depth) * sensitivity * math.log(2.0 / budget.delta) / budget.epsilon
    return PrintedConstants(
        depth=depth,
        noise_scale=noise,
        operator_bound=operator_bound,
        rho_min=operator_bound,
        rho_max=3.0 * operator_bound,
        kappa=math.sqrt(depth * sensitivity * (root + 2.0 * union) / (math.sqrt(2.0) * budget.epsilon)),
    )
