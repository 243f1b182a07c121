"""Lines that cannot be are named, those of no use counted, and no decision counts twice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from decided import line, write

from feducb.errors import ConfigurationError
from feducb.evaluation import Comparison, Study, compare_source, open_exports
from feducb.trust import CONTROLLER

QUICK = Study(epsilons=(8.0,), trusts=(CONTROLLER,), folds=2, repeats=1)


def _compare(folder: Path, lines: Iterable[dict[str, Any]]) -> Comparison:
    return compare_source(open_exports([write(folder / "north.jsonl", lines)]), study=QUICK)


GOOD = [[0.6, 0.0], [0.0, 0.8]]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"features": [[0.6, 0.0, 0.1]]}, "features in FILE line 7 is 'of shape (1, 3)', expected"),
        ({"features": [[0.6, 0.0], [0.1]]}, "features in FILE line 7 is 'ragged or no numbers', expected"),
        ({"features": [["a", "b"]]}, "features in FILE line 7 is"),
        ({"features": []}, "features in FILE line 7 is"),
        ({"features": [[math.nan, 0.0], [0.0, 0.8]]}, "features[0] in FILE line 7 is 'of length nan'"),
        ({"features": [[0.6, 0.0], [0.8, 0.8]]}, "features[1] in FILE line 7 is 'of length 1.13137'"),
        ({"features": [[0.6, 0.0], [1e300, 0.8]]}, "features[1] in FILE line 7 is"),
        ({"index": 2}, "index in FILE line 7 is 2, expected that of one of 2 candidates"),
        ({"index": -1}, "index in FILE line 7 is -1, expected"),
        ({"index": None}, "index in FILE line 7 is None, expected"),
        ({"propensity": 0.0}, "propensity in FILE line 7 is 0.0, expected a number above 0 and at most 1"),
        ({"propensity": 1.01}, "propensity in FILE line 7 is 1.01, expected"),
        ({"propensity": math.nan}, "propensity in FILE line 7 is nan, expected"),
        ({"propensity": "half"}, "propensity in FILE line 7 is 'half', expected"),
        ({"reward": 1.5}, "reward in FILE line 7 is 1.5, expected a number from -1 to 1"),
        ({"reward": math.nan}, "reward in FILE line 7 is nan, expected"),
        ({"reward": None, "default_reward": 9.0}, "reward in FILE line 7 is 9.0, expected"),
        ({"number": 6}, "number in FILE line 7 is 6, expected one above 6: numbers of agent north ascend"),
        ({"number": None}, "number in FILE line 7 is None, expected"),
        ({"open": "no"}, "open in FILE line 7 is 'no', expected true or false"),
        ({"agent": 3}, "agent in FILE line 7 is 3, expected a name"),
        ({"problem": {"dim": 3}}, "problem in FILE line 7 is {'dim': 3}, expected that of the lines before"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    lines = [line(number, GOOD) for number in range(1, 11)]
    lines[6] |= changed
    path = write(tmp_path / "north.jsonl", lines)
    with pytest.raises(ConfigurationError) as raised:
        open_exports([path])
    assert str(raised.value).startswith(named.replace("FILE", str(path)))


@pytest.mark.parametrize("text", ["{", "[1]", "null", "\xff", "[" * 100_000, '{"number": 7}'])
def test_what_is_no_line_of_an_export_is_named(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "north.jsonl", [line(number, GOOD) for number in range(1, 7)])
    with path.open("ab") as file:
        file.write(text.encode("latin-1") + b"\n")
    with pytest.raises(ConfigurationError, match=r"north\.jsonl line 7 is .*, expected a JSON object"):
        open_exports([path])


@pytest.mark.parametrize("said", [{"dim": 2, "colour": 1}, {"dim": 0}, [2], {"dim": 2, "action_bound": -1}])
def test_bounds_that_cannot_be_are_named(tmp_path: Path, said: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"problem in .*north\.jsonl line 1 is"):
        _compare(tmp_path, [line(1, GOOD, problem=said)])


def test_a_file_given_twice_is_refused_and_a_later_one_of_the_same_agent_is_not(tmp_path: Path) -> None:
    first = write(tmp_path / "june.jsonl", [line(n, GOOD, agent="north") for n in range(1, 21)])
    later = write(tmp_path / "july.jsonl", [line(n, GOOD, agent="north") for n in range(21, 31)])
    other = write(tmp_path / "south.jsonl", [line(n, GOOD) for n in range(1, 21)])
    for twice in ([first, first], [first, other, first], [later, first]):
        with pytest.raises(
            ConfigurationError, match=r"june\.jsonl line 1 is 1, expected .* none may come twice"
        ):
            open_exports(twice)
    facts = open_exports([first, other, later]).facts
    assert (facts.agents, facts.rows) == (("north", "south"), 50)


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    good = [line(number, GOOD, reward=0.5) for number in range(1, 31)]
    useless = [
        line(31, GOOD, open=True, reward=1.0),
        line(32, GOOD) | {"features": None},
        line(33, GOOD, propensity=None),
        line(34, GOOD, propensity=None),
        line(35, GOOD, reward=None),
    ]
    found = _compare(tmp_path, [*good, *useless])
    assert found.settings["rows"] == 30
    told = "5 of 35 lines are left out: 1 no features, 2 no propensity, 1 no reward, 1 still open"
    assert told in found.notes
    assert "the exports do not say their public bounds: L = 1, rewards from -1 to 1 are taken" in found.notes
    with pytest.raises(ConfigurationError) as raised:
        _compare(tmp_path, useless)
    for said in ("5 lines: 1 no features", "keep_events", "uniform_share"):
        assert said in str(raised.value)
    with pytest.raises(ConfigurationError, match=r"0 lines.*keep_events"):
        _compare(tmp_path, [])


def test_one_candidate_is_nothing_to_choose_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="two or more to choose from"):
        _compare(tmp_path, [line(1, [[0.5, 0.5]])])


def test_bounds_are_those_of_the_export_unless_others_are_given(tmp_path: Path) -> None:
    problem = {"dim": 2, "action_bound": 3.0, "reward_bound": 5.0, "parameter_bound": 2.0, "noise_scale": 1.0}
    path = write(tmp_path / "n.jsonl", [line(1, [[0.0, 2.5], [1.0, 0.0]], reward=4.0, problem=problem)])
    facts = open_exports([path]).facts
    assert facts.problem.action_bound == 3.0
    assert (facts.problem.parameter_bound, facts.reward_range) == (2.0, (-5.0, 5.0))
    assert open_exports([path], action_bound=2.5, reward_range=(-4.0, 4.0)).facts.reward_range == (-4.0, 4.0)
    with pytest.raises(ConfigurationError, match=r"features\[0\].*at most 2"):
        open_exports([path], action_bound=2.0)
    with pytest.raises(ConfigurationError, match="from -3 to 3"):
        open_exports([path], reward_range=(-3.0, 3.0))


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    lines = [line(number, GOOD) for number in range(1, 31)]
    path = write(tmp_path / "north.jsonl", lines)
    source = open_exports([path])
    for changed in (lines[:-1], [*lines, line(31, GOOD)], [*lines[:-1], line(31, GOOD, agent="south")]):
        write(path, changed)
        with pytest.raises(ConfigurationError, match="changed while they were read"):
            list(source.blocks())
