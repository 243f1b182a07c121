"""Lets pages link to files outside docs/: source code becomes a page of the site, and a name in it a line.

Pages are written to be read in the repository too, so they link to ``../src/feducb/types.py``. Here such a
link becomes one to a page with the file on it; if its text is a name, [`Belief`](../src/feducb/types.py), to
the name's line. A file or a name that is not there ends the build.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "README.md": "index.md",
}
LINK = re.compile(r"\]\((?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
SOURCE_LINK = re.compile(r'href="([^"#]*source/([^"#]+)\.html)"><code>([A-Za-z_][\w.]*)</code>')
LANGUAGES = {".py": "python", ".toml": "toml", ".ipynb": "json", ".yaml": "yaml", ".json": "json", ".cu": "c"}


class _Stars(Preprocessor):
    """θ* is a letter with a star, which the site's Markdown would take for the start of emphasis."""

    def run(self, lines: list[str]) -> list[str]:
        return [line.replace("θ*", "θ∗") for line in lines]


class _StarsExtension(Extension):
    def extendMarkdown(self, md: Any) -> None:  # noqa: N802  # the library's name
        md.preprocessors.register(_Stars(md), "stars", 1000)
        md.delimiters.remove("_")  # an underscore is an index: Σ_i, ‖x‖_V


def on_config(config: Any) -> Any:
    """Read mathematics as the repository's pages are read; in docstrings too."""
    config.markdown_extensions.append(_StarsExtension())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside docs/ that a page links to, and those of PAGES."""
    for path, name in PAGES.items():
        if name != "index.md":
            _add(files, config, name, path.read_text(encoding="utf-8"))
    written = [
        (DOCS / one.src_uri, one.src_uri)
        for one in files.documentation_pages()
        if (DOCS / one.src_uri).exists()
    ]
    for path, name in [*written, *((path, name) for path, name in PAGES.items() if name != "index.md")]:
        for match in LINK.finditer(path.read_text(encoding="utf-8")):
            target = _target(path.parent, match[1], name)
            if target is not None and target not in PAGES and (not _in_docs(target) or target.is_dir()):
                source = _source_name(target)
                if files.get_file_from_path(source) is None:
                    _add(files, config, source, _shown(target))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that leave docs/ at their pages."""
    name = page.file.src_uri
    if name.startswith("source/"):
        return markdown
    origin = next(
        (path for path, other in PAGES.items() if other == name and name != "index.md"), DOCS / name
    )

    def rewrite(match: re.Match[str]) -> str:
        target = _target(origin.parent, match[1], name)
        if target is None:
            return match[0]
        if target in PAGES:
            there = PAGES[target]
        elif _in_docs(target) and not target.is_dir():
            there = target.relative_to(DOCS).as_posix()
        else:
            there = _source_name(target)
        return f"]({os.path.relpath(there, os.path.dirname(name) or '.')}{match[2] or ''})"

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Point links whose text is a name at the line that defines it."""

    def rewrite(match: re.Match[str]) -> str:
        link, path, name = match.groups()
        if not path.endswith(".py") or name.endswith(".py"):
            return match[0]
        line = line_of(ROOT / path, name)
        if line is None:
            raise PluginError(f"{page.file.src_uri}: {path} has no {name}")
        return f'href="{link}#__codelineno-0-{line}"><code>{name}</code>'

    return SOURCE_LINK.sub(rewrite, html)


def line_of(path: Path, name: str) -> int | None:
    """The line that defines a name, ``function``, ``Class`` or ``Class.method``, in a Python file."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    line = None
    for part in name.split("."):
        found = [one for one in body if getattr(one, "name", None) == part or part in _assigned(one)]
        if not found:
            return None
        line, body = found[0].lineno, getattr(found[0], "body", [])
    return line


def _assigned(statement: ast.stmt) -> set[str]:
    targets = {ast.Assign: lambda one: one.targets, ast.AnnAssign: lambda one: [one.target]}.get(
        type(statement)
    )
    return {one.id for one in targets(statement) if isinstance(one, ast.Name)} if targets else set()


def _target(base: Path, link: str, page: str) -> Path | None:
    target = Path(os.path.normpath(base / link))
    if not target.exists():
        raise PluginError(f"{page} links to {link}, which is not there")
    return target


def _in_docs(path: Path) -> bool:
    return path.is_relative_to(DOCS)


def _source_name(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _shown(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        inside = "\n".join(
            f"- `{one.name}`" for one in sorted(path.iterdir()) if not one.name.startswith((".", "__"))
        )
        return f"# {name}/\n\n{inside}\n"
    language = LANGUAGES.get(path.suffix, "sh" if path.parent.name == "scripts" else "text")
    return f'# {name}\n\n`````{language} linenums="1"\n{path.read_text(encoding="utf-8")}\n`````\n'


def _add(files: Files, config: Any, name: str, content: str) -> None:
    if name.startswith("source/"):
        content = f"---\nsearch:\n  exclude: true\n---\n{content}"
    page = File.generated(config, name, content=content)
    page.inclusion = InclusionLevel.NOT_IN_NAV
    files.append(page)
