"""feducb: private federated decision-making that people can run.

>>> import feducb
>>> result = feducb.simulate(agents=10, dim=5, horizon=1000, epsilon=1.0, delta=1e-6)  # doctest: +SKIP
>>> result.mean, result.privacy["epsilon"]  # doctest: +SKIP
"""

from __future__ import annotations

from feducb.agent import Agent, AgentSettings, Decision, Outcome
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, FeducbError, PrivacyError
from feducb.evaluation.question import evaluate
from feducb.evaluation.verdicts import Comparison
from feducb.policies.decider import Decider
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant, EveryRound, Explicit, Geometric, Periodic, Planned
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.version import __version__
from feducb.worlds.family import CorrelatedArms, IsotropicArms, OneHotArms
from feducb.worlds.synthetic import FixedArms, PaperEnvironment
from feducb.worlds.world import Contexts, Environment, OwnEnvironment

__all__ = [
    "Agent",
    "AgentSettings",
    "Budget",
    "Comparison",
    "ConfigurationError",
    "Contexts",
    "CorrelatedArms",
    "Decider",
    "Decision",
    "Determinant",
    "Environment",
    "EveryRound",
    "Explicit",
    "Federation",
    "FeducbError",
    "FixedArms",
    "Geometric",
    "IsotropicArms",
    "OneHotArms",
    "Outcome",
    "OwnEnvironment",
    "PaperEnvironment",
    "Periodic",
    "Planned",
    "PrivacyError",
    "Problem",
    "SimulationResult",
    "__version__",
    "evaluate",
    "simulate",
]
