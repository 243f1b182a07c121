"""`feducb` as somebody types it, in this process: starting Python takes longer than most commands.

What only a process of its own can show (that it starts, how it ends) some test of each command looks at.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

from feducb.cli import main

__all__ = ["typed"]


def typed(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Its status and what it said."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
    ):
        try:
            main(arguments)
        except SystemExit as ending:
            assert isinstance(ending.code, int)
            status = ending.code
    return subprocess.CompletedProcess(["feducb", *arguments], status, out.getvalue(), err.getvalue())
