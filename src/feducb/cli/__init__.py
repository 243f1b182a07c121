"""The command line. Every command is a thin face of a function that Python can call."""

from feducb.cli.app import main

__all__ = ["main"]
