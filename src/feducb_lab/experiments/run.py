"""Making a figure: points are played, then everything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from feducb_lab.experiments import figures
from feducb_lab.experiments.experiment import Figure, Point, Results, Scale
from feducb_lab.experiments.provenance import made_by
from feducb_lab.experiments.sweep import Playing, Progress, play_here, sweep

__all__ = ["make_figure", "to_markdown", "to_plain"]

_CURVE = 60  # points of a curve that are written
_ROUNDS = 256  # release rounds that are written


def make_figure(
    name: str,
    scale: Scale,
    out: Path,
    play: Playing = play_here,
    progress: Progress = lambda done, total: None,
    *,
    seed: int = 0,
    runs: int | None = None,
) -> Results:
    """Play a figure's points and write NAME-SCALE.json, .png, .svg and .md.

    Points are kept in the folder ``points`` of ``out`` and never played again by the same code; ``seed`` is
    added to the seed of each, for other runs of the same points, and ``runs`` takes the place of how many
    there are of each; the rest is as for `sweep`.
    """
    made = figures.figure(name)
    points = [_changed(point, seed, runs) for point in made.points(scale)]
    outcomes = sweep(points, out / "points", play, progress)
    results, stem = Results(name, scale, outcomes), out / f"{name}-{scale}"
    modules = {point.module for point in points} | {f"{figures.__name__}.{figures.NAMES[name]}"}
    other = (f" --seed {seed}" if seed else "") + (f" --runs {runs}" if runs else "")
    by = made_by(f"feducb figure {name} --scale {scale}{other}", modules)
    plain = json.dumps({**to_plain(results), "made": by}, allow_nan=False, ensure_ascii=False)
    Path(f"{stem}.json").write_text(plain + "\n", encoding="utf-8")
    picture = made.draw(results)
    picture.savefig(f"{stem}.png", dpi=150)
    picture.savefig(f"{stem}.svg")
    Path(f"{stem}.md").write_text(to_markdown(made, results, by["command"]), encoding="utf-8")
    return results


def _changed(point: Point, seed: int, runs: int | None) -> Point:
    setting = dict(point.setting)
    if seed:
        setting["seed"] = setting.get("seed", 0) + seed
    if runs is not None:
        setting["runs"] = runs
    return replace(point, setting=setting)


def to_plain(results: Results) -> dict[str, Any]:
    """As plain data, curves thinned and long lists of release rounds left out."""
    plain = results.as_dict()
    for point in plain["points"]:
        result = point["result"]
        curve, last = result["curve"], len(result["curve"]) - 1
        if last >= _CURVE:
            result["curve"] = [curve[round(k * last / (_CURVE - 1))] for k in range(_CURVE)]
        rounds = result.get("release_rounds", [])
        if len(rounds) > _ROUNDS or any(isinstance(one, list) for one in rounds):
            del result["release_rounds"]
    return plain


def to_markdown(made: Figure, results: Results, command: str) -> str:
    """Title, question, picture, what was found, all points, and the command that made them."""
    head, *rows = made.table(results)
    lines = [
        f"# {made.title}",
        "",
        made.question,
        "",
        f"![{made.title}]({made.name}-{results.scale}.png)",
        "",
        made.text(results),
        "",
        "All points, mean ± standard error; bars and bands in the picture are two standard errors.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"    {command}",
        "",
    ]
    return "\n".join(lines)
