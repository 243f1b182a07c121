"""What rounding to the grid does to released sums, and that the stated noise covers it (docs/theory.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import FINE_BITS, ROUNDING_STEPS, entry_variance
from feducb.privacy.terms import Terms


def _terms(**changes: object) -> Terms:
    settings: dict[str, object] = {
        "problem": Problem(dim=3),
        "budget": Budget(epsilon=1.0, delta=1e-6),
        "releases": 16,
    }
    return Terms(**(settings | changes))  # type: ignore[arg-type]


def test_a_record_enters_within_half_a_fine_step() -> None:
    terms = _terms(trust="controller")
    rng, problem, bits = np.random.default_rng(8), terms.problem, FINE_BITS - terms.certificate().exponent
    rows, columns = np.triu_indices(problem.dim)
    errors = []
    for _ in range(500):
        action, reward = rng.uniform(-0.5, 0.5, problem.dim), rng.uniform(-1.0, 1.0, 1)
        agent = DeployedPrivatizer(terms)
        agent.record(action, reward)
        gram = np.outer(action, action)[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
        exact = np.concatenate([gram, math.sqrt(2.0) * terms.weight * reward * action])
        errors.append(agent.upload().values - np.ldexp(exact, bits))
    assert np.abs(errors).max() <= 0.5 + 1e-3  # the rest is float64


@pytest.mark.parametrize("dim", [1, 10])
@pytest.mark.parametrize("releases", [1, 64, 256])
def test_the_stated_variance_covers_what_rounding_adds_to_the_noise(dim: int, releases: int) -> None:
    """Rounding N = 2^25 records on entry, every row, which decoding amplifies, and what is published.

    A ball of the stated radius must hold the ball of the Gaussian noise and the worst rounding around it. The
    least radius that any bound may have is the root mean square of the residual, √(d(1/s² + S²) + S²)√w.
    """
    terms, records = _terms(problem=Problem(dim=dim), releases=releases), 2**25
    certificate, mechanism = terms.certificate(), terms.factors
    step, bound, decoder = 2.0**certificate.exponent, terms.problem.parameter_bound, mechanism.decoder()
    for number in {1, (releases + 1) // 2, releases}:
        amplified = 0.5 * ROUNDING_STEPS * float(np.abs(decoder[number - 1]).sum())
        entry = step * (records * 2.0 ** -(FINE_BITS + 1) + amplified + 0.5)
        # ‖h − Hθ*‖ ≤ ‖h‖ + S‖H‖_F, and h is its coordinates over √2 s
        worst = math.sqrt(certificate.coordinates * (0.5 / terms.weight**2 + bound**2)) * entry
        gaussian = certificate.scale / math.sqrt(2.0) * mechanism.error(number)
        radius = math.sqrt(dim * (1.0 / terms.weight**2 + bound**2) + bound**2)
        stated = math.sqrt(entry_variance(certificate, mechanism, number))
        assert radius * gaussian + worst <= radius * stated
