"""Every data set under every play, trust and budget, against each agent alone: wins, ties and losses.

    python benchmarks/real_data.py [NAME …] [--play released own] [--json out.json]

By the play that verdicts of `feducb evaluate` are about (greedy on trials, a tenth of the bonus online), with
seed 0. A win or a loss is sure for all differences together that a verdict might have named. What is in
the JSON file already is not computed again, so that data sets can be added one by one.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from feducb.evaluation import Comparison, Study, evaluate
from feducb.trust import CONTROLLER, KEEPERS, NOBODY
from feducb.worlds.data import DATA_SETS

PLAYS = ("released", "own")
TRUSTS = (NOBODY, KEEPERS, CONTROLLER)
EPSILONS = (1.0, 8.0)


def measured(found: Comparison) -> list[dict[str, Any]]:
    """A row for each private federation, in the order of budgets and trusts."""
    private = [one for one in found.rows if one.private and one.play == found.primary]
    asked = [(epsilon, trust) for epsilon in EPSILONS for trust in TRUSTS]
    made = []
    for (epsilon, trust), row in zip(asked, private, strict=True):
        assert row.over_alone is not None
        more = {"value": row.over_alone.value, "margin": row.over_alone.margin}
        setting = {"epsilon": epsilon, "trust": trust.name, "shares": row.shares, "reads": row.reads}
        made.append({**setting, "outcome": found.outcome(row), **more})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(DATA_SETS), metavar="NAME")
    parser.add_argument("--play", nargs="+", default=list(PLAYS), choices=PLAYS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = json.loads(asked.json.read_text(encoding="utf-8")) if asked.json and asked.json.exists() else {}
    for name in asked.sets:
        for play in asked.play:
            if f"{name}, {play}" not in rows:
                study = Study(epsilons=EPSILONS, trusts=TRUSTS, play=play)
                rows[f"{name}, {play}"] = measured(evaluate(name, study=study))
            for row in rows[f"{name}, {play}"]:
                said = f"{row['outcome']:5} {row['value']:+.4f} ± {row['margin']:.4f}"
                print(f"{name:18}{play:10}ε = {row['epsilon']:g}  {row['trust']:11}{said}", flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for play in asked.play:
        counts = Counter(row["outcome"] for name in asked.sets for row in rows[f"{name}, {play}"])
        print(f"{play}: {counts['wins']} wins, {counts['ties']} ties, {counts['loses']} losses")


if __name__ == "__main__":
    main()
