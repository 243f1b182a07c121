"""`feducb simulate`."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from feducb.cli.options import (
    Arms,
    Away,
    Backend,
    Colluding,
    Dim,
    JsonFile,
    Seed,
    Threads,
    option,
    picked,
    takes_options,
)
from feducb.cli.output import (
    note,
    require_writable,
    result_table,
    screen_beside,
    steps_progress,
    warnings_for,
    write_json,
)
from feducb.config import Budget
from feducb.errors import ConfigurationError
from feducb.policies import POLICIES
from feducb.protocol.federation import Baseline
from feducb.simulation import runner
from feducb.simulation.results import SimulationResult
from feducb.simulation.shortcuts import Shortcuts
from feducb.trust import NOBODY, trust_with
from feducb.worlds.family import WORLDS

__all__ = ["read_budgets", "simulate"]

_WORLD = (
    *("agents", "dim", "arms", "horizon", "history", "seed", "alpha", "gap", "heterogeneity", "environment"),
    *("drift", "backend", "threads"),
)
_PROMISE = ("budgets", "epsilon", "delta", "records_per_person", "play", "distance")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The options; most are keywords of `feducb.simulate`, by the same names."""

    agents: int | None = option(None, "M, agents in the federation.", shown="10, or the topology's")
    dim: Dim = 10
    arms: Arms = None
    horizon: int = option(10_000, "T, rounds.")
    runs: int = option(5, "Independent repetitions.")
    seed: Seed = 0
    mode: str = option("calibrated", "calibrated (private, proven) or paper (printed constants, to compare).")
    epsilon: float | None = option(None, "ε of every agent.", shown="1")
    delta: float | None = option(None, "δ of every agent.", shown="1e-6")
    budgets: Path | None = option(
        None, "Per-agent budgets: CSV with columns epsilon,delta or a JSON list of objects."
    )
    alpha: float = option(0.1, "α, chance that the confidence bound fails.")
    schedule: str | None = option(
        None,
        "planned[:GROWTH], geometric[:GROWTH], periodic[:EVERY], every-round, explicit:ROUND,ROUND,… or "
        "determinant[:D] (paper mode only).",
        shown="planned; geometric with --releases or --first-release; determinant in paper mode",
    )
    releases: int | None = option(
        None,
        "Releases of a geometric or periodic schedule.",
        shown="64, or as many as fit",
    )
    first_release: int | None = option(None, "First round of a geometric schedule.", shown="8")
    world: str = option(
        "paper", f"Where they act: {', '.join(WORLDS)}; compiled backends play the paper's alone."
    )
    gap: float | None = option(
        None,
        "In the paper's world, distance between the reward bands of the best and the other arms.",
        shown="0.1",
    )
    heterogeneity: float | None = option(
        None,
        "H, sites that differ: in the paper's world, how far each agent's θ* is from the one that they have "
        "in common, as a part of its length.",
        shown="0",
    )
    drift: str | None = option(
        None,
        "A θ* that moves: turn:DEGREES in 1,000 rounds, or jump:ROUND, by 90 degrees.",
        shown="it stands still",
    )
    seasons: int = option(1, "Seasons in the horizon, each with a budget and noise of its own.")
    remember: str | None = option(
        None, "Earlier seasons whose last sums are read beside new ones: all, none, or how many.", shown="all"
    )
    discount: float | None = option(None, "What these count less with each season, as a factor.", shown="1")
    half_life: float | None = option(
        None,
        "Rounds in which what was learnt counts half, within a season too.",
        shown="it does not fade",
    )
    history: int | None = option(
        None,
        "Records of each agent from before the first round, drawn uniformly: they enter the first release in "
        "one go, and cost no regret.",
        shown="0",
    )
    play: str | None = option(
        None,
        "released: decisions look at released sums alone; own: until all have made their last release, and "
        "from then on at an agent's own records and the others' sum.",
        shown="released",
    )
    distance: float | None = option(
        None,
        "H, under --play own: by how much θ* of two sites may differ, as a part of its length; 0: all are "
        "alike.",
        shown="0.28 is assumed",
    )
    policy: str | None = option(
        None,
        f"How agents choose: {', '.join(POLICIES)}.",
        shown="tempered, or optimistic in paper mode or with --exploration",
    )
    exploration: float = option(1.0, "Scales the bonus of the optimistic policy; 1 is the proven bound.")
    mechanism: str = option(
        "auto", "Spreads noise over releases: auto, dense, blt, toeplitz, optimal-tree or tree."
    )
    trust: str = option(
        "nobody",
        "nobody: each agent adds noise; controller: it sees raw sums, adds noise once; keepers: only sums "
        "open, and each agent adds a share of one noise.",
    )
    away: Away = None
    colluding: Colluding = None
    absence: float | None = option(
        None, "Chance that an agent misses a row; rows are those of --trust keepers.", shown="0"
    )
    records_per_person: int | None = option(
        None,
        "Records that one person may have: at an agent, or under --trust controller or keepers at all of "
        "them together. Noise is so many times larger.",
        shown="1",
    )
    topology: str | None = option(
        None,
        "A graph of agents in place of a controller: complete:8, ring:16, line:16, star:9, "
        "grid:4x4, tree:2:4, erdos:64:0.1, smallworld:64:4:0.1, or an edge-list file.",
        shown="none: a controller adds up",
    )
    ttl: int | None = option(None, "γ, hops that a message lives; at most the diameter.", shown="1")
    estimators: str = option(
        "paper", "On a topology: paper (γ per agent, used in turn) or one (beyond the paper)."
    )
    backend: Backend = "auto"
    checkpoint: Path | None = option(
        None, "Keep what is done in this folder; the same command goes on from there."
    )
    threads: Threads = None
    no_privacy: bool = option(False, "Baseline: raw sums are shared.", "--no-privacy")
    alone: bool = option(False, "Baseline: each agent learns by itself.", "--alone")
    uniform: bool = option(False, "Baseline: actions drawn at random.", "--uniform")
    json_file: JsonFile = None
    plot_file: Path | None = option(None, "Write the regret curve (PNG, SVG, PDF).", "--plot")
    baselines: bool = option(
        True, "Draw each agent alone and uniform play beside it: one run each, for --plot."
    )

    @property
    def baseline(self) -> Baseline | None:
        """The one that was asked for."""
        flags = {"--no-privacy": self.no_privacy, "--alone": self.alone, "--uniform": self.uniform}
        given = [flag for flag, on in flags.items() if on]
        if len(given) > 1:
            raise ConfigurationError("baseline", " ".join(given), "at most one of " + ", ".join(flags))
        return cast(Baseline, given[0].removeprefix("--")) if given else None


