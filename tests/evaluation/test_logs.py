"""Reading logs: the same from every source, bad rows are named, and memory does not grow."""

from __future__ import annotations

import gzip
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from logs import OFFERS, shop_log

from feducb.errors import ConfigurationError
from feducb.evaluation import FrameLog, LogColumns, Study, compare_on_log, open_log, survey
from feducb.evaluation.survey import Survey, parse_context, parse_terms
from feducb.trust import CONTROLLER
from feducb.worlds.features import Category, Hashed, Number
from feducb.worlds.logs import CsvLog, Log

COLUMNS = LogColumns(agent="shop", action="offer", reward="bought", propensity="p")
QUICK = Study(epsilons=(8.0,), trusts=(CONTROLLER,), folds=2, repeats=1)


def _survey(log: Log, *context: str, **settings: Any) -> Survey:
    return survey(
        log, COLUMNS, context=parse_context(context or ("age:0:100", "region:north|south")), **settings
    )


def test_csv_parquet_and_frame_say_the_same(tmp_path: Path) -> None:
    frame = shop_log(3000)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_csv(tmp_path / "log.csv.gz", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    logs: list[Log] = [FrameLog(frame, rows_at_once=1000)]
    logs += [open_log(tmp_path / name, rows_at_once=700) for name in ("log.csv", "log.csv.gz", "log.parquet")]
    values = []
    for log in logs:
        found = compare_on_log(log, _survey(log), study=QUICK)
        values.append([row.value.value for row in found.rows])
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-9)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("p", 0.0, "p in row 1234 is 0.0, expected a number above 0 and at most 1"),
        ("p", 1.01, "p in row 1234 is 1.01, expected"),
        ("p", math.nan, "p in row 1234 is nan, expected"),
        ("bought", math.nan, "bought in row 1234 is nan, expected a number from 0 to 1"),
        ("bought", 7.0, "bought in row 1234 is 7.0, expected a number from 0 to 1"),
        ("age", math.nan, "age in row 1234 is nan, expected a finite number"),
        ("offer", "car", "offer in row 1234 is 'car', expected one of book, game, film"),
        ("offer", None, "offer in row 1234 is None, expected a value"),
        ("region", "moon", "region in row 1234 is 'moon', expected one of north, south"),
        ("shop", None, "shop in row 1234 is None, expected a value"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, ending: str, column: str, value: Any, named: str) -> None:
    frame = shop_log(2000)
    frame.loc[1233, column] = value
    path = tmp_path / f"log.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    if ending == "csv":  # as an editor counts, with the header
        named = named.replace("row 1234", "line 1235")
    with pytest.raises(ConfigurationError) as raised:
        _survey(open_log(path, rows_at_once=500), actions=OFFERS)
    assert str(raised.value).startswith(named)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_the_line_is_the_editor_s_also_after_empty_lines_and_line_breaks_in_fields(
    tmp_path: Path, ending: str
) -> None:
    frame = shop_log(200).assign(comment="good")
    frame.loc[20, "comment"] = "two\nlines"
    frame.loc[99, ["p", "comment"]] = 0.0, "bad"
    lines = frame.to_csv(index=False).splitlines()
    lines[50:50] = ["", "  "]
    text = "\n".join(lines) + "\n"
    number = next(place for place, line in enumerate(text.splitlines(), start=1) if line.endswith("bad"))
    assert number == 1 + 100 + 1 + 2  # the header, a line break in a field, two empty lines
    path = tmp_path / f"log.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    with pytest.raises(ConfigurationError, match=f"p in line {number} is 0.0"):
        _survey(open_log(path, rows_at_once=30), actions=OFFERS)


@pytest.mark.parametrize("context", [(), ("age", "region")], ids=["told", "read off"])
@pytest.mark.parametrize("rows_at_once", [500, 5000])
@pytest.mark.parametrize("text", ["much", "NaN"])
@pytest.mark.parametrize("column", ["p", "bought", "age"])
def test_text_where_a_number_should_be_is_named(
    tmp_path: Path, column: str, text: str, rows_at_once: int, context: tuple[str, ...]
) -> None:
    frame = shop_log(2000).astype({column: object})
    frame.loc[1233, column] = text
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ConfigurationError) as raised:
        _survey(open_log(tmp_path / "log.csv", rows_at_once=rows_at_once), *context)
    assert str(raised.value).startswith(f"{column} in line 1235 is {text!r}, expected")


