"""Sifting drops what is clearly worse, and draws evenly among the rest."""

from __future__ import annotations

import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.policies import Sifting, parse_policy
from feducb.types import Belief


def known(theta: list[float], width: float) -> Belief:
    """A belief whose bound is ``width`` wide at every vector of length 1."""
    return Belief(
        theta=np.array(theta),
        inverse=np.eye(len(theta)),
        ellipsoid_width=np.array(width),
        euclidean_width=np.array(0.0),
    )


CANDIDATES = np.eye(3)[None]


def test_what_lies_below_another_is_never_drawn() -> None:
    belief = known([0.9, 0.6, 0.1], 0.2)
    np.testing.assert_allclose(Sifting(1.0).propensities(belief, CANDIDATES), [[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(Sifting(4.0).propensities(belief, CANDIDATES), [[1.0, 0.0, 0.0]])
    index, chance = Sifting(1.0).decide(
        belief, np.repeat(CANDIDATES, 4, axis=0), np.array([0.0, 0.4, 0.6, 0.99])
    )
    assert index.tolist() == [0, 0, 1, 1]
    assert chance.tolist() == [0.5] * 4


def test_where_nothing_is_known_all_are_drawn() -> None:
    np.testing.assert_allclose(Sifting().propensities(known([0.9, 0.6, 0.1], 50.0), CANDIDATES), 1.0 / 3.0)


def test_its_number_is_the_boldness() -> None:
    assert parse_policy("sifting:2") == Sifting(2.0)
    with pytest.raises(ConfigurationError, match="boldness"):
        parse_policy("sifting:0")
