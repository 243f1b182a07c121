"""`feducb report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.options import option
from feducb.cli.output import require_writable

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `feducb figure` wrote its figures.")],
    out: Path | None = option(None, "The page to write.", shown="DIR/report.html"),
) -> None:
    """Put all figures of a folder on one HTML page: pictures, texts, tables, settings; nothing is fetched."""
    from feducb_lab.experiments.report import make_report

    require_writable("--out", out)
    typer.echo(f"report: {make_report(folder, out)}")
