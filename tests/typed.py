"""`feducb` as somebody types it, in this process: starting Python takes longer than most commands.

What only a process of its own can show (that it starts, how it ends) some test of each command looks at.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

import pytest

from feducb.cli import main

__all__ = ["typed"]


def typed(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Its status and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
        pytest.raises(SystemExit) as ending,
    ):
        main(arguments)
    status = ending.value.code
    assert isinstance(status, int)
    return subprocess.CompletedProcess(["feducb", *arguments], status, out.getvalue(), err.getvalue())
