"""The paper's claims one by one, each with a verdict that is computed from results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feducb_lab.experiments.experiment import Outcome, Results
from feducb_lab.experiments.figures import common
from feducb_lab.experiments.figures.adversaries import leaks
from feducb_lab.experiments.plain_files import read_figure

__all__ = ["Claim", "claims", "claims_table", "read_results"]

_HOLDS, _PARTLY, _FAILS = "holds", "holds in part", "does not hold"
_SO, _OTHER = "this rate", "not this rate"  # an upper bound is not refuted by a slope
_NEEDED = ("1a", "1b", "1c", "gap", "decentralised", "adversaries")


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the paper, and what became of it."""

    where: str  # in the paper
    said: str
    verdict: str
    found: str
    figure: str  # name and scale of what it rests on


def read_results(folder: Path) -> dict[str, Results]:
    """The figures of a folder, the larger of each."""
    found = {}
    for name in _NEEDED:
        for scale in ("quick", "full"):
            path = folder / f"{name}-{scale}.json"
            if path.exists():
                found[name] = read_figure(path)
    return found


def claims(results: Mapping[str, Results]) -> list[Claim]:
    """All claims that these figures can judge, in the order of the paper."""
    made = []
    for name, judge in _JUDGES:
        if name in results:
            found = results[name]
            for where, said, verdict, text in judge(found):
                made.append(Claim(where, said, verdict, text, f"{name}-{found.scale}"))
    return made


def claims_table(results: Mapping[str, Results], link: Callable[[str], str] = str) -> str:
    """As a Markdown table."""
    lines = ["| | in the paper | it says | found | by |", "|---|---|---|---|---|"]
    for one in claims(results):
        verdict = f"**{one.verdict}**"
        lines.append(f"| {verdict} | {one.where} | {one.said} | {one.found} | {link(one.figure)} |")
    return "\n".join(lines)


Judged = Iterator[tuple[str, str, str, str]]


def _of(held: Sequence[bool]) -> str:
    return _HOLDS if all(held) else _PARTLY if any(held) else _FAILS


def _rate(power: tuple[float, float], claimed: float) -> bool:
    """Whether an exponent is the one that is claimed, within its error or a tenth."""
    return abs(power[0] - claimed) <= max(2 * power[1], 0.1)


def _power(value: tuple[float, float]) -> str:
    return f"{value[0]:.2f} ± {value[1]:.2f}".replace("-", "−")


def _budget(results: Results) -> Judged:
    sizes, epsilons = (results.values(name, who="calibrated") for name in ("M", "epsilon"))
    lines = {agents: results.along("epsilon", who="calibrated", M=agents) for agents in sizes}
    falling = [common.falls(line) for line in lines.values()]
    ends = "; ".join(
        f"M = {agents:,}: {common.plus_minus(line[0])} at ε = {line[0].label['epsilon']:g}, "
        f"{common.plus_minus(line[-1])} at {line[-1].label['epsilon']:g}"
        for agents, line in lines.items()
    )
    yield "Experiment 1, Fig. 1a", "regret falls as ε grows", _of(falling), ends
    across = {eps: results.along("M", who="calibrated", epsilon=eps) for eps in epsilons}
    text = f"from M = {sizes[0]:,} to {sizes[-1]:,}, divided by " + ", ".join(
        f"{common.number(line[0].mean / line[-1].mean)} at ε = {eps:g}" for eps, line in across.items()
    )
    held = [common.falls(line) for line in across.values()]
    yield "Experiment 1, Fig. 1a", "regret of an agent falls as the number of agents M grows", _of(held), text
    yield _competitive(results, lines)
    yield from _theorem(results, lines)
    uniform = results.one(who="uniform")
    shares = sorted(common.share(one, uniform) for one in results.where(who="paper"))
    text = f"they lose {common.percent(shares[0])} to {common.percent(shares[-1])} of what uniform play loses"
    learns = [share < 0.9 for share in shares]
    yield "Experiments", "FedUCB learns (with the constants as printed)", _of(learns), text


