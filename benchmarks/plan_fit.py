"""The table that `feducb privacy plan` predicts from, fitted to simulated seasons, and how far off it is.

    python benchmarks/plan_fit.py [--json docs/figures/plan-points.json]

Plays nothing: the seasons are those of `benchmarks/plan_table.py`, and the points of `feducb figure
federation --scale full` (docs/figures). Writes src/feducb/simulation/plan_table.json with its errors against
the seasons that are held out, and says them in docs/what-to-expect.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from plan_table import HELD_OUT, LADDER, POINTS, drawn, next_step, pays

from feducb.simulation import predicting
from feducb.simulation.predicting import RANGE, agents_needed, features, predict, terms_of, value_of
from feducb.simulation.public_numbers import Numbers, numbers_of, season_of
from feducb.system import write_atomically

LENGTHS, NOISES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TABLE = Path("src/feducb/simulation/plan_table.json")
PAGE = Path("docs/what-to-expect.md")
OWN_TABLE = Path("docs/figures/own-full.json")
PICTURE = Path("docs/figures/federation-quick.json")


def fit(found: dict[str, Any]) -> dict[str, Any]:
    """The table: a smooth function for each thing that is predicted."""
    fitted = [
        (numbers_of(season_of(**one["setting"])), one)
        for name, one in found.items()
        if name.startswith("fit-")
    ]
    fitted = [(numbers, one) for numbers, one in fitted if "by_play" in one]
    rows: dict[str, list[tuple[float, Any, float]]] = {"alone": [], "released": [], "own": []}
    for numbers, one in fitted:
        for which, value in {
            "alone": one["alone"],
            **{play: mean for play, (mean, _) in one["by_play"].items()},
        }.items():
            base, logs = features(which, numbers)
            rows[which].append((base, logs, value))
    for which, numbers, value in (*of_the_picture(), *of_the_own_table()):
        base, logs = features(which, numbers)
        rows[which].append((base, logs, value))
    table: dict[str, Any] = {"models": {which: smooth(some) for which, some in rows.items()}}
    after: dict[str, list[tuple[float, Any, float]]] = {"after, released": [], "after, own": []}
    for numbers, one in fitted:
        if one["pays_after"] is not None:
            which = f"after, {one['play']}"
            regret = value_of(table, one["play"], numbers) / value_of(table, "alone", numbers)
            base, logs = features(which, numbers, math.log(regret))
            after[which].append((base, logs, one["pays_after"]))
    table["models"] |= {which: smooth(some) for which, some in after.items()}
    table["range"] = {name: list(RANGE[name]) for name in ("dim", "arms", "visitors", "agents")}
    noises = [numbers.noise for numbers, _ in fitted]
    table["noise"] = [float(f"{one:.4g}") for one in (min(noises), max(noises))]
    return table


def of_the_picture() -> Iterator[tuple[str, Numbers, float]]:
    """What was played for the picture, if it is there: each play, and once for each season length alone."""
    if not PICTURE.exists():
        return
    points = json.loads(PICTURE.read_text(encoding="utf-8"))["points"]
    alone: dict[int, tuple[Numbers, float]] = {}
    for one in points:
        label, mean = one["label"], one["result"]["per_agent_regret"]["mean"]
        if label["who"] not in ("alone", "calibrated") or "T" not in label:  # a map of another kind
            continue
        who = {name: label.get(name, usual) for name, usual in (("epsilon", 1.0), ("trust", "nobody"))}
        sizes = {"visitors": label["T"], "agents": label.get("M", 10)}
        numbers = numbers_of(season_of(dim=10, arms=100, delta=1e-6, **who, **sizes))
        if label["who"] == "calibrated":
            yield label["play"], numbers, mean
        elif label["T"] not in alone or mean < alone[label["T"]][1]:
            alone[label["T"]] = (numbers, mean)
    for numbers, mean in alone.values():
        yield "alone", numbers, mean


def of_the_own_table() -> Iterator[tuple[str, Numbers, float]]:
    """Own play in 100 runs of 10,000 visitors each (`feducb figure own --scale full`)."""
    for one in json.loads(OWN_TABLE.read_text(encoding="utf-8"))["points"]:
        label, setting = one["label"], one["setting"]
        if label["table"] == "sizes" and label["column"] != "alone":
            season = season_of(
                dim=setting["dim"],
                arms=setting["arms"],
                epsilon=setting["epsilon"],
                delta=setting["delta"],
                visitors=setting["horizon"],
                agents=setting["agents"],
                trust=setting["trust"],
            )
            if (numbers := numbers_of(season)).closes:
                yield "own", numbers, one["result"]["per_agent_regret"]["mean"]


def smooth(rows: list[tuple[float, Any, float]]) -> dict[str, Any]:
    """Kernel regression of the logarithm of value over base, about a polynomial.

    Its length and noise are those that predict each season best from all the others.
    """
    logs = np.array([one for _, one, _ in rows])
    target = np.log([value / base for base, _, value in rows])
    centre, scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), 0.1)
    points = np.round((logs - centre) / scale, 3)
    terms = np.array([terms_of(one) for one in points])
    squares = np.sum((points[:, None] - points[None]) ** 2, axis=2)

    def weights(length: float, noise: float) -> tuple[float, Any]:
        kernel = np.exp(-0.5 * squares / length**2) + terms @ terms.T + noise * np.eye(len(points))
        inverse = np.linalg.inv(kernel)
        found = inverse @ target
        return float(np.mean((found / np.diag(inverse)) ** 2)), found

    length, noise = min(product(LENGTHS, NOISES), key=lambda one: weights(*one)[0])
    error, found = weights(length, noise)
    fitted = f"{len(rows)} seasons, length {length:g}, noise {noise:g}"
    print(f"{fitted}, each from all others: ± {math.sqrt(error):.3f}")
    plain = {"centre": centre, "scale": scale, "trend": terms.T @ found, "weights": found}
    told = {name: [float(f"{one:.5g}") for one in values] for name, values in plain.items()}
    limits = [float(f"{one:.4g}") for one in (target.min() - 0.3, target.max() + 0.3)]
    return told | {"length": length, "limits": limits, "points": points.tolist()}


def simulated_crossing(number: int, found: dict[str, Any]) -> tuple[float, float] | None:
    """Between which numbers of agents it begins to pay, by simulation; None if not all steps were played."""
    setting, low, high = drawn("held out", number), 1.0, math.inf
    for agents in LADDER:
        step = found.get(f"held-{number}-{agents}")
        if step is not None and step["setting"] == setting | {"agents": agents}:
            low, high = (low, min(high, agents)) if pays(step) else (max(low, agents), high)
    done = next_step(number, found) is None
    return (low, high) if done else None


def crossing(number: int, low: float, high: float, found: dict[str, Any]) -> float:
    """The number of agents at which regret is an agent alone's: on a line between two that were played."""
    logs = []
    for agents in (low, high):
        one = found[f"held-{number}-{agents:g}"]
        if "by_play" not in one:
            return math.sqrt(low * high)
        logs.append(math.log(min(mean for mean, _ in one["by_play"].values()) / one["alone"]))
    part = logs[0] / (logs[0] - logs[1])
    return float(low * (high / low) ** part)


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """The shipped table against simulation, on seasons that it was not fitted to."""
    factors: dict[str, list[float]] = {"alone": [], "released": [], "own": [], "visitors": [], "agents": []}
    counts = dict.fromkeys(("seasons", "sure", "agree", "beyond", "beyond_agree"), 0)
    for number in range(HELD_OUT):
        one = found.get(f"held-{number}")
        if one is None or "by_play" not in one:
            continue
        season = season_of(**one["setting"])
        said = predict(replace(season, play=None if one["both"] else "released"))
        assert said is not None
        counts["seasons"] += 1
        paid = one["pays_after"] is not None
        if paid or one["saved"] < -one["saved_margin"]:
            counts["sure"] += 1
            counts["agree"] += paid == (said.pays_after is not None)
        if paid and said.pays_after is not None:
            factors["visitors"].append(apart(said.pays_after, one["pays_after"]))
        for who, mean in {
            "alone": one["alone"],
            **{play: each[0] for play, each in one["by_play"].items()},
        }.items():
            factors[who].append(apart(said.regret[who], mean))
        if (between := simulated_crossing(number, found)) is None:
            continue
        needed = agents_needed(season)
        if between[0] > 1 and between[1] < math.inf and needed is not None:
            factors["agents"].append(apart(needed, crossing(number, *between, found)))
        else:  # from three agents on, or not even with 1,024
            counts["beyond"] += 1
            simulated = LADDER[0] if between[0] == 1 else None
            counts["beyond_agree"] += needed == simulated
    middle = {name: float(f"{np.median(some):.4g}") for name, some in factors.items() if some}
    worst = {name: float(f"{np.quantile(some, 0.9):.4g}") for name, some in factors.items() if some}
    return counts | {
        "compared": {name: len(some) for name, some in factors.items()},
        "median": middle,
        "p90": worst,
    }


