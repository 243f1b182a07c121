"""All figures of a folder on one page of HTML that needs nothing beside it.

NAME-SCALE.json (results), .md (title, question, text, table), .svg or .png (picture) ──▶ report.html
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from feducb.cli.output import counted
from feducb.errors import ConfigurationError
from feducb.version import __version__
from feducb_lab.experiments.plain_files import read_object
from feducb_lab.experiments.provenance import commit, is_fresh

__all__ = ["make_report"]

_PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}  # the sharper first
_SCALES = ("full", "quick")  # the one that says more first


@dataclass(frozen=True, slots=True)
class _Section:
    """A figure as the page shows it."""

    name: str  # as in ``feducb figure NAME``
    scale: str
    made: Mapping[str, Any]  # command, commit, versions; empty if the file does not say
    drawn: bool  # a figure, which has a picture
    fresh: bool  # whether the code that made it is the code that is here
    title: str  # plain text
    question: str  # HTML
    picture: str | None  # as a data URI
    body: str  # text and table, HTML
    points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # label and setting of each

    @property
    def anchor(self) -> str:
        """Where the table of contents points."""
        return "figure-" + re.sub(r"[^0-9A-Za-z]+", "-", f"{self.name}-{self.scale}").strip("-")


def make_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page; all that comes from files is escaped, pictures are inside, nothing is fetched.

    Args:
        folder: holds the figures, ``NAME-quick.json`` or ``NAME-full.json`` each, with what belongs to it.
        out: the page; ``report.html`` in the folder if not given. Its path is returned.

    Raises:
        ConfigurationError: there is no figure, or one that cannot be read.
    """
    folder = Path(folder)
    paths = sorted((path for scale in _SCALES for path in folder.glob(f"*-{scale}.json")), key=_order)
    if not paths:
        expected = "a folder with figures, as `feducb figure` writes them"
        raise ConfigurationError("folder", str(folder), expected)
    path = folder / "report.html" if out is None else Path(out)
    path.write_text(_page([_read(one) for one in paths], _left_out(folder)), encoding="utf-8")
    return path


def _order(path: Path) -> tuple[tuple[Any, ...], int]:
    """By name, numbers in it as numbers; full before quick."""
    name, _, scale = path.stem.rpartition("-")
    parts = re.split(r"([0-9]+)", name)  # every other one is a number
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), _SCALES.index(scale)


