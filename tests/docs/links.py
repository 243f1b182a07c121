"""Finds links that lead nowhere: in built pages, and in texts that are read in the repository alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Page", "dead_links", "dead_links_of_texts", "ill_formed"]

_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\.[a-z]{2,}")


class Page(HTMLParser):
    """What a page links to, and what can be linked to on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.names.add(value)


def dead_links(site: Path) -> list[tuple[str, str]]:
    """Page and link, for all files and anchors within the site that are not there."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = target.is_file() and (
                not anchor or target not in pages or anchor in pages[target].names or anchor == "__top"
            )
            if not known:
                dead.append((path.relative_to(site.resolve()).as_posix(), link))
    return dead


def dead_links_of_texts(root: Path, texts: list[Path]) -> list[tuple[str, str]]:
    """The same for Markdown as the repository shows it: files beside it, and headings."""
    dead = []
    for path in texts:
        for link in _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8"))):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = target.exists() and target.is_relative_to(root)
            if found and parts.fragment and target.suffix == ".md":
                headings = _HEADING.findall(target.read_text(encoding="utf-8"))
                found = parts.fragment in {name for one in headings for name in _anchors(one)}
            if not found:
                dead.append((path.relative_to(root).as_posix(), link))
    return dead


def _anchors(heading: str) -> tuple[str, str]:
    """The anchor of a heading, as a code host makes it and as the site does, which joins hyphens."""
    bare = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    anchor = re.sub(r"[^\w\- ]", "", bare).strip().replace(" ", "-")
    return anchor, re.sub(r"-+", "-", anchor)


def ill_formed(link: str) -> bool:
    """Whether an address elsewhere cannot be meant: https and a name with a dot, no login, no port."""
    parts = urlsplit(link)
    if parts.hostname in ("127.0.0.1", "localhost"):  # the reader's own machine
        return parts.scheme not in ("http", "https")
    return parts.scheme != "https" or parts.netloc != parts.hostname or not _HOST.fullmatch(parts.netloc)
