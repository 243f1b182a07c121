"""`feducb recipe`, and what `feducb agent init` asks: nothing private is read silently."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from feducb.agent.agent_file import read_agent_file
from feducb.agent.toml_sections import SECTIONS
from feducb.worlds.features import Recipe

FEDUCB = [sys.executable, "-m", "feducb"]
LOG = """\
shop,country,device,age,returning,basket,offer,bought,p
1,DE,phone,33,yes,20,none,0,0.5
1,FR,desk,,no,10.5,free_shipping,1,0.5
2,Atlantis,phone,97,yes,99,ten_percent,1,0.5
"""
TAKEN = ("--action", "offer", "--ignore", "shop,bought,p")


def _feducb(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [*FEDUCB, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, " ".join(done.stderr.split())


def _on_a_terminal(folder: Path, *arguments: str, answers: str) -> str:
    """What a command says on a terminal where these lines are typed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*FEDUCB, *arguments], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as process:
        os.close(theirs)
        os.write(ours, answers.encode())
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # the terminal is gone with the command
            pass
        process.wait(timeout=600)
    os.close(ours)
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path


def test_ranges_and_levels_are_never_read_silently(shop: Path) -> None:
    said, _ = _feducb(shop, "recipe", "init", "log.csv", *TAKEN)
    for place in ("levels of country", "levels of device", "low and high of age", "low and high of basket"):
        assert f"to be filled in: {place}" in said
    text = (shop / "recipe.json").read_text()
    assert "Atlantis" not in text
    assert "97" not in text
    kinds = {one["name"]: one["kind"] for one in json.loads(text)["context"]}
    expected = {"country": "category", "device": "category", "age": "number", "basket": "number"}
    assert kinds == expected | {"returning": "boolean"}
    assert (
        "levels of country is None, expected public levels"
        in _feducb(shop, "recipe", "show", "recipe.json", status=2)[1]
    )


def test_a_log_without_rows_tells_no_kinds(shop: Path) -> None:
    (shop / "log.csv").write_text(LOG.splitlines(keepends=True)[0])
    _, said = _feducb(shop, "recipe", "init", "log.csv", *TAKEN, status=2)
    assert said == "feducb: log is 'log.csv', expected at least one row: kinds and actions are told by them"
    assert not (shop / "recipe.json").exists()


def test_what_is_said_to_be_public_is_taken_and_noted(shop: Path) -> None:
    context = ("--context", "age:0:120,basket:0:500,returning,country:DE|FR,device", "--public", "device")
    _, noted = _feducb(shop, "recipe", "init", "log.csv", *TAKEN[:2], *context)
    assert "note: the list of levels of device, as the log has it, is public: it was said" in noted
    recipe = Recipe.read(shop / "recipe.json")
    assert recipe.offered == ("free_shipping", "none", "ten_percent")
    assert recipe.vectors({}, recipe.offered).shape == (3, recipe.dim)  # nobody is refused
    said, _ = _feducb(shop, "recipe", "show", "recipe.json", "--json", "facts.json")
    words = " ".join(said.replace("│", " ").split())
    for sentence in (
        "term 1 the level that all rewards share (1)",
        "term offer*age how much age matters for each offer (6)",
        "another one is 'other', an entry; a missing one has an entry of its own",
        "reward_bound: half of the range of rewards, 0 to 1",
        "parameter_bound: √(7·(1 + 1))·B/L, an assumption",
    ):
        assert sentence in words
    facts = json.loads((shop / "facts.json").read_text())
    assert (facts["problem"]["dim"], facts["refuses"]) == (recipe.dim, [])
    _feducb(shop, "recipe", "init", "log.csv", *TAKEN[:2], *context, "--lean", "--out", "lean.json")
    assert Recipe.read(shop / "lean.json").dim < recipe.dim


def test_a_terminal_is_asked_for_what_is_public(shop: Path) -> None:
    answers = "DE|FR\nphone|desk\n0:120\n0:500\n"
    said = _on_a_terminal(shop, "recipe", "init", "log.csv", *TAKEN, answers=answers)
    assert "the log has of country: Atlantis, DE, FR" in said
    recipe = Recipe.read(shop / "recipe.json")
    assert [getattr(one, "levels", None) for one in recipe.context][:2] == [("DE", "FR"), ("phone", "desk")]


def test_a_terminal_is_asked_again_for_what_cannot_be(shop: Path) -> None:
    answers = "|\nDE|DE\nDE|FR\n\nnan:3\n90:18\n18:\n18:90\n0:1e999\n\n"
    said = _on_a_terminal(shop, "recipe", "init", "log.csv", *TAKEN, answers=answers)
    for refused in ("nan:3", "90:18", "18:", "0:1e999"):
        assert f"is '{refused}', expected LOW:HIGH" in said
    assert "all different" in said
    columns = json.loads((shop / "recipe.json").read_text())["context"]
    assert columns[0]["levels"] == ["DE", "FR"]
    assert columns[1]["levels"] is None  # left open
    assert (columns[2]["low"], columns[2]["high"]) == (18.0, 90.0)
    assert columns[4]["low"] is None


