"""All figures and tables anew, by one command: `feducb report --everything`.

figures, tables ──▶ scripts of benchmarks/ ──▶ the paper's claims, the demo's picture ──▶ report.html

What was made by the code that is here is not made again; what cannot be made here is named, with the reason.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import feducb_lab
from feducb.errors import ConfigurationError, MissingExtraError
from feducb.simulation.backends.gpu_kernels import missing_gpu
from feducb_lab.experiments import real_data
from feducb_lab.experiments.claims import claims, claims_table, read_results
from feducb_lab.experiments.experiment import Scale
from feducb_lab.experiments.figures import NAMES
from feducb_lab.experiments.plain_files import read_object
from feducb_lab.experiments.provenance import is_fresh, made_by
from feducb_lab.experiments.report import make_report
from feducb_lab.experiments.run import make_figure
from feducb_lab.experiments.sweep import Playing, Progress

__all__ = ["SCRIPTS", "Script", "make_everything", "needs_a_gpu"]

_ROOT = Path(feducb_lab.__path__[0]).parents[1]  # of a clone
_ON_A_GPU = ("1a", "1b", "1c", "gap", "federation")  # at full scale: 10⁶ or 10⁷ rounds of up to 1,000 agents
Watch = Callable[[str], Progress]
"""Told what is made; gives what is told how far it is."""


@dataclass(frozen=True, slots=True)
class Script:
    """A benchmark that writes tables as JSON (`measured.write_tables`), and what it is asked for."""

    title: str
    file: str
    quick: tuple[str, ...]
    full: tuple[str, ...]

    def asked(self, scale: Scale) -> list[str]:
        """Arguments, but for the file to write."""
        return [self.file, *(self.quick if scale == "quick" else self.full)]


SCRIPTS = {
    "seasons": Script(
        "A deployed agent over three seasons",
        "benchmarks/seasons.py",
        quick=("--runs", "2"),
        full=("--runs", "12"),
    ),
    "shop": Script(
        "A shop's visitors",
        "benchmarks/shop_visitors.py",
        quick=("--epsilon", "8", "--seeds", "2"),
        full=(),
    ),
}


def needs_a_gpu(scale: Scale) -> dict[str, str]:
    """Figures that cannot be made here at this scale, and why."""
    reason = missing_gpu() if scale == "full" else None
    said = f"at full scale it takes a GPU ({reason}); `feducb figure NAME --scale full` plays it on one"
    return {} if reason is None else {name: said.replace("NAME", name) for name in _ON_A_GPU}


def make_everything(scale: Scale, out: Path, play: Playing, watch: Watch) -> tuple[Path, dict[str, str]]:
    """Make it all into a folder; the page, and what was left out with the reasons."""
    out.mkdir(parents=True, exist_ok=True)
    left_out = needs_a_gpu(scale)
    for name in NAMES:
        if name not in left_out:
            make_figure(name, scale, out, play, watch(f"figure {name}"))
    for name, script in SCRIPTS.items():
        told = watch(name)
        reason = _run(name, script, scale, out)
        told(1, 1)
        if reason is not None:
            left_out[name] = reason
    reason = _real_data(scale, out, watch("real-data"))
    if reason is not None:
        left_out["real-data"] = reason
    told = watch("demo")
    _demo(scale, out)
    told(1, 1)
    _claims(scale, out)
    _write(out / "left-out.json", json.dumps(left_out, ensure_ascii=False, indent=1))
    return make_report(out), left_out


def _run(name: str, script: Script, scale: Scale, out: Path) -> str | None:
    """Run a script unless its tables are fresh; why it could not be, if so."""
    if not (_ROOT / script.file).exists():
        return f"{script.file} is in a clone of the repository, not in the installed package"
    path = out / f"{name}-{scale}.json"
    if not _fresh(path):
        part = path.with_suffix(".part.json")  # a script that was stopped may go on from there
        if not _fresh(part):
            part.unlink(missing_ok=True)
        asked = [sys.executable, *script.asked(scale), "--json", str(part.resolve())]
        ended = subprocess.run(asked, cwd=_ROOT, capture_output=True, text=True, check=False)
        if ended.returncode:
            last = ended.stderr.strip().splitlines()[-1:] or ["no word"]
            return f"{' '.join(script.asked(scale))} ended with status {ended.returncode}: {last[0]}"
        part.replace(path)
    plain = json.loads(path.read_text(encoding="utf-8"))
    _write(path.with_suffix(".md"), _shown(script.title, plain))
    return None


def _real_data(scale: Scale, out: Path, told: Progress) -> str | None:
    """Data sets that are at hand; why there are none, if so."""
    counted = itertools.count(1)
    try:
        real_data.make(out, scale, lambda said: told(next(counted), 0))
    except MissingExtraError as error:
        return str(error)
    path = out / f"real-data-{scale}.md"
    words = path.read_text(encoding="utf-8").rstrip()
    _write(path, f"# Private federation on real data\n\n{words}")
    return None


def _claims(scale: Scale, out: Path) -> None:
    results = read_results(out)
    made = made_by(f"feducb report --everything --scale {scale}", ["feducb_lab.experiments.claims"])
    said = [asdict(one) for one in claims(results)]
    _write(out / f"claims-{scale}.json", json.dumps({"made": made, "claims": said}, ensure_ascii=False))
    head = "# The paper's claims\n\nWhich of them hold, as far as the figures on this page can tell?\n\n"
    _write(out / f"claims-{scale}.md", head + claims_table(results))


def _demo(scale: Scale, out: Path) -> None:
    """The picture of `feducb demo`, which is the same at every scale."""
    made = made_by("feducb demo", ["feducb.cli.demo"])
    stem = out / f"demo-{scale}"
    if not (stem.with_suffix(".png").exists() and _fresh(stem.with_suffix(".json"))):
        asked = [sys.executable, "-m", "feducb", "demo", "--out", str(stem.with_suffix(".png"))]
        ended = subprocess.run(asked, capture_output=True, text=True, check=True)
        said = "\n".join(
            f"    {line}" for line in ended.stdout.splitlines() if not line.startswith("picture:")
        )
        _write(
            stem.with_suffix(".md"), f"# A private federation learns\n\nWhat `feducb demo` shows.\n\n{said}"
        )
        _write(stem.with_suffix(".json"), json.dumps({"made": made}, ensure_ascii=False))


def _shown(title: str, plain: Mapping[str, Any]) -> str:
    """A script's tables as Markdown."""
    tables = plain["tables"]
    parts = [f"# {title}"]
    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        lines = [["", *columns], ["---"] * (1 + len(columns))]
        lines += [[row, *(_cell(cells.get(column)) for column in columns)] for row, cells in rows.items()]
        parts += [f"## {name}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(parts)


def _cell(value: Any) -> str:
    if not isinstance(value, Mapping):
        return "" if value is None else f"{value:g}"
    return f"{value['mean']:.4f} ± {value['stderr']:.4f}"


def _fresh(path: Path) -> bool:
    """Whether a file need not be made again; one that cannot be read is."""
    if not path.exists():
        return False
    try:
        return is_fresh(read_object(path, "results").get("made"))
    except (ConfigurationError, AttributeError, TypeError, LookupError):
        return False


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text}\n", encoding="utf-8")