def apart(one: float, other: float) -> float:
    """The factor between two positive numbers, at least 1."""
    return max(one / other, other / one)


def words(error: dict[str, Any]) -> str:
    """What was measured, for the page on what to expect."""
    middle, most, compared = error["median"], error["p90"], error["compared"]

    def within(name: str) -> str:
        return f"{middle[name]:.2f} (nine in ten {most[name]:.2f})"

    said = (
        f"On {error['seasons']} seasons that it was not fitted to (d, K, visitors, agents, ε and trust drawn "
        f"at random, something worth reading in each), {error['agree']} of the {error['sure']} verdicts of "
        f"which simulation was sure were as predicted. Half of the predictions are within a factor of "
        f"{within('visitors')} for the visitor from whom on it pays ({compared['visitors']} seasons), and "
        f"for regret of {within('alone')} alone, {within('released')} under released and {within('own')} "
        "under own play."
    )
    if compared["agents"]:
        said += (
            f" The number of agents from which on it pays is within {within('agents')} "
            f"({compared['agents']} seasons; of {error['beyond']} others {error['beyond_agree']} are rightly "
            "said to pay with any number, or with none up to 1,000)."
        )
    return said


def write_page(said: str) -> None:
    """After its mark on the page."""
    before, mark, after = PAGE.read_text(encoding="utf-8").partition("<!-- prediction -->\n")
    assert mark, f"{PAGE} has no place for it"
    PAGE.write_text(f"{before}{mark}{said}\n{after.partition(chr(10))[2]}", encoding="utf-8")


def write_table(table: dict[str, Any]) -> None:
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in table["models"].items())
    rest = "".join(
        f',\n"{name}": {json.dumps(table[name])}' for name in ("range", "noise", "error") if name in table
    )
    write_atomically(TABLE, f'{{"models": {{\n{rows}\n}}{rest}}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=POINTS)
    found = json.loads(parser.parse_args().json.read_text(encoding="utf-8"))["points"]
    table = fit(found)
    write_table(table)
    predicting.read_table.cache_clear()
    table["error"] = judge(found)
    write_table(table)
    print(json.dumps(table["error"], indent=1))
    write_page(words(table["error"]))


if __name__ == "__main__":
    main()
