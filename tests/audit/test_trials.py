"""Trials take the deployed path, in this process or in others; what goes wrong in a worker is said."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from feducb.audit import trials
from feducb.audit.canary import coordinates_of, worlds
from feducb.audit.trials import Draws, Job, draw, draw_all
from feducb.config import Budget, Problem
from feducb.errors import PrivacyError, RecordOutOfBoundsError
from feducb.interfaces import Trust
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import Certificate
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER, NOBODY

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=4)
JOB = Job(make=DeployedPrivatizer, terms=TERMS, placement=1, world=0, trials=5)


class _Silent(DeployedPrivatizer):
    """Without noise, so that what leaves is known."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        vars(self._noise).update(draw=partial(np.zeros, dtype=np.int64))


def _ends_its_process(terms: Terms) -> DeployedPrivatizer:
    os._exit(7)


def _raises(terms: Terms) -> DeployedPrivatizer:
    raise RuntimeError("no such privatizer")


def _says_too_much(terms: Terms) -> DeployedPrivatizer:
    """Writes where results are expected."""
    sys.stdout.write("hello\n")
    sys.stdout.flush()
    return DeployedPrivatizer(terms)


def test_draws_are_integers_of_every_trial_release_and_coordinate() -> None:
    draws = draw(JOB)
    assert draws.values.shape == (5, 4, 5)
    assert draws.values.dtype == np.int64
    assert {number for number, _ in draws.headers} == {1, 2, 3, 4}
    assert len(draws.headers) == 4


def test_no_two_trials_are_alike() -> None:
    """Noise has no seed: neither within a job nor between two of them (false alarm below 1e-28)."""
    one, other = draw(JOB).values, draw(JOB).values
    flat = {row.tobytes() for row in np.concatenate([one, other]).reshape(10, -1)}
    assert len(flat) == 10


@pytest.mark.parametrize("trust", [NOBODY, CONTROLLER])
@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize("placement", [0, 2, 3])
def test_without_noise_the_sums_of_the_world_leave(trust: Trust, world: int, placement: int) -> None:
    """Whoever adds the noise, all records of all batches so far are in a release, to a few grid steps."""
    terms = replace(TERMS, trust=trust, excess="refuse")
    draws = draw(Job(make=_Silent, terms=terms, placement=placement, world=world, trials=2))
    sums = np.cumsum([coordinates_of(terms, batch) for batch in worlds(terms, placement, world)], axis=0)
    released = np.ldexp(draws.values.astype(np.float64), terms.certificate().exponent)
    np.testing.assert_array_equal(released[0], released[1])
    np.testing.assert_allclose(released[0], sums, atol=1e-3)


def test_a_hostile_canary_counts_as_the_extreme_one() -> None:
    """Under ``clip`` it comes sixteen times too large, and leaves as it may."""
    honest, hostile = (
        draw(replace(JOB, make=_Silent, terms=replace(TERMS, excess=excess), trials=1)).values
        for excess in ("refuse", "clip")
    )
    assert np.abs(honest - hostile).max() <= 4


def test_a_hostile_record_that_is_refused_ends_the_trials() -> None:
    class Strict(DeployedPrivatizer):
        def __init__(self, terms: Terms) -> None:
            super().__init__(replace(terms, excess="refuse"))

    with pytest.raises(RecordOutOfBoundsError):
        draw(replace(JOB, make=Strict))


def test_agents_of_a_trusted_controller_take_turns() -> None:
    """The canary and the record beside it go through two agents: each hands over what it has."""
    seen = []

    class Watching(DeployedPrivatizer):
        def receive(self, upload: Any, records: int = 0) -> None:
            seen.append(records)
            super().receive(upload, records)

    terms = replace(TERMS, trust=CONTROLLER, excess="refuse")
    draw(Job(make=Watching, terms=terms, placement=1, world=0, trials=1))
    assert seen == [1, 0, 1, 1, 1, 0, 1, 0]


def test_draws_add_up() -> None:
    one, other = draw(JOB), draw(replace(JOB, trials=2))
    both = one + other
    np.testing.assert_array_equal(both.values, np.concatenate([one.values, other.values]))
    assert both.headers == one.headers | other.headers


