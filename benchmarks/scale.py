"""From ten agents to a million: what is lost, what everybody carries, and where it breaks.

    python benchmarks/scale.py [--only regret parties] [--most 1000000] [--json docs/figures/scale.json]
    python benchmarks/scale.py --page docs/scale.md

`regret`: the average agent over 10 visitors and over 100, d = 10, K = 100, ε = 1, δ = 1e-6, by simulation of
up to `--most` agents, under each trust, and with keepers of regions, whose sums open by themselves: R of them
have √R times the noise of one, which is played as one sum at the budget that has so much noise.

`parties`: one whole secure sum (three keepers, d = 10) and one plain one in this process, without sockets:
processor seconds of the controller, of a keeper and of an agent at some numbers of agents, and bytes of all
messages. `--page` measures nothing: it makes the tables of a page anew, with what is beyond the largest
number measured in italics. What is in the JSON file stays there unless it is measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import feducb
from feducb.config import Budget
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb_lab.experiments.provenance import made_by

SIZES = [10, 100, 1_000, 10_000, 100_000, 1_000_000]
DIM, EPSILON, DELTA = 10, 1.0, 1e-6
VISITORS = [10, 100]
DECISIONS = 10**6  # of all agents in a run, at most
REGIONS = [10, 100, 1_000]
KEEPERS, RELEASES, HOUR, GIGABYTE = 3, 20, 0.05, 0.05  # of a season, and prices that are assumed
JSON = Path("docs/figures/scale.json")


def regret(most: int) -> dict[str, Any]:
    """By visitors, number of agents and trust: mean, standard error, and when sums are released."""
    found: dict[str, Any] = {}
    for visitors in VISITORS:
        usual = {"dim": DIM, "arms": 100, "horizon": visitors, "delta": DELTA, "seed": 0}
        played = {"alone": feducb.simulate(**usual, agents=50, runs=20, baseline="alone")}  # type: ignore[arg-type]
        for agents in [one for one in SIZES if one <= most and one * visitors <= DECISIONS]:
            runs = max(2, min(20, 20_000 // agents))
            for name, cell in cells(agents).items():
                began, key = time.perf_counter(), f"{agents}, {name}"
                played[key] = feducb.simulate(**usual, agents=agents, runs=runs, **cell)  # type: ignore[arg-type]
                print(visitors, key, told(played[key]), f"{time.perf_counter() - began:.1f} s", flush=True)
        found[str(visitors)] = {name: told(one) for name, one in played.items()}
    return found


def cells(agents: int) -> dict[str, dict[str, Any]]:
    """Who adds the noise."""
    found: dict[str, dict[str, Any]] = {"no privacy": {"baseline": "no-privacy"}}
    for trust in ("nobody", "keepers", "controller"):
        found[trust] = {"trust": trust, "epsilon": EPSILON}
    for regions in REGIONS:
        if 10 * regions <= agents:
            mu = to_mu(Budget(epsilon=EPSILON, delta=DELTA)) / math.sqrt(regions)
            found[f"{regions} regions"] = {"trust": "keepers", "epsilon": to_epsilon(mu, DELTA)}
    return found


def told(result: feducb.SimulationResult) -> dict[str, Any]:
    """A result in short."""
    rounds = result.release_rounds[0]
    return {
        "mean": float(f"{result.mean:.4g}"),
        "stderr": float(f"{result.stderr:.2g}"),
        "runs": result.regret.shape[0],
        "first_release": rounds[0] if rounds else None,
        "releases": len(rounds),
    }


def regret_table(found: dict[str, Any], visitors: int) -> list[str]:
    """Rows of Markdown: by number of agents, who adds the noise."""
    cells = found["regret"][str(visitors)]
    columns = ["no privacy", "controller", "keepers", *(f"{one:,} regions" for one in REGIONS), "nobody"]
    rows = [f"| M | alone | {' | '.join(columns)} |", f"|---|---{'|---' * len(columns)}|"]
    for agents in SIZES:
        if f"{agents}, nobody" not in cells:
            continue
        shown = [cells["alone"], *(cells.get(f"{agents}, {name.replace(',', '')}") for name in columns)]
        said = ["–" if one is None else f"{one['mean']:.3g} ± {one['stderr']:.1g}" for one in shown]
        rows.append(f"| {agents:,} | {' | '.join(said)} |")
    return rows


def at(found: dict[str, Any], name: str, agents: int) -> float:
    """As measured, or on a line through the two largest numbers of agents that were."""
    values = {int(one): float(cell[name]) for one, cell in found["parties"].items()}
    if agents in values:
        return values[agents]
    near, far = sorted(values)[-2:]
    return values[far] + (values[far] - values[near]) * (agents - far) / (far - near)


def parties_table(found: dict[str, Any]) -> list[str]:
    """Rows of Markdown: what one release takes; italic: beyond what was measured."""
    measured = sorted(int(one) for one in found["parties"])
    head = ["M", "controller", "a keeper", "list to a keeper", "sum to an agent", "sums to all", "roster"]
    head += ["nobody: controller", "sum to an agent", "sums to all"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for agents in [*measured, *(one for one in SIZES if one > measured[-1])]:
        said = [seconds(at(found, name, agents)) for name in ("controller", "keeper")]
        said += [size(at(found, f"bytes of {name}", agents)) for name in ("ask", "opened")]
        said += [
            size(agents * at(found, "bytes of opened", agents)),
            size(at(found, "bytes of roster", agents)),
        ]
        said += [
            seconds(at(found, "plain controller", agents)),
            size(at(found, "bytes of plain sum", agents)),
        ]
        said.append(size(agents * at(found, "bytes of plain sum", agents)))
        rows.append(f"| {agents:,} | {' | '.join(italic(said, agents > measured[-1]))} |")
    return rows


def cost_table(found: dict[str, Any]) -> list[str]:
    """Rows of Markdown: a season of so many releases, at prices that are assumed."""
    rows = ["| | cores | traffic out |", "|---|---|---|"]
    largest = max(int(one) for one in found["parties"])
    for regions, agents in ((1, 1_000), (1, 10_000), (1_000, 1_000_000), (1, 1_000_000)):
        each = agents // regions
        busy = regions * (KEEPERS * at(found, "keeper", each) + at(found, "controller", each))
        sent = agents * at(found, "bytes of opened", each)
        if regions > 1:
            busy += at(found, "plain controller", regions)
            sent += agents * at(found, "bytes of release", each)
        hours, traffic = RELEASES * busy / 3600, RELEASES * sent
        said = [f"{hours:.2g} h, {hours * HOUR:.2g}", f"{size(traffic)}, {traffic / 1e9 * GIGABYTE:,.2g}"]
        where = "one federation" if regions == 1 else f"{regions:,} regions"
        rows.append(f"| {agents:,} agents, {where} | {' | '.join(italic(said, each > largest))} |")
    return rows


def italic(said: list[str], yes: bool) -> list[str]:
    """What was not measured."""
    return [f"*{one}*" for one in said] if yes else said


def seconds(value: float) -> str:
    """Three figures."""
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def size(value: float) -> str:
    """Three figures, in powers of 1,000."""
    power = min(int(math.log10(value)) // 3, 4)
    return f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def tables(found: dict[str, Any]) -> dict[str, list[str]]:
    """All that the page shows, by name."""
    made = {"parties": parties_table(found), "cost": cost_table(found)}
    for visitors in VISITORS if "regret" in found else []:
        made[f"regret {visitors}"] = regret_table(found, visitors)
    return made


def fill(page: str, made: dict[str, list[str]]) -> str:
    """The page with each table after its mark, ``<!-- table: NAME -->``, made anew."""
    for name, rows in made.items():
        mark = f"<!-- table: {name} -->\n"
        before, found, after = page.partition(mark)
        assert found, f"the page has no {mark}"
        rest = after.splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            rest.pop(0)
        page = before + mark + "\n".join(rows) + "\n" + "".join(rest)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=["regret", "parties"], choices=["regret", "parties"])
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--page", type=Path, help="measure nothing; make the tables of this page anew")
    parser.add_argument("--json", type=Path, default=JSON)
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(asked.json.read_text(encoding="utf-8")) if asked.json.exists() else {}
    if asked.page:
        page = asked.page.read_text(encoding="utf-8")
        asked.page.write_text(fill(page, tables(found)), encoding="utf-8")
        return
    found["made"] = made_by("python benchmarks/scale.py", ["feducb.simulation.runner"])
    if "regret" in asked.only:
        found["regret"] = regret(asked.most)
    if "parties" in asked.only:
        from scale_parties import parties  # needs what agents and controllers need, and simulation does not

        found["parties"] = parties()
    asked.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
