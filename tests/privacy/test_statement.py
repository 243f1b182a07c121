"""The page to sign says under which conditions the promise holds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from feducb.agent import Agent, AgentSettings
from feducb.cli.privacy import app
from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_epsilon
from feducb.privacy.ledger import Account, Ledger, LedgerEntry
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER, KEEPERS, Keepers

SETTINGS = AgentSettings(
    problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, schedule="periodic"
)
LIVE, LEARNING, FIXED = (
    SETTINGS,
    replace(SETTINGS, shadow=True),
    replace(SETTINGS, shadow=True, follow_policy="fixed"),
)


@pytest.mark.parametrize(
    ("settings", "said", "unsaid"),
    [
        (LIVE, "popularity or click rates", "Shadow mode"),
        (LEARNING, "enters no release", "does not learn from rewards"),
        (FIXED, "The followed policy is public and does not learn from rewards", "enters no release"),
    ],
)
def test_what_is_followed_is_a_condition(
    tmp_path: Path, settings: AgentSettings, said: str, unsaid: str
) -> None:
    Agent.open(tmp_path / "agent.db", settings).close()
    page = CliRunner().invoke(app, ["statement", "--store", str(tmp_path / "agent.db"), "--out", "-"])
    assert page.exit_code == 0, page.output
    assert said in page.output
    assert unsaid not in page.output


def test_presence_and_features_are_spoken_of_without_a_store() -> None:
    page = CliRunner().invoke(app, ["statement", "--groups", "3", "--out", "-"])
    assert "that a record is there at all" in page.output
    assert "popularity or click rates" in page.output
    assert "drawn by a private coin" in page.output


TERMS = Terms(
    problem=Problem(dim=3, action_bound=2.0, reward_bound=0.5),
    budget=Budget(epsilon=0.7, delta=1e-7),
    releases=12,
)


def _ledger(made: int, *, seasons: int = 1) -> dict[str, Any]:
    entries = tuple(
        LedgerEntry(
            kind="release",
            season=1,
            group=0,
            number=number,
            made_at=f"2026-01-0{number}T00:00:00+00:00",
            size=1,
            sha256="",
            sent_at=None,
        )
        for number in range(made, 0, -1)  # newest first: the page sorts
    )
    accounts = (Account(season=k + 1, opened_at="", terms=TERMS, entries=entries) for k in range(seasons))
    return Ledger(tuple(accounts)).as_dict()


def test_every_number_is_that_of_the_terms() -> None:
    """An officer signs these: none may be another's, or rounded away."""
    plain, certificate = statement(TERMS), TERMS.certificate()
    assert (plain["epsilon"], plain["delta"], plain["mu"]) == (0.7, 1e-7, certificate.mu)
    assert (plain["releases"], plain["groups"], plain["dim"]) == (12, 1, 3)
    assert (plain["records_per_person"], plain["agents_per_person"]) == (1, 1)
    assert plain["noise"]["deviation"] == certificate.scale
    assert plain["noise"]["grid"] == 2.0**certificate.exponent
    assert plain["bounds"] == {"action": 2.0, "reward": 0.5, "reward_centre": 0.0, "beyond": "clip"}
    assert (plain["mechanism"], plain["worst_error"]) == ("dense", TERMS.factors.worst_error())
    assert (plain["reward_weight"], plain["parameter_bound"]) == (TERMS.weight, 1.0)
    assert plain["neighbours"] == TERMS.neighbours.value
    assert (plain["ledger"], plain["shadow_mode"]) == (None, None)
    assert json.loads(json.dumps(plain)) == plain


def test_the_page_has_them_too() -> None:
    page = to_markdown(statement(TERMS))
    mu = TERMS.certificate().mu
    assert f"(ε, δ) = (0.7, 1e-07); as one number μ = {mu:.6g}" in page
    assert "12 at most, at rounds fixed in advance; the next one is refused" in page
    assert "actions at most 2 long, rewards at most 0.5" in page
    assert "for one record in 10,000,000, the promise may fail altogether" in page
    assert page.rstrip().endswith("Date: ______________")
    assert "What has left so far" not in page
    grouped = to_markdown(statement(replace(TERMS, groups=3)))
    assert "12 at most of each estimator, at rounds fixed" in grouped


@pytest.mark.parametrize(
    ("changes", "unit"),
    [
        ({}, "one interaction (an action and its reward)"),
        ({"agents_per_person": 4}, "one interaction (an action and its reward)"),
        ({"records_per_person": 3}, "one person, with up to 3 interactions at one agent"),
        (
            {"records_per_person": 3, "spacing": 1},
            "one person, with up to 3 interactions at one agent, of which at most one in any one release "
            "(the agent leaves out others)",
        ),
        (
            {"trust": CONTROLLER, "records_per_person": 2, "agents_per_person": 4, "spacing": 5},
            "one person, with up to 2 interactions at each of up to 4 agents, of which at most one in any 5 "
            "consecutive releases (the agent leaves out others)",
        ),
        (
            {"trust": CONTROLLER, "records_per_person": 3},
            "one person, with up to 3 interactions at one agent",
        ),
        (
            {"trust": CONTROLLER, "agents_per_person": 4},
            "one person, with up to 1 interaction at each of up to 4 agents",
        ),
    ],
)
def test_who_is_protected_is_said_in_words(changes: dict[str, Any], unit: str) -> None:
    assert statement(replace(TERMS, **changes))["unit"] == unit


