"""Where a page's numbers come from, as comments before its paragraphs and tables say.

    <!-- numbers: PATH; PATH; "2.2 µs" = PATH; "1.4 times" stated -->
        of the paragraph, list or quotation that follows: its `A ± B` in their order, and other numbers by the
        words around them; *stated* is what is no measurement, or one that words alone describe
    <!-- table: * = PATH; 2 = PATH; "row's first cell" = PATH; "row's first cell" 2 = PATH -->
        of the table that follows: all columns, one of them (the second cell of a row is 1), a row, a cell.
        In a path {row} is a row's first cell, {1}, {2} its parts between commas, {cell 1} the second cell,
        {column} the column's head, {section} the last row in bold without numbers; `-` is for what is no
        measurement
    <!-- text: PATH -->
        of a quotation that must be what the file says, word for word
    <!-- printed: TEST -->
        of a quotation of what a command prints; that test runs it and compares

What stands between <!-- made: NAME --> and <!-- end -->, or the end of the page, is written whole by what
made it, and is left alone. A number is compared at the digits that the page has, and so it is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from feducb.errors import ConfigurationError
from feducb_lab.pages.sources import Sources, Value

__all__ = ["Finding", "rewritten"]

_NUMBER = r"(?<![\w.^])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?"
_PAIR = re.compile(rf"({_NUMBER})(\s±\s)({_NUMBER})")
_ANY = re.compile(rf"({_NUMBER})(?:(\s±\s)({_NUMBER}))?")
_UNITS = r"(?:(?:times|×)(?! \d)|(?:s|ms|µs|kB|MB|GB|KiB|MiB|kills)\b)"
_MEASURED = re.compile(r"(?<![\w.,−-])\d+(?:,\d{3})*(?:\.\d+)? " + _UNITS)
_MARK = re.compile(r"<!-- (numbers|table|text|printed): (.*?) -->\n*", re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_ENTRY = re.compile(r'(\*|\d+|"[^"]*"(?: \d+)?) = (.*?)(?:; |$)')


@dataclass(frozen=True, slots=True)
class Finding:
    """A number that is not what its source says, or that has none."""

    line: int
    said: str
    expected: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.said!r}, expected {self.expected}"


def rewritten(text: str, sources: Sources) -> tuple[str, list[Finding]]:
    """The page with its numbers from the sources, and what was found to differ.

    `A ± B`, `N times` and `N ×`, times and sizes must have a source, or a mark that says that they are
    stated.

    Args:
        text: of the page.
        sources: where numbers come from.
    """
    parts: list[str] = []
    findings: list[Finding] = []
    mark: re.Match[str] | None = None
    made = False  # between marks of what a program writes whole
    for line, block in _blocks(text):
        found = _MARK.fullmatch(block)
        made = (made or "<!-- made: " in block) and "<!-- end -->" not in block

        def tell(said: str, expected: str, line: int = line) -> None:
            findings.append(Finding(line, said, expected))

        printed = mark and mark[1] == "printed"
        if found or made or printed or "<!-- made: " in block or _is_code(block):
            parts.append(block)
        elif mark and mark[1] == "table":
            parts.append(_table(block, " ".join(mark[2].split()), sources, tell))
        elif mark and mark[1] == "text":
            parts.append(_quotation(block, str(sources.node(mark[2])), tell))
        else:
            new, quoted = _prose(block, mark[2] if mark else "", sources, tell)
            for old, now in quoted.items():  # a mark quotes numbers
                parts[-1] = parts[-1].replace(f'"{old}"', f'"{now}"')
            parts.append(new)
        mark = found
    return "".join(parts), findings


Tell = Callable[[str, str], None]


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """(line, block with the blank lines after it); fenced code is one block."""
    first, fenced, block = 1, False, ""
    for at, line in enumerate(text.splitlines(keepends=True), 1):
        ends = block.endswith("\n\n") and not fenced
        if ends and line.strip():
            yield first, block
            first, block = at, ""
        fenced ^= line.startswith("```")
        block += line if line.strip() else "\n"
    yield first, block


def _is_code(block: str) -> bool:
    return block.startswith(("    ", "```"))


def _prose(block: str, said: str, sources: Sources, tell: Tell) -> tuple[str, dict[str, str]]:
    """The block with its numbers from the sources, and the words that a mark quotes, as they were and are."""
    entries = [one.strip() for one in " ".join(said.split()).split(";") if one.strip()]
    ordered = [one for one in entries if not one.startswith('"')]
    quoted = dict(one[1:].split('"', 1) for one in entries if one.startswith('"'))
    covered = {words: _quoted(block, words, path.strip(), sources, tell) for words, path in quoted.items()}
    for old, new in covered.items():
        block = block.replace(old, new)
    pairs = [one for one in _PAIR.finditer(block) if not any(one[0] in words for words in covered.values())]
    if len(pairs) != len(ordered):
        tell("; ".join(one[0] for one in pairs) or "none", f"as many as sources: {len(ordered)}")
        return block, covered
    for pair, path in zip(reversed(pairs), reversed(ordered), strict=True):
        value = _sourced(pair[0], path, sources, tell)
        block = block if value is None else _put(block, pair, _told(pair, value, tell))
    for measured in _MEASURED.findall(_CODE.sub("", block)):
        if not any(measured in words for words in covered.values()):
            tell(measured, "a source, or the word that it is stated")
    return block, covered


def _quoted(block: str, words: str, path: str, sources: Sources, tell: Tell) -> str:
    """Words of the block, with the number in them from its source."""
    if words not in block:
        tell(words, "to be in the text that the mark is about")
        return words
    found = _ANY.search(words)
    if path == "stated" or found is None:
        return words
    value = _sourced(words, path.removeprefix("=").strip(), sources, tell)
    return words if value is None else _put(words, found, _told(found, value, tell))


def _put(text: str, found: re.Match[str], new: str) -> str:
    return text[: found.start()] + new + text[found.end() :]


def _sourced(said: str, path: str, sources: Sources, tell: Tell) -> Value | None:
    """What is measured there, or none, which is told."""
    try:
        return sources.value(path)
    except ConfigurationError as error:
        tell(said, f"a source: {error}")
        return None


def _table(block: str, said: str, sources: Sources, tell: Tell) -> str:
    chosen = {where.replace('"', ""): path for where, path in _ENTRY.findall(said)}
    lines = block.split("\n")
    head, section = [_plain(cell) for cell in _cells(lines[0])], ""
    for at, line in enumerate(lines[2:], 2):
        if not line.startswith("|"):
            continue
        cells = _cells(line)
        row = _plain(cells[0])
        if cells[0].strip().startswith("**") and not any(
            _ANY.search(_CODE.sub("", one)) for one in cells[1:]
        ):
            section = row
        words = {"row": row, "section": section}
        words |= {str(k): part for k, part in enumerate(row.split(", "), 1)}
        words |= {f"cell {k}": _plain(cell) for k, cell in enumerate(cells)}
        for place in range(1, len(cells)):
            path = next(
                (chosen[one] for one in (f"{row} {place}", row, str(place), "*") if one in chosen), ""
            )
            cell = _CODE.sub("", cells[place])
            if "-" in (path, chosen.get(str(place))) or not _ANY.search(cell):
                continue
            if not path:
                tell(cells[place].strip(), "a source of this column or row")
                continue
            for name, word in (words | {"column": head[place]}).items():
                path = path.replace(f"{{{name}}}", word)
            value = _sourced(cells[place].strip(), path, sources, tell)
            cells[place] = cells[place] if value is None else _filled(cells[place], value, tell)
        lines[at] = f"|{'|'.join(cells)}|"
    return "\n".join(lines)


def _filled(cell: str, value: Value, tell: Tell) -> str:
    """A cell with the value and those that go with it, one after the other."""
    found = list(_ANY.finditer(cell))
    values = [value, *map(Value, value.also)]
    if len(found) != len(values):
        tell(cell.strip(), f"{len(values)} numbers")
        return cell
    for one, new in zip(reversed(found), reversed(values), strict=True):
        cell = _put(cell, one, _told(one, new, tell))
    return cell


def _quotation(block: str, text: str, tell: Tell) -> str:
    end = block[len(block.rstrip("\n")) :]
    if block.rstrip("\n") != f"> {text}":
        tell(block.strip(), text)
    return f"> {text}{end}"


def _told(found: re.Match[str], value: Value, tell: Tell) -> str:
    """What stands for the value, in the digits of what stands there; told if it is another number."""
    text = _as(found[1], value.mean)
    if found[2]:
        text += found[2] + (_as(found[3], value.error) if value.error is not None else "no error")
    elif value.error is not None and found.re is _PAIR:
        text += f" ± {value.error}"
    if text != found[0]:
        tell(found[0], text)
    return text


def _as(said: str, value: float) -> str:
    """The number in the digits, and with the kinds of signs, of the one that stands there."""
    text = f"{abs(value):,.{len(said.partition('.')[2])}f}"
    if "," not in said and abs(value) < 10_000:
        text = text.replace(",", "")
    if value < 0:
        return ("-" if said.startswith("-") else "−") + text
    return "+" + text if said[0] in "+−-" else text


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        raise ConfigurationError("table", line, "a line that begins with |")
    return re.split(r"(?<!\\)\|", line.strip().strip("|"))


def _plain(cell: str) -> str:
    """A cell's words: without bold, code and the star of a footnote."""
    return re.sub(r"\*\*|`| \*$", "", cell.strip()).strip()