def _read(path: Path) -> _Section:
    plain = read_object(path, "a figure's results")
    try:
        name, scale = path.stem.rpartition("-")[::2]
        made = dict(plain.get("made", {}))
        made["versions"] = dict(made.get("versions", {}))
        fresh = is_fresh(made)
        points = [(dict(one["label"]), dict(one["setting"])) for one in plain.get("points", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(str(path), "unreadable", f"a figure's results ({error!r})") from None
    words = path.with_suffix(".md")
    try:
        title, question, body = _words(words.read_text(encoding="utf-8") if words.exists() else "")
    except UnicodeDecodeError:
        raise ConfigurationError(str(words), "unreadable", "a figure's words, as UTF-8") from None
    said = (title or name, question, _picture(path), body)
    return _Section(name, scale, made, "figure" in plain, fresh, *said, points)


def _picture(path: Path) -> str | None:
    for ending, kind in _PICTURES.items():
        file = path.with_suffix(ending)
        if file.exists():
            return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"
    return None


def _words(text: str) -> tuple[str, str, str]:
    """Title (plain), question and the rest (HTML) of a figure's Markdown."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", lambda self, tokens, index, options, env: escape(tokens[index].content))
    markdown.add_render_rule("table_open", lambda *_: _BOX + "<table>")
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    blocks = SyntaxTreeNode(markdown.parse(text)).children
    title = ""
    if blocks and blocks[0].type == "heading":
        inline = blocks.pop(0).to_tokens()[1].children or []
        title = "".join(child.content or " " * (child.type == "softbreak") for child in inline)
    for block in blocks:
        if block.type == "heading":  # below the figure's own heading
            opening, *_, closing = block.to_tokens()
            opening.tag = closing.tag = f"h{min(6, max(3, int(opening.tag[1]) + 1))}"
    first = int(bool(blocks) and blocks[0].type == "paragraph")
    end = next((at for at, block in enumerate(blocks) if _only_pictures(block)), first)  # of the question
    question = [token for block in blocks[:end] for token in block.to_tokens()]
    rest = [token for block in blocks[end:] if not _said_anyway(block) for token in block.to_tokens()]
    return title, *(markdown.renderer.render(part, markdown.options, {}) for part in (question, rest))


def _said_anyway(block: SyntaxTreeNode) -> bool:
    """The picture or the command, which the page has in their own places."""
    command = block.type in ("code_block", "fence") and block.content.startswith("feducb figure ")
    return command or _only_pictures(block)


def _only_pictures(block: SyntaxTreeNode) -> bool:
    """A paragraph that shows nothing but a picture."""
    if block.type != "paragraph":
        return False
    return all(child.type in ("image", "softbreak") for child in block.children[0].children)


def _page(sections: Sequence[_Section], left_out: str) -> str:
    contents = "\n".join(
        f'<li><a href="#{one.anchor}">{escape(one.title)}</a> <small>{escape(one.scale)}</small></li>'
        for one in sections
    )
    count = counted(len(sections), "section")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>feducb: figures and tables</title>
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#figures">To the figures</a>
<header>
<h1>Figures and tables</h1>
<p>{count}, on a page made by feducb {escape(__version__)}, commit {escape(commit())}. Under each: the
command that makes it again, by what it was made, and all its settings.</p>
{_freshness(sections)}
</header>
<nav aria-labelledby="contents">
<h2 id="contents">Contents</h2>
<ol>
{contents}
</ol>
</nav>
<main id="figures">
{"".join(map(_figure, sections))}</main>
{left_out}
</body>
</html>
"""


def _figure(one: _Section) -> str:
    picture = "<p><em>There is no picture of this figure in the folder.</em></p>" if one.drawn else ""
    if one.picture is not None:
        picture = f'<figure><img src="{one.picture}" alt="{escape(f"Figure: {one.title}")}"></figure>'
    command = one.made.get(
        "command", f"feducb figure {shlex.quote(one.name)} --scale {shlex.quote(one.scale)}"
    )
    points = counted(len(one.points), "point", "d")
    settings = ""
    if one.points:
        settings = f"<details>\n<summary>Settings of {points}</summary>\n{_settings(one.points)}\n</details>"
    return f"""<section aria-labelledby="{one.anchor}">
<h2 id="{one.anchor}">{escape(one.title)}</h2>
<div class="question">{one.question}</div>
{picture}
{one.body}
<p class="made"><code>{escape(command)}</code> <span>{escape(one.scale)}, {escape(_by(one))}</span></p>
{settings}
</section>
"""


def _by(one: _Section) -> str:
    """Commit, versions, and whether the code has changed since."""
    versions = ", ".join(f"{name} {number}" for name, number in one.made.get("versions", {}).items())
    said = f"commit {one.made['commit']}; {versions}" if "commit" in one.made else "by an unknown commit"
    note = f" ({one.made['note']})" if "note" in one.made else ""
    return f"{said}{note}; {'made by this code' if one.fresh else 'OLDER THAN THE CODE'}"


def _freshness(sections: Sequence[_Section]) -> str:
    """Which sections the code that is here would not make again as they are."""
    old = [one for one in sections if not one.fresh]
    if not old:
        return "<p>All of it was made by the code that is here.</p>"
    names = ", ".join(f'<a href="#{one.anchor}">{escape(one.title)}</a>' for one in old)
    return f'<p class="old">Older than the code, or made by code that is not known: {names}.</p>'


def _left_out(folder: Path) -> str:
    """What could not be made, as `feducb report --everything` noted."""
    path = folder / "left-out.json"
    left = read_object(path, "what was left out, and why") if path.exists() else {}
    rows = "".join(f"<li>{escape(name)}: {escape(str(reason))}</li>" for name, reason in left.items())
    return f"<h2>Left out</h2>\n<ul>{rows}</ul>" if rows else ""


_BOX = '<div class="wide" tabindex="0" role="region" aria-label="Table">'


def _settings(points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """What all points share, once; then a row a point with what differs."""
    names = list(dict.fromkeys(name for _, setting in points for name in setting))
    shared = [
        name
        for name in names
        if all(name in setting and setting[name] == points[0][1][name] for _, setting in points)
    ]
    own = [name for name in names if name not in shared]
    parts = []
    if shared:
        rows = [[name, _value(points[0][1][name])] for name in shared]
        parts.append("<p>All points:</p>" + _table(["setting", "value"], rows))
    if points:
        rows = [
            [
                ", ".join(f"{name} = {_value(value)}" for name, value in label.items()),
                *(_value(setting[name]) if name in setting else "" for name in own),
            ]
            for label, setting in points
        ]
        parts.append("<p>Each point:</p>" + _table(["point", *own], rows))
    return "\n".join(parts)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"{_BOX}<table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>"


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b646d; --paper: #fff; --line: #d5dade;
  --wash: #f4f6f7; --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #a2abb3; --paper: #15181b; --line: #3a4147; --wash: #1f2427;
    --link: #82b8f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.6 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .5rem; }
h3, h4, h5, h6 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: .5rem; padding: .25rem .5rem; background: var(--paper); }
header p, .question, small, .made span { color: var(--soft); }
nav { border: 1px solid var(--line); border-radius: .5rem; padding: 1rem 1.25rem; margin: 1.5rem 0; }
nav h2 { font-size: 1.1rem; }
nav ol { margin: 0; padding-left: 1.5rem; }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 2rem; }
.question { font-style: italic; }
.question > :first-child { margin-top: 0; }
figure { margin: 1.25rem 0; padding: .5rem; background: #fff; border: 1px solid var(--line);
  border-radius: .5rem; }
img { display: block; width: 100%; max-width: 100%; height: auto; }
.wide { overflow-x: auto; margin: 1rem 0; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; width: max-content; min-width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; text-align: left; vertical-align: top; max-width: 24rem; }
th { background: var(--wash); }
tr + tr > *, tbody tr:first-child > * { border-top: 1px solid var(--line); }
code, pre { font: .9em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--wash);
  border-radius: .25rem; }
code { padding: .1em .35em; }
pre { padding: .75rem; overflow-x: auto; }
pre code { padding: 0; }
details { margin-top: 1rem; }
summary { cursor: pointer; color: var(--link); }
.old { border-left: .25rem solid #b23a48; padding-left: .75rem; }
.made { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .9rem; margin-top: 1.5rem; }
@media print { details, .skip { display: none; } section { break-inside: avoid; } }
"""
