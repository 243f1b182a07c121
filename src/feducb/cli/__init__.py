"""The command line. Every command is a thin face of a function that Python can call."""

from feducb.cli.program import main

__all__ = ["main"]
