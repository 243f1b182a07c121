"""What is promised about releases, and to whom: as it is stored, compared and signed.

What a person costs is the trust's to know (`Trust.spend`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from dataclasses import asdict, dataclass, field, fields
from enum import Enum

from feducb.config import Budget, Problem, require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Contexts, Model, Trust, require_model, require_trust
from feducb.privacy.grid import Certificate, certify
from feducb.privacy.mechanisms import Dense, Mechanism, choose_mechanism, person_reach
from feducb.privacy.privatizer import Excess

__all__ = ["Neighbours", "Terms", "require_agents_per_person"]

_DIGEST = re.compile("(?:[0-9a-f]{16})?")


class Neighbours(Enum):
    """Which two worlds must look alike."""

    ONE_RECORD = "one record (an action and its reward) is replaced by another; no other record changes"
    ONE_PERSON = "all records of one person are replaced by others; nobody else's change"
    ONE_REWARD = "the reward of one record is replaced by another; actions, contexts and other rewards stay"
    REWARDS_OF_ONE = "all rewards of one person are replaced by others; actions, contexts and others' stay"


def require_agents_per_person(setting: str, value: int, agents: int) -> int:
    """Return ``value`` if a person can visit so many of the agents there are, else raise."""
    if require_integer(setting, value, at_least=1) > agents:
        raise ConfigurationError(setting, value, f"at most the number of agents, {agents}")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What an agent or a trusted controller promises about its releases. Public.

    Attributes:
        problem: the public bounds.
        budget: (ε, δ) of a person.
        releases: n, in each group.
        mechanism: the mechanism's name; ``auto`` takes the best for n.
        quiet: how many releases at the start nobody will read (`Dense.quiet`).
        decay: how noise is spread over the releases that are read (`Dense.decay`).
        records_per_person: p, how many records of one person may enter at an agent, over all its groups.
        spacing: ℓ, any two records of a person at an agent are in releases at least so many apart (1: no two
            in the same one), over all groups. Less noise is then enough for p of them (`person_reach`). 0:
            they are anywhere.
        agents_per_person: how many agents one person visits at most; 1 says that people do not visit several.
            Where the controller is trusted, its noise covers p records at each of so many. Where nobody is,
            noise does not depend on it: the promise is about what one agent lets out, and `mu_at` says what a
            person at several pays.
        trust: who adds the noise; its name will do.
        agents: M, where noise is divided between agents (`Trust.shares`): those whose rows add up, all or a
            clique. 0 where no noise depends on it.
        groups: estimators an agent keeps, over disjoint records; each has its own stream of ``releases``
            releases. What is promised does not depend on how many there are.
        model: what is learnt; its name will do.
        excess: what happens to a record beyond the bounds. ``clip`` (default) shortens it, and takes an
            action that is not finite for nothing and such a reward for the centre; ``refuse`` raises and
            takes in none of the records that came with it, so use it only where the caller sends records one
            by one. Not with public contexts: exact sums would tell whose reward was refused.
        recipe: a digest of how vectors are made, 16 hexadecimal digits; empty where nobody says. No noise
            depends on it: it tells agents apart whose entries do not mean the same.
    """

    problem: Problem
    budget: Budget
    releases: int
    mechanism: str = "auto"
    quiet: int = 0
    decay: float | None = None
    records_per_person: int = 1
    spacing: int = 0
    agents_per_person: int = 1
    trust: Trust = field(default_factory=lambda: require_trust("nobody"))
    agents: int = 0
    groups: int = 1
    excess: Excess = "clip"
    model: Model = field(default_factory=lambda: require_model("linear"))
    recipe: str = ""

    def __post_init__(self) -> None:
        for count in ("releases", "records_per_person", "agents_per_person", "groups"):
            object.__setattr__(self, count, require_integer(count, getattr(self, count), at_least=1))
        self._fix_trust()
        self._require_digest()
        object.__setattr__(self, "model", require_model(self.model))
        self.model.coordinates(self.problem.dim)  # or it is none for this d
        if self.groups > 1:
            self.trust.refuse("groups", "groups", self.groups)
        if self.excess not in ("clip", "refuse"):
            raise ConfigurationError("excess", self.excess, "clip or refuse")
        if self.excess == "refuse" and self.contexts == "public":
            expected = "clip where contexts are public: exact sums would tell whose reward was refused"
            raise ConfigurationError("excess", self.excess, expected)
        for count in ("quiet", "spacing"):
            object.__setattr__(self, count, require_integer(count, getattr(self, count), at_least=0))
        if self.spacing and self.records_per_person == 1:
            raise ConfigurationError("spacing", self.spacing, "0 where a person has one record")
        if self.spacing and self.contexts == "private":  # what one record takes need not do for spaced ones
            plain = require_model("linear").radius(self.problem, self.weight)
            if self.radius < plain:
                expected = f"0 with the model {self.model.name}: presence is not covered at its radius"
                raise ConfigurationError("spacing", self.spacing, expected)
        if self.decay is not None:
            object.__setattr__(self, "decay", require_finite("decay", self.decay, at_least=1))
        if not isinstance(self.factors, Dense):
            if self.quiet:
                raise ConfigurationError("quiet", self.quiet, f"0 with the mechanism {self.factors.name}")
            if self.decay is not None:
                raise ConfigurationError("decay", self.decay, f"none with the mechanism {self.factors.name}")

    def _require_digest(self) -> None:
        if not isinstance(self.recipe, str) or not _DIGEST.fullmatch(self.recipe):
            raise ConfigurationError("recipe", self.recipe, "16 hexadecimal digits, or nothing")

    def _fix_trust(self) -> None:
        """Fill in what the trust leaves to the number of agents, kept only where noise follows from it."""
        trust, agents = require_trust(self.trust), require_integer("agents", self.agents, at_least=0)
        object.__setattr__(self, "trust", trust.among(agents))
        object.__setattr__(self, "agents", agents if trust.shares(agents) > 1 else 0)

    @property
    def promised(self) -> tuple[float, float]:
        """(ε, δ) to whoever sees what leaves: the budget, or nothing where nothing leaves.

        Under ``self`` the budget only fixes the grid that own sums are kept on.
        """
        return (self.budget.epsilon, self.budget.delta) if self.trust.leaves else (0.0, 0.0)

    @property
    def factors(self) -> Mechanism:
        """The mechanism that ``mechanism`` names, for so many releases, so many quiet ones and the decay."""
        chosen = choose_mechanism(self.mechanism, self.releases)
        return Dense(self.releases, self.quiet, self.decay) if isinstance(chosen, Dense) else chosen

    @property
    def weight(self) -> float:
        """s, by which rewards are multiplied before noise: it follows from the public bounds.

        Any s will do for privacy, R² being that of s. Messages carry it, and are added only where it is the
        same to the last bit; so it is also what tells rewards around one centre from those around another,
        and vectors of one recipe from those of another: shorter by less than 2^-34, by a hash of both. Of two
        recipes the hash is the same with a chance of 2^-16.
        """
        weight, centre = self.model.weight(self.problem), float(self.problem.reward_centre)
        if not centre and not self.recipe:
            return weight
        told = struct.pack("<d", centre) + self.recipe.encode()
        mark = 1 + int.from_bytes(hashlib.sha256(told).digest()[:2], "little")
        return weight * (1.0 - math.ldexp(mark, -50))

    @property
    def radius(self) -> float:
        """R²: replacing one record moves a batch by at most √2 R²."""
        return self.model.radius(self.problem, self.weight)

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds must look alike."""
        one = self.records_covered == 1
        if self.contexts == "public":
            return Neighbours.ONE_REWARD if one else Neighbours.REWARDS_OF_ONE
        return Neighbours.ONE_RECORD if one else Neighbours.ONE_PERSON

    @property
    def contexts(self) -> Contexts:
        """Whether actions and contexts are protected as rewards are; the model says it."""
        return self.model.contexts

    @property
    def records_covered(self) -> int:
        """How many records of one person the noise covers: p, or under a trusted controller p at each agent.

        A person's records move the rows by at most the sum of their moves (docs/theory.md, 2).
        """
        return self.trust.records_covered(self.records_per_person, self.agents_per_person)

    @property
    def reach(self) -> float:
        """How far a person's records move the stream, in moves of one: what noise is multiplied by.

        `records_covered` of them, unless they are spaced. Those at several agents may be in the same batches
        and point the same way, so each agent's p move it as far as those of one (docs/theory.md, 2).
        """
        agents = self.trust.records_covered(1, self.agents_per_person)
        return agents * person_reach(self.factors, self.records_per_person, self.spacing)

    def mu_at(self, agents: int) -> float:
        """μ of a person with p records at each of so many agents (`Trust.spend`)."""
        return self.trust.mu_at(self.certificate().mu, agents, agents_per_person=self.agents_per_person)

    def certificate(self) -> Certificate:
        """The noise, and the proof that it suffices."""
        return certify(
            self.budget,
            sensitivity=math.sqrt(2.0) * self.radius,
            coordinates=self.model.coordinates(self.problem.dim),
            releases=self.releases,
            reach=self.reach,
            shares=self.trust.shares(self.agents),
        )

    def digest(self) -> bytes:
        """8 bytes that tell promises apart: of all that noise follows from, as it was stated.

        Of what was stated, not of the noise: other machines may round that otherwise.
        """
        problem, budget = self.problem, self.budget
        real = (problem.action_bound, problem.reward_bound, problem.parameter_bound)
        counts = (problem.dim, self.releases, self.quiet, self.records_per_person, self.agents_per_person)
        plain = [
            *(float(value) for value in (*real, budget.epsilon, budget.delta)),
            *(int(value) for value in counts),
            self.factors.name,
            self.trust.name,
            *self._unless_linear.values(),
            *(f"{name} {value!r}" for name, value in self._unless_plain.items()),
            *((float(problem.reward_centre),) if problem.reward_centre else ()),
        ]
        return hashlib.sha256(json.dumps(plain).encode()).digest()[:8]

    @property
    def _unless_linear(self) -> dict[str, str]:
        """The model, in what files and digests are made of; the first one goes without saying."""
        return {} if self.model.name == "linear" else {"model": self.model.name}

    @property
    def _unless_plain(self) -> dict[str, float | str]:
        """What is written only where it is used: it was not there in the beginning."""
        decay = {} if self.decay is None else {"decay": self.decay}
        agents = {"agents": self.agents} if self.agents else {}
        recipe = {"recipe": self.recipe} if self.recipe else {}
        return decay | ({"spacing": self.spacing} if self.spacing else {}) | agents | recipe

    def to_json(self) -> str:
        """As text, for the store."""
        written = ("releases", "quiet", "records_per_person", "agents_per_person", "groups", "excess")
        plain = {name: getattr(self, name) for name in written}
        plain |= {"problem": self.problem.as_dict(), **asdict(self.budget), **self._unless_linear}
        plain |= {"mechanism": self.factors.name, "trust": self.trust.name, **self._unless_plain}
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read what `to_json` wrote, also an earlier version's.

        Absent where there was no such choice: ``agents_per_person`` (noise was for p records alone),
        ``groups``, ``model``, ``decay``, ``spacing``, ``agents`` and ``recipe``.
        """
        plain = json.loads(text)
        plain["problem"] = Problem(**plain["problem"])
        plain["budget"] = Budget(epsilon=plain["epsilon"], delta=plain["delta"])
        return cls(**{one.name: plain[one.name] for one in fields(cls) if one.name in plain})
