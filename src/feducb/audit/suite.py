"""`run_audit`: all claims, all checks, and a self-test on code that is broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from feducb.agent import Agent
from feducb.audit.checks import (
    BLOCKS,
    CENTRED,
    CLOSES,
    MIXED,
    ONE_HOTS,
    PUBLIC,
    SECURE,
    SHIPPED,
    ZEROS,
    Code,
    exact_checks,
    variant_checks,
)
from feducb.audit.claims import Evidence, check_grid, check_low_bits, check_noise, draw_evidence, judge
from feducb.audit.doors import Make
from feducb.audit.exact import check_encoder, check_horizon, check_presence, check_sensitivity, check_tally
from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult
from feducb.audit.invariance import CALIBRATED, check_graph, check_private_schedule
from feducb.audit.own_agents import check_agent_close
from feducb.audit.spaced import check_spaced
from feducb.audit.trials import Progress
from feducb.config import Budget, Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import GridNoise
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

__all__ = ["FALSE_ALARM", "run_audit"]

FALSE_ALARM = 1e-6
_SHARES = {"claims": 0.8, "noise checks": 0.1, "low-bit checks": 0.1}
_RELEASES = 3  # first, middle and last; a trial costs as many draws from OpenDP
_TRIALS = 20_000  # for the largest ε: at ε = 8 the Gaussian bound then is above 7.3, but with chance 1e-6
_OTHER_TRIALS = 4_000
_SECURE_TRIALS = 2_000  # where every agent of a quorum draws noise
_SELF_TEST_TRIALS = 600
_LEAST_TRIALS = 300
# Mechanism, releases, dimension, quiet releases, decay
_PLAIN: tuple[tuple[Any, ...], ...] = (("toeplitz", 8, 2), ("tree", 8, 2), ("blt", 8, 2))
_SMALL_ENCODERS = (("dense", 8, 2), ("dense", 8, 2, 3), ("dense", 8, 2, 2, 1.7), *_PLAIN)
_ENCODERS = (("dense", 16, 2), ("dense", 16, 2, 5), ("dense", 16, 2, 4, 1.7), *_PLAIN, ("auto", 300, 10))
_SPACED_ENCODERS = (("dense", 5, 2, 2), ("dense", 5, 2, 0, 1.7), ("dense", 5, 2, 2, 1.7), ("blt", 5, 2))
_SPACED: dict[str, Any] = {"records_per_person": 2, "spacing": 2}


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
            The claims where the controller is trusted and where sums are secure, the largest ε once more,
            get 4,000 and 2,000 at most.
        progress: called with (trials done, trials in all), from any thread.
        self_test: whether deliberately broken code must be caught too.
    """
    started = time.perf_counter()
    if not epsilons:
        raise ConfigurationError("epsilons", epsilons, "at least one")
    if trials is not None:
        require_integer("trials", trials, at_least=_LEAST_TRIALS)
    budgets = [Budget(epsilon=epsilon, delta=delta) for epsilon in dict.fromkeys(epsilons)]
    all_terms = [Terms(problem=Problem(dim=2), budget=budget, releases=_RELEASES) for budget in budgets]
    for terms in all_terms:
        GridNoise(terms.certificate())  # raises here, not in a worker: no such noise, or no OpenDP
    largest = max(all_terms, key=lambda terms: terms.budget.epsilon)
    counts = [trials or (_TRIALS if terms is largest else _OTHER_TRIALS) for terms in all_terms]
    # Ways in: hostile records that are clipped, honest ones through agents that trust the controller, and
    # hostile ones through agents whose rows open as a sum.
    secure = replace(largest, **SECURE)
    all_terms += [replace(largest, trust=CONTROLLER, excess="refuse"), secure]
    counts += [min(trials or most, most) for most in (_OTHER_TRIALS, _SECURE_TRIALS)]

    faults: Mapping[str, Code] = {}
    if self_test:
        from feducb.audit.broken import FAULTS

        faults = FAULTS
    attacked: list[tuple[Make, Terms, int]] = [
        (DeployedPrivatizer, terms, count) for terms, count in zip(all_terms, counts, strict=True)
    ]
    attacked += [
        (code.privatizer, code.terms(largest), _SELF_TEST_TRIALS)
        for code in faults.values()
        if code.privatizer is not None
    ]
    evidence = iter(draw_evidence(attacked, progress=progress))

    levels = {name: FALSE_ALARM * share / len(all_terms) for name, share in _SHARES.items()}
    claims, checks = [], []
    for terms in all_terms:
        claim, seen = _statistical(terms, next(evidence), levels)
        claims.append(claim)
        checks += [*seen, check_sensitivity(DeployedPrivatizer, terms)]
    for check, settings in ((check_encoder, _ENCODERS), (check_presence, _SMALL_ENCODERS)):
        checks += [check(DeployedPrivatizer, _mechanism_terms(largest, *setting)) for setting in settings]
    spaced = [replace(_mechanism_terms(largest, *setting), **_SPACED) for setting in _SPACED_ENCODERS]
    checks += [check_spaced(DeployedPrivatizer, terms) for terms in spaced]
    checks += [check(DeployedPrivatizer, secure) for check in (check_encoder, check_presence, check_horizon)]
    checks += exact_checks(SHIPPED, largest)
    checks += [check_agent_close(Agent, replace(largest, **changes)) for changes in CLOSES]
    for changes in (CENTRED, BLOCKS, ZEROS, MIXED, ONE_HOTS, PUBLIC):
        checks += variant_checks(DeployedPrivatizer, replace(largest, **changes))
    checks += [check_tally(tally_scale, replace(largest, **changes)) for changes in (CENTRED, ZEROS, MIXED)]
    checks.append(check_private_schedule())
    checks += exact_checks(Code(policy=CALIBRATED), largest)
    checks.append(check_graph(CALIBRATED | {"estimators": "one"}))
    return AuditReport(
        claims=tuple(claims),
        checks=tuple(checks),
        broken=tuple(_self_test(faults, largest, evidence, levels)),
        false_alarm=FALSE_ALARM,
        false_alarm_split={name: FALSE_ALARM * share for name, share in _SHARES.items()},
        seconds=time.perf_counter() - started,
    )


