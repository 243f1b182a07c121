"""`run_audit`: all claims, all checks, and a self-test on code that is broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from feducb.agent import Agent
from feducb.audit.agents import check_agent_presence, check_shadow
from feducb.audit.claims import Evidence, claim_jobs, judge
from feducb.audit.exact import (
    Make,
    check_clipping,
    check_encoder,
    check_horizon,
    check_presence,
    check_sensitivity,
    check_tally,
)
from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult
from feducb.audit.groups import check_groups
from feducb.audit.invariance import (
    CALIBRATED,
    GRAPH,
    ON_A_GRAPH,
    check_decisions,
    check_graph,
    check_private_schedule,
    check_release_times,
)
from feducb.audit.noise_checks import check_grid, check_low_bits, check_noise
from feducb.audit.persons import check_several_agents
from feducb.audit.pool import Progress, draw_all
from feducb.audit.quorum import check_quorum
from feducb.audit.restarts import check_replay, open_agent_store
from feducb.audit.trials import SHIPPED, Draws, Job, privatizer_class
from feducb.config import Budget, Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import GridNoise
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

__all__ = ["FALSE_ALARM", "run_audit"]

FALSE_ALARM = 1e-6
_SHARES = {"claims": 0.8, "noise checks": 0.1, "low-bit checks": 0.1}
_GROUPS = 2
_RELEASES = 3  # first, middle and last; a trial costs as many draws from OpenDP
_TRIALS = 20_000  # for the largest ε: at ε = 8 the Gaussian bound then is above 7.3, but with chance 1e-6
_OTHER_TRIALS = 4_000
_SELF_TEST_TRIALS = 600
_LEAST_TRIALS = 300
_SMALL_ENCODERS = (("dense", 8, 2), ("dense", 8, 2, 3), ("toeplitz", 8, 2), ("tree", 8, 2), ("blt", 8, 2))
_ENCODERS = (("dense", 16, 2), ("dense", 16, 2, 5), ("toeplitz", 16, 2), ("tree", 16, 2), ("auto", 300, 10))


def run_audit(
    *,
    epsilons: Sequence[float] = (1.0, 8.0),
    delta: float = 1e-6,
    trials: int | None = None,
    progress: Progress | None = None,
    self_test: bool = True,
) -> AuditReport:
    """Attack the shipped privatizer, check it, and check the checks.

    Guarantees:
        Sound code fails with probability at most `FALSE_ALARM`, whatever ``trials`` is: every statistical
        test has a level fixed in advance, and the levels add up to that (`false_alarm_split` of the report).
        The self-test's own chance to miss something broken is below 1e-12.

    Args:
        epsilons: the claims to attack, each at its own noise.
        delta: δ of all of them.
        trials: in each world of each claim; 20,000 for the largest ε and 4,000 for the others if not given.
            The claim where the controller is trusted, the largest ε once more, gets 4,000 at most.
        progress: called with (trials done, trials in all), from any thread.
        self_test: whether deliberately broken code must be caught too.
    """
    started = time.perf_counter()
    if not epsilons:
        raise ConfigurationError("epsilons", epsilons, "at least one")
    if trials is not None:
        require_integer("trials", trials, at_least=_LEAST_TRIALS)
    all_terms = [_terms(epsilon, delta) for epsilon in dict.fromkeys(epsilons)]
    for terms in all_terms:
        GridNoise(terms.certificate())  # raises here, not in a worker: no such noise, or no OpenDP
    largest = max(all_terms, key=lambda terms: terms.budget.epsilon)
    counts = [trials or (_TRIALS if terms is largest else _OTHER_TRIALS) for terms in all_terms]
    # Two ways in: hostile records that are clipped, and honest ones through agents that trust the controller.
    all_terms.append(replace(largest, trust=CONTROLLER, excess="refuse"))
    counts.append(min(trials or _OTHER_TRIALS, _OTHER_TRIALS))

    jobs = [
        job
        for terms, count in zip(all_terms, counts, strict=True)
        for job in claim_jobs(SHIPPED, terms, count)
    ]
    if self_test:
        jobs += _broken_jobs(largest)
    drawn = _gather(jobs, draw_all(jobs, progress=progress))

    levels = {name: FALSE_ALARM * share / len(all_terms) for name, share in _SHARES.items()}
    claims, checks = [], []
    for terms in all_terms:
        evidence = drawn[SHIPPED, terms.to_json()]
        claim, seen = _statistical(terms, evidence, levels)
        claims.append(claim)
        checks += seen
        checks.append(check_sensitivity(DeployedPrivatizer, terms))
    checks += [
        check_encoder(DeployedPrivatizer, _mechanism_terms(largest, *setting)) for setting in _ENCODERS
    ]
    checks += [
        check_presence(DeployedPrivatizer, _mechanism_terms(largest, *setting)) for setting in _SMALL_ENCODERS
    ]
    checks += _exact(DeployedPrivatizer, largest)
    checks.append(check_tally(DeployedPrivatizer, largest))
    grouped = replace(largest, groups=_GROUPS)
    checks += [check_replay(open_agent_store, grouped), check_groups(open_agent_store, grouped)]
    checks += _of_agents(Agent, largest)
    checks.append(check_several_agents(DeployedPrivatizer, _person_terms(largest)))
    checks.append(check_private_schedule())
    checks += [check_release_times(CALIBRATED), check_decisions(CALIBRATED)]
    checks += [check_graph(GRAPH), check_graph(GRAPH | {"estimators": "one"})]
    return AuditReport(
        claims=tuple(claims),
        checks=tuple(checks),
        broken=tuple(_self_test(largest, drawn, levels)) if self_test else (),
        false_alarm=FALSE_ALARM,
        false_alarm_split={name: FALSE_ALARM * share for name, share in _SHARES.items()},
        seconds=time.perf_counter() - started,
    )


Drawn = dict[tuple[str, str], Evidence]


def _terms(epsilon: float, delta: float) -> Terms:
    return Terms(
        problem=Problem(dim=2),
        budget=Budget(epsilon=epsilon, delta=delta),
        releases=_RELEASES,
        excess="clip",
    )


def _mechanism_terms(terms: Terms, mechanism: str, releases: int, dim: int, quiet: int = 0) -> Terms:
    return replace(terms, mechanism=mechanism, releases=releases, quiet=quiet, problem=Problem(dim=dim))


def _person_terms(terms: Terms) -> Terms:
    """A person with several records at each of several agents, and a controller that all of them trust."""
    return replace(terms, trust=CONTROLLER, records_per_person=2, agents_per_person=3)


def _gather(jobs: Sequence[Job], results: Sequence[Draws]) -> Drawn:
    drawn: dict[tuple[str, str], dict[tuple[int, int], Draws]] = {}
    for job, draws in zip(jobs, results, strict=True):
        own = drawn.setdefault((job.subject, job.terms), {})
        where = job.placement, job.world
        own[where] = own[where] + draws if where in own else draws
    return dict(drawn)


def _statistical(
    terms: Terms, evidence: Evidence, levels: dict[str, float]
) -> tuple[ClaimResult, list[Check]]:
    return judge(terms, evidence, levels["claims"]), [
        check_noise(terms, evidence, levels["noise checks"]),
        check_low_bits(terms, evidence, levels["low-bit checks"]),
        check_grid(terms, evidence),
    ]


def _exact(make: Make, terms: Terms) -> list[Check]:
    checks = (check_encoder, check_presence, check_clipping, check_horizon)
    return [check(make, terms) for check in checks]


def _of_agents(kind: type[Agent], terms: Terms) -> list[Check]:
    return [check_agent_presence(kind, terms), check_shadow(kind, terms), check_quorum(kind.open)]


def _broken_terms(name: str, terms: Terms) -> Terms:
    """Where the mistake shows: the paper's tree, or a small ε, which the assumption-free bound can pass."""
    if name == "noise without √m":
        return replace(terms, mechanism="tree")
    if name == "unclipped reward":
        return replace(terms, budget=Budget(epsilon=1.0, delta=terms.budget.delta))
    return terms