def test_jobs_and_draws_travel_as_they_are() -> None:
    job = replace(JOB, terms=replace(TERMS, trust=CONTROLLER, mechanism="tree"))
    assert pickle.loads(pickle.dumps(job)) == job
    draws = Draws(np.arange(6).reshape(1, 2, 3), frozenset({(1, b"a"), (2, b"b")}))
    again: Draws = pickle.loads(pickle.dumps(draws))
    np.testing.assert_array_equal(again.values, draws.values)
    assert again.headers == draws.headers


def _processes(monkeypatch: pytest.MonkeyPatch, processors: int = 2) -> list[list[str]]:
    """From now on, so many processors, processes for any number of trials; the commands that start them."""
    started: list[list[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        started.append(command)
        return popen(command, **how)

    monkeypatch.setattr(trials, "_INLINE", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(subprocess, "Popen", start)
    # Workers find what they draw from by its module, as those of a script would.
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return started


def test_processes_and_this_process_draw_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [replace(JOB, make=_Silent, placement=place, trials=2 + place) for place in (0, 1, 3)]
    alone, steps = draw_all(jobs), list[tuple[int, int]]()
    started = _processes(monkeypatch)
    together = draw_all(jobs, progress=lambda *step: steps.append(step))
    assert len(started) == 2
    for one, other in zip(alone, together, strict=True):  # in order, whoever was first
        np.testing.assert_array_equal(one.values, other.values)
        assert one.headers == other.headers
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (10, 10)


def test_few_trials_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = _processes(monkeypatch)
    monkeypatch.setattr(trials, "_INLINE", 10)
    assert len(draw_all([JOB, JOB])) == 2
    assert started == []


def test_one_processor_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = _processes(monkeypatch, processors=1)
    assert len(draw_all([JOB, JOB])) == 2
    assert started == []


def test_no_more_processes_than_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    started = _processes(monkeypatch, processors=64)
    assert len(draw_all([JOB])) == 1
    assert started == []  # a single one is drawn here


def test_no_job_at_all() -> None:
    assert draw_all([]) == []


@pytest.mark.parametrize(("make", "code"), [(_ends_its_process, 7), (_says_too_much, 0)])
def test_a_worker_that_goes_wrong_is_said_and_none_is_left(
    make: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _processes(monkeypatch)
    before = threading.active_count()
    jobs = [replace(JOB, make=make, trials=1), replace(JOB, make=_Silent, trials=1)]
    with pytest.raises(PrivacyError, match=f"worker ended with code {code}, expected results"):
        draw_all(jobs)
    assert threading.active_count() == before


def test_what_goes_wrong_in_this_process_is_raised_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="no such privatizer"):
        draw_all([replace(JOB, make=_raises)])


def test_a_privatizer_that_no_other_process_can_find_does_not_travel() -> None:
    class Local(DeployedPrivatizer):
        pass

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(replace(JOB, make=Local))


def test_the_other_side_draws_until_there_are_no_more_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve`, in this process: two jobs in, two results out, and an end."""
    jobs = io.BytesIO(pickle.dumps(replace(JOB, trials=1)) + pickle.dumps(replace(JOB, trials=2)))
    results = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=jobs))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=results))
    trials.serve()
    monkeypatch.undo()
    results.seek(0)
    first, second = pickle.load(results), pickle.load(results)
    assert (first.values.shape, second.values.shape) == ((1, 4, 5), (2, 4, 5))
    assert results.read() == b""


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    """Workers are no children of `multiprocessing`, which would run the script in each of them."""
    script = tmp_path / "audit_it.py"
    script.write_text(
        textwrap.dedent(
            """
            print("begins")
            from feducb.audit import trials
            from feducb.config import Budget, Problem
            from feducb.privacy.deployed import DeployedPrivatizer
            from feducb.privacy.terms import Terms

            trials._INLINE = 0
            trials.os.sched_getaffinity = lambda _: {0, 1}
            terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=2)
            job = trials.Job(make=DeployedPrivatizer, terms=terms, placement=0, world=0, trials=1)
            print(sum(len(draws.values) for draws in trials.draw_all([job, job])))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.split() == ["begins", "2"]


def test_certificates_of_a_job_are_those_of_its_terms() -> None:
    """What travels is what was agreed: the noise in a worker is the one that is judged."""
    again: Job = pickle.loads(pickle.dumps(JOB))
    certificate: Certificate = again.make(again.terms).certificate
    assert certificate == TERMS.certificate()
