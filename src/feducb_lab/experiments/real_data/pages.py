"""Tables, sentences and the picture of real data, from the file of what was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from feducb.errors import ConfigurationError
from feducb.system import counted
from feducb_lab.experiments.real_data.cells import PLAYS
from feducb_lab.experiments.real_data.findings import (
    COLUMNS,
    OPEN,
    Findings,
    Line,
    names_of,
    older,
    outcomes,
)
from feducb_lab.experiments.real_data.picture import draw

__all__ = ["filled", "sections", "write"]


def write(path: Path, page: Path | None = None) -> list[Path]:
    """The picture beside the file, and its tables and sentences: into a page, or beside it too."""
    made = sections(path)
    picture = path.with_suffix(".png")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    draw(Findings.of(cells, full=False)).savefig(picture, dpi=110)
    if page is None:
        beside = path.with_suffix(".md")
        beside.write_text("\n\n".join(made.values()) + "\n", encoding="utf-8")
        return [picture, beside]
    page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    return [picture, page]


def filled(text: str, made: Mapping[str, str]) -> str:
    """A page with its sections, each in its place."""
    for name, section in made.items():
        place = re.search(rf"<!-- made: {name} -->\n(.*?)\n<!-- end -->", text, flags=re.DOTALL)
        if place is None:
            raise ConfigurationError("page", text[:40], f"a place for what is made, <!-- made: {name} -->")
        text = text[: place.start(1)] + section + text[place.end(1) :]
    return text


def sections(path: Path) -> dict[str, str]:
    """Markdown by the name of its place: all data sets in words and in numbers, and the learning curves."""
    found = json.loads(path.read_text(encoding="utf-8"))
    earlier = path.with_name("before.json")
    before = json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else None
    whole = Findings.of(found["cells"], full=True)
    return {
        "short": "\n".join(_short(whole)),
        "all": "\n".join([*_all(whole, before), "", _age(found)]),
        "curves": "\n".join(_curves(Findings.of(found["cells"], full=False))),
    }


def _line(found: Findings, name: str, play: str) -> Line:
    return next(one for one in found.play(play) if one.name == name)


def _short(found: Findings) -> Iterator[str]:
    """What came out in words, released play before own play."""
    yield f"| | agents × records each | d | {' | '.join(COLUMNS)} |"
    yield f"|---|---|---|{'---|' * len(COLUMNS)}"
    for name in names_of(found):
        lines = [_line(found, name, play) for play in PLAYS]
        said = [" / ".join(_bold(found.outcome(line, one)) for line in lines) for one in COLUMNS]
        yield f"| {name} | {lines[0].agents} × {lines[0].each:,} | {lines[0].dim} | {' | '.join(said)} |"


def _bold(outcome: str) -> str:
    return outcome if outcome == "ties" else f"**{outcome}**"


def _age(found: Mapping[str, Any]) -> str:
    """By which code it was measured, and what is older."""
    count, old = len(found["cells"]), older(found)
    said = f"commit {found['made']['commit']}"
    if not old:
        return f"All {count} cells were measured by the code of {said}."
    rest = ", ".join(f"{name} ({cells})" for name, cells in old.items())
    return (
        f"**Older than the code**: {sum(old.values())} of {count} cells are by other code than that of "
        f"{said}, which measured the rest: {rest}."
    )


def _all(found: Findings, before: dict[str, Any] | None) -> Iterator[str]:
    old = Findings.of(before["cells"], full=True) if before else None
    yield f"| | play | {' | '.join(COLUMNS)} |"
    yield f"|---|---|{'---|' * len(COLUMNS)}"
    for name in names_of(found):
        shown = name
        for play in PLAYS:
            line = _line(found, name, play)
            if play == PLAYS[0]:
                shown = f"{name}, {line.agents} × {line.each:,}"
            values = " | ".join(found.shown(line, one) for one in COLUMNS)
            yield f"| {shown if play == PLAYS[0] else ''} | {play} | {values} |"
        if old and before and name in names_of(old):
            line = _line(old, name, "released")
            yield f"| | before | {' | '.join(old.shown(line, one) for one in COLUMNS)} |"
    yield ""
    said = [f"{play} play {outcomes(found, play)}" for play in reversed(PLAYS)]
    if old and before:
        said.append(f"before ({before['commit']}, released sums alone) {outcomes(old, 'released')}")
    yield f"Against each agent alone: {'; '.join(said)}."
    unsure = sorted({one.name for one in found.lines if not one.reliable})
    if unsure:
        yield f"Weights do not average 1, so that nothing is said for sure: {', '.join(unsure)}."
    yield (
        f"± is corrected: what is **bold** holds at 95 % for all {counted(found.family, 'difference')} of "
        "today's rows together" + (f", and for all {old.family} of the earlier ones." if old else ".")
    )


def _curves(found: Findings) -> Iterator[str]:
    for play in reversed(PLAYS):
        yield f"**{play.capitalize()} play**, less each agent alone:"
        yield ""
        yield f"| | records per agent | alone | {OPEN} | {' | '.join(COLUMNS)} |"
        yield f"|---|---|---|---|{'---|' * len(COLUMNS)}"
        for name in names_of(found):
            for at, line in enumerate(one for one in found.play(play) if one.name == name):
                each = f"{line.used:,}" + (" (all)" if line.records is None else "")
                alone = f"{line.policies['alone'].value.value:.4f}"
                values = " | ".join(found.shown(line, one) for one in (OPEN, *COLUMNS))
                yield f"| {'' if at else name} | {each} | {alone} | {values} |"
        yield ""
    yield from _said(found)


def _said(found: Findings) -> Iterator[str]:
    """What the curves say, set by set."""
    for name in names_of(found):
        lines = [one for one in found.play("own") if one.name == name]
        gains = [one.policies[OPEN].over_alone for one in lines]
        first, last = gains[0], gains[-1]
        assert first is not None
        assert last is not None
        falls = "falls" if first.value > last.value else "does not fall"
        open_gain = (
            f"without privacy the gain {falls} from {first.value:+.4f} at {lines[0].used:,} records each to "
            f"{last.value:+.4f} at {lines[-1].used:,}"
        ).replace("-", "−")
        yield f"- {name}, {lines[0].agents} agents: {open_gain}. {_won(found, name)}"
    yield ""
    said = [f"{play} play {outcomes(found, play)}" for play in reversed(PLAYS)]
    yield f"Against each agent alone, over all of these: {'; '.join(said)}."
    yield (
        f"± is corrected for all {found.family} differences of these tables. \\* no release is worth "
        "reading: agents play at random. *alone*: by public numbers nothing is worth its noise, and each "
        "agent stays alone."
    )


def _won(found: Findings, name: str) -> str:
    """Where private federations of one data set surely win and lose."""
    said = []
    for play in reversed(PLAYS):
        lines = [one for one in found.play(play) if one.name == name]
        told = []
        for outcome in ("wins", "loses"):
            cells = {
                column: [f"{one.used:,}" for one in lines if found.outcome(one, column) == outcome]
                for column in COLUMNS
            }
            won = [f"{column} at {', '.join(each)}" for column, each in cells.items() if each]
            if won:
                told.append(f"{outcome} with {'; '.join(won)}")
        said.append(f"{play} play {', and '.join(told) if told else 'ties everywhere'}")
    return f"{'; '.join(said).capitalize()}."
