"""What `feducb privacy plan` and `feducb privacy statement` are asked about: options that both take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from feducb.cli.options import Away, Colluding
from feducb.trust import TRUSTS
from feducb.version import __version__

__all__ = ["VISITED", "Delta", "Promised", "as_json"]

Epsilon = Annotated[float, typer.Option(help="ε of a person.")]
Delta = Annotated[float, typer.Option(help="δ.")]
TrustName = Annotated[str, typer.Option(help=f"Who adds the noise: {', '.join(TRUSTS)}.")]
PerPerson = Annotated[
    int, typer.Option(help="Records that one person may have at each agent that she visits.")
]
Spacing = Annotated[
    int,
    typer.Option(
        help="Releases by which records of one person at an agent are apart at least, so that less noise is "
        "enough; 0: they are anywhere."
    ),
]
VISITED = "Agents that one person visits at most; 1: people do not visit several. Unless nobody is trusted "


@dataclass(frozen=True, kw_only=True, slots=True)
class Promised:
    """What is to be promised."""

    epsilon: Epsilon = 1.0
    delta: Delta = 1e-6
    trust: TrustName = "nobody"
    away: Away = None
    colluding: Colluding = None
    per_person: PerPerson = 1
    spacing: Spacing = 0


def as_json(plain: dict[str, Any]) -> str:
    """As it is written to files, with the version of feducb; what is no number is refused."""
    return json.dumps({**plain, "version": __version__}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
