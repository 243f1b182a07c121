"""`feducb agent`, as an operator types it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.upkeep import backup
from feducb.cli import agent as agent_commands
from feducb.controller.controller_file import terms_from_table
from troubles import troubles
from typed import typed


def _feducb(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    """What it said."""
    return _said(typed("agent", *arguments, cwd=folder), status)


def _process(folder: Path, *arguments: str, status: int = 0, library: Path | None = None) -> tuple[str, str]:
    """What it said as a process of its own; with another folder of libraries in front."""
    paths = [str(library)] * (library is not None) + [os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "feducb", "agent", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return _said(done, status)


def _said(done: subprocess.CompletedProcess[str], status: int) -> tuple[str, str]:
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def made(tmp_path: Path) -> Path:
    periodic = ("--schedule", "periodic", "--releases", "64")
    said, _ = _feducb(tmp_path, "init", "--name", "north", "--dim", "2", "--window", "1s", *periodic)
    assert said.count("feducb_") == 2
    return tmp_path


def test_an_agent_from_its_first_log_to_a_restored_backup(made: Path) -> None:
    (made / "log.csv").write_text("x1,x2,reward\n0.5,0.1,1.0\n0.2,0.7,0.0\n")
    said = _feducb(made, "warm-start", "log.csv", status=2)[1]
    assert "policy is None, expected 'fixed', the statement that" in " ".join(said.split())
    fixed = ("warm-start", "log.csv", "--policy", "fixed")
    assert "2 records wait" in _process(made, *fixed)[0]
    assert "count twice" in _feducb(made, *fixed, status=2)[1]
    told = json.loads(_feducb(made, "status", "--json", "-", status=1)[0])
    assert (told["name"], told["releases_left"], told["counts"]["loaded"]) == ("north", 64, 2)
    said = _process(made, "status", status=1)[0]
    assert len(re.findall(r"\bends\b", said)) == 1  # said once
    for word in ("agent north", "next release", "season ends", "64 left", f"{datetime.now():%Y-%m-}"):
        assert word in said
    assert "0 decisions taken back" in _process(made, "erase", "ada")[0]
    said, noted = _process(made, "export")
    assert (said, "keep_events is 0" in noted) == ("", True)
    _process(made, "backup", "copy.db")
    assert "agree to lose them with --drop-open\n" in _feducb(made, "new-season", status=2)[1]
    assert "season 2" in _process(made, "new-season", "--drop-open")[0]
    (made / "north.db").rename(made / "lost.db")
    assert "in season 9" in _process(made, "restore", "copy.db", "--season", "9", "--lost")[0]
    assert json.loads(_feducb(made, "status", "--json", "-", status=1)[0])["counts"]["loaded"] == 2
    (made / "later.csv").write_text("0.3,0.3,0.5\n")
    later = ("warm-start", "later.csv", "--policy", "fixed")
    assert "that it never did (--never-loaded)" in _feducb(made, *later, status=2)[1]
    assert "1 record waits" in _process(made, *later, "--never-loaded")[0]


def test_a_backup_is_restored_by_the_seasons_of_agent_toml(tmp_path: Path) -> None:
    """Not by its own alone, if their length changed since: the lost file may have opened more of them."""
    start = (datetime.now(UTC) - timedelta(days=10.5)).isoformat()
    periodic = ("--schedule", "periodic", "--releases", "4", "--season", "30d", "--start", start)
    _feducb(tmp_path, "init", "--dim", "2", "--decisions", "1000", *periodic)
    with Agent.open(tmp_path / "agent.db", read_agent_file(tmp_path / "agent.toml").agent):
        backup(tmp_path / "agent.db", tmp_path / "copy.db")
    (tmp_path / "agent.db").unlink()
    config = tmp_path / "agent.toml"
    config.write_text(config.read_text().replace('season = "30d"', 'season = "1d"'))
    again = ("restore", "copy.db", "--lost", "--season")
    assert "expected at least 12" in _feducb(tmp_path, *again, "5", status=2)[1]
    assert "never opened it (--never-opened)" in _feducb(tmp_path, *again, "12", status=2)[1]
    assert "in season 12" in _feducb(tmp_path, *again, "12", "--never-opened")[0]


@pytest.mark.parametrize("season", [(), ("--season", "9")])
def test_a_backup_is_restored_only_on_the_word_that_the_other_file_is_gone(
    made: Path, season: tuple[str, ...]
) -> None:
    """Also in a new season: where the old file goes on, both would release what one budget covers."""
    _feducb(made, "backup", "copy.db")
    (made / "elsewhere").mkdir()
    for one in made.glob("north.db*"):
        one.rename(made / "elsewhere" / one.name)
    said = _feducb(made, "restore", "copy.db", *season, status=2)[1]
    assert "--lost is None, expected your word that the file is gone" in said
    assert not (made / "north.db").exists()
    assert "open in season" in _feducb(made, "restore", "copy.db", *season, "--lost")[0]


def test_a_changed_number_of_agents_is_named_and_not_a_term_that_follows_from_it(tmp_path: Path) -> None:
    """How many first releases are not worth reading is a term; with fewer agents it is more of them."""
    given = ("--dim", "2", "--agents", "20", "--decisions", "1000", "--epsilon", "4")
    assert "--start is None, expected when" in _feducb(tmp_path, "init", *given, status=2)[1]
    _feducb(tmp_path, "init", *given, "--start", "2027-01-01T00:00:00Z")
    said = _feducb(tmp_path, "terms")[0]
    assert "[seasons]\nstart = 2027-01-01T00:00:00+00:00\nseason = 2592000.0" in said
    assert "agents_per_person" not in said  # not stated: a trusted controller takes as many as its roster has
    config = tmp_path / "agent.toml"
    with Agent.open(tmp_path / "agent.db") as agent:
        agent.decide([[0.1, 0.2]])
    config.write_text(config.read_text().replace("agents = 20", "agents = 2"))
    reason = "agents is 2, expected 20 until a new season opens (`feducb agent new-season`)"
    sentence = f"Its configuration was edited for another season, and waits for the next one: {reason}."
    told = json.loads(_feducb(tmp_path, "status", "--json", "-", status=1)[0])
    assert troubles(told)["misfit"] == sentence


def test_an_agent_s_spacing_and_decay_reach_a_controller_s_terms_and_the_statement(tmp_path: Path) -> None:
    """The table that an agent prints is the promise that it makes: by the same digest."""
    given = ("--dim", "2", "--epsilon", "50", "--per-person", "3", "--spacing", "2", "--releases", "12")
    _feducb(tmp_path, "init", *given)
    table = tomllib.loads(_feducb(tmp_path, "terms")[0])["terms"]
    terms = terms_from_table(table)
    with Agent.open(tmp_path / "agent.db") as agent:
        assert agent.settings.spacing == terms.spacing == 2
        assert terms.decay is not None
        assert terms.digest() == agent.store.terms.digest() == agent.settings.terms.digest()
        assert terms.certificate() == agent.store.terms.certificate()
    said = _feducb(tmp_path, "init", "other.toml", "--name", "other", "--spacing", "2", status=2)[1]
    assert "spacing is 2, expected 0 where a person has one record" in said


def test_init_says_what_is_remembered_how_it_fades_and_where_it_ends(tmp_path: Path) -> None:
    given = ("--name", "north", "--dim", "2", "--remember", "3", "--drift", "90d", "--most-epsilon", "4")
    _feducb(tmp_path, "init", *given)
    settings = read_agent_file(tmp_path / "agent.toml").agent
    assert (settings.remember, settings.drift, settings.most_epsilon) == (3, 90 * 86_400.0, 4.0)
    _feducb(tmp_path, "init", "other.toml", "--name", "other", "--dim", "2", "--discount", "0.5")
    settings = read_agent_file(tmp_path / "other.toml").agent
    assert (settings.remember, settings.discount, settings.drift) == ("all", 0.5, None)
    for wrong, said in (("--remember", "remember is 'x', expected all, none"), ("--drift", "drift is 'x'")):
        line = ("init", "third.toml", "--name", "third", "--dim", "2", wrong, "x")
        assert said in _feducb(tmp_path, *line, status=2)[1]
    assert not (tmp_path / "third.toml").exists()


def test_what_was_edited_after_init_is_taken_until_something_happens(made: Path) -> None:
    config = made / "agent.toml"
    config.write_text(config.read_text().replace("uniform_share = 0.0", "uniform_share = 0.25"))
    said = _feducb(made, "status", status=1)[0]
    assert "no longer fits" not in said
    assert "agent.toml was edited and is taken when the agent starts next: uniform_share\n" in said
    (made / "log.csv").write_text("0.5,0.1,1.0\n")
    _feducb(made, "warm-start", "log.csv", "--policy", "fixed")
    with Agent.open(made / "north.db") as agent:
        assert agent.settings.uniform_share == 0.25
    config.write_text(config.read_text().replace("uniform_share = 0.25", "uniform_share = 0.5"))
    told = json.loads(_feducb(made, "status", "--json", "-", status=1)[0])
    assert "uniform_share is 0.5, expected 0.25 until" in troubles(told)["misfit"]


def test_a_controller_s_configuration_is_known_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "controller.toml").write_text('[controller]\nstate = "controller.db"\n')
    for command in (("status",), ("key", "add", "ada"), ("terms",)):
        said = _feducb(tmp_path, *command, "-c", "controller.toml", status=2)[1]
        assert "this is a controller's: `feducb controller status`" in said


def test_keys_are_rotated(made: Path) -> None:
    secret = _feducb(made, "key", "add", "next")[0].strip()
    assert secret.startswith("feducb_")
    assert secret not in (made / "north.keys").read_text()
    listed = _feducb(made, "key", "list")[0]
    assert [line.split()[0] for line in listed.splitlines()] == ["application", "operator", "next"]
    _feducb(made, "key", "revoke", "application")
    assert "application " not in _feducb(made, "key", "list")[0].replace("next", "")[:12]
    assert "key is 'nobody'" in _feducb(made, "key", "revoke", "nobody", status=2)[1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("init", "agent.toml"), "does not exist yet"),
        (("status", "--config", "other.toml"), "agent init"),
        (("backup", "north.db"), "does not exist"),
        (("warm-start", "nothing.csv"), "nothing.csv"),
        (("restore", "agent.toml", "--season", "2", "--lost"), "move it away first"),
        (("create",), "does not exist yet"),
        (("init", "other.toml", "--name", "north"), "moved away"),
        (("init", "other.toml", "--name", "other", "--start", "noon"), "--start is 'noon', expected a time"),
        (("init", "other.toml", "--name", "other", "--start", "2027-01-01"), "with its zone"),
        (("key", "add", "bad name"), "a new name"),
    ],
)
def test_what_cannot_be_done_gets_one_sentence(
    made: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    said = _feducb(made, *arguments, status=2)[1]
    assert complaint in said
    assert said.count("\n") == 1


def test_a_bad_row_of_a_log_is_counted_and_the_others_enter(made: Path) -> None:
    (made / "log.csv").write_text("x1,x2,reward\n0.1,0.2,0.3\n1,2\n1,2,3,4\na,b,c\n\n9,9,9\n0.1,nan,0.2\n")
    fixed = ("warm-start", "log.csv", "--policy", "fixed")
    said = _feducb(made, *fixed)[0]
    assert "2 records wait for the next release, 1 of them clipped" in said
    assert "4 dropped" in said
    (made / "log.csv").write_text("x1,x2\n0.1,0.2\n")
    assert "log is '1 record that cannot be read'" in _feducb(made, *fixed, status=2)[1]


def test_status_as_json_goes_to_a_file_or_to_standard_output(made: Path) -> None:
    assert json.loads(_feducb(made, "status", "--json", "-", status=1)[0])["season"] == 1
    said, _ = _feducb(made, "status", "--json", "status.json", status=1)
    assert "season" in said
    assert json.loads((made / "status.json").read_text())["season"] == 1
    assert "a folder that exists" in _feducb(made, "status", "--json", "no/such.json", status=2)[1]


@pytest.mark.parametrize(
    "arguments", [("--json",), ("--json", "-c", "agent.toml"), ("-c", "agent.toml", "--json")]
)
def test_json_without_a_file_still_means_standard_output_and_says_how_it_is_written_now(
    made: Path, arguments: tuple[str, ...]
) -> None:
    said, noted = _feducb(made, "status", *arguments, status=1)
    assert json.loads(said)["season"] == 1
    assert "--json -" in noted


def test_an_agent_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    """As without OpenDP, which an extra brings: the next `init` is not in its own way."""
    library, folder = tmp_path / "library", tmp_path / "here"
    (library / "opendp").mkdir(parents=True)
    folder.mkdir()
    (library / "opendp" / "__init__.py").write_text('raise ImportError("missing", name="opendp")\n')
    assert "needs opendp" in _process(folder, "init", status=2, library=library)[1]
    assert list(folder.iterdir()) == []
    _process(folder, "init")
    (folder / "agent.db").unlink()
    (folder / "agent.db.lock").unlink(missing_ok=True)
    assert "needs opendp" in _process(folder, "create", status=2, library=library)[1]
    assert sorted(one.name for one in folder.iterdir()) == ["agent.keys", "agent.toml"]


def test_a_first_season_may_be_one_in_shadow_mode(tmp_path: Path) -> None:
    _feducb(tmp_path, "init", "--shadow", "--season", "20d")
    told = json.loads(_feducb(tmp_path, "status", "--json", "-", status=1)[0])
    assert (told["season"], told["shadow"], list(troubles(told))) == (1, True, ["stopped"])
    assert 'keep_events = "20d"' in (tmp_path / "agent.toml").read_text()


def test_a_new_agents_plan_is_written_down(tmp_path: Path) -> None:
    _feducb(tmp_path, "init", "--name", "north", "--dim", "3", "--epsilon", "4")
    text, file = (tmp_path / "agent.toml").read_text(), read_agent_file(tmp_path / "agent.toml")
    assert file.agent.schedule == "planned"
    assert f"releases = {file.agent.releases}\n" in text
    assert f"first_release = {file.agent.first_release!r}" in text
    for setting in ("agents", "decisions", "season", "bounds", "budgets"):
        assert setting in text.partition("The next two follow from")[2].partition("releases =")[0]
    assert f"releases = {file.agent.releases}\n" in _feducb(tmp_path, "terms")[0]
    (tmp_path / "agent.toml").write_text(re.sub(r"(?m)^(releases =|first_release).*\n", "", text))
    assert read_agent_file(tmp_path / "agent.toml").agent == file.agent  # the same version plans the same


def test_a_season_in_which_nothing_is_worth_reading_is_announced(tmp_path: Path) -> None:
    _, noted = _feducb(tmp_path, "init", "--decisions", "20", "--epsilon", "0.1")
    assert "nothing that is released within a season is worth reading" in noted
    for remedy in ("more agents", "a larger epsilon", "a longer season"):
        assert remedy in noted
    assert read_agent_file(tmp_path / "agent.toml").agent.releases == 1


def test_a_header_is_told_by_its_actions_and_never_by_a_reward() -> None:
    """Where contexts are public, a first row without a reward must not be left out for it."""
    assert agent_commands._numbers([["a", "b", "reward"], [], ["1", "2", "3"]]) == [[1.0, 2.0, 3.0]]
    assert len(agent_commands._numbers([["1", "2", "none"], ["1", "2", "3"]])) == 2


def test_own_play_writes_its_close_down_or_says_that_an_agent_alone_does_better(tmp_path: Path) -> None:
    given = ("--dim", "2", "--decisions", "1000", "--epsilon", "4", "--play", "own")
    many = ("--agents", "20", "--start", "2027-01-01T00:00:00Z")
    said = " ".join(_feducb(tmp_path, "init", *given, status=2)[1].split())
    assert (
        "play is 'own', expected nothing that leaves: by these public numbers an agent alone does better"
        in said
    )
    assert not (tmp_path / "agent.toml").exists()
    _, noted = _feducb(tmp_path, "init", *given, *many, "--distance", "0.1")
    assert "note" not in noted
    config = tmp_path / "agent.toml"
    written, settings = tomllib.loads(config.read_text()), read_agent_file(config).agent
    assert (written["decisions"]["play"], written["decisions"]["distance"]) == ("own", 0.1)
    close = {name: getattr(settings, name) for name in ("releases", "first_release", "last_release")}
    assert close.items() <= written["releases"].items()
    assert settings.last_release is not None
    assert settings.last_release < 0.2 * settings.season
    assert "sharing until 2027-01-0" in " ".join(_feducb(tmp_path, "status", status=1)[0].split())
    assert "distance" in _feducb(tmp_path, "init", "b.toml", "--name", "b", "--distance", "1", status=2)[1]


@pytest.mark.parametrize(
    ("flag", "value"), [("--releases", "5"), ("--schedule", "geometric"), ("--schedule", "periodic")]
)
def test_own_play_plans_its_own_releases_and_names_the_flag_that_does_not_go_with_it(
    tmp_path: Path, flag: str, value: str
) -> None:
    many = ("--dim", "2", "--agents", "20", "--epsilon", "4", "--start", "2027-01-01T00:00:00Z")
    said = " ".join(_feducb(tmp_path, "init", *many, "--play", "own", flag, value, status=2)[1].split())
    assert f"{flag} is" in said
    assert "expected nothing beside --play own" in said
    assert "first_release and last_release into [releases]" in said
    assert not list(tmp_path.iterdir())
    _feducb(tmp_path, "init", *many, "--play", "own", "--schedule", "planned")
    config = tmp_path / "agent.toml"
    text = "\n".join(
        "last_release = 600000.0"
        if line.startswith("last_release")
        else "releases = 3"
        if line.startswith("releases")
        else line
        for line in config.read_text().splitlines()
    )
    config.write_text(text)
    assert read_agent_file(config).agent.release_times[-1] == 600_000.0  # what the error says is so
