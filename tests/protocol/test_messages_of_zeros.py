"""Releases without entries that are known to be zero travel, and add up among themselves alone."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, RefusedError
from feducb.models import LINEAR, KnownZeros, require_model
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import check_release

BLOCKS, MIXED, LATER = "zeros:3(a2)", "zeros:2+2(a2)", "zeros:2(a2)+2"
TERMS = Terms(
    problem=Problem(dim=6), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, model=require_model(BLOCKS)
)


def _release(model: str) -> GridRelease:
    privatizer = DeployedPrivatizer(replace(TERMS, model=require_model(model)))
    privatizer.record(np.eye(6), np.linspace(0.1, 0.6, 6))
    return privatizer.release()


@pytest.mark.parametrize("model", [BLOCKS, MIXED, f"public:{MIXED}", "blocks:3", "blocks:2+4"])
def test_they_read_back_and_known_zeros_are_zero_in_every_release_and_sum(model: str) -> None:
    parts = [messages.decode(messages.encode(_release(model), season=2)) for _ in range(3)]
    inner = require_model(model.removeprefix("public:"))
    assert isinstance(inner, KnownZeros)
    total = messages.decode(messages.encode(messages.combine(parts)))
    assert (total.model, total.agents, total.season) == (inner, 3, 2)
    pattern = inner.pattern(6)
    known = np.ones((6, 6), dtype=bool)
    known[pattern.rows, pattern.columns] = known[pattern.columns, pattern.rows] = False
    assert known.any()
    for one in (*parts, total):
        gram = one.read().gram
        assert not gram[known].any()
        assert gram[~known].all() or model.startswith("public:")  # whose Gram is exact
    np.testing.assert_array_equal(total.values, sum(part.values for part in parts))


def test_a_release_of_letters_is_a_ninth_as_long() -> None:
    letters = require_model("zeros:17(a10)")
    assert messages.message_size(170) == 40 + 8 * (14_535 + 170)
    assert messages.message_size(170, letters) == 40 + 2 + len(letters.name) + 8 * (1_530 + 170)


def test_two_structures_never_add_up() -> None:
    parts = [messages.decode(messages.encode(_release(model))) for model in (MIXED, LATER)]
    assert len(parts[0].values) == len(parts[1].values)
    with pytest.raises(ValueError, match=r"differ in .*model.*expected one kind"):
        messages.combine(parts)
    dense = messages.decode(messages.encode(_release("linear")))
    with pytest.raises(ValueError, match="expected one kind"):
        messages.combine([parts[0], dense])


def test_a_release_of_another_recipe_is_refused_with_its_name() -> None:
    terms = replace(TERMS, model=require_model(MIXED))
    assert check_release(messages.encode(_release(MIXED)), terms, agents=2).model == terms.model
    with pytest.raises(RefusedError, match=r"model zeros:2\(a2\)\+2, expected zeros:2\+2\(a2\).*recipe"):
        check_release(messages.encode(_release(LATER)), terms, agents=2)
    with pytest.raises(RefusedError, match=r"dimension 6\), expected .* model zeros:2\+2\(a2\)"):
        check_release(messages.encode(_release("linear")), terms, agents=2)
    with pytest.raises(RefusedError, match="expected 256"):
        check_release(messages.encode(_release(MIXED)), replace(terms, model=LINEAR), agents=2)
    assert terms.digest() != replace(terms, model=require_model(LATER)).digest() != TERMS.digest()


def _renamed(name: bytes, size: int | None = None) -> bytes:
    """A release under another name."""
    data = messages.encode(_release(MIXED))
    old = len(MIXED)
    return data[:40] + struct.pack("<H", len(name) if size is None else size) + name + data[42 + old :]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_renamed(b"zeros:2+2(a3)"), "does not fit its dimension 6"),
        (_renamed(b"zeros:a2+a2+2"), "expected one of known zeros"),  # written another way
        (_renamed(b"zeros:999999(a999999)"), "expected one of known zeros"),
        (_renamed(b"linear"), "expected one of known zeros"),
        (_renamed(b"public:zeros:2+2(a2)"), "expected one of known zeros"),
        (_renamed(b"zeros:\xff"), "expected one of known zeros"),
        (_renamed(b"", 0), "a model's name of 0"),
        (_renamed(MIXED.encode(), 60_000), "a model's name of 60000"),
        (messages.encode(_release(MIXED))[:41], "a model's name of 0"),
        (messages.encode(_release(MIXED))[:-8], "does not fit its dimension 6"),
    ],
    ids=range(10),  # what was drawn is no name for a test
)
def test_a_name_that_no_release_has_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        messages.decode(data)


def test_layouts_that_cannot_be_are_named() -> None:
    for wrong in (
        "zeros:",
        "zeros:a2+a3",
        "zeros:a2*a2",
        "zeros:2+",
        "zeros:A2",
        "zeros:0",
        "zeros:3(3(a2))",
    ):
        with pytest.raises(ConfigurationError, match="layout is"):
            require_model(wrong)
    with pytest.raises(ConfigurationError, match=r"layout is 'b2\+a2', expected a2\+b2, the same"):
        require_model("zeros:b2+a2")
    with pytest.raises(ConfigurationError, match=r"expected terms that add up to dim = 5"):
        require_model(MIXED).coordinates(5)
