"""Earlier private algorithms beside ours: names, who is held against whom, the picture and the words."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure as Picture

from feducb.config import Budget
from feducb.privacy.calibration import to_epsilon
from feducb_lab.experiments.experiment import Outcome, Results
from feducb_lab.experiments.figures import common
from feducb_lab.experiments.prior.zhou_chowdhury import amplified_gain

__all__ = ["COUNTERPARTS", "PROVEN", "TUNED", "draw", "reaccounted", "table", "text"]

EPSILON, DELTA = 1.0, 1e-6
FRESH, CORRELATED = "fresh contexts", "correlated contexts"
FIXED, PEOPLE = "fixed actions", "fixed actions, ten rewards a person"

NOBODY, KEEPERS, CONTROLLER = "ours, nobody", "ours, keepers", "ours, controller"
SIFTING = ", sifting"
ALONE, NO_PRIVACY, UNIFORM = "each agent alone", "no privacy", "uniform play"
SINGLE = "Shariff & Sheffet 2018"
SILOS = "Zhou & Chowdhury 2024, local"
AMPLIFIED_SILOS = "Zhou & Chowdhury 2024, amplified"
VECTOR_SUM_SILOS = "Zhou & Chowdhury 2024, vector sum"
AMPLIFIED = "Chowdhury & Zhou 2022, amplified"
VECTOR_SUM = "Chowdhury & Zhou 2022, vector sum"
WEIGHTED_JOINT, WEIGHTED_SILOS = "Chen et al. 2025, joint", "Chen et al. 2025, silos"
CORE_CENTRAL, CORE_SHUFFLED = "Hanna et al. 2022, central", "Hanna et al. 2022, shuffled"
CORE_SILOS = "Hanna et al. 2022, silos"
CLIENTS = "Li, Zhou & Ji 2022"

COUNTERPARTS = {
    SINGLE: (NOBODY,),
    SILOS: (NOBODY,),
    AMPLIFIED_SILOS: (KEEPERS,),
    VECTOR_SUM_SILOS: (KEEPERS,),
    AMPLIFIED: (KEEPERS,),
    VECTOR_SUM: (KEEPERS,),
    WEIGHTED_JOINT: (CONTROLLER,),
    WEIGHTED_SILOS: (NOBODY,),
    CORE_CENTRAL: (CONTROLLER,),
    CORE_SHUFFLED: (KEEPERS,),
    CORE_SILOS: (NOBODY,),
    CLIENTS: (CONTROLLER, KEEPERS),  # central, or by a vector sum: the same noise
}
"""Whom each is held against: silos ↔ nobody, a shuffler ↔ keepers, a trusted server ↔ the controller."""

TUNED = {
    "batch": "batches",
    "bound": "whether its own closed bound or ours reads its sums",
    "first": "the first epoch or phase",
    "growth": "the growth of phases",
    "boldness": "boldness",
    "ridge": "ridges",
}
"""What earlier work is tuned in, by its name in settings."""

PROVEN = 1.0
"""The boldness of elimination for which its papers' guarantee holds."""

_OURS, _REFERENCES = (NOBODY, KEEPERS, CONTROLLER), (ALONE, NO_PRIVACY, UNIFORM)
_BLUE, _LIGHT, _RED, _GREY = "#1b6ca8", "#7fb2d9", "#b23a48", "#a8a8a8"


def reaccounted(one: Outcome) -> float:
    """ε of the whole stream, from the noise that was really added; ∞ without any, 0 where nothing leaves."""
    privacy = one.result["privacy"]
    if privacy.get("spent") is not None:
        return float(privacy["spent"])
    if privacy["mu"] is None:
        return math.inf
    return 0.0 if privacy["mu"] == 0.0 else to_epsilon(privacy["mu"], DELTA)


def _panels(results: Results) -> list[tuple[str, int]]:
    """Worlds and horizons, in the order of their points."""
    return list(dict.fromkeys((one.label["world"], one.label["T"]) for one in results.outcomes))


def _best(results: Results, world: str, horizon: int) -> dict[str, Outcome]:
    """Each at what came out best of the ways it was tuned; ours first, then earlier work, then references."""
    best: dict[str, Outcome] = {}
    for one in results.where(world=world, T=horizon):
        who = one.label["who"]
        if who not in best or one.mean < best[who].mean:
            best[who] = one
    if world == PEOPLE:  # nothing of a reference depends on whose rewards are protected
        best |= {who: one for who, one in _best(results, FIXED, horizon).items() if who in _REFERENCES}
    ours = [who for who in best if who.startswith("ours")]
    earlier = [who for who in COUNTERPARTS if who in best]
    return {who: best[who] for who in (*ours, *earlier, *_REFERENCES) if who in best}


