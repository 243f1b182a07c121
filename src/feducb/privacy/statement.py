"""The page that a privacy officer signs: what is promised, to whom, against whom, and by what."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, TypedDict, Unpack

from feducb.config import Budget
from feducb.interfaces import interactions
from feducb.privacy.calibration import to_epsilon
from feducb.privacy.circumstances import (
    BLANK,
    Kept,
    Signed,
    as_plain,
    dates,
    in_odds,
    parties,
    retention,
)
from feducb.privacy.stated_shares import CLIQUE_ADVERSARY, CLIQUE_TRUSTED, shares_rows, stated_shares
from feducb.privacy.statement_alone import alone_rows, state_alone
from feducb.privacy.tally import proven_for
from feducb.privacy.terms import Terms

__all__ = ["LIBRARIES", "Circumstances", "statement", "to_markdown"]

LIBRARIES = ("feducb", "opendp", "dp-accounting", "numpy", "scipy")

_PRESENCE = (
    "Covered at the same price: that a record is there at all, or came at another time, shows no more than "
    "which one it is (docs/theory.md, 2)."
)
_PUBLIC_PRESENCE = (
    "Not covered: that a record is there, when it came and what it was about are public here. Its reward is "
    "protected."
)
_PUBLIC = (
    "Public, and NOT protected: what is known of visitors and what they are shown leaves as exact sums. "
    "Rewards alone are protected, whatever is known of all else."
)
_DECISIONS = {
    "released": "decisions are made from releases only",
    "own": (
        "decisions are made from releases only until the close; nobody opens its own phase before every "
        "agent's last batch is sealed, and what is recorded after that enters no sum"
    ),
}
_PROVIDED = (
    "Release times are fixed in advance or follow from releases; {decisions}; a reward is what is known a "
    "fixed time after its decision; a person keeps one id, and comes no more often than stated."
)
_PLAYED = (
    "own: agents share until their last release, the close, and decide on their own records and the others' "
    "sum since. The promise covers everything that ever leaves, against everybody named under Against. After "
    "the close nothing leaves; but decisions are then made on raw records, and what they show to an agent's "
    "own visitors about its earlier ones is NOT protected, as with any agent alone."
)
_LATER_SEASONS = (
    " Records of an own phase enter no later season. A later season keeps the promise for earlier records "
    "only if, given what was released, its visitors, their candidates and rewards do not depend on what was "
    "decided after a close (other people, no shared stock). Where that cannot be said: one close, for ever."
)
_NOBODY_ELSE_LEARNS = (
    " What visitors are offered, and all settings, depend on nobody's raw rewards of the season: no "
    "popularity or click rates among features, no setting turned by a raw curve, no own log of a policy that "
    "learnt from its rewards."
)
_WHO_IS_THERE = " Which agents miss a row has nothing to do with anybody's records."
_FOLLOWED = {
    "learning": (
        "The agent follows the application's own policy, which may learn from rewards: what was followed is "
        "kept for evaluation and enters no release."
    ),
    "fixed": "The agent follows the application's own policy, and what was followed is released.",
}
_FIXED = " The followed policy is public and does not learn from rewards: its operator has stated so."
_ALSO_SHOWN = (
    "To the agent's own people, with each release: a noisy tally of rewards out of range, by which they are "
    "warned, and whether released sums contradict the parameter bound. The promise covers both; neither "
    "takes more of it (docs/theory.md, Noise on a grid)."
)
_WITHOUT_TALLY = (
    "To the agent's own people: whether released sums contradict the parameter bound. The promise covers it."
)
_NOT_COVERED = (
    "What an agent's own decisions show to the visitor they are made for; how long a release takes; a copy "
    "of the agent's file put back after it released (noise would be drawn again); records of one person "
    "under several ids."
)
_HELD_OUT = (
    " A share of {share} of visitors, drawn by private coins, is held out: what they are shown follows "
    "from raw records of such visitors before them. Their records enter no release, nor does any later "
    "one of the same season of a person with an id who was held out. The promise to these visitors rests "
    "on its operator's word that what they were shown moves no record that is released: no shared stock, "
    "and whoever has no id does not come back, nor anybody in a later season because of it. The promise "
    "to all other visitors does not rest on it."
)
_OWN_VISITORS = " After the close also: what decisions show an agent's own visitors about its earlier ones."


class Circumstances(TypedDict, total=False):
    """What is known besides the terms."""

    ledger: dict[str, Any] | None  # what has left so far, if a file was read
    followed: str | None  # the `AgentSettings.follow_policy` of an agent in shadow mode; None for any other
    others: Sequence[Budget]  # budgets of the other agents, where agents have budgets of their own
    keepers: Sequence[str]  # names, where rows leave under pads; left out where they are not known
    clique: Sequence[str]  # names of the agent's clique, on a graph
    play: str  # ``released``, or ``own``: after the last release decisions look at own raw records
    holdout: float  # the share of visitors who are decided for by raw records alone (`AgentSettings.holdout`)
    kept: Kept | None  # what the file says about itself, if one was read
    signed: Signed  # what nobody but the signer knows


def statement(terms: Terms, **known: Unpack[Circumstances]) -> dict[str, Any]:
    """The statement as plain data.

    Args:
        terms: what is promised.
        known: see `Circumstances`.
    """
    keepers, clique = tuple(known.get("keepers", ())), tuple(known.get("clique", ()))
    followed, play, kept = known.get("followed"), known.get("play", "released"), known.get("kept")
    signed, holdout = known.get("signed", Signed()), known.get("holdout", 0.0)
    about = {
        "parties": parties(kept, keepers, clique),
        "dates": dates(kept),
        "signed": signed.as_dict(),
        "store": as_plain(kept),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "ledger": known.get("ledger"),
    }
    if not terms.trust.leaves:
        return state_alone(terms, kept) | about
    certificate, mechanism, public = terms.certificate(), terms.factors, terms.contexts == "public"
    shared, words = stated_shares(terms, keepers, clique), terms.trust.words
    masked = shared is not None and bool(clique)
    return {
        "epsilon": terms.budget.epsilon,
        "delta": terms.budget.delta,
        "mu": certificate.mu,
        "odds": in_odds(terms.budget),
        "unit": _unit(terms),
        "records_per_person": terms.records_per_person,
        "agents_per_person": terms.agents_per_person,
        "spacing": terms.spacing,
        "several_agents": _several_agents(terms, known.get("others", ())),
        "neighbours": terms.neighbours.value,
        "contexts": _PUBLIC if public else "protected",
        "presence": _PUBLIC_PRESENCE if public else _PRESENCE,
        "adversary": CLIQUE_ADVERSARY if masked else words.adversary,
        "trust": terms.trust.name,
        "trusted": CLIQUE_TRUSTED if masked else words.trusted,
        "releases": terms.releases,
        "groups": terms.groups,
        "estimators": _estimators(terms.groups),
        "mechanism": mechanism.name,
        "worst_error": mechanism.worst_error(),
        "noise": {
            "law": "discrete Gaussian on a grid, drawn by OpenDP, no seed",
            "deviation": certificate.scale,
            "grid": 2.0**certificate.exponent,
            "certificate": "exact Gaussian curve; docs/theory.md, Noise on a grid"
            + (" and Secure sums" if shared else ""),
        },
        **({} if shared is None else {"shared_noise": shared}),
        "bounds": {
            "action": terms.problem.action_bound,
            "reward": terms.problem.reward_bound,
            "reward_centre": terms.problem.reward_centre,
            "beyond": terms.excess,
        },
        "dim": terms.problem.dim,
        "model": terms.model.name,
        "numbers": certificate.coordinates,
        "parameter_bound": terms.problem.parameter_bound,
        "reward_weight": terms.weight,
        "shadow_mode": None if followed is None else _FOLLOWED[followed],
        "play": play if play == "released" else _PLAYED,
        "provided_that": _PROVIDED.format(decisions=_DECISIONS[play])
        + _NOBODY_ELSE_LEARNS
        + (_WHO_IS_THERE if shared else "")
        + (_FIXED if followed == "fixed" else "")
        + ("" if play == "released" else _LATER_SEASONS)
        + (_HELD_OUT.format(share=f"{holdout:.3g}") if holdout and play == "released" else ""),
        "also_shown": _ALSO_SHOWN if proven_for(terms) and not terms.trust.joint else _WITHOUT_TALLY,
        "retention": retention(kept, padded=terms.trust.padded, own=play == "own"),
        "not_covered": _NOT_COVERED + ("" if play == "released" else _OWN_VISITORS),
        **about,
    }


def to_markdown(plain: dict[str, Any]) -> str:
    """The statement as a page to sign."""
    signed = plain["signed"]
    whom = [
        ("Parties", plain["parties"]),
        ("Responsible", signed["party"] or BLANK),
        ("Purpose", signed["purpose"] or BLANK),
        *([("Dates", plain["dates"])] if plain["dates"] else []),
    ]
    end = ["", f"Signed: {BLANK}    {_named(signed['signer'])}Date: {signed['date'] or BLANK[:14]}", ""]
    if not plain["releases"]:
        past = [] if plain["ledger"] is None else _left_so_far(plain["ledger"], 1e-6)
        return "\n".join([*_as_table([*whom, *alone_rows(plain)]), *past, *end])
    noise, bounds = plain["noise"], plain["bounds"]
    each = " at each agent" if "shared_noise" in plain else ""
    rows = [
        *whom,
        (
            "Promise",
            f"(ε, δ) = ({plain['epsilon']:g}, {plain['delta']:g}); as one number μ = {plain['mu']:.6g}",
        ),
        ("In odds", plain["odds"]),
        ("Protects", plain["unit"] + ", in one season; whoever comes back in another pays again"),
        ("Neighbours", plain["neighbours"]),
        *([("Contexts", plain["contexts"])] if plain["contexts"] != "protected" else []),
        ("Presence", plain["presence"]),
        ("At several agents", plain["several_agents"]),
        ("Against", plain["adversary"]),
        ("Trusted", plain["trusted"]),
        *(shares_rows(plain["shared_noise"]) if "shared_noise" in plain else []),
        (
            "Releases",
            f"{plain['releases']} at most{' of each estimator' if plain['groups'] > 1 else ''}, at rounds "
            "fixed in advance; the next one is refused",
        ),
        ("Estimators", plain["estimators"]),
        ("Mechanism", f"{plain['mechanism']}; worst release {plain['worst_error']:.4g} × R²/μ"),
        (
            "Noise",
            f"{noise['law']}; deviation {noise['deviation']:.6g} a coordinate{each}, grid "
            f"{noise['grid']:.3g}",
        ),
        ("Why it suffices", noise["certificate"]),
        (
            "Records",
            f"d = {plain['dim']}, actions at most {bounds['action']:g} long, rewards at most "
            f"{bounds['reward']:g}{_from_centre(bounds)}, weighted by {plain['reward_weight']:.6g}; beyond: "
            f"{bounds['beyond']}",
        ),
        *([("Play", plain["play"])] if plain["play"] != "released" else []),
        *([("Shadow mode", plain["shadow_mode"])] if plain["shadow_mode"] else []),
        ("Holds provided that", plain["provided_that"]),
        ("Shown besides", plain["also_shown"]),
        ("Kept", plain["retention"]),
        ("Not covered", plain["not_covered"]),
        ("Written", plain["written"]),
        ("Software", ", ".join(f"{name} {version}" for name, version in plain["versions"].items())),
    ]
    lines = _as_table(rows)
    if plain["ledger"] is not None:
        lines += _left_so_far(plain["ledger"], plain["delta"])
    lines += [
        "",
        f"A δ of {plain['delta']:g} means that, for one record in {1 / plain['delta']:,.0f}, the promise may "
        "fail altogether. Check the code behind this page with `feducb privacy audit`.",
    ]
    return "\n".join([*lines, *end])


def _as_table(rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = ["# Privacy statement", "", "| | |", "|---|---|"]
    return lines + [f"| **{name}** | {text} |" for name, text in rows]


def _named(signer: str | None) -> str:
    return f"{signer}    " if signer else ""


def _from_centre(bounds: dict[str, Any]) -> str:
    """What rewards are measured from, where that is not 0."""
    centre = bounds["reward_centre"]
    return f" from {centre:g}, which is taken off each before it is summed" if centre else ""


def _left_so_far(ledger: dict[str, Any], delta: float) -> list[str]:
    """The part of the page on what has left, line by line."""
    lines = ["", "## What has left so far", ""]
    lines += ["| season | made | left | first | last |", "|---|---|---|---|---|"]
    for account in ledger["seasons"]:
        made = sorted(entry["made_at"] for entry in account["entries"]) or ["–"]
        counts = f"{account['releases_made']} | {account['releases_left']}"
        lines.append(f"| {account['season']} | {counts} | {made[0]} | {made[-1]} |")
    regular = ledger["mu_of_a_regular"]
    if regular > 0.0:
        lines += ["", f"A person who was there in every season so far has {_in_words(regular, delta)}."]
    return lines


def _unit(terms: Terms) -> str:
    public = terms.contexts == "public"
    if terms.records_covered == 1:
        return "the reward of one interaction" if public else "one interaction (an action and its reward)"
    records = interactions(terms.records_per_person)
    agents = terms.trust.records_covered(1, terms.agents_per_person)
    whom = "the rewards of one person" if public else "one person"
    where = f"at each of up to {agents} agents" if agents > 1 else "at one agent"
    return f"{whom}, with up to {records} {where}{_apart(terms.spacing)}"


def _apart(spacing: int) -> str:
    """How far apart a person's interactions are kept; nothing where they are not."""
    if not spacing:
        return ""
    one = "in any one release" if spacing == 1 else f"in any {spacing} consecutive releases"
    return f", of which at most one {one} (the agent leaves out others)"


