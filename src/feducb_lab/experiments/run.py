"""Making a figure: points are played, then everything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from feducb_lab.experiments.experiment import Figure, Results, Scale
from feducb_lab.experiments.figures import figure
from feducb_lab.experiments.on_ray import ray_sweep
from feducb_lab.experiments.sweep import Progress, sweep

__all__ = ["make_figure", "to_markdown", "to_plain"]

_CURVE = 60  # points of a curve that are written
_ROUNDS = 256  # release rounds that are written


def make_figure(
    name: str,
    scale: Scale,
    out: Path,
    backend: str = "auto",
    at_once: int = 1,
    threads: int | None = None,
    progress: Progress = lambda done, total, point: None,
    ray: str | None = None,
) -> Results:
    """Play a figure's points and write NAME-SCALE.json, .png, .svg and .md.

    Args:
        name: which figure.
        scale: quick or full.
        out: folder for the files; points are kept in its folder ``points`` and never played again.
        backend: as in `feducb.simulate`.
        at_once: how many points are played at the same time.
        threads: of one simulation.
        progress: is told of each point that is done.
        ray: play the points on Ray: the address of a cluster, or ``local``.
    """
    made = figure(name)
    points = made.points(scale)
    folder = out / "points"
    if ray is None:
        outcomes = sweep(points, folder, backend=backend, at_once=at_once, threads=threads, progress=progress)
    else:
        address = None if ray == "local" else ray
        outcomes = ray_sweep(points, folder, backend=backend, address=address, progress=progress)
    results = Results(name, scale, outcomes)
    stem = f"{name}-{scale}"
    plain = json.dumps(to_plain(results), allow_nan=False, ensure_ascii=False)
    (out / f"{stem}.json").write_text(plain + "\n", encoding="utf-8")
    picture = made.draw(results)
    picture.savefig(out / f"{stem}.png", dpi=150)
    picture.savefig(out / f"{stem}.svg")
    (out / f"{stem}.md").write_text(to_markdown(made, results), encoding="utf-8")
    return results


def to_plain(results: Results) -> dict[str, Any]:
    """As plain data, curves thinned and long lists of release rounds left out."""
    plain = results.as_dict()
    for point in plain["points"]:
        result = point["result"]
        result["curve"] = _thinned(result["curve"])
        rounds = result.get("release_rounds", [])
        if len(rounds) > _ROUNDS or any(isinstance(one, list) for one in rounds):
            del result["release_rounds"]
    return plain


def _thinned(curve: list[Any]) -> list[Any]:
    if len(curve) <= _CURVE:
        return curve
    last = len(curve) - 1
    return [curve[round(k * last / (_CURVE - 1))] for k in range(_CURVE)]


def to_markdown(made: Figure, results: Results) -> str:
    """Title, question, picture, what was found, all points, and the command."""
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
        f"    feducb figure {made.name} --scale {results.scale}",
        "",
    ]
    return "\n".join(lines)