def test_budgets_of_their_own_add_up_as_lengths_where_they_are_largest() -> None:
    """This agent's μ and the largest of the others': a person may choose whom she visits."""
    others = [Budget(epsilon=epsilon, delta=1e-7) for epsilon in (0.1, 2.0, 1.0)]
    mus = sorted((replace(TERMS, budget=one).certificate().mu for one in others), reverse=True)
    own = TERMS.certificate().mu
    text = statement(replace(TERMS, agents_per_person=3), others=others)["several_agents"]
    for count in (2, 3, 4):
        mu = math.hypot(own, *mus[: count - 1])
        assert f"at {count} agents up to μ = {mu:.6g}, which is ε = {to_epsilon(mu, 1e-7):.4g}" in text
    only_two = statement(TERMS, others=others[:1])["several_agents"]
    assert only_two.count(" agents up to ") == 1


def test_what_has_left_is_listed_by_season_with_its_first_and_last_day() -> None:
    page = to_markdown(statement(TERMS, ledger=_ledger(3)))
    assert "| 1 | 3 | 9 | 2026-01-01T00:00:00+00:00 | 2026-01-03T00:00:00+00:00 |" in page
    assert f"in every season so far has μ = {TERMS.certificate().mu:.6g}, which is ε = 0.7" in page
    twice = to_markdown(statement(TERMS, ledger=_ledger(1, seasons=2)))
    assert f"has μ = {math.sqrt(2.0) * TERMS.certificate().mu:.6g}, which is ε = " in twice
    nothing = to_markdown(statement(TERMS, ledger=_ledger(0)))
    assert "| 1 | 0 | 12 | – | – |" in nothing
    assert "in every season so far" not in nothing


def test_software_is_named_with_its_version_also_where_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feducb.privacy.statement.LIBRARIES", ("numpy", "no-such-library"))
    versions = statement(TERMS)["versions"]
    assert list(versions) == ["python", "numpy", "no-such-library"]
    assert (versions["numpy"], versions["no-such-library"]) == (np.__version__, "not installed")
    assert "no-such-library not installed" in to_markdown(statement(TERMS))


SHARED = replace(TERMS, budget=Budget(epsilon=1.0, delta=1e-6), trust=Keepers(10, 20), agents=100)


def test_shared_noise_is_stated_with_all_its_numbers() -> None:
    plain, certificate = statement(SHARED, keepers=["ana", "bo"]), SHARED.certificate()
    shared = plain["shared_noise"]
    assert [shared[name] for name in ("agents", "away", "colluding", "quorum", "shares")] == [
        100,
        10,
        20,
        90,
        70,
    ]
    assert shared["keepers"] == ["ana", "bo"]
    assert plain["noise"]["deviation"] == certificate.scale
    assert shared["deviation_together"] == pytest.approx(math.sqrt(70.0) * certificate.scale)
    counts = [one["shares"] for one in shared["by_honest_shares"]]
    assert counts == [70, 50, 35, 17, 1]
    epsilons = [one["epsilon"] for one in shared["by_honest_shares"]]
    assert epsilons == pytest.approx([1.0, 1.199, 1.455, 2.157, 10.867], rel=5e-4)
    assert shared["by_honest_shares"][0]["mu"] == plain["mu"] == certificate.mu
    assert json.loads(json.dumps(plain)) == plain


def test_the_page_says_what_shared_noise_does_not_promise() -> None:
    page = to_markdown(statement(SHARED, keepers=["ana", "bo"]))
    for said in (
        "| **Keepers** | ana, bo |",
        "Of 100 agents 10 may miss a row (D) and 20 may collude (C). A row opens with 90 agents or more, so "
        "that 70 honest shares of noise (H)",
        "17: μ = 0.4803, ε = 2.157; 1: μ = 1.98, ε = 10.87. The fewest honest shares must be fixed",
        "No promise. They can open an agent's rows one by one",
        "would make ε = 10.87. Nothing is claimed here.",
        "Cannot be named or refused one by one",
        "No copies: a keeper put back from a backup",
        "Which agents miss a row has nothing to do with anybody's records",
    ):
        assert said in page
    assert "a noisy tally" not in page  # under one noise for all there is none
    assert "those that the federation's roster names" in to_markdown(statement(SHARED))
    several = replace(SHARED, records_per_person=2, agents_per_person=3)
    assert "covers Σp_i = 6 interactions" in to_markdown(statement(several))


