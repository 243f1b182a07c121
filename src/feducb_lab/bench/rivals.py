"""Linear bandits of other libraries, plain numpy and our own, behind one small face.

The workload is LinUCB with one parameter for all candidates: K candidates with d features each, fresh every
time. Not every library has that; ``what`` says what was taken instead. `Peer.start` imports the library, so
that one that is missing is missing only where it is asked for.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from importlib import import_module, metadata
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb import __version__
from feducb.config import Problem
from feducb.models.confidence import PaperBound
from feducb.models.play import Knowledge, OwnDataPlay
from feducb.policies.decider import Decider

__all__ = ["PEERS", "Peer", "available", "check_learns"]

Array = NDArray[np.float64]


class Peer(ABC):
    """One way to decide and learn."""

    name: ClassVar[str]  # in tables
    package: ClassVar[str]  # as a package index calls it
    module: ClassVar[str]
    what: ClassVar[str]  # the algorithm, and why it is the closest
    sees_candidates: ClassVar[bool] = True  # reads all K × d features, or one context of d for all arms
    reads_features: ClassVar[bool] = True  # `decide` reads them, or `prepare` has put them in already
    batches: ClassVar[bool] = False  # the library decides for many visitors in one call

    @abstractmethod
    def start(self, dim: int, arms: int) -> None:
        """Forget everything: the next decision is the first."""

    def prepare(self, actions: Array) -> Any:
        """Turn (K, d) features into what the library takes."""
        return actions

    def discard(self, prepared: Any) -> None:
        """Give back what `prepare` took; few libraries want that."""
        return

    @abstractmethod
    def decide(self, prepared: Any) -> int:
        """Choose one of K."""

    @abstractmethod
    def learn(self, prepared: Any, index: int, reward: float) -> None:
        """Learn what the chosen one paid."""

    def decide_many(self, actions: Array) -> Any:
        """(R, K, d) features → R indices; one after the other, unless the library takes them in one call."""
        return [self.decide(self.prepare(one)) for one in actions]


class Feducb(Peer):
    """feducb: one agent that learns from each record at once."""

    name = "feducb, one agent"
    package = "feducb"
    module = "feducb"
    batches = True
    what = "LinUCB, one parameter; learns from each record at once, as an agent alone does"

    def start(self, dim: int, arms: int) -> None:
        """Begin with V = I: a ridge regression on no records."""
        printed: dict[str, Any] = {
            "agents": 1,
            "releases": 1,
            "rho_min": 1.0,
            "root_rho_max": 1.0,
            "kappa": 0.0,
        }
        bound = PaperBound(problem=Problem(dim=dim), alpha=0.1, **printed)
        self._play = OwnDataPlay(bound=bound, prior=1.0)
        self._set(self._play.start(()))

    def _set(self, knowledge: Knowledge) -> None:
        assert knowledge.belief is not None
        self._knowledge, self._decider = knowledge, Decider(knowledge.belief)

    def decide(self, prepared: Any) -> int:
        """The compiled decision, by `Decider.decide`."""
        return self._decider.decide(prepared)

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        """A rank-one update, and a new decider."""
        self._set(self._play.observe(self._knowledge, prepared[index], np.asarray(reward)))

    def decide_many(self, actions: Array) -> Any:
        """All visitors in one compiled call."""
        return self._decider.decide_many(actions)


class Numpy(Peer):
    """LinUCB as one writes it: the quadratic forms as row sums of a product."""

    name = "numpy, row sums"
    package = "numpy"
    module = "numpy"
    batches = True
    what = "LinUCB, one parameter: ((X @ A) * X).sum(1)"

    def start(self, dim: int, arms: int) -> None:
        """Begin with A = I, whose inverse is kept."""
        self._inverse, self._moment, self._theta = np.eye(dim), np.zeros(dim), np.zeros(dim)

    def decide(self, prepared: Any) -> int:
        """Row sums of (xA⁻¹) * x under the root."""
        forms = ((prepared @ self._inverse) * prepared).sum(1)
        return int(np.argmax(prepared @ self._theta + np.sqrt(forms)))

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        """Update A⁻¹ in place, by Sherman–Morrison."""
        action = prepared[index]
        direction = self._inverse @ action
        self._inverse -= np.outer(direction, direction / (1.0 + direction @ action))
        self._moment += reward * action
        self._theta = self._inverse @ self._moment

    def decide_many(self, actions: Array) -> Any:
        """The same with one more axis."""
        flat = actions.reshape(-1, actions.shape[-1])
        forms = np.einsum("kd,kd->k", flat @ self._inverse, flat)
        return (flat @ self._theta + np.sqrt(forms)).reshape(actions.shape[:2]).argmax(axis=1)


class NumpyTuned(Numpy):
    """The fastest that we know in plain numpy."""

    name = "numpy, einsum of two"
    what = "LinUCB, one parameter: einsum('kd,kd->k', X @ A, X), methods instead of functions"

    def decide(self, prepared: Any) -> int:
        """One product of matrices, and no temporary that can be avoided."""
        forms = np.einsum("kd,kd->k", prepared @ self._inverse, prepared)
        return int((prepared @ self._theta + np.sqrt(forms)).argmax())


class NumpyEinsum(Numpy):
    """The formula, letter by letter."""

    name = "numpy, einsum of three"
    what = "LinUCB, one parameter: einsum('kd,de,ke->k', X, A, X)"
    batches = False

    def decide(self, prepared: Any) -> int:
        """θᵀx + ‖x‖_{A⁻¹}, as one einsum."""
        forms = np.einsum("kd,de,ke->k", prepared, self._inverse, prepared)
        return int(np.argmax(prepared @ self._theta + np.sqrt(forms)))


class _Mabwiser(Peer):
    """MABWiser with one arm, and the candidates as its contexts."""

    name = "MABWiser"
    package = "mabwiser"
    module = "mabwiser.mab"
    batches = True
    what = "LinUCB has a model per arm and one context per decision: one arm scores K contexts: one parameter"
    _models = 1

    def start(self, dim: int, arms: int) -> None:
        library = import_module(self.module)
        models = list(range(min(self._models, arms)))
        self._bandit = library.MAB(models, library.LearningPolicy.LinUCB(alpha=1.0))
        self._fit = self._bandit.fit  # the first time; then `partial_fit`

    def decide(self, prepared: Any) -> int:
        if self._fit == self._bandit.fit:
            return 0
        scores = [row[0] for row in self._bandit.predict_expectations(prepared)]
        return scores.index(max(scores))

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._fit([0], [reward], prepared[index : index + 1])
        self._fit = self._bandit.partial_fit

    def decide_many(self, actions: Array) -> Any:
        """All candidates of all visitors as contexts."""
        rows = self._bandit.predict_expectations(actions.reshape(-1, actions.shape[-1]))
        return np.array([row[0] for row in rows]).reshape(actions.shape[:2]).argmax(axis=1)


class _PerArm(Peer):
    """A library as it is documented: it chooses by itself, for one context of d features per decision."""

    what = "LinUCB as documented: K models and one context of d features per decision"
    sees_candidates = False
    _models = 2**31
    _bandit: Any

    def prepare(self, actions: Array) -> Any:
        return actions[:1]

    def decide_many(self, actions: Array) -> Any:
        return self._bandit.predict(actions[:, 0])


class _MabwiserArms(_PerArm, _Mabwiser):
    """MABWiser as it is documented."""

    name = "MABWiser, a model per arm"

    def decide(self, prepared: Any) -> int:
        return 0 if self._fit == self._bandit.fit else int(self._bandit.predict(prepared))

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._fit([index], [reward], prepared)
        self._fit = self._bandit.partial_fit


class _Contextualbandits(Peer):
    """contextualbandits with the candidates as contexts of its first arm; it wants two at least."""

    name = "contextualbandits"
    package = "contextualbandits"
    module = "contextualbandits.online"
    batches = True
    what = "LinUCB has a model per arm and one context per decision: one of two arms scores K contexts"
    _models = 2

    def start(self, dim: int, arms: int) -> None:
        linucb = import_module(self.module).LinUCB
        self._bandit = linucb(min(self._models, arms), fit_intercept=False, use_float=False, random_state=1)
        self._fitted = False

    def decide(self, prepared: Any) -> int:
        return int(self._bandit.decision_function(prepared)[:, 0].argmax()) if self._fitted else 0

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._bandit.partial_fit(prepared[index : index + 1], np.array([0]), np.array([reward]))
        self._fitted = True

    def decide_many(self, actions: Array) -> Any:
        """All candidates of all visitors as contexts."""
        scores = self._bandit.decision_function(actions.reshape(-1, actions.shape[-1]))[:, 0]
        return scores.reshape(actions.shape[:2]).argmax(axis=1)


class _ContextualbanditsArms(_PerArm, _Contextualbandits):
    """contextualbandits as it is documented."""

    name = "contextualbandits, a model per arm"

    def decide(self, prepared: Any) -> int:
        return int(self._bandit.predict(prepared)[0]) if self._fitted else 0

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._bandit.partial_fit(prepared, np.array([index]), np.array([reward]))
        self._fitted = True


class _Vowpal(Peer):
    """Vowpal Wabbit, optimistic; its text form is the fastest way in for fresh features."""

    name = "Vowpal Wabbit, RegCB"
    package = "vowpalwabbit"
    module = "vowpalwabbit"
    what = "no LinUCB; --cb_explore_adf --regcbopt takes the largest upper bound of a linear model"
    _options = "--regcbopt"
    _samples = False

    def start(self, dim: int, arms: int) -> None:
        """A workspace for costs −1 to 0."""
        options = f"--cb_explore_adf {self._options} --cb_min_cost -1 --cb_max_cost 0 --noconstant --quiet"
        self._workspace = import_module(self.module).Workspace(options)
        self._probability, self._coins = 1.0, random.Random(0)

    def prepare(self, actions: Array) -> Any:
        return ["| " + " ".join(f"{i}:{x:.8g}" for i, x in enumerate(row)) for row in actions.tolist()]

    def decide(self, prepared: Any) -> int:
        """The likeliest, or a draw where the algorithm wants one."""
        chances = self._workspace.predict(prepared)
        if self._samples:
            index = self._coins.choices(range(len(chances)), chances)[0]
        else:
            index = chances.index(max(chances))
        self._probability = chances[index]
        return int(index)

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        """All candidates again, the chosen one with its cost."""
        labelled = list(prepared)
        labelled[index] = f"0:{-reward:.8g}:{max(self._probability, 1e-6):.8g} {prepared[index]}"
        self._workspace.learn(labelled)


class _VowpalSquare(_Vowpal):
    """Vowpal Wabbit, inverse gap weighting."""

    name = "Vowpal Wabbit, SquareCB"
    what = "no LinUCB; --cb_explore_adf --squarecb draws by the gap to the best of a linear model"
    _options = "--squarecb"
    _samples = True


class _VowpalParsed(_VowpalSquare):
    """Vowpal Wabbit on examples that it has read before: what is left when reading costs nothing."""

    name = "Vowpal Wabbit, SquareCB, already read"
    what = "as above, but the features are in the library already: fresh ones would have to be read first"
    reads_features = False

    def prepare(self, actions: Array) -> Any:
        lines = super().prepare(actions)
        return lines, self._workspace.parse(lines)

    def discard(self, prepared: Any) -> None:
        """The library takes examples from a pool, which else grows."""
        self._workspace.finish_example(prepared[1])

    def decide(self, prepared: Any) -> int:
        return super().decide(prepared[1])

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        """From the text: a label cannot be put on an example that was read."""
        super().learn(prepared[0], index, reward)


class _River(Peer):
    """river as it is documented."""

    name = "river, a model per arm"
    package = "river"
    module = "river.bandit"
    what = "LinUCBDisjoint, its only linear policy: K models and one context of d features per decision"
    sees_candidates = False

    def start(self, dim: int, arms: int) -> None:
        self._policy = import_module(self.module).LinUCBDisjoint(seed=1)
        self._arms = list(range(arms))

    def prepare(self, actions: Array) -> Any:
        return dict(enumerate(actions[0].tolist()))

    def decide(self, prepared: Any) -> int:
        return int(self._policy.pull(self._arms, prepared))

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._policy.update(index, prepared, reward)


class _Coba(Peer):
    """coba's LinUCB on features of actions."""

    name = "coba"
    package = "coba"
    module = "coba.learners"
    what = "LinUCBLearner(features=['a']): the same algorithm, one parameter, features of candidates"

    def start(self, dim: int, arms: int) -> None:
        self._learner = import_module(self.module).LinUCBLearner(features=["a"])

    def prepare(self, actions: Array) -> Any:
        return [tuple(row) for row in actions.tolist()]

    def decide(self, prepared: Any) -> int:
        """`predict` gives the action; its place in the list must be looked up."""
        return int(prepared.index(self._learner.predict(None, prepared)[0]))

    def learn(self, prepared: Any, index: int, reward: float) -> None:
        self._learner.learn(None, prepared[index], reward, 1.0)