@takes_options
def simulate(asked: _Asked) -> None:
    """Simulate a federation on one machine and report regret, communication and privacy."""
    require_writable("--json", asked.json_file)
    require_writable("--plot", asked.plot_file, picture=True)
    if asked.budgets is not None and (asked.epsilon is not None or asked.delta is not None):
        raise ConfigurationError("--budgets", str(asked.budgets), "no --epsilon or --delta beside it")
    trust = trust_with(asked.trust, away=asked.away, colluding=asked.colluding)
    settings = picked(asked, Shortcuts) | {"environment": asked.world, "trust": trust}
    if asked.remember is not None and asked.remember.isdecimal():
        settings["remember"] = int(asked.remember)
    baseline = asked.baseline
    if baseline is not None and not settings.keys().isdisjoint(_PROMISE):
        raise ConfigurationError(
            f"--{baseline}",
            "given",
            "no --epsilon, --delta, --budgets, --records-per-person, --play or --distance beside it",
        )
    if baseline is not None and trust != NOBODY:
        raise ConfigurationError("--trust", trust.name, f"nothing beside --{baseline}, which adds no noise")
    if asked.budgets is not None:
        settings["budgets"] = read_budgets(asked.budgets)
    with steps_progress("simulating") as progress:
        result = runner.simulate(**settings, note=note, progress=progress)
    screen_beside(asked.json_file).print(result_table(result))
    for warning in warnings_for(result):
        note(warning)
    write_json(result.to_json, asked.json_file)
    if asked.plot_file is not None:
        world = {name: settings[name] for name in _WORLD if name in settings}
        world["agents"] = result.config["agents"]
        result.plot(asked.plot_file, beside=_beside(world) if asked.baselines else ())


def _beside(world: dict[str, Any]) -> list[SimulationResult]:
    """What a federation must beat, in the same world: agents alone, and uniform play; one run is enough."""
    with steps_progress("baselines") as progress:
        names: tuple[Baseline, ...] = ("alone", "uniform")
        return [runner.simulate(**world, runs=1, baseline=name, progress=progress) for name in names]


def read_budgets(path: Path) -> list[Budget]:
    """Read an (epsilon, delta) per agent from CSV (with a header) or from a JSON list."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else list(csv.DictReader(text.splitlines(), skipinitialspace=True))
        )
        return [Budget(epsilon=float(row["epsilon"]), delta=float(row["delta"])) for row in rows]
    except ConfigurationError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "--budgets", str(path), f"CSV with the columns epsilon,delta or a JSON list of objects ({error})"
        ) from None
