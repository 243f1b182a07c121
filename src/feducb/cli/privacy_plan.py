"""`feducb privacy plan`: what a budget costs, and whether federating pays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from feducb.cli.options import JsonFile, Seed, option, takes_options
from feducb.cli.output import (
    counted,
    facts_table,
    note,
    require_writable,
    screen_beside,
    steps_progress,
    write_json,
)
from feducb.cli.promised import VISITED, Promised, as_json
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.protocol.federation import Play
from feducb.simulation.planned_season import Season
from feducb.simulation.planning import plan_privacy
from feducb.simulation.predicting import predict
from feducb.trust import require_trust, trust_with
from feducb.worlds.features import Recipe
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.synthetic import paper_world
from feducb.worlds.world import Environment

__all__ = ["plan"]

_SHOWN = 10  # releases that are listed


@dataclass(frozen=True, kw_only=True, slots=True)
class _Planned(Promised):
    """The options of `plan`."""

    releases: int | None = option(
        None, "How many releases, in geometric progression.", shown="few, from the first worth reading"
    )
    agents: int = option(10, "M, agents in the federation; two or more.")
    visitors: int = option(2000, "Visitors of each agent over the season.")
    recipe: Path | None = option(
        None, "Plan for visitors of this shape: a file that `feducb evaluate --save-recipe` wrote."
    )
    dim: int | None = option(None, "d, length of an action vector.", shown="the recipe's, or 10")
    arms: int | None = option(None, "K, candidates per visitor.", shown="the recipe's actions, or d²")
    runs: int | None = option(None, "Runs of the simulation.", shown="5 to 20, by size")
    seed: Seed = 0
    agents_per_person: int | None = option(
        None, f"{VISITED}the noise covers them all.", shown="1 under --trust nobody, else all"
    )
    play: str | None = option(
        None,
        "released: decisions look at released sums alone; own: after the last release at own records and the "
        "others' sum.",
        shown="both are compared",
    )
    distance: float | None = option(
        None,
        "H, under own play: by how much θ* of two sites may differ, as a part of its length; 0: all are "
        "alike.",
        shown="0.28 is assumed",
    )
    history: int = option(
        0, "Records of each agent from before the season, drawn uniformly, that enter the first release."
    )
    predict: bool = option(
        False,
        "Answer at once, from a table; a season that it was not made for is simulated all the same.",
        "--predict",
    )
    json_file: JsonFile = None


@takes_options
def plan(asked: _Planned) -> None:
    """What a budget costs in noise and regret, and after how many visitors federating pays, if ever.

    In the paper's world a prediction comes at once. Then agents are simulated, in a federation and each by
    itself: in that world, or on visitors of the shape that --recipe describes.
    """
    require_writable("--json", asked.json_file)
    trust = trust_with(asked.trust, away=asked.away, colluding=asked.colluding)
    visited = asked.agents_per_person
    season = Season(
        world=_world(asked),
        agents=asked.agents,
        visitors=asked.visitors,
        budget=Budget(epsilon=asked.epsilon, delta=asked.delta),
        releases=asked.releases,
        trust=trust,
        records_per_person=asked.per_person,
        agents_per_person=trust.agents_visited(asked.agents) if visited is None else visited,
        spacing=asked.spacing,
        play=cast(Play | None, asked.play),
        distance=asked.distance,
        history=asked.history,
    )
    screen, predicted = screen_beside(asked.json_file), predict(season)
    if predicted is not None:
        screen.print(predicted.verdict, highlight=False)
    elif asked.predict:
        note("the table was not made for this season: simulating it")
    with steps_progress("simulating") as progress:
        drawn: dict[str, Any] = {"runs": asked.runs, "seed": asked.seed}
        planned = plan_privacy(season, **drawn, simulated=not asked.predict, progress=progress)
    screen.print(_plan_table(planned))
    write_json(lambda: as_json(planned), asked.json_file)
    if not predicted or planned["verdict"] != predicted.verdict:
        screen.print(planned["verdict"], highlight=False)
    if visited is None and season.agents_per_person > 1:
        note(
            f"the noise covers a person at all {season.agents_per_person:,} agents; if people visit one "
            "each, plan with --agents-per-person 1: it takes far less"
        )


def _world(asked: _Planned) -> Environment:
    """Where a plan is simulated."""
    if asked.recipe is None:
        return paper_world(Problem(dim=10 if asked.dim is None else asked.dim), asked.arms)
    if asked.dim is not None:
        raise ConfigurationError("--dim", asked.dim, "nothing beside --recipe, which says it")
    recipe = Recipe.read(asked.recipe)
    return RecipeWorld(recipe=recipe, drawn=asked.arms)


def _plan_table(planned: dict[str, Any]) -> Table:
    grid, regret = planned["grid"], planned["regret"]
    rows = [
        ("privacy as one number", f"μ = {planned['mu']:.6g}"),
        ("re-accounted", f"ε = {planned['epsilon_reaccounted']:.6g}"),
    ]
    if planned["agents_per_person"] > 1:
        covered = require_trust(planned["trust"]).words.elsewhere
        at_several = f"ε = {planned['epsilon_at_several_agents']:.6g}, {covered}"
        rows.append((f"a person at {planned['agents_per_person']:,} agents", at_several))
    if planned["spacing"]:
        records = f"{planned['reach']:.4g} times that of one record"
        rows.append((f"noise for records {counted(planned['spacing'], 'release')} apart", records))
    if "shared_noise" in planned:
        rows += _shares_rows(planned["shared_noise"], planned["agents"])
    rows += [
        ("mechanism", f"{planned['mechanism']}, {planned['state_bytes']:,} bytes of state"),
        ("worst release", f"{planned['worst_error']:.4g} × R²/μ"),
        ("noise of one Gram entry", f"{planned['sigma']:.6g} before decoding"),
        (
            "on a grid",
            f"{grid['sigma']:.6g} ({100 * (grid['noise_over_gaussian'] - 1):.4f} % more), "
            f"certified ε = {grid['epsilon_certified']:.6g}",
        ),
    ]
    if planned.get("release_visitors"):
        at = [f"{visitor:,}" for visitor in planned["release_visitors"]]
        some = ", ".join(at if len(at) <= _SHOWN else [*at[: _SHOWN - 1], "…", at[-1]])
        read = "none is read" if planned["read_from"] is None else f"read from {planned['read_from']:,} on"
        closes = "" if planned["closes_after"] is None else "; all close after the last"
        rows.append(("released after visitor", f"{some}; {read}{closes}"))
    if regret:
        of, runs = counted(planned["agents"], "agent"), counted(regret["runs"], "run")
        alone = counted(regret["agents_alone"], "agent")
        for play, one in regret["by_play"].items():
            rows.append((f"regret, play = {play}", f"{_with_error(**one)} per agent, {of}, {runs}"))
        by_itself = _with_error(regret["alone"], regret["alone_stderr"])
        rows.append(("regret, alone", f"{by_itself} per agent, {alone}, {runs}"))
        margin = f"{regret['saved']:+,.1f}, more than chance beyond ± {regret['saved_margin']:,.1f}"
        rows.append(("saved by federating", margin))
    promise = f"(ε, δ) = ({planned['epsilon']:g}, {planned['delta']:g})"
    return facts_table(f"{promise} over {counted(planned['releases'], 'release')}", rows)


def _shares_rows(shared: dict[str, Any], agents: int) -> list[tuple[str, str]]:
    """What is said where one noise is divided between agents."""
    fewer = ", ".join(f"{one['epsilon']:.4g} at {one['shares']}" for one in shared["by_honest_shares"])
    return [
        (
            "honest shares of noise",
            f"{shared['shares']} of {counted(agents, 'agent')}: {shared['away']} may be away, "
            f"{shared['colluding']} may collude",
        ),
        (
            "noise of a sum",
            f"{shared['noise_over_controller']:.4g} times a trusted controller's "
            f"({shared['noise_if_none_away']:.4g} if none might be away, "
            f"{shared['noise_if_one_colludes']:.4g} if only one might collude)",
        ),
        ("ε with fewer honest shares", fewer),
    ]


def _with_error(mean: float, stderr: float) -> str:
    return f"{mean:,.1f} ± {stderr:,.1f}"
