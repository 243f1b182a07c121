"""Actions come and go within a season, at agents: nothing else of a recipe does, and nobody is misread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from feducb import Agent, AgentSettings, Budget, ConfigurationError
from feducb.agent.agent_file import read_agent_file
from feducb.agent.decision import Decision
from feducb.agent.kept import misfit
from feducb.agent.upkeep import export
from feducb.cli.agent import app
from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol.admission import check_release
from feducb.worlds.features import Category, Number, Recipe
from feducb.worlds.features.season import with_added

SHOP = Recipe(
    context=(Number("age", 0.0, 100.0, missing="zero"),),
    action=(Category("offer", ("none", "gift", "points"), reserve=2),),
    terms=(("offer",), ("offer", "age")),
)
START = 1.8e9


def _settings(recipe: Recipe, **changes: object) -> AgentSettings:
    usual: dict[str, object] = {
        **{"budget": Budget(epsilon=8.0, delta=1e-6), "start": START, "window": 1.0, "season": 100.0},
        **{"decisions": 1000, "schedule": "periodic", "releases": 4, "keep_events": 3600.0},
    }
    return AgentSettings(recipe=recipe, **(usual | changes))  # type: ignore[arg-type]


def _clock(now: list[float]) -> Callable[[], float]:
    return lambda: now[0]


def test_an_action_is_added_and_another_retired_in_an_open_season(tmp_path: Path) -> None:
    """Both are taken at the next start; rewards and exports of what was shown before keep their names."""
    now, path = [START], tmp_path / "agent.db"
    with Agent.open(path, _settings(SHOP), clock=_clock(now)) as agent:
        terms = agent.settings.terms
        shown = [agent.decide(context={"age": 30}, id=f"visit-{place}") for place in range(60)]
        assert {one.action for one in shown} == {"none", "gift", "points"}
    later = replace(with_added(SHOP, "bundle"), retired=("gift",))
    with Agent.open(path, _settings(later), clock=_clock(now)) as agent:
        assert agent.settings.terms == terms  # what is promised has not moved
        assert all(agent.reward(one.id, 1.0) == "recorded" for one in shown)
        names = {agent.decide(context={"age": 30}).action for _ in range(60)}
        assert names == {"none", "points", "bundle"}
        with pytest.raises(ConfigurationError, match="gift, which is retired"):
            agent.decide(["gift", "none"])
        recipe = agent.snapshot()["recipe"]
        assert (recipe["added"], recipe["retired"], recipe["room"]) == (("bundle",), ("gift",), 1)
        assert recipe["promised"] == SHOP.fingerprint != recipe["fingerprint"]
        # As many candidates as before, but others: whoever asks again hears what she was shown.
        for one in shown:
            again = agent.decide(context={"age": 30}, id=one.id, scores=True, explain=True)
            assert (again.action, again.index, again.repeated) == (one.action, one.index, True)
        with pytest.raises(ConfigurationError, match="same visitor with the same candidates"):
            agent.decide(context={"age": 31}, id=shown[0].id)
        now[0] += 30.0
        agent.tick()
        model = {one["id"]: one["retired"] for one in agent.model()["actions"]}
        assert model == {"none": False, "gift": True, "points": False, "bundle": False}
    rows = list(export(path))
    assert [row["name"] for row in rows[:60]] == [one.action for one in shown]
    assert {tuple(action["id"] for action in row["actions"]) for row in rows} == {
        ("none", "gift", "points"),
        ("none", "points", "bundle"),
    }
    for row in rows:  # the words make the vector that was learnt from
        assert row["features"][row["index"]] == row["action"]


@pytest.mark.parametrize("asked", [{}, {"actions": ["gift", "none"]}], ids=["declared", "named"])
def test_whoever_asks_again_hears_what_was_shown_though_it_is_retired_or_others_came(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    """By the same request, also once something was learnt; in shadow mode too, by name and by index."""
    path, now = tmp_path / "agent.db", [START]
    later = replace(with_added(SHOP, "bundle"), retired=("gift",))
    for shadow in (False, True):
        follow: dict[str, Any] = {"follow": "gift"} if shadow else {}
        settings = {"shadow": shadow, "keep_events": 0.0, "window": 50.0}
        path = tmp_path / f"{shadow}.db"
        with Agent.open(path, _settings(SHOP, **settings), clock=_clock(now)) as agent:
            shown = [agent.decide(**asked, context={"age": 30}, id=f"{n}", **follow) for n in range(20)]
        for recipe in (with_added(SHOP, "bundle"), later, replace(later, retired=())):
            with Agent.open(path, _settings(recipe, **settings), clock=_clock(now)) as agent:
                for one in shown:
                    again = agent.decide(**asked, context={"age": 30}, id=one.id, **follow)
                    assert (again.action, again.index, again.repeated) == (one.action, one.index, True)
                    assert again.propensity == one.propensity
        if shadow:
            with Agent.open(path, _settings(recipe, **settings), clock=_clock(now)) as agent:
                assert agent.decide(**asked, context={"age": 30}, id="0", follow=shown[0].index).repeated
                with pytest.raises(ConfigurationError, match=r"follow is 'none'|same candidates"):
                    agent.decide(**asked, context={"age": 30}, id="0", follow="none")


def test_after_a_change_whoever_asks_again_hears_all_scores_of_decisions_made_since(tmp_path: Path) -> None:
    """Of earlier ones the other actions are not known any more, which is said; nothing else is lost."""
    path, now = tmp_path / "agent.db", [START]
    follow: dict[str, Any] = {"context": {"age": 30}, "follow": "gift"}
    usual: dict[str, Any] = {"shadow": True, "keep_events": 0.0, "window": 50.0}
    for recipe, names in ((SHOP, "ab"), (with_added(SHOP, "bundle"), "cd")):
        with Agent.open(path, _settings(recipe, **usual), clock=_clock(now)) as agent:
            for name in names:
                agent.decide(**follow, id=name)
    with Agent.open(path, _settings(recipe, **usual), clock=_clock(now)) as agent:
        now[0] += 30.0
        agent.tick()
        since = agent.decide(**follow, id="c", scores=True, explain=True)
        assert since.repeated
        assert since.scores is not None
        assert len(since.scores) == 4
        assert since.would_choose_action == ("none", "gift", "points", "bundle")[since.would_choose]
        assert since.explanation is not None
        assert since.explanation["rival"] is not None
        earlier = agent.decide(**follow, id="a", scores=True, explain=True)
        assert (earlier.action, earlier.scores) == ("gift", None)
        assert earlier.explanation is not None
        assert "not known any more" in earlier.explanation["says"]
        with pytest.raises(ConfigurationError, match=r"expected one of the actions: gift$"):
            agent.decide(context={"age": 30}, follow="none", id="a")


def test_a_season_allows_nothing_else(tmp_path: Path) -> None:
    """Names in another order, a name taken back, more room or another term wait for a new season."""
    path, added = tmp_path / "agent.db", with_added(SHOP, "bundle")
    with Agent.open(path, _settings(added), clock=_clock([START])) as agent:
        agent.decide(context={})
    for other in (
        SHOP,
        with_added(SHOP, "other"),
        replace(added, terms=(("offer",), ("age",), ("offer", "age"))),
        replace(added, action=(Category("offer", ("none", "gift"), reserve=3, added=("points", "bundle")),)),
    ):
        assert "feducb agent new-season" in str(misfit(path, _settings(other)))
    for fine in (added, with_added(added, "more"), replace(added, retired=("none",))):
        assert misfit(path, _settings(fine)) is None


def test_agents_of_other_recipes_are_refused(tmp_path: Path) -> None:
    """Recipes of one size and structure make other vectors: their releases do not add up.

    What is added or retired within a season makes no difference.
    """
    swapped = replace(SHOP, action=(Category("offer", ("gift", "none", "points"), reserve=2),))
    later = replace(with_added(SHOP, "bundle"), retired=("gift",))
    terms = {name: _settings(one).terms for name, one in (("ours", SHOP), ("later", later))}
    assert terms["ours"] == terms["later"]
    with Agent.open(tmp_path / "agent.db", _settings(swapped), clock=_clock([START])) as agent:
        other, release = agent.settings.terms, agent.store.release()
    assert other.digest() != terms["ours"].digest()
    assert check_release(release, other, agents=1).number == 1
    with pytest.raises(RefusedError, match="reward_centre or the recipe") as refused:
        check_release(release, terms["ours"], agents=1)
    assert refused.value.reason == "weight"


def test_a_season_that_was_opened_without_a_digest_goes_on(tmp_path: Path) -> None:
    """Files from before name no recipe in their terms; agents keep to what they promised."""
    settings, path = _settings(SHOP), tmp_path / "agent.db"
    before = replace(settings.terms, recipe="")
    assert Terms.from_json(before.to_json()) == before
    assert "recipe" not in before.to_json()
    with Agent.open(path, settings.under(before), clock=_clock([START])) as agent:
        agent.decide(context={})
        agent.store.release()
    with Agent.open(path, settings, clock=_clock([START])) as agent:
        assert agent.settings.terms == before
        assert agent.settings.terms.weight == before.weight != settings.terms.weight


def test_offers_without_features_have_room_too(tmp_path: Path) -> None:
    """`actions` in [problem], and beside them reserve, added and retired."""
    head = 'version = 2\n[privacy]\nepsilon = 8.0\ndelta = 1e-6\n[problem]\nactions = ["a", "b"]\n'
    (tmp_path / "agent.toml").write_text(f'{head}reserve = 2\nadded = ["c"]\nretired = ["a"]\n')
    recipe = read_agent_file(tmp_path / "agent.toml").agent.recipe
    assert recipe is not None
    assert (recipe.dim, recipe.offered) == (4, ("b", "c"))
    (tmp_path / "agent.toml").write_text(head.replace('actions = ["a", "b"]', "dim = 2\nreserve = 2"))
    with pytest.raises(ConfigurationError, match=r"problem\.reserve"):
        read_agent_file(tmp_path / "agent.toml")


XMAS, VOUCHER = (with_added(SHOP, name) for name in ("xmas", "voucher"))


def _next_season_renames(path: Path, later: Recipe) -> Agent:
    """An agent that showed a voucher ten times, then took a recipe for its next season."""
    now = [START]
    usual: dict[str, Any] = {"season": 100.0, "window": 1.0, "keep_events": 1e6}
    agent = Agent.open(path, _settings(VOUCHER, **usual), clock=_clock(now))
    agent.renewal = lambda number: (_settings(later, **usual), None)
    now[0] += 99.5  # after the last release: these wait for the next season
    for _ in range(10):
        agent.reward(agent.decide(["voucher"], context={"age": 30}).id, 1.0)
    now[0] += 12.0
    agent.tick()
    assert agent.store.season == 2
    return agent


@pytest.mark.parametrize(("later", "carried"), [(XMAS, False), (VOUCHER, True)], ids=["another", "the same"])
def test_an_action_of_the_next_season_has_no_records_of_another_that_had_its_entry(
    tmp_path: Path, later: Recipe, carried: bool
) -> None:
    """What waits at the boundary goes along only under the name that it was shown by."""
    with _next_season_renames(tmp_path / "agent.db", later) as agent:
        assert agent.store.pending == (10 if carried else 0)
        assert ("dropped" in agent.trouble) is not carried


def test_an_export_has_rows_that_the_present_recipe_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file from before, which kept them: what was shown is there as numbers, the others in words."""
    monkeypatch.setattr("feducb.agent.season_opening.may_carry", lambda old, new: True)
    path = tmp_path / "agent.db"
    with _next_season_renames(path, XMAS) as agent:
        agent.decide(["xmas"], context={})
    *before, newest = export(path)
    assert [row["reward"] for row in before] == [1.0] * 10
    for row in before:
        assert any(row["action"])
        assert row["features"] is None
        assert "name" not in row
    assert newest["name"] == "xmas"