def test_numbers_that_are_names_are_taken_as_such_when_told(tmp_path: Path) -> None:
    frame = shop_log(200).astype({"age": object})
    frame.loc[7, "age"] = "A1"
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = open_log(tmp_path / "log.csv")
    with pytest.raises(ConfigurationError, match="if they are names, say age:category or age:hash:64"):
        survey(log, COLUMNS, context=parse_context(["age"]))
    assert survey(log, COLUMNS, context=parse_context(["age:hash:8"])).rows == 200


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    shop_log(20).drop(columns="p").to_csv(path, index=False)
    with pytest.raises(ConfigurationError) as raised:
        _survey(open_log(path))
    assert str(raised.value) == (
        "column is 'p', expected one of those of log.csv: shop, age, region, offer, bought"
    )


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("log.csv", "", "expected a CSV file with a header"),
        ("log.csv", "shop,age,region,offer,bought,p\n", "expected at least one row"),
        (
            "log.csv",
            "shop,age,region,offer,bought,p\na,1,north,x,1,1,1,1\n",
            "as many fields in line 2 as in the header",
        ),
        ("log.csv", "shop,age,region,offer,bought,p\na,1,north,x,1,1\na,1,north,x,1,1,1\n", "line 3, saw 7"),
        ("log.parquet", "not one", "expected a Parquet file"),
        ("log.txt", "x", "expected a file that ends in .csv or .parquet"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        _survey(open_log(tmp_path / name))
    assert named in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a file that exists, or the name of a data set"):
        open_log(tmp_path / "none.csv")


def test_a_log_with_one_action_has_nothing_to_choose() -> None:
    frame = shop_log(100).assign(offer="book")
    with pytest.raises(ConfigurationError, match="two actions or more"):
        _survey(FrameLog(frame))


def test_what_is_not_said_is_read_off_the_log_and_said_so() -> None:
    frame = shop_log(500).assign(zip=[str(one) for one in range(500)])
    found = _survey(FrameLog(frame), "age", "region", "zip")
    age, region, place = found.recipe.context
    assert isinstance(age, Number)
    assert (age.low, age.high) == (frame["age"].min(), frame["age"].max())
    assert region == Category("region", ("north", "south"))
    assert place == Hashed("zip", 64)
    assert not found.recipe.public
    assert "the levels of region were read off the log: region:north|south" in found.notes
    assert found.actions == tuple(sorted(OFFERS))
    public = _survey(FrameLog(frame), actions=OFFERS)
    assert public.recipe.public
    assert public.notes == ()


def test_codes_are_kept_as_they_are_written(tmp_path: Path) -> None:
    # NA is a region, 007 is not 7, and an agent may have a number.
    frame = shop_log(400).assign(region="NA", shop=[one % 3 for one in range(400)], zip="007")
    frame.to_csv(tmp_path / "log.csv", index=False)
    found = _survey(open_log(tmp_path / "log.csv"), "region", "zip:category")
    assert found.recipe.context == (Category("region", ("NA",)), Category("zip", ("007",)))
    assert found.agents == ("0", "1", "2")


@pytest.mark.parametrize("text", ["age:0", "age:a:b", "age:1:2:3", "zip:hash:x"])
def test_a_context_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="context is"):
        parse_context([text])


def test_terms_as_text() -> None:
    assert parse_terms("1, offer, offer*age") == ((), ("offer",), ("offer", "age"))


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    # Chunks of 2,000 rows; a log of 40,000 is 4 MB as a CSV, and its vectors would be 10 MB.
    peaks = []
    for rows in (8_000, 40_000):
        path = tmp_path / f"{rows}.csv"
        shop_log(rows).to_csv(path, index=False)
        log = CsvLog(path, rows_at_once=2000)
        _survey(log)  # imports and caches are not the log
        tracemalloc.start()
        compare_on_log(log, _survey(log), study=QUICK)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.05 * peaks[0]


def test_records_of_one_person_are_never_on_both_sides() -> None:
    from feducb.evaluation.crossfit import draw_folds

    frame = shop_log(2000).assign(person=[f"p{one % 300}" for one in range(2000)])
    log = FrameLog(frame, rows_at_once=450)
    columns = LogColumns(agent="shop", action="offer", reward="bought", propensity="p", person="person")
    found = survey(log, columns, context=parse_context(["age:0:100"]))
    folds = np.concatenate([draw_folds(rows.keys, Study(folds=5), 3) for rows in found.blocks()], axis=1)
    for repeat in range(3):
        by_person = pd.Series(folds[repeat]).groupby(frame["person"]).nunique()
        assert (by_person == 1).all()
        assert np.bincount(folds[repeat], minlength=5).min() > 200  # of 400 expected
    assert (folds[0] != folds[1]).any()