def _competitive(results: Results, lines: Mapping[int, list[Outcome]]) -> tuple[str, str, str, str]:
    alone = results.one(who="alone")
    federations = {agents: line[-1] for agents, line in lines.items() if agents > 1}
    ratios = {m: one.mean / results.one(who="no privacy", M=m).mean for m, one in federations.items()}
    beats = [common.surely_less(one, alone) for one in federations.values()]
    close = [ratio < 2.0 for ratio in ratios.values()]
    text = f"at ε = {next(iter(federations.values())).label['epsilon']:g}: " + "; ".join(
        f"M = {agents:,}: {common.number(ratios[agents])} times no privacy, "
        f"{common.number(alone.mean / one.mean)} times less than alone"
        for agents, one in federations.items()
    )
    said = "“competitive even at large privacy budget” (taken as: below alone, and under twice no privacy)"
    return "Experiment 1", said, _of([*beats, *close]), text


def _theorem(results: Results, lines: Mapping[int, list[Outcome]]) -> Judged:
    growths = {m: _growth(one) for m, line in lines.items() for one in line if one.label["epsilon"] == 1.0}
    text = "over the last decade of rounds regret at ε = 1 grows as T to the power " + ", ".join(
        f"{growth:.3f} (M = {agents:,})" for agents, growth in growths.items()
    )
    held = [growth < 0.5 for growth in growths.values()]
    yield "Theorem, controller", "regret is sublinear in T (the bound: √T)", _of(held), text
    few = {m: line for m, line in lines.items() if m > 1}
    powers = {m: common.slope([one.label["epsilon"] for one in line], line) for m, line in few.items()}
    text = "in ε the exponent is " + ", ".join(f"{_power(one)} (M = {m:,})" for m, one in powers.items())
    so = all(_rate(one, -0.5) for one in powers.values())
    yield "Corollary, (ε, δ)", "a bound that goes as ε^(−1/2)", _SO if so else _OTHER, text
    across = [line[at] for line in few.values() for at in (_place(line, 1.0),)]
    power = common.slope(list(few), across)
    so = _rate(power, -0.5)
    text = f"in M the exponent is {_power(power)} at ε = 1"
    said = "a bound that goes, for one agent, as M^(−1/2)"
    yield "Corollary, (ε, δ)", said, _SO if so else _OTHER, text


def _place(line: Sequence[Outcome], epsilon: float) -> int:
    return [one.label["epsilon"] for one in line].index(epsilon)


def _growth(one: Outcome) -> float:
    """Exponent of regret in T, over the last decade of rounds."""
    rounds, means, _ = one.curve
    start = next(at for at, value in enumerate(rounds) if value >= rounds[-1] / 10)
    return math.log(means[-1] / means[start]) / math.log(rounds[-1] / rounds[start])


def _communication(results: Results) -> Judged:
    for who, name in (
        ("calibrated", "private"),
        ("no privacy", "not private"),
        ("paper", "printed constants"),
    ):
        few, some, brief, every = (
            results.one(who=who, communication=one)
            for one in ("O(M^1.5)", "O(M log T)", "O(M log T), fewer rounds", "O(MT)")
        )
        held = [common.surely_less(some, few), common.surely_less(every, brief)]
        text = (
            f"{name}: O(M^1.5) {common.plus_minus(few)}, O(M log T) {common.plus_minus(some)} over "
            f"{some.setting['horizon']:,} rounds; O(M log T) {common.plus_minus(brief)}, O(MT) "
            f"{common.plus_minus(every)} over {every.setting['horizon']:,}"
        )
        yield (
            "Experiment 2, Fig. 1b, remark on communication",
            f"more communication, less regret ({name})",
            _of(held),
            text,
        )