SWAPPED = replace(SHOP, action=(Category("offer", ("gift", "points", "none"), reserve=2),))


def _next_season_by(path: Path, later: Recipe, now: list[float]) -> tuple[list[Decision], Agent]:
    """Twenty decisions with ids of their own by `SHOP`, and the agent in its next season by another recipe.

    It is taken when the agent starts again, before anything has happened in that season: events stay.
    """
    usual: dict[str, Any] = {"window": 1.0, "keep_events": 1e6}
    with Agent.open(path, _settings(SHOP, **usual), clock=_clock(now)) as agent:
        shown = [agent.decide(context={"age": 30}, id=f"visit-{place}") for place in range(20)]
        for passed in (30.0, 81.0):  # they enter a release, and the season ends
            now[0] += passed
            agent.tick()
        assert agent.store.season == 2
    return shown, Agent.open(path, _settings(later, **usual), clock=_clock(now))


def test_an_export_names_what_was_shown_though_the_next_season_has_its_names_in_another_order(
    tmp_path: Path,
) -> None:
    """By the recipe of its own season, or as numbers alone, which says so: never by another's names."""
    path, now = tmp_path / "agent.db", [START]
    shown, agent = _next_season_by(path, SWAPPED, now)
    with agent:
        later = [agent.decide(context={"age": 30}) for _ in range(20)]
    rows = list(export(path))
    assert len(rows) == 40
    for row, one in zip(rows[:20], shown, strict=True):
        assert (row["recipe"], row["features"], row["index"]) == (None, None, one.index)
        assert not {"name", "context", "actions"} & row.keys()
        assert any(row["action"])
    assert [row["name"] for row in rows[20:]] == [one.action for one in later]
    config = tmp_path / "agent.toml"
    head = '[problem]\ndim = 8\n[privacy]\nepsilon = 8.0\ndelta = 1e-6\n[retention]\nkeep_events = "1h"\n'
    config.write_text(f'version = 2\n[agent]\nstore = "{path}"\n{head}')
    said = CliRunner().invoke(app, ["export", "--config", str(config), "--out", str(tmp_path / "o.jsonl")])
    assert "20 of them were decided by the recipe of an earlier season" in said.stderr
    assert {row["recipe"] for row in rows[20:]} == {SWAPPED.fingerprint}