PEERS: tuple[type[Peer], ...] = (
    Feducb,
    NumpyTuned,
    Numpy,
    NumpyEinsum,
    _Mabwiser,
    _MabwiserArms,
    _Contextualbandits,
    _ContextualbanditsArms,
    _Vowpal,
    _VowpalSquare,
    _VowpalParsed,
    _River,
    _Coba,
)
"""All of them; the first is the one that the others are compared with."""


def available(peer: type[Peer]) -> tuple[str | None, str | None]:
    """(version, None) if it can be used here, (None, why not) if it cannot."""
    try:
        import_module(peer.module)
    except ImportError as error:
        return None, f"not installed: {error}"
    return __version__ if peer.package == "feducb" else metadata.version(peer.package), None


def check_learns(peer: type[Peer], *, steps: int = 600, dim: int = 4, arms: int = 8) -> tuple[float, float]:
    """Let it play in a world that it can understand.

    Returns:
        Mean regret per step in the last half of the steps, and what choosing uniformly loses there.
    """
    rng = np.random.default_rng(0)
    shape = (arms, dim) if peer.sees_candidates else (1, dim)
    contexts = rng.normal(size=(steps, *shape))
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True)
    contexts = np.broadcast_to(contexts, (steps, arms, dim)).copy()
    theta = rng.normal(size=(1 if peer.sees_candidates else arms, dim))
    theta /= np.linalg.norm(theta, axis=-1, keepdims=True)
    means = 0.5 + 0.5 * (contexts * theta).sum(axis=-1)
    player, lost = peer(), []
    player.start(dim, arms)
    for actions, mean, coin in zip(contexts, means, rng.random(steps), strict=True):
        prepared = player.prepare(actions)
        index = player.decide(prepared)
        player.learn(prepared, index, float(coin < mean[index]))
        player.discard(prepared)
        lost.append(mean.max() - mean[index])
    uniform = means.max(axis=1) - means.mean(axis=1)
    return float(np.mean(lost[steps // 2 :])), float(uniform[steps // 2 :].mean())