def test_columns_are_named_with_commas_or_one_by_one(shop: Path) -> None:
    one_by_one = ("--ignore", "shop", "--ignore", "bought,p", "--public", "country", "--public", "device,age")
    _feducb(shop, "recipe", "init", "log.csv", "--action", "offer", *one_by_one)
    columns = {one["name"]: one for one in json.loads((shop / "recipe.json").read_text())["context"]}
    assert list(columns) == ["country", "device", "age", "returning", "basket"]
    assert columns["country"]["levels"]
    assert columns["basket"]["low"] is None
    context = ("--context", "age:0:120", "--context", "country:DE|FR")
    _feducb(shop, "recipe", "init", "log.csv", "--action", "offer", *context, "--out", "two.json")
    assert [one.name for one in Recipe.read(shop / "two.json").context] == ["age", "country"]


def test_every_setting_is_named_by_init_with_its_default(tmp_path: Path) -> None:
    for arguments in ((), ("--actions", "a,b,c"), ("--play", "released", "--shadow")):
        folder = tmp_path / str(len(arguments))
        folder.mkdir()
        _feducb(folder, "agent", "init", *arguments)
        text = (folder / "agent.toml").read_text()
        for section, keys in SECTIONS.items():
            assert f"[{section}]" in text
            for key in keys:
                assert f"{key} =" in text or f"# {key}" in text or f", {key}" in text, (arguments, key)
        tomllib.loads(text)


def test_offers_without_features_are_an_agent_from_one_option(tmp_path: Path) -> None:
    _feducb(tmp_path, "agent", "init", "--actions", "a,b,c", "--uniform-share", "0.1", "--keep-events", "7d")
    settings = read_agent_file(tmp_path / "agent.toml").agent
    assert (settings.problem.dim, settings.problem.reward_range) == (3, (0.0, 1.0))
    assert (settings.uniform_share, settings.keep_events) == (0.1, 7 * 86400.0)


def test_init_asks_on_a_terminal_for_what_no_option_says(shop: Path) -> None:
    public = ("--context", "age:0:120,country:DE|FR")
    _feducb(shop, "recipe", "init", "log.csv", "--action", "offer", *public)
    answers = "recipe.json\n4\n3\n\n2027-01-01T00:00:00Z\n2\n0.05\n7d\n"
    said = _on_a_terminal(shop, "agent", "init", "--name", "north", answers=answers)
    for question in ("recipe file", "epsilon of a person", "who adds the noise", "when the season starts"):
        assert question in said
    assert "offers without features, a,b,c" not in said  # there is a recipe
    settings = read_agent_file(shop / "agent.toml").agent
    assert (settings.budget.epsilon, settings.agents, settings.quorum) == (4.0, 3, 2)
    assert (settings.uniform_share, settings.keep_events, settings.name) == (0.05, 7 * 86400.0, "north")
    assert settings.recipe == Recipe.read(shop / "recipe.json")


def test_init_does_not_ask_again_what_there_is_to_choose_from(tmp_path: Path) -> None:
    for option in (("--actions", "a,b,c"), ("--dim", "3")):
        folder = tmp_path / option[0]
        folder.mkdir()
        said = _on_a_terminal(folder, "agent", "init", *option, answers="\n" * 5)
        assert "epsilon of a person" in said
        for question in ("recipe file", "offers without features", "numbers per vector"):
            assert question not in said
        assert read_agent_file(folder / "agent.toml").agent.problem.dim == 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("recipe", "init", "log.csv", "--action", "wings"),
            "--action is 'wings', expected a column of the log",
        ),
        (
            ("recipe", "init", "log.csv", "--action", "offer", "--ignore", "x"),
            "column is 'x', expected one of",
        ),
        (("recipe", "init", "gone.csv", "--action", "offer"), "gone.csv"),
        (("recipe", "show", "gone.json"), "`feducb recipe init` writes one"),
        (("agent", "init", "--recipe", "gone.json"), "`feducb recipe init` writes one"),
        (("agent", "init", "--actions", "a,a"), "levels of action"),
        (
            ("agent", "init", "--actions", "a,b", "--dim", "4"),
            "--dim is 4, expected nothing beside",
        ),
        (("recipe", "init", "latin.csv", "--action", "offer"), "latin.csv', expected text in UTF-8: save it"),
        (("recipe", "add", "kept.json", "{bad"), "action is '{bad', expected a name, or JSON such as"),
        (("recipe", "add", "kept.json", '{"id": true}'), "id of the action is True, expected a text"),
        (("recipe", "add", "kept.json", '{"name": "b"}'), "id of the action is None, expected a text"),
        (("agent", "init", "--actions", "a,b", "--reward-range", "1:0"), "--reward-range is '1:0'"),
    ],
)
def test_what_cannot_be_ends_with_a_sentence_and_no_file(
    shop: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    (shop / "latin.csv").write_bytes(LOG.replace("Atlantis", "Österreich").encode("latin-1"))
    (shop / "kept.json").write_text(Recipe.of_actions(["a"], reserve=1).to_json())
    assert complaint in _feducb(shop, *arguments, status=2)[1]
    assert not (shop / "agent.toml").exists()
    assert not (shop / "recipe.json").exists()
