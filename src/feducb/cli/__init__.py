"""The command line. Every command is a thin face of a function that Python can call."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input ends with status 2 and one sentence on standard error."""
    from feducb.cli.program import main as run  # not before it is run: it loads commands of other packages

    run(arguments)