def _broken_jobs(terms: Terms) -> list[Job]:
    from feducb.audit.broken import PRIVATIZERS

    return [
        job for name in PRIVATIZERS for job in claim_jobs(name, _broken_terms(name, terms), _SELF_TEST_TRIALS)
    ]


def _self_test(terms: Terms, drawn: Drawn, levels: dict[str, float]) -> Iterator[Broken]:
    """Everything broken goes through every check that applies to it; whichever fails has caught it."""
    from feducb.audit.broken import AGENTS, CONTROLLERS, GROUPED, POLICIES, PRIVATIZERS, STORES, TALLIES

    for name in PRIVATIZERS:
        own = _broken_terms(name, terms)
        make = privatizer_class(name)
        claim, checks = _statistical(own, drawn[name, own.to_json()], levels)
        caught = []
        if claim.epsilon_lower_bound_gaussian > claim.epsilon_claimed:
            caught.append("Gaussian bound")
        if claim.epsilon_lower_bound > claim.epsilon_claimed:
            caught.append("bound free of assumptions")
        checks += [*_exact(make, own), check_sensitivity(make, own)]
        if name in STORES:
            checks.append(check_replay(STORES[name], own))
        caught += [_kind(check) for check in checks if not check.passed]
        yield Broken(name, bool(caught), tuple(caught))
    for name, kind in GROUPED.items():
        check = check_groups(kind.open, replace(terms, groups=_GROUPS))
        yield Broken(name, not check.passed, () if check.passed else (_kind(check),))
    for name, agent in AGENTS.items():
        caught = [_kind(check) for check in _of_agents(agent, terms) if not check.passed]
        yield Broken(name, bool(caught), tuple(caught))
    for name, make in CONTROLLERS.items():
        check = check_several_agents(make, _person_terms(terms))
        yield Broken(name, not check.passed, () if check.passed else (_kind(check),))
    for name, scale_of in TALLIES.items():
        check = check_tally(DeployedPrivatizer, terms, scale_of)
        yield Broken(name, not check.passed, () if check.passed else (_kind(check),))
    for name, setting in POLICIES.items():
        on_graph = check_graph(setting | ON_A_GRAPH)
        checks = [check_release_times(setting), check_decisions(setting), on_graph]
        caught = [_kind(check) for check in checks if not check.passed]
        yield Broken(name, bool(caught), tuple(caught))


def _kind(check: Check) -> str:
    """A check's name without what it was run on."""
    words = [word for word in check.name.split() if "=" not in word]
    return "encoder" if words[0] == "encoder" else " ".join(words)
