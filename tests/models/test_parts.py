"""Part by part, linear algebra and confidence sets are those of the whole, wherever there are zeros."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.models import parts as parts_of_a_matrix
from feducb.models.mixture import MixtureBound
from feducb.models.parts import Eigenbasis, Parts
from feducb.models.products import Products, _labels

Array = NDArray[np.float64]


def noisy_sums(rng: np.random.Generator, layout: str, *shape: int) -> tuple[Array, Array]:
    """Gram and moment as a model with known zeros reads them off noise and a few records."""
    model, dim = Products(layout), int(_labels(layout).shape[1])
    flat = rng.normal(size=(*shape, model.coordinates(dim)))
    gram, moment = model.read(flat, dim=dim, weight=1.0)
    return gram + 5.0 * np.eye(dim), moment


@pytest.mark.parametrize("layout", ["4(a10)", "2(a30)", "5+a30", "12+8(a5)", "40", "a30"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1)])
def test_a_set_by_parts_is_the_set_of_the_whole(
    rng: np.random.Generator, layout: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gram, moment = noisy_sums(rng, layout, *shape)
    dim, variance = gram.shape[-1], np.full(shape, 0.3)
    bound = MixtureBound(problem=Problem(dim=dim), log_threshold=4.0, gram_radius=3.0, residual=2.0)
    by_parts, empty = bound.belief(gram, moment, variance), bound.contradicted(gram, 9 * moment, variance)
    monkeypatch.setattr(parts_of_a_matrix, "_MANY", dim + 1)  # one part, whatever is zero: numpy's own
    whole = bound.belief(gram, moment, variance)
    for name in ("theta", "inverse", "ellipsoid_width", "estimate"):
        one, other = getattr(by_parts, name), getattr(whole, name)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, strict=True)
    np.testing.assert_array_equal(empty, bound.contradicted(gram, 9 * moment, variance))


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ("4(a10)", {4: 10}),  # blocks
        ("a30", {1: 30}),  # actions without features
        ("12+8(a5)", {52: 1}),  # what is shared joins all
        ("40", {40: 1}),
    ],
)
def test_which_parts_there_are(rng: np.random.Generator, layout: str, sizes: dict[int, int]) -> None:
    gram, _ = noisy_sums(rng, layout)
    found = Parts.of(gram)
    pieces = found.cut_matrix(gram)
    assert {piece.shape[-1]: piece.shape[-3] for piece in pieces} == sizes
    np.testing.assert_array_equal(found.join_matrix(pieces), gram)
    basis = Eigenbasis.of(gram)
    np.testing.assert_allclose(np.sort(basis.values), np.linalg.eigvalsh(gram), rtol=0, atol=1e-10)
    np.testing.assert_allclose(basis.matrix(basis.values), gram, rtol=0, atol=1e-10)


def test_a_chain_is_one_part_and_two_chains_are_two(rng: np.random.Generator) -> None:
    """Entries that go together only through others, in any order; zeros on the diagonal are entries too."""
    chain = np.diag(rng.normal(size=39), 1)
    chain = chain + chain.T
    order = rng.permutation(40)
    assert not Parts.of(chain[np.ix_(order, order)]).places
    chain[19, 20] = chain[20, 19] = 0.0
    (places,) = Parts.of(chain[np.ix_(order, order)]).places
    assert sorted(map(sorted, order[places].tolist())) == [list(range(20)), list(range(20, 40))]


def test_parts_of_several_matrices_are_those_of_all_of_them() -> None:
    one, other = np.eye(30), np.eye(30)
    one[0, 1] = one[1, 0] = other[1, 2] = other[2, 1] = 1.0
    assert [some.shape for some in Parts.of(one, other).places] == [(27, 1), (1, 3)]
    assert [some.shape for some in Parts.of(np.stack([one, other])).places] == [(27, 1), (1, 3)]
