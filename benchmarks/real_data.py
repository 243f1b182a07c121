"""Every data set × records per agent × budget × trust × play, against each agent alone.

    python benchmarks/real_data.py docs/real-data/all.json [NAME …] [--scale full] [--processes 2] …
    python benchmarks/real_data.py docs/real-data/all.json --page docs/real-data.md

What the code that is here has put into the JSON file is not measured again, so that the same command goes on
where it was stopped (--minutes M begins nothing after M minutes); a cell of other code is, and stays until it
has been. The second command measures nothing: it draws the picture and writes tables and sentences into the
page. A machine without the packages of the data takes them from a file:
--carry FILE writes it, --from FILE reads it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from feducb.worlds.data import DATA_SETS
from feducb_lab.experiments.real_data import measure_all
from feducb_lab.experiments.real_data.carried import carry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("sets", nargs="*", metavar="NAME")
    parser.add_argument("--scale", default="full", choices=("quick", "full"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--carry", type=Path)
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    names = asked.sets or list(DATA_SETS)
    if asked.carry:
        carry(names, asked.carry)
        return
    if asked.page:
        from feducb_lab.experiments.real_data.pages import write

        for path in write(asked.json, page=asked.page):
            print(path)
        return
    measure_all(
        asked.json,
        asked.scale,
        lambda said: print(said, flush=True),
        names=names,
        source=asked.source,
        processes=asked.processes,
        minutes=asked.minutes,
    )


if __name__ == "__main__":
    main()
