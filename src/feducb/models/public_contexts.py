"""Actions and contexts that everybody knows: rewards alone are protected, and the moment alone has noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.interfaces import Contexts, Model, require_model
from feducb.models.confidence import PaperBound
from feducb.models.linear import Linear
from feducb.models.mixture import MixtureBound
from feducb.types import Array, Statistics

__all__ = ["PublicContexts", "with_contexts"]


@dataclass(frozen=True, slots=True)
class PublicContexts(Model):
    """Another model, whose Gram is released as it is: neighbouring records differ in the reward alone.

    Attributes:
        inner: the model; its flat vectors end in √2 s y x.
    """

    contexts: ClassVar[Contexts] = "public"
    released_set: ClassVar[type[MixtureBound]] = MixtureBound
    printed: ClassVar[type[PaperBound]] = PaperBound
    inner: Model = field(default_factory=Linear)

    def __post_init__(self) -> None:
        if self.inner.contexts == "public":
            raise ConfigurationError("model", self.name, "one whose contexts are not public already")

    @classmethod
    def parse(cls, text: str) -> PublicContexts:
        """From what stands after ``public:``, the inner model's name."""
        return cls(require_model(text))

    @property
    def name(self) -> str:
        """``public:linear``."""
        return f"public:{self.inner.name}"

    def coordinates(self, dim: int) -> int:
        """The inner model's."""
        return self.inner.coordinates(dim)

    def weight(self, problem: Problem) -> float:
        """1: there is no Gram's noise to weigh against."""
        return 1.0

    def radius(self, problem: Problem, weight: float = 1.0) -> float:
        """R² = 2sBL: with x as it is, y ∈ [−B, B] moves √2 s y x by at most √2 · 2sBL."""
        return 2.0 * weight * problem.reward_bound * problem.action_bound

    def flatten(self, actions: Array, rewards: Array, weight: float) -> Array:
        """(n, q), the inner model's."""
        return self.inner.flatten(actions, rewards, weight)

    def read(self, flat: Array, *, dim: int, weight: float, unit: float = 1.0) -> tuple[Array, Array]:
        """Gram and moment, the inner model's."""
        return self.inner.read(flat, dim=dim, weight=weight, unit=unit)

    def add(self, statistics: Statistics, actions: Array, rewards: Array) -> Statistics:
        """The same sums in floats."""
        return self.inner.add(statistics, actions, rewards)

    def nearest(self, actions: Array) -> Array:
        """(..., n, d), as the inner model takes them."""
        return self.inner.nearest(actions)

    def noisy(self, dim: int) -> NDArray[np.bool_]:
        """(q,): the last d coordinates, the moment's."""
        return np.arange(self.coordinates(dim)) >= self.coordinates(dim) - dim

    def gram_radius(self, dim: int, releases: int, alpha: float) -> float:
        """λ = 0: the Gram is exact."""
        return 0.0

    def residual_scales(self, problem: Problem, weight: float) -> Array:
        """(d,): the residual is h alone, of variance w/s²."""
        return np.full(problem.dim, 1.0 / weight**2)


def with_contexts(model: Model, contexts: Contexts) -> Model:
    """The model, or where contexts are public the same one with noise on its moment alone."""
    if contexts not in ("private", "public"):
        raise ConfigurationError("contexts", contexts, "private or public")
    return model if contexts in (model.contexts, "private") else PublicContexts(model)
