"""When releases happen, and who may move them."""

from __future__ import annotations

import itertools

import pytest

from feducb.errors import ConfigurationError, PrivateScheduleError
from feducb.protocol.schedules import (
    Determinant,
    EveryRound,
    Explicit,
    Geometric,
    Periodic,
    parse_schedule,
    require_public,
)


def test_the_default_is_64_releases_from_round_8_to_the_horizon() -> None:
    rounds = Geometric().rounds(10_000)
    assert (len(rounds), rounds[0], rounds[-1]) == (64, 8, 10_000)
    ratios = [later / earlier for earlier, later in itertools.pairwise(rounds[20:])]
    assert max(ratios) == pytest.approx(min(ratios), rel=0.05)


def test_colliding_rounds_are_merged() -> None:
    rounds = Geometric().rounds(80)
    assert len(rounds) < 64
    assert list(rounds) == sorted(set(rounds))


@pytest.mark.parametrize("horizon", [1, 7, 8, 9, 50])
def test_short_horizons_work_or_say_what_is_wrong(horizon: int) -> None:
    if horizon < 8:
        with pytest.raises(ConfigurationError, match=f"at most the horizon, {horizon}"):
            Geometric().rounds(horizon)
    else:
        assert Geometric().rounds(horizon)[-1] == horizon


def test_growth_doubles() -> None:
    assert Geometric(first=3, growth=2.0).rounds(50) == (3, 6, 12, 24, 48)


def test_the_others() -> None:
    assert Periodic(every=4).rounds(13) == (4, 8, 12)
    assert Periodic(releases=3).rounds(10) == (3, 7, 10)
    assert EveryRound().rounds(3) == (1, 2, 3)
    assert Explicit([2, 5]).rounds(5) == (2, 5)


def test_only_the_determinant_trigger_reads_private_data() -> None:
    for schedule in (Geometric(), Periodic(), EveryRound(), Explicit([1])):
        assert require_public(schedule) is schedule
    with pytest.raises(PrivateScheduleError, match="reads no private data"):
        require_public(Determinant())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("geometric", Geometric(first=5, releases=9)),
        ("periodic", Periodic(releases=9)),
        ("every-round", EveryRound()),
        ("explicit:3,9", Explicit((3, 9))),
        ("determinant", Determinant()),
        ("determinant:12.5", Determinant(12.5)),
    ],
)
def test_text_forms(text: str, expected: object) -> None:
    count = 9 if text in ("geometric", "periodic") else None
    first = 5 if text == "geometric" else None
    assert parse_schedule(text, releases=count, first_release=first) == expected


@pytest.mark.parametrize("text", ["every-round", "explicit:3,9", "determinant", "periodic:4", "geometric:2"])
def test_a_count_beside_a_schedule_that_has_its_own_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="releases is 9, expected nothing"):
        parse_schedule(text, releases=9)


@pytest.mark.parametrize(
    "text", ["planned", "planned:2", "periodic", "every-round", "explicit:3,9", "determinant"]
)
def test_a_first_release_beside_a_schedule_that_has_its_own_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="first_release is 5, expected nothing"):
        parse_schedule(text, first_release=5)


def test_growth_close_to_one_ends() -> None:
    assert Geometric(first=3, growth=1.000000001).rounds(9) == (3, 4, 5, 6, 7, 8, 9)


@pytest.mark.parametrize(
    "text",
    ["weekly", "periodic:x", "explicit:", "explicit:5,3", "explicit:0", "determinant:-1", "geometric:nan"],
)
def test_bad_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("schedule", "horizon"),
    [(Geometric(releases=94), 100), (Periodic(releases=101), 100), (Explicit([101]), 100)],
)
def test_more_releases_than_rounds_are_refused(
    schedule: Geometric | Periodic | Explicit, horizon: int
) -> None:
    with pytest.raises(ConfigurationError, match=r"at most|horizon"):
        schedule.rounds(horizon)