@pytest.mark.parametrize("later", [SHOP, with_added(SHOP, "bundle")], ids=["the same", "added"])
def test_an_export_has_words_of_earlier_seasons_of_the_same_recipe(tmp_path: Path, later: Recipe) -> None:
    """Also where actions were added in between: entries keep their names."""
    path, now = tmp_path / "agent.db", [START]
    shown, agent = _next_season_by(path, later, now)
    agent.close()
    assert [row["name"] for row in export(path)] == [one.action for one in shown]


@pytest.mark.parametrize("asked", [{}, {"actions": ["gift", "points", "none"]}], ids=["declared", "named"])
def test_whoever_asks_again_in_a_season_of_other_names_hears_none(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    path, now = tmp_path / "agent.db", [START]
    shown, agent = _next_season_by(path, SWAPPED, now)
    with agent, pytest.raises(ConfigurationError, match="made by the recipe of an earlier season"):
        agent.decide(**asked, context={"age": 30}, id=shown[0].id)


def _as_of_an_earlier_version(agent: Agent) -> None:
    """The file does not say since which decision its recipe is what it is."""
    with agent.writing() as db:
        db.execute("DELETE FROM counters WHERE name = '_other_recipe'")


def test_a_file_of_an_earlier_version_says_nothing_of_names_that_may_have_been_others(tmp_path: Path) -> None:
    """Its log has another recipe; decisions of the open season are by the present one, for ever."""
    path, now = tmp_path / "agent.db", [START]
    _, agent = _next_season_by(path, SWAPPED, now)
    with agent:
        _as_of_an_earlier_version(agent)
        newest = agent.decide(context={"age": 30}).action
    for _ in range(2):  # not started since, and started
        assert [row.get("name") for row in export(path)] == [None] * 20 + [newest]
        with Agent.open(path, agent.settings, clock=_clock(now)):
            pass
    with Agent.open(path, agent.settings, clock=_clock(now)) as agent:
        for passed in (10.0, 100.0):
            now[0] += passed
            agent.tick()
        assert agent.store.season == 3
    assert [row.get("name") for row in export(path)] == [None] * 20 + [newest]


def test_a_file_of_an_earlier_version_whose_recipe_never_changed_keeps_its_words(tmp_path: Path) -> None:
    path, now = tmp_path / "agent.db", [START]
    shown, agent = _next_season_by(path, SHOP, now)
    with agent:
        _as_of_an_earlier_version(agent)
    assert [row["name"] for row in export(path)] == [one.action for one in shown]
