"""The options of `feducb agent init`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.options import option
from feducb.trust import SELF

__all__ = ["DEFAULT", "NewAgent"]

DEFAULT = Path("agent.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewAgent:
    """The options of `init`: most stand in the template by the same names."""

    path: Annotated[Path, typer.Argument(help="Where to write the configuration.")] = DEFAULT
    name: str = option("agent", "The agent's name.")
    recipe: Path | None = option(
        None,
        "How visitors and actions become vectors; `feducb recipe init` writes one. Bounds follow from it.",
    )
    actions: str | None = option(None, "Offers without features, a,b,c: in place of a recipe.")
    dim: int | None = option(None, "d, numbers per candidate, without recipe and actions.", shown="10")
    epsilon: float | None = option(None, "ε of a person.", shown="1, or as in --budgets")
    delta: float | None = option(None, "δ of a person.", shown="1e-06, or as in --budgets")
    budgets: Path | None = option(
        None, r"Where agents have budgets of their own: a file with a \[budgets.NAME] for each."
    )
    per_person: int = option(1, "Records that one person may have; more needs a person with every decision.")
    spacing: int = option(
        0, "Releases by which a person's records are apart at least: less noise is enough. 0: anywhere."
    )
    reward_range: str | None = option(
        None,
        "LOW:HIGH, such as 0:1: rewards are taken less the middle, with less noise than from -1 to 1. "
        "Candidates need a number that is the same in all of them, as with a recipe that has the term 1.",
        shown="0:1 with a recipe or actions, else -1:1",
    )
    contexts: str = option(
        "private", "public: everybody may know visitors and what they are shown; rewards alone are protected."
    )
    trust: str = option(
        "nobody",
        "Who adds the noise: nobody (every agent its own), controller, or keepers (docs/deploy.md). self: "
        "the agent is alone, learns from its own raw records at once, and nothing leaves it.",
    )
    away: int | None = option(None, "Under keepers: agents that may miss a row.", shown="a tenth")
    colluding: int | None = option(
        None, "Under keepers: agents that may tell the controller what they sent.", shown="a fifth"
    )
    agents: int = option(1, "How many agents the federation has.")
    quorum: int | None = option(None, "How many agents a sum needs at least.", shown="all")
    decisions: int = option(100_000, "Decisions of one agent in a season, roughly.")
    history: int = option(
        0, "Records of one agent from before, roughly, that `feducb agent warm-start` will load."
    )
    releases: int | None = option(None, "Releases in a season.", shown="as planned; 64 with other schedules")
    schedule: str | None = option(
        None,
        "When they are due: planned (few, once a sum is worth reading), geometric or periodic.",
        shown="planned, or geometric with --releases",
    )
    season: str = option("30d", "How long a season lasts, such as 30d.")
    start: str | None = option(
        None,
        "When season 1 starts, such as 2027-01-01T00:00:00Z; the same at all agents.",
        shown="now, for an agent on its own",
    )
    window: str = option("1h", "How long a reward may take, such as 1h.")
    play: str = option(
        "released",
        "What decisions look at: released (sums under noise alone, to the end of the season), or own (share "
        "first; once all have closed, own records and the others' sum, and nothing leaves any more).",
    )
    distance: float | None = option(
        None,
        "Under own play: by how much agents may differ, as a share of parameter_bound; 0 says that all are "
        "alike, so that sharing goes on for longer.",
        shown="0.28 is assumed",
    )
    exploration: float | None = option(
        None,
        "Part of the proven bonus that the agent explores by; 1 plays tempered, the proven rule.",
        shown="0.1 with a recipe or actions, but under own play; else 1",
    )
    uniform_share: float = option(
        0.0, "Share of decisions drawn uniformly, so that logs can judge other policies."
    )
    holdout: float | None = option(
        None,
        "Share of decisions made as the agent alone would make them, to see what the others are worth. Under "
        "released play whoever sets it states that what these visitors are shown moves nobody else's record.",
        shown="0.05 after the close under own play, else 0",
    )
    remember: str = option(
        "all", "Earlier seasons whose sums are read too: all, how many of the newest, or none (begin anew)."
    )
    discount: float | None = option(
        None, "What an earlier season counts less with each that has passed since, as a factor.", shown="1"
    )
    drift: str = option(
        "none", "A half-life, such as 90d: in so long what was learnt counts half, since visitors change."
    )
    most_epsilon: float | None = option(
        None, "The most that all seasons together may cost a person; then nothing leaves.", shown="no limit"
    )
    keep_events: str | None = option(
        None, "How long raw events are kept for `agent export`.", shown="0s; in shadow mode a season"
    )
    port: int = option(8750, "Port of the service.")
    shadow: bool = option(
        False,
        "Begin in shadow mode: follow the application's own choice, and keep events for a season.",
        "--shadow",
    )

    @property
    def alone(self) -> bool:
        """Whether nothing leaves."""
        return self.trust == SELF.name
