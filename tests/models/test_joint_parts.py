"""Own records and others' sums are read part by part, and the set is that of the whole."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from feducb.config import Problem
from feducb.models import parts as parts_of_a_matrix
from feducb.models.joint import Hearing, JointBound, Others
from feducb.models.mixture import MixtureBound
from feducb.models.parts import Parts
from feducb.models.products import Products, _labels
from feducb.types import Array, Belief, Indices, Statistics

FIELDS = ("theta", "inverse", "ellipsoid_width", "estimate")
AGENTS = 12


def bound_of(dim: int) -> JointBound:
    problem = Problem(dim=dim, noise_scale=0.5)
    return JointBound(
        alone=MixtureBound(problem=problem, log_threshold=4.0),
        variance=4.0,
        evenly=300.0,
        weight=0.5,
        distance=0.1,
        tolerance=0.1,
        looks=2_000,
        log_threshold=4.0,
        gram_radius=8.0,
        residual=4.0,
        rounding=0.1,
    )


def sums(rng: np.random.Generator, layout: str, records: int, noise: float, lie: float = 1.0) -> Statistics:
    """Of some agents: records within a model with known zeros, and noise on what it sends."""
    model, dim = Products(layout), int(_labels(layout).shape[1])
    actions = model.nearest(rng.standard_normal((AGENTS, records, dim)))
    actions /= np.maximum(np.linalg.norm(actions, axis=-1, keepdims=True), 1.0)
    theta = np.ones(dim) / math.sqrt(dim)
    rewards = actions @ (lie * theta) + 0.5 * rng.standard_normal((AGENTS, records))
    flat = np.stack([model.flatten(*one, 1.0).sum(axis=0) for one in zip(actions, rewards, strict=True)])
    gram, moment = model.read(flat + noise * rng.standard_normal(flat.shape), dim=dim, weight=1.0)
    return Statistics(gram, moment, records)


def read(bound: JointBound, own: Statistics, gram: Array, moment: Array) -> tuple[Belief, Belief, Indices]:
    others = Others.of(gram, moment)
    return bound.read(own, others), *bound.weigh(own, others)


@pytest.mark.parametrize("layout", ["4(a10)", "2(a30)", "a30", "5+a30", "12+8(a5)", "3(a5)+2(b9)"])
@pytest.mark.parametrize("records", [5, 1_000])
@pytest.mark.parametrize("lie", [1.0, -1.0])
def test_a_joint_set_by_parts_is_that_of_the_whole(
    rng: np.random.Generator, layout: str, records: int, lie: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, arrows and two columns; few own records, which have more zeros than the model; lies too."""
    own, told = sums(rng, layout, records, 0.0), sums(rng, layout, 3_000, 2.0, lie)
    dim = own.moment.shape[-1]
    *by_parts, hears = read(bound_of(dim), own, told.gram, told.moment)
    monkeypatch.setattr(parts_of_a_matrix, "_MANY", dim + 1)  # one part, whatever is zero: numpy's own
    *whole, heard = read(bound_of(dim), own, told.gram, told.moment)
    np.testing.assert_array_equal(hears, heard)
    for one, other in zip(by_parts, whole, strict=True):
        for name in FIELDS:
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8, atol=1e-11)


def test_heard_and_contradicted_are_both_there(rng: np.random.Generator) -> None:
    """A test of the test above."""
    found = set()
    for lie in (1.0, -1.0):
        own, told = sums(rng, "4(a10)", 1_000, 0.0), sums(rng, "4(a10)", 3_000, 2.0, lie)
        found |= {Hearing(int(one)) for one in read(bound_of(40), own, told.gram, told.moment)[2]}
    assert {Hearing.HEARD, Hearing.CONTRADICTED} <= found


def test_own_records_that_join_parts_of_the_others_are_not_cut(rng: np.random.Generator) -> None:
    """Nothing is left out that is not zero: then all is one part, as of a full Gram."""
    own, told = sums(rng, "4(a10)", 200, 0.0), sums(rng, "4(a10)", 3_000, 2.0)
    others = Others.of(told.gram, told.moment)
    assert others.parts(own) is others.basis.parts
    crossed = own.gram.copy()
    crossed[3, 0, 1] = crossed[3, 1, 0] = 0.01  # of one agent, between two blocks
    assert sorted(some.shape for some in others.parts(replace(own, gram=crossed)).places) == [(1, 8), (8, 4)]
    full = own.gram + 0.01
    assert not others.parts(replace(own, gram=full)).places


def test_what_parts_compute_is_numpys(rng: np.random.Generator) -> None:
    matrix = sums(rng, "3(a10)", 500, 0.0).gram + np.eye(30)
    parts, vector = Parts.of(matrix), rng.standard_normal((AGENTS, 30))
    assert parts.places
    solved = np.linalg.solve(matrix, vector[..., None])[..., 0]
    np.testing.assert_allclose(parts.solve(matrix, vector), solved, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.inverse(matrix), np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.log_det(matrix), np.linalg.slogdet(matrix)[1], rtol=1e-12)
    np.testing.assert_allclose(parts.eigenvalues(matrix), np.linalg.eigvalsh(matrix), rtol=1e-10)