def _mechanism_terms(
    terms: Terms, mechanism: str, releases: int, dim: int, quiet: int = 0, decay: float | None = None
) -> Terms:
    chosen = replace(terms, mechanism=mechanism, releases=releases, problem=Problem(dim=dim))
    return replace(chosen, quiet=quiet, decay=decay)


def _statistical(
    terms: Terms, evidence: Evidence, levels: dict[str, float]
) -> tuple[ClaimResult, list[Check]]:
    return judge(terms, evidence, levels["claims"]), [
        check_noise(terms, evidence, levels["noise checks"]),
        check_low_bits(terms, evidence, levels["low-bit checks"]),
        check_grid(terms, evidence),
    ]


def _self_test(
    faults: Mapping[str, Code], terms: Terms, evidence: Iterator[Evidence], levels: dict[str, float]
) -> Iterator[Broken]:
    """Everything broken goes through every check that applies to it; whichever fails has caught it."""
    for name, code in faults.items():
        own, caught, checks = code.terms(terms), list[str](), list[Check]()
        if code.privatizer is not None:
            claim, checks = _statistical(own, next(evidence), levels)
            if claim.epsilon_lower_bound_gaussian > claim.epsilon_claimed:
                caught.append("Gaussian bound")
            if claim.epsilon_lower_bound > claim.epsilon_claimed:
                caught.append("bound free of assumptions")
        checks += exact_checks(code, own)
        if code.privatizer is not None:
            checks.append(check_sensitivity(code.privatizer, own))
        caught += [check.kind for check in checks if not check.passed]
        yield Broken(name, bool(caught), tuple(caught))
