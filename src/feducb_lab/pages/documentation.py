"""The documentation's pages: which hold measured numbers, and how they are written from JSON files.

figures/*.json ──▶ figures/*.md ──▶ experiments.md, claims.md
figures, real-data/*.json ──marks──▶ numbers of the other pages
"""

from __future__ import annotations

from pathlib import Path

from feducb.errors import ConfigurationError
from feducb_lab.experiments.claims import claims_table, read_results
from feducb_lab.experiments.figures import NAMES, TABLES, figure
from feducb_lab.experiments.plain_files import read_figure, read_object
from feducb_lab.experiments.provenance import is_fresh
from feducb_lab.experiments.real_data.pages import filled, sections
from feducb_lab.experiments.run import to_markdown
from feducb_lab.pages.marks import Finding, rewritten
from feducb_lab.pages.sources import Sources

__all__ = ["findings", "held", "older", "rewritten_pages", "write_pages"]

HELD_ELSEWHERE = ("scale.md",)
"""Pages that another program makes from JSON, and another test holds to it."""

_RESULTS = "measured results"
_HEAD = "| | in the paper |"


def held(docs: Path) -> list[Path]:
    """Pages whose measured numbers must have a source, in marks: README, CONTRIBUTING and all of docs/."""
    beside = [docs.parent / name for name in ("README.md", "CONTRIBUTING.md")]
    pages = [path for folder in ("", "tutorials", "extending") for path in (docs / folder).glob("*.md")]
    elsewhere = {docs / name for name in HELD_ELSEWHERE}
    return [path for path in beside if path.exists()] + sorted(set(pages) - elsewhere)


def findings(docs: Path) -> dict[str, list[Finding]]:
    """Numbers that are not what their sources say, by page; those without a source."""
    sources = Sources(docs)
    found = {
        path.relative_to(docs.parent).as_posix(): rewritten(_read(path), sources)[1] for path in held(docs)
    }
    return {page: several for page, several in found.items() if several}


def rewritten_pages(docs: Path) -> dict[Path, str]:
    """All pages that hold measured numbers, as the JSON files have them."""
    sources = Sources(docs)
    pages = {path: rewritten(_read(path), sources)[0] for path in held(docs)}
    measured = docs / "real-data/all.json"
    if measured.exists():
        pages[docs / "real-data.md"] = filled(pages[docs / "real-data.md"], sections(measured))
    written = {path: _figure(path) for path in sorted(docs.glob("figures/*-*.json")) if _is_figure(path)}
    pages |= {path.with_suffix(".md"): text for path, text in written.items()}
    pages[docs / "experiments.md"] = _experiments(docs, pages)
    pages[docs / "claims.md"] = _claims(docs, pages)
    return pages


def write_pages(docs: Path) -> list[Path]:
    """Write those that differ; which.

    Raises:
        ConfigurationError: a page is missing, or a file of results cannot be read; nothing is written then.
    """
    for page in ("experiments.md", "claims.md"):
        if not (docs / page).is_file():
            expected = f"the documentation's folder in a clone: it has no {page}"
            raise ConfigurationError("--docs", str(docs), expected)
    changed = [
        path for path, text in rewritten_pages(docs).items() if not path.exists() or _read(path) != text
    ]
    for path, text in rewritten_pages(docs).items():
        if path in changed:
            path.write_text(text, encoding="utf-8")
    return changed


def older(docs: Path) -> list[str]:
    """Files of results that other code than that which is here made, all or in part."""
    files = [*sorted(docs.glob("figures/*.json")), docs / "real-data/all.json"]
    plain = {path: read_object(path, _RESULTS) for path in files if path.exists()}
    return [
        str(path.relative_to(docs))
        for path, one in plain.items()
        if "made" in one and not is_fresh(one["made"])
    ]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _is_figure(path: Path) -> bool:
    return read_object(path, _RESULTS).get("figure") in set(NAMES) - set(TABLES)


def _figure(path: Path) -> str:
    results, made = read_figure(path), read_object(path, _RESULTS).get("made")
    if not isinstance(made, dict) or "command" not in made:
        raise ConfigurationError(f"made in {path}", made, "its command, as `feducb figure` writes it")
    return to_markdown(figure(results.figure), results, made["command"])


def _experiments(docs: Path, pages: dict[Path, str]) -> str:
    """The words before the first section stay; the sections are those of figures/*.md."""
    head, _, _ = pages[docs / "experiments.md"].partition("\n## ")
    sections = [head.rstrip()]
    for name in NAMES:
        paths = [docs / f"figures/{name}-{scale}.md" for scale in ("full", "quick")]
        for path in [one for one in paths if one in pages][:1]:  # the larger
            sections += _section(name, path.stem, pages[path])
    return "\n\n".join(sections) + "\n"


def _section(name: str, stem: str, text: str) -> list[str]:
    title, _, body = text.removeprefix("# ").partition("\n\n")
    found, _, _ = body.partition("\n\nAll points, mean ± standard error")
    found = found.replace(f"]({stem}.png)", f"](figures/{stem}.png)")
    points = f"[table](figures/{stem}.md), [numbers](figures/{stem}.json)"
    said = f"All points, mean ± standard error: {points}. Bars and bands are two standard errors."
    _, _, command = text.rstrip().rpartition("\n\n")
    return [f"## {name}: {title}", found, said, command]


def _claims(docs: Path, pages: dict[Path, str]) -> str:
    """The words before the table stay."""
    head, _, _ = pages[docs / "claims.md"].partition(_HEAD)
    table = claims_table(read_results(docs / "figures"), lambda stem: f"[{stem}](figures/{stem}.md)")
    return f"{head.rstrip()}\n\n{table}\n"