def draw(results: Results) -> Picture:
    """Bars, a panel for each world and horizon."""
    panels = _panels(results)
    drawn = Picture(figsize=(9.0, 3.4 * len(panels)), layout="constrained")
    for axes, (world, horizon) in zip(
        drawn.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True
    ):
        best = _best(results, world, horizon)
        for place, (who, one) in enumerate(best.items()):
            colour = _GREY if who in _REFERENCES else _BLUE if who in _OURS else _LIGHT
            colour = _RED if who in COUNTERPARTS else colour
            axes.barh(place, one.mean, xerr=2.0 * one.stderr, color=colour, capsize=2)
            at = (one.mean + 2.0 * one.stderr, place)
            axes.annotate(
                common.number(one.mean),
                at,
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(range(len(best)), list(best), fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set_title(f"{world}, T = {horizon:,}", loc="left", fontsize=10)
        axes.set_xlabel("regret of the average agent, ± 2 s.e.")
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _ratio(one: Outcome, other: Outcome) -> str:
    """How many times as much the first loses, with the error of the ratio."""
    ratio = one.mean / other.mean
    error = ratio * math.hypot(one.stderr / one.mean, other.stderr / other.mean)
    return f"{ratio:.3g} ± {error:.1g}"


def _verdict(theirs: Outcome, ours: Outcome) -> str:
    """The ratio, and who wins."""
    ratio = f"ratio {_ratio(theirs, ours)}"
    if common.surely_less(ours, theirs):
        return ratio
    if common.surely_less(theirs, ours):
        return f"**{ratio}: it wins**"
    return f"{ratio}, which these runs cannot tell from 1"


def _held_against(results: Results, best: dict[str, Outcome], who: str, name: str) -> str:
    """One earlier algorithm beside ours under the same trust, and beside ours with the sifting policy."""
    world = {"world": best[who].label["world"], "T": best[who].label["T"]}
    theirs = best[who]
    tuned = f" ({theirs.label['tuned']})" if theirs.label["tuned"] else ""
    line = f"- {who}{tuned} loses {common.number(theirs.mean)}; {name} {common.number(best[name].mean)}, "
    line += _verdict(theirs, best[name])
    sifted = best.get(name + SIFTING)
    if sifted is not None:
        line += f"; with the policy sifting {common.number(sifted.mean)}, {_verdict(theirs, sifted)}"
    proven = [one for one in results.where(who=who, **world) if one.setting.get("boldness") == PROVEN]
    if proven:
        best_proven = min(proven, key=lambda one: one.mean)
        line += (
            f"; at boldness 1, for which alone there is a proof, it loses {common.number(best_proven.mean)}"
        )
        line += f", {_verdict(best_proven, best[name])}"
    return line + "."


def _pairs(best: dict[str, Outcome]) -> list[tuple[str, str]]:
    """Earlier algorithms of a world, and ours under the same trust."""
    return [
        (who, name)
        for who, counterparts in COUNTERPARTS.items()
        for name in counterparts
        if who in best and name in best
    ]


def _world_text(results: Results, world: str, horizon: int) -> str:
    best = _best(results, world, horizon)
    lines = [_held_against(results, best, who, name) for who, name in _pairs(best)]
    alone = best[ALONE]
    ranked = sorted((one.mean, who) for who, one in best.items() if who not in _REFERENCES)
    below = [who for _, who in ranked if common.surely_less(best[who], alone)]
    lines.append(
        f"- An agent alone loses {common.number(alone.mean)}, without privacy all together "
        f"{common.number(best[NO_PRIVACY].mean)}. Surely below alone: "
        f"{'; '.join(below) or 'none of the private ones'}."
    )
    return f"{world[0].upper()}{world[1:]}, T = {horizon:,}:\n\n" + "\n".join(lines)


def text(results: Results) -> str:
    """What was found."""
    private = [one for one in results.outcomes if one.label["who"] not in _REFERENCES]
    spent = [reaccounted(one) for one in private]
    equal = "equal" if max(spent) - min(spent) <= 1e-3 else "NOT equal, so that the regrets do not compare"
    head = (
        f"{len(private)} private streams, each of {min(one.setting['runs'] for one in private)} runs, "
        f"re-accounted from the noise really added: ε from {min(spent):.4f} to {max(spent):.4f} at "
        f"δ = {DELTA:g}, {equal}. {_FAIR} {_tuning(results)}{_amplified(results)}"
    )
    return "\n\n".join(
        [head, _winners(results), *(_world_text(results, *panel) for panel in _panels(results))]
    )


_FAIR = (
    "Both sides protect the same: one interaction where contexts are fresh, one reward where actions are "
    "fixed and public, or ten rewards of a person. Earlier work gets the exact noise of the budget, vector "
    "sums their limit of many messages, shuffled bits their exact law, and shuffled Gaussians the numerical "
    "bound by clones. Shufflers are trusted, and all their users honest; our keepers pay for one agent in "
    "five that colludes and one in ten that is away. Ours plays by its defaults. A ratio is what they lose "
    "over what ours loses under the same trust."
)


def _tuning(results: Results) -> str:
    """In what, and in how many ways, earlier work was tuned, and whose best lies at an edge of them."""
    ways, tuned, edges = list[int](), set[str](), list[str]()
    for world, horizon in _panels(results):
        for who, best in _best(results, world, horizon).items():
            if who in COUNTERPARTS:
                tried = results.where(who=who, world=world, T=horizon)
                ways.append(len(tried))
                values = {name: {one.setting.get(name) for one in tried} for name in TUNED}
                tuned |= {name for name in TUNED if len(values[name]) > 1}
                edges += [f"{who} ({name} {best.setting[name]:g})" for name in _at_an_edge(best, values)]
    if not tuned:
        return "Earlier work plays at one setting each, untuned: nothing is said of it at its best."
    words = ", ".join(TUNED[name] for name in TUNED if name in tuned)
    many = f"{min(ways)} to {max(ways)}" if min(ways) < max(ways) else f"{min(ways)}"
    said = (
        f"Earlier work is tuned ({words}): each is the best of {many} ways, picked afterwards by what they "
        "lost in these very runs, which favours it. "
    )
    if edges:
        return said + f"At an edge of what was tried, so that more might be gained: {'; '.join(edges)}."
    return said + "No best is at an edge of what was tried."


def _at_an_edge(best: Outcome, values: dict[str, set[Any]]) -> list[str]:
    """Numbers tried in three sizes or more of which the best is the least or the greatest."""
    sizes = {name: tried for name, tried in values.items() if name != "bound" and len(tried) > 2}
    return [name for name, tried in sizes.items() if best.setting[name] in (min(tried), max(tried))]


def _winners(results: Results) -> str:
    """Where ours surely loses less than earlier work, and where more."""
    less, more, compared = 0, list[str](), 0
    for world, horizon in _panels(results):
        best = _best(results, world, horizon)
        for who, name in _pairs(best):
            theirs, ours, sifted = best[who], best[name], best.get(name + SIFTING)
            compared += 1
            less += common.surely_less(ours, theirs)
            if common.surely_less(theirs, ours):
                also = f", {_ratio(theirs, sifted)} of what it loses by sifting" if sifted else ""
                more.append(f"- {who}: {_ratio(theirs, ours)} of what {name} loses{also} ({world}).")
    said = f"Of {compared} comparisons under the same trust ours surely loses less in {less}"
    if not more:
        return f"{said}, earlier work in none."
    return f"{said}, **earlier work in {len(more)}**:\n\n" + "\n".join(more)


def _amplified(results: Results) -> str:
    """How much less noise a shuffler of silos leaves."""
    budget = Budget(epsilon=EPSILON, delta=DELTA)
    gains = [
        amplified_gain(
            budget, agents=s["agents"], batch=s["batch"], releases=max(1, s["horizon"] // s["batch"])
        )
        for s in (one.setting for one in results.where(who=AMPLIFIED_SILOS))
    ]
    if not gains:
        return ""
    if max(gains) <= 1.0:
        return " Shuffling silos' sums amplifies nothing at these sizes: that protocol has the local noise."
    return f" Shuffling silos' sums leaves up to {max(gains):.3g} times less noise."


def table(results: Results) -> list[list[str]]:
    """All points."""
    rows = [
        ["world", "T", "who", "tuned", "runs", "regret of the average agent", "releases", "ε re-accounted"]
    ]
    for one in results.outcomes:
        spent = reaccounted(one)
        epsilon = "∞" if math.isinf(spent) else f"{spent:.4f}" if spent else "0 (nothing leaves)"
        label = [one.label["world"], f"{one.label['T']:,}", one.label["who"], one.label["tuned"] or "–"]
        regret = f"{one.mean:.4g} ± {one.stderr:.2g}"
        rows.append([*label, str(one.setting["runs"]), regret, f"{one.result['releases']:g}", epsilon])
    return rows
