"""Shared by all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

# Before numpy: in small matrix products, several tests at a time, threads mostly wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

if TYPE_CHECKING:
    from harness import Running
    from playwright.sync_api import Browser

import feducb
from feducb.models.mixture import MixtureBound
from feducb.types import Belief

# Examples are the same each time, and an example may take as long as a busy machine needs.
with contextlib.suppress(ImportError):  # a GPU machine has what simulations need, and no more
    import hypothesis

    hypothesis.settings.register_profile("feducb", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("feducb")


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded generator: a failing test fails again."""
    return np.random.default_rng(20201)


@pytest.fixture
def noise_alone() -> feducb.OwnEnvironment:
    """Rewards without noise, and a parameter well inside its ball: only privacy noise can break a bound."""

    def draw(generator: np.random.Generator, agent: int, rounds: int) -> np.ndarray:
        directions = generator.standard_normal((rounds, 6, 2))
        return np.asarray(0.9 * directions / np.linalg.norm(directions, axis=-1, keepdims=True))

    return feducb.OwnEnvironment(
        problem=feducb.Problem(dim=2, noise_scale=1e-3),
        arms=6,
        theta=np.array([0.4, 0.3]),
        draw=draw,
        pay=lambda generator, actions, means: means,
    )


@pytest.fixture
def understate_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on, bounds believe that releases carry an eighth of their noise's variance."""
    honest = MixtureBound.belief

    def understated(self: MixtureBound, gram: Any, moment: Any, variance: Any) -> Belief:
        return honest(self, gram, moment, variance / 8.0)

    return lambda: monkeypatch.setattr(MixtureBound, "belief", understated)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one, for tests that look at a page."""
    from browsing import launched

    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One decision service for all tests that leave it as it is."""
    from harness import Running, write_config

    with Running(write_config(tmp_path_factory.mktemp("service"))) as service:
        yield service


@pytest.fixture(autouse=True)
def sweep(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sweep up after engines, not in a later test.

    nats-py leaves the socket of a connection that is cancelled half-made to the end of the event loop,
    unclosed, and Python complains whenever it comes across it.
    """
    yield
    if request.path.parent.name == "carriers":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