def _several_agents(terms: Terms, others: Sequence[Budget]) -> str:
    """What a person who visits several agents pays, or why she does not: docs/theory.md, 2.

    Where agents have budgets of their own, √(Σ μ_i²), over this one and the others of largest μ; each μ_i is
    that of p records at agent i.
    """
    records, agents, delta = terms.records_per_person, terms.agents_per_person, terms.budget.delta
    if not others:
        return terms.trust.several_agents(records, agents, lambda at: _in_words(terms.mu_at(at), delta))
    own = terms.certificate().mu
    mus = sorted((replace(terms, budget=one).certificate().mu for one in others), reverse=True)
    counts = sorted({2, min(max(2, agents), len(mus) + 1), len(mus) + 1})
    spent = {count: terms.trust.spend([own, *mus[: count - 1]], [1] * count) for count in counts}
    prices = (f"at {count} agents up to {_in_words(mu, delta)}" for count, mu in spent.items())
    return (
        "The promise is about what one agent lets out; each adds noise of its own, by a budget of its own. A "
        f"person with {interactions(records)} at each of several agents has the root of the "
        f"sum of their μ²; here and where μ is largest, {'; '.join(prices)}."
    )


def _in_words(mu: float, delta: float) -> str:
    return f"μ = {mu:.6g}, which is ε = {to_epsilon(mu, delta):.4g} at the same δ"


def _estimators(groups: int) -> str:
    if groups == 1:
        return "one: all records enter it"
    return (
        f"{groups}, over disjoint records: a record enters one of them, drawn by a private coin, and no "
        "other; so they cost no more than one"
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