def _dimension(results: Results) -> Judged:
    line = results.along("d", who="calibrated")
    power = common.slope([one.label["d"] for one in line], line)
    text = (
        f"d to the power {_power(power)}, from {common.plus_minus(line[0])} at d = {line[0].label['d']} to "
        f"{common.plus_minus(line[-1])} at d = {line[-1].label['d']}"
    )
    quadratic = _rate(power, 2.0)
    yield "Experiment 3, Fig. 1c", "“essentially a quadratic dependence” on d", _of([quadratic]), text
    so = _rate(power, 0.75)
    said = "a bound that goes as d^(3/4)"
    yield "Corollary, (ε, δ)", said, _SO if so else _OTHER, f"in d the exponent is {_power(power)}"


def _gap(results: Results) -> Judged:
    epsilons = results.values("epsilon", who="calibrated")
    lines = {f"ε = {eps:g}": results.along("gap", who="calibrated", epsilon=eps) for eps in epsilons}
    lines["no privacy"] = results.along("gap", who="no privacy")
    text = "; ".join(
        f"{name}: {common.plus_minus(line[0])} at Δ = {line[0].label['gap']:g}, "
        f"{common.plus_minus(line[-1])} at "
        f"{line[-1].label['gap']:g}, least at {min(line, key=lambda one: one.mean).label['gap']:g}"
        for name, line in lines.items()
    )
    said = "“the overall regret decreases as the gap increases”"
    yield "Appendix, gap", said, _of([common.falls(line) for line in lines.values()]), text
    strict, loose = (
        results.along("gap", who="calibrated", epsilon=eps) for eps in (epsilons[0], epsilons[-1])
    )
    ends = [(one, other, one.mean / other.mean) for one, other in zip(strict, loose, strict=True)]
    small, large = ends[0][2], ends[-1][2]
    unsure = 2 * math.sqrt(sum((p.stderr / p.mean) ** 2 for at in (0, -1) for p in ends[at][:2]))
    held = math.log(small / large) > unsure
    text = (
        f"ε = {epsilons[0]:g} costs {common.number(small)} times the regret of ε = {epsilons[-1]:g} at the "
        f"smallest gap and {common.number(large)} times at the largest"
    )
    yield "Appendix, gap", "“less sensitive to privacy budget” as the gap grows", _of([held]), text


def _graphs(results: Results) -> Judged:
    centre, alone = results.one(who="no privacy", graph="controller"), results.one(who="alone")
    full = results.one(who="no privacy", graph="complete:16")
    same = not common.surely_less(centre, full) and not common.surely_less(full, centre)
    text = f"without privacy {common.plus_minus(full)}, with a controller {common.plus_minus(centre)}"
    yield "Remark on graphs", "on a complete graph agents do as with a controller", _of([same]), text
    line = results.along("ttl", who="no privacy", graph="line:16", estimators="paper")
    near = results.one(who="no privacy", graph="line:16", ttl=1)
    every = [near, *line]
    no_worse = [not common.surely_less(alone, one) for one in every]
    text = f"alone {common.plus_minus(alone)}; on a line, γ estimators, " + ", ".join(
        f"{common.plus_minus(one)} at γ = {one.label['ttl']}" for one in every
    )
    said = "in the worst case, a line, it is as good as each agent acting by itself"
    yield "Remark on graphs", said, _of(no_worse), text


def _privacy(results: Results) -> Judged:
    broken = [one for one in leaks(results) if one.name[:3] in ("(a)", "(b)", "(c)")]
    text = "; ".join(
        f"{one.name[4:]}: {'no ε holds' if math.isinf(one.epsilon) else f'ε = {one.epsilon:.1f}'}"
        for one in broken
    )
    said = "each agent is (ε, δ)-private to the others (ε = 1, the printed rule)"
    yield "Privacy guarantees", said, _of([one.epsilon <= 1.0 for one in broken]), text


_JUDGES: tuple[tuple[str, Callable[[Results], Judged]], ...] = (
    ("1a", _budget),
    ("1b", _communication),
    ("1c", _dimension),
    ("gap", _gap),
    ("decentralised", _graphs),
    ("adversaries", _privacy),
)
