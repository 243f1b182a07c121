"""The code that a page of the documentation shows, to be run through the suites that shipped code passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def run_page(name: str) -> dict[str, Any]:
    """Run all Python blocks of a page, in order and in one namespace; return what they define."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert blocks, f"docs/{name} has no Python block"
    defined: dict[str, Any] = {"__name__": f"docs.{name}"}
    for block in blocks:
        exec(compile(block, f"docs/{name}", "exec", dont_inherit=True), defined)
    return defined
