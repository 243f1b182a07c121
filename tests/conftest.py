"""Shared by all tests."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded generator: a failing test fails again."""
    return np.random.default_rng(20201)