@pytest.mark.parametrize("trust", ["nobody", CONTROLLER])
def test_nothing_is_said_of_shares_where_there_are_none(trust: Any) -> None:
    plain = statement(replace(TERMS, trust=trust))
    assert "shared_noise" not in plain
    assert "Shares of noise" not in to_markdown(plain)


def test_one_honest_share_is_listed_once_and_the_fewest_are_always_there() -> None:
    for agents in (4, 5, 7, 11):
        plain = statement(replace(SHARED, trust=KEEPERS, agents=agents))["shared_noise"]
        counts = [one["shares"] for one in plain["by_honest_shares"]]
        assert counts == sorted(set(counts), reverse=True)
        assert (counts[0], counts[-1]) == (plain["shares"], 1)


def test_on_a_graph_the_page_speaks_of_the_clique_and_of_no_keeper_or_controller(tmp_path: Path) -> None:
    names = ("ana", "bo", "cy", "di", "ed")
    settings = AgentSettings(
        name="bo",
        problem=SHARED.problem,
        budget=SHARED.budget,
        agents=5,
        clique=names,
        trust=Keepers(0, 1),
        agents_per_person=1,
        start=1e9,
        releases=4,
        schedule="periodic",
    )
    Agent.open(tmp_path / "agent.db", settings).close()
    told = CliRunner().invoke(app, ["statement", "--store", str(tmp_path / "agent.db"), "--out", "-"])
    page = told.stdout
    assert "| **Clique** | ana, bo, cy, di, ed" in page
    assert "If all other members of the clique collude" in page
    for absent in ("keeper", "controller"):
        assert absent not in page.lower()


KEPT = ["--trust", "keepers", "--agents-per-person", "1"]


def test_keepers_are_stated_from_the_command_line(tmp_path: Path) -> None:
    counts = ["--agents", "16", "--away", "2", "--colluding", "3", "--keepers", "ana, bo"]
    result = CliRunner().invoke(app, ["statement", *KEPT, *counts, "--out", str(tmp_path / "page")])
    assert result.exit_code == 0, result.output
    shared = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))["shared_noise"]
    assert (shared["agents"], shared["away"], shared["colluding"], shared["shares"]) == (16, 2, 3, 11)
    assert "| **Keepers** | ana, bo |" in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (KEPT, "--agents is None, expected how many agents there are"),
        (["--agents", "5"], "nothing but with --trust keepers"),
        (["--away", "3"], "away is 3, expected nothing under trust nobody"),
        (["--colluding", "3"], "colluding is 3, expected nothing under trust nobody"),
        ([*KEPT, "--agents", "4", "--away", "2"], "at least 2 honest shares of noise a row"),
        ([*KEPT, "--agents", "4", "--colluding", "0"], "every member can take its own noise out"),
        ([*KEPT, "--agents", "4", "--keepers", "ana"], "two or more different names"),
        ([*KEPT, "--agents", "4", "--keepers", "ana,ana"], "two or more different names"),
        (["--keepers", "ana,bo"], "nothing but with --trust keepers"),
    ],
)
def test_counts_that_make_no_sense_are_refused(options: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["statement", *options, "--out", "-"])
    assert result.exit_code != 0
    assert complaint in str(result.exception)


def test_own_play_is_stated_with_whom_it_does_not_protect_and_what_later_seasons_need() -> None:
    terms = SETTINGS.terms
    plain = statement(terms, play="own")
    assert "NOT protected" in plain["play"]
    assert "own visitors" in plain["play"]
    assert "only until the close" in plain["provided_that"]
    assert "every agent's last batch is sealed" in plain["provided_that"]
    assert "one close, for ever" in plain["provided_that"]
    assert "own visitors" in plain["not_covered"]
    assert "exact sums of its records, of earlier seasons too" in plain["retention"]
    assert "| **Play** | own: agents share until their last release" in to_markdown(plain)
    released = statement(terms)
    assert released["play"] == "released"
    assert "close" not in json.dumps(released)
    assert "**Play**" not in to_markdown(released)
    promised = {"epsilon", "delta", "mu", "unit", "adversary", "noise", "releases"}
    assert {name: plain[name] for name in promised} == {name: released[name] for name in promised}


def test_own_play_is_stated_from_the_command_line() -> None:
    told = CliRunner().invoke(app, ["statement", "--play", "own", "--out", "-"])
    assert told.exit_code == 0
    assert "**Play** | own" in told.output
    refused = CliRunner().invoke(app, ["statement", "--play", "raw", "--out", "-"])
    assert "--play is 'raw', expected released or own" in str(refused.exception or refused.output)


def test_an_agent_s_file_says_that_it_plays_own(tmp_path: Path) -> None:
    settings = AgentSettings(
        problem=SHARED.problem, budget=Budget(epsilon=4.0, delta=1e-6), agents=20, start=1e9, play="own"
    )
    Agent.open(tmp_path / "agent.db", settings).close()
    told = CliRunner().invoke(app, ["statement", "--store", str(tmp_path / "agent.db"), "--out", "-"])
    assert told.exit_code == 0
    assert "**Play** | own" in told.output
