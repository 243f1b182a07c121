"""Agents that miss rows: what opens is what deployed encoders would make of it, agent by agent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.privacy.encoders import make_decoder, make_encoder
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.mechanisms import BinaryTree, BufferedToeplitz, Dense, Mechanism, SquareRootToeplitz
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.synchronisation import add_up
from feducb.simulation.absences import SecureRows, attend
from feducb.trust import Keepers
from feducb.types import Statistics
from feducb.worlds.streams import Purpose, Streams

MECHANISMS = [
    Dense(12),
    Dense(12, quiet=4, decay=1.4),
    SquareRootToeplitz(12),
    BufferedToeplitz(12),
    BinaryTree(12),
]
KEEPERS: dict[str, Any] = {"agents": 6, "trust": Keepers(1, 1), "dim": 4, "arms": 12, "horizon": 400}
UNIT = 2.0**40  # of whole numbers that stand for data: rounding in encoders is next to nothing


class _Scripted(np.random.Generator):
    """Coins that fall as they are told: 1 is there, 0 is away."""

    def __init__(self, there: list[tuple[int, int]]) -> None:
        super().__init__(np.random.PCG64(0))
        self._there = iter(there)

    def random(self, *args: Any, **more: Any) -> Any:
        return np.array(next(self._there), dtype=np.float64)


def _rows(mechanism: Mechanism, there: np.ndarray, quorum: int, scale: float = 0.0) -> SecureRows:
    """For who is there, (rows, attempts, agents)."""
    agents = there.shape[2]
    privatizer = Privatizer(
        problem=feducb.Problem(dim=2), mechanism=mechanism, noise_scale=np.full(agents, scale)
    )
    coins = [_Scripted([tuple(row) for row in there[:, :, agent].tolist()]) for agent in range(agents)]
    return SecureRows(privatizer, quorum=quorum, absence=0.5, coins=coins)


@pytest.mark.parametrize(
    ("first", "second", "built", "sent", "listed"),
    [
        ("1111", "0000", "1111", "1111", "1111"),
        ("1101", "0010", "1101", "1101", "1101"),  # three of four are enough; there is no second attempt
        ("1100", "1011", "1111", "0011", "1011"),  # the first two have spent the row: noise alone, or nothing
        ("1100", "0011", "1111", "0000", "0000"),  # nothing opens, and all have spent it
        ("0000", "1110", "1110", "1110", "1110"),
        ("0001", "0001", "0001", "0000", "0000"),
    ],
)
def test_who_builds_sends_and_adds_noise(first: str, second: str, built: str, sent: str, listed: str) -> None:
    there = np.array([[mark == "1" for mark in one] for one in (first, second)])
    done = attend(there, quorum=3)
    found = ["".join("01"[int(flag)] for flag in part) for part in (done.built, done.sent, done.listed)]
    assert found == [built, sent, listed]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("away", [0.0, 0.2, 0.5])
def test_what_opens_is_what_deployed_encoders_make_of_it(
    mechanism: Mechanism, away: float, rng: np.random.Generator
) -> None:
    agents, quorum = 5, 4
    there = rng.random((mechanism.releases, 2, agents)) >= away
    rows = _rows(mechanism, there, quorum)
    encoders = [make_encoder(mechanism, 1) for _ in range(agents)]
    decoder = make_decoder(mechanism, 1, gaps=True)
    total, waiting = np.zeros(agents), np.zeros(agents)
    for number, (first, second) in enumerate(there, start=1):
        more = rng.random(agents)
        total, waiting = total + more, waiting + more
        # An agent encodes once a row: what waits if it builds it, now or at the second attempt, or nothing.
        again = first.sum() < quorum
        built = first | second if again else first
        opened = second if again else first
        own = [
            int(one.encode(np.array([round(UNIT * 2.0**FINE_BITS * batch)], dtype=object))[0])
            for one, batch in zip(encoders, waiting * built, strict=True)
        ]
        waiting = waiting * ~built
        opens = opened.sum() >= quorum
        sent = opened & ~first if again else opened  # who built it before has spent it
        summed = sum(row for row, one in zip(own, sent, strict=True) if one and opens)
        expected = decoder.decode(np.array([summed]))[0] / UNIT
        gram = np.zeros((1, agents, 2, 2))
        gram[0, :, 0, 1] = gram[0, :, 1, 0] = total
        released = rows.release(Statistics(gram, gram[..., 0], number), SeededNoise([]))
        assert (released is not None) == opens
        if released is not None:
            found = add_up(released)
            np.testing.assert_allclose(found.gram[0, 0, 1], expected, atol=1e-6)
            np.testing.assert_allclose(found.moment[0, 1], expected, atol=1e-6)
            assert -1e-6 <= expected <= total.sum() + 1e-6  # all weights are in [0, 1]
            if away == 0.0:
                assert expected == pytest.approx(total.sum())


@pytest.mark.parametrize("each", [True, False], ids=["each agent's noise", "one noise"])
def test_a_sum_has_the_noise_of_those_in_it_and_is_read_as_if_all_were(each: bool) -> None:
    mechanism, scale, runs = Dense(3), 2.0, 4000
    there = np.ones((3, 2, 4), dtype=bool)
    there[0, 0, 3] = False  # three shares
    there[1, :, :2] = False  # nothing opens
    decoder, shares = mechanism.decoder(), np.array([3.0, 0.0, 4.0])
    nothing = Statistics(np.zeros((1, 4, 2, 2)), np.zeros((1, 4, 2)), 0)
    drawn = []
    for run in range(runs):
        rows = _rows(mechanism, there, quorum=3, scale=scale)
        streams = Streams(7).grid(range(run, run + 1), range(4 if each else 1), Purpose.NOISE)
        opened = [rows.release(nothing, SeededNoise(streams)) for _ in range(3)]
        assert [one is None for one in opened] == [False, True, False]
        last = opened[-1]
        assert last is not None
        drawn.append(float(last.gram[0, 0, 0, 1]))
        assert float(last.variance[0, 0]) == pytest.approx(4 * scale**2 * mechanism.error(3) ** 2)
    expected = scale**2 * float(decoder[2] ** 2 @ shares)
    # A chi-square of 4,000 at 6 deviations: false alarms 1e-8. A share too many, 14 % more, would be seen.
    assert np.mean(np.square(drawn)) == pytest.approx(expected, rel=6.0 * math.sqrt(2.0 / runs))


def test_backends_have_the_same_absences_and_nobody_away_changes_nothing() -> None:
    setting = KEEPERS | {"runs": 6, "epsilon": 20.0, "seed": 3}
    found = [feducb.simulate(**setting, absence=0.25, backend=name) for name in ("reference", "cpu")]
    assert found[0].release_rounds == found[1].release_rounds
    assert len(set(found[0].release_rounds)) > 1
    plain = feducb.simulate(**setting, backend="cpu")
    assert set(found[0].release_rounds[0]) < set(plain.release_rounds[0])
    assert found[0].config["absence"] == 0.25
    assert found[0].privacy == plain.privacy  # absences cost no privacy
    assert "absence" not in plain.config
    np.testing.assert_array_equal(feducb.simulate(**setting, absence=0.0, backend="cpu").regret, plain.regret)


def test_what_was_kept_goes_on_with_the_same_absences(tmp_path: Any) -> None:
    setting = KEEPERS | {"runs": 4, "epsilon": 20.0, "absence": 0.25}
    for backend in ("reference", "cpu"):
        whole = feducb.simulate(**setting, backend=backend)
        first = feducb.simulate(**setting, backend=backend, checkpoint=tmp_path / backend)
        again = feducb.simulate(**setting, backend=backend, checkpoint=tmp_path / backend)
        np.testing.assert_array_equal(first.regret, whole.regret)
        np.testing.assert_array_equal(again.regret, whole.regret)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"absence": -0.1}, "absence is -0.1, expected a finite number of at least 0"),
        ({"absence": 1.0}, "absence is 1.0, expected a number of at least 0 and below 1"),
        ({"absence": math.nan}, "absence is nan, expected a finite number of at least 0"),
        ({"trust": "nobody"}, "absence is 0.1, expected 0 unless the trust is keepers: "
         "only there a sum opens without those who are away"),
        ({"baseline": "alone"}, "absence is 0.1, expected 0 unless the trust is keepers: "
         "only there a sum opens without those who are away"),
        ({"trust": "keepers", "agents": None, "topology": "complete:5"},
         "absence is 0.1, expected 0 on a graph: a clique moves only when the rows of all its members are "
         "there"),
        ({"mechanism": "optimal-tree", "releases": 8},
         "absence is 0.1, expected 0 with the mechanism optimal-tree, which publishes several rows at once"),
        ({"trust": Keepers(3, 2)}, "trust is 'keepers', expected at least 2 honest shares of noise a row: "
         "of 6 agents 3 may be away and 2 may collude, which leaves 1"),
        ({"trust": Keepers(1, 1), "agents": None, "topology": "complete:5"},
         "away is 1, expected 0 on a graph: a clique moves only when the rows of all its members are there"),
        ({"trust": "keepers", "agents": None, "topology": "ring:6", "absence": 0.0},
         "trust is 'keepers', expected at least 2 honest shares of noise a row: "
         "of 2 agents 0 may be away and 1 may collude, which leaves 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(feducb.ConfigurationError) as raised:
        feducb.simulate(**(KEEPERS | {"runs": 1, "horizon": 40, "absence": 0.1} | changes))
    assert str(raised.value) == sentence
