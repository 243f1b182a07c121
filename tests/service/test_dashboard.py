"""The page, as an operator meets it: in a real browser, against a running service that is also killed."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from browsing import findings, log_in, opened
from harness import ACTIONS, Running, write_config
from playwright.sync_api import Browser, Page, expect

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.warning import REWARD_BOUND
from feducb.carriers.nats_keys import init as make_keys
from feducb.service.api_keys import add_key, revoke_key
from feducb.service.client import Client
from feducb.service.controller_page import (
    Watcher,
    create_controller_page,
    read_status_file,
)
from feducb.storage import agent_rows, agent_tables

PAGE = Path(__file__).parents[2] / "src" / "feducb" / "service" / "page"
NASTY = "<img src=x onerror=alert(1)>"
OPEN_ROW: dict[str, Any] = {  # as `RowBook.facts` has it
    "row": 8,
    "attempt": 1,
    "quorum": 3,
    "since": 1_000_000.0,
    "sent": ["north", "south", NASTY],
    "listed": True,
    "answered": ["north"],
    "waits_for_keepers": ["south"],
    "waits_for_agents": [],
    "waiting": "Row 8 of season 3 waits for keeper south.",
    "opened": 6,
    "refused": 1,
    "closed_empty": 2,
}


pytestmark = pytest.mark.xdist_group("dashboard")  # one service and one browser for all


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An agent that learns quickly, on a port that it gets back after a restart."""
    config = write_config(
        tmp_path_factory.mktemp("page"), season="1200s", window="1s", decisions="uniform_share = 0.2"
    )
    told = config.read_text().replace("port = 0", f"port = {_free_port()}")
    config.write_text(told.replace("epsilon = 1.0", "epsilon = 100000.0").replace("= 64", "= 240"))
    with Running(config) as running:
        _visit(running, 60)
        yield running


def _visit(service: Running, visitors: int) -> None:
    with Client(service.url, key=service.application, timeout=120.0) as agent:
        for number in range(visitors):
            decision = agent.decide(ACTIONS)
            agent.reward(decision.id, float(decision.index == number % 2))


def _number(page: Page, id: str) -> int:
    return int(page.locator(f"#{id}").inner_text().replace(",", ""))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_reads_well(browser: Browser, service: Running, width: int, scheme: str) -> None:
    """axe-core finds nothing, nothing is cut off, and the keyboard is enough."""
    with opened(browser, service.url, width=width, scheme=scheme) as page:
        expect(page.locator("#login")).to_be_visible()
        assert findings(page) == []
        log_in(page, service.operator)
        expect(page.get_by_role("heading", name="north")).to_be_visible()
        for unfolded in (False, True):
            if unfolded:
                page.locator("summary").first.focus()
                page.keyboard.press("Enter")
                expect(page.locator("#t-learning tr").first).to_be_visible()
                page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            assert findings(page) == []
        ground = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(ground)
        page.locator("#theme").press("Enter")
        assert page.evaluate(ground) != before
        assert findings(page) == []
        page.reload()  # the cookie is enough, and the choice of colours stays
        expect(page.get_by_role("status")).to_have_text("Live")
        assert page.evaluate(ground) != before


def test_it_is_live_and_says_what_it_knows(browser: Browser, service: Running) -> None:
    with opened(browser, service.url) as page:
        log_in(page, service.operator)
        before, rows = _number(page, "decisions"), page.locator("#t-sync tr").count()
        _visit(service, 30)
        expect(page.locator("#decisions")).to_have_text(f"{before + 30:,}")
        expect(page.locator("#learning polyline")).not_to_have_count(0)
        expect(page.locator("#learning-said")).to_contain_text("Uniform choice would have brought")
        expect(page.locator("#gain-said")).to_contain_text(
            re.compile(r"federated -?0\.\d+ ± .*uniform -?0\.\d+ ±")
        )
        expect(page.locator("#gain rect.lane")).to_have_count(2)  # nobody is held out
        expect(page.locator("#activity rect.bar")).not_to_have_count(0)
        expect(page.locator("#budget")).to_have_text("ε = 100000, δ = 1e−6")
        expect(page.locator("#out-at")).to_contain_text("with the last release")
        expect(page.locator("#next")).to_have_text(re.compile(r"^(in [1-5] s|due now)$"))  # every 5 s
        expect(page.locator("#t-sync tr")).not_to_have_count(rows)
        expect(page.locator("#sync-said")).to_contain_text("with 1 agent in it")


def test_it_survives_a_kill_and_shows_that_the_agent_is_away(browser: Browser, service: Running) -> None:
    """Chromium itself notes requests that get no answer; nothing else is on the console."""
    with opened(browser, service.url) as page:
        log_in(page, service.operator)
        before = _number(page, "decisions")
        service.kill()
        expect(page.get_by_role("status")).to_have_text("Connection lost, trying again")
        expect(page.locator("#decisions")).to_have_text(f"{before:,}")  # what was known stays
        assert findings(page) == []
        service.start()
        expect(page.get_by_role("status")).to_have_text("Live")
        _visit(service, 5)
        expect(page.locator("#decisions")).to_have_text(f"{before + 5:,}")
        said: list[str] = page.said  # type: ignore[attr-defined]
        said[:] = [one for one in said if not one.startswith("Failed to load resource: net::ERR_")]


def test_log_in_log_out_and_who_is_refused(browser: Browser, service: Running) -> None:
    with opened(browser, service.url) as page:
        field, alert = page.get_by_label("Operator’s key"), page.locator("#refused")
        field.fill("feducb_wrong")
        page.keyboard.press("Enter")
        expect(alert).to_have_text("This key is not known here.")
        field.fill(service.application)
        page.keyboard.press("Enter")
        expect(alert).to_contain_text("does not open the page")
        assert page.context.cookies() == []
        log_in(page, service.operator)
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("#login")).to_be_visible()
        expect(page.locator("#content")).to_be_hidden()
        assert page.context.cookies() == []
        assert (
            httpx.get(f"{service.url}/v1/events", cookies={cookie["name"]: cookie["value"]}).status_code
            == 401
        )
        said: list[str] = page.said  # type: ignore[attr-defined]
        said[:] = [one for one in said if not one.startswith("Failed to load resource: the server responded")]


def test_a_key_behind_the_address_logs_in_and_is_gone_from_it(browser: Browser, service: Running) -> None:
    with opened(browser, service.url) as page:
        page.goto(f"{service.url}/#key={service.operator}")
        page.reload()  # a change of the fragment alone is no visit
        expect(page.get_by_role("status")).to_have_text("Live")
        assert page.url == f"{service.url}/"


def test_a_cookie_opens_what_is_read_and_nothing_else(service: Running) -> None:
    with service.http() as http:
        assert http.post("/v1/session", json={"key": "feducb_wrong"}).status_code == 401
        made = http.post("/v1/session", json={"key": service.operator})
        assert made.status_code == 200
        assert service.operator not in made.text + str(made.headers)
        for path in ("/v1/status", "/v1/privacy", "/v1/model"):
            assert http.get(path).status_code == 200
        for method, path in (
            ("POST", "/v1/decisions"),
            ("POST", "/v1/rewards"),
            ("POST", "/v1/discards"),
            ("GET", "/v1/outbox"),
            ("POST", "/v1/outbox/sent"),
            ("POST", "/v1/inbox"),
            ("POST", "/v1/erasures"),
            ("GET", "/metrics"),
        ):
            assert http.request(method, path, json={"actions": ACTIONS}).status_code == 401, path
    with service.http() as http:
        assert http.get("/v1/events").status_code == 401
        for body in (b"", b"[]", b'{"key": 1}', b'{"key": "\xc3\xa9"}', b"x" * 100_000, b"[" * 4000):
            assert http.post("/v1/session", content=body).status_code == 422
    log = service.log.read_text()
    assert "log_in_refused" in log
    assert service.operator not in log


def test_files_are_small_and_come_with_a_strict_policy(service: Running) -> None:
    files = list(PAGE.iterdir())
    assert sum(one.stat().st_size for one in files) < 100_000
    for one in files:
        for outside in ("http:", "https:", "//cdn", "@import"):
            text = one.read_text().replace("http://www.w3.org/2000/svg", "")
            assert outside not in text, (one.name, outside)
    with service.http() as http:
        for path in ("/", *(f"/page/{one.name}" for one in files if one.name != "index.html")):
            answer = http.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
        for path in ("/page/index.html", "/page/..%2fapp.py", "/page/none.js"):
            assert http.get(path).status_code == 404


def test_a_stream_ends_when_its_key_is_revoked_and_the_page_asks_again(
    browser: Browser, service: Running
) -> None:
    keys = service.config.parent / "agent.keys"
    fresh = add_key(keys, "for-a-while", "operator")
    service.until(fresh, 200)
    with opened(browser, service.url) as page:
        log_in(page, fresh)
        with service.http(fresh) as http, http.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            revoke_key(keys, "for-a-while")
            assert [line for line in lines if line][-2:] == ["event: end", "data: {}"]
        expect(page.locator("#login")).to_be_visible(timeout=4000)
        expect(page.locator("#content")).to_be_hidden()
        said: list[str] = page.said  # type: ignore[attr-defined]
        said[:] = [one for one in said if "status of 401" not in one]  # logging in again was refused


def test_an_open_stream_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with (
        Running(write_config(tmp_path)) as service,
        service.http(service.operator) as http,
        http.stream("GET", "/v1/events") as stream,
    ):
        lines = stream.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        told = json.loads(first[6:])
        assert (told["kind"], told["name"], told["releases"]) == ("agent", "north", 64)
        service.process.terminate()
        assert [line for line in lines if line][-2:] == ["event: end", "data: {}"]  # not cut off
        assert service.stop() == 0


def test_the_page_says_that_the_broker_is_not_reached(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, ["north"], federation="shops")
    engine = f"""
    [engine]
    kind = "nats"
    servers = ["tls://127.0.0.1:{_free_port()}"]
    federation = "shops"
    roster = "{keys}/federation.json"
    seed = "{keys}/agents/north/agent.seed"
    ca = "{keys}/ca.pem"
    retry = 0.1
    """
    with Running(write_config(tmp_path, service=engine)) as agent, opened(browser, agent.url) as page:
        log_in(page, agent.operator)
        expect(page.get_by_role("alert")).to_contain_text("The broker is not reached.")
        expect(page.locator("#sync-said")).to_contain_text("wait to be sent. The broker is not reached.")


def test_the_page_says_that_a_setting_does_not_fit(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    told = read_agent_file(config)
    with Agent.open(told.store, told.agent) as agent, agent.writing() as db:
        agent_tables.add_warning(db, REWARD_BOUND)
    with Running(config) as service, opened(browser, service.url) as page:
        log_in(page, service.operator)
        notice = page.get_by_role("alert").locator(".doubtful")
        expect(notice).to_contain_text("Doubtful: More than one decision in 20 got a reward")
        expect(notice).to_have_count(1)
        assert findings(page) == []


def test_the_page_says_what_rows_under_pads_wait_for(browser: Browser, tmp_path: Path) -> None:
    names, keys = ["north", "south", "east", "west"], tmp_path / "keys"
    make_keys(keys, names, federation="shops", keepers=["north", "south"])
    engine = f"""
    [federation]
    agents = 4
    [engine]
    kind = "nats"
    servers = ["tls://127.0.0.1:{_free_port()}"]
    federation = "shops"
    roster = "{keys}/federation.json"
    seed = "{keys}/agents/north/agent.seed"
    ca = "{keys}/ca.pem"
    """
    config = write_config(tmp_path, service=engine, privacy='trust = "keepers"\naway = 1\ncolluding = 1')
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    config.write_text(config.read_text().replace("[releases]", f"[releases]\nstart = {started}"))
    with Running(config) as service, opened(browser, service.url, width=390) as page:
        log_in(page, service.operator)
        said = page.locator("#rows-said")
        expect(said).to_contain_text("before keepers north and south have shown their keys")
        expect(said).to_contain_text("no key of this season has come yet of north, south")
        expect(page.locator("#rows-counts")).to_contain_text("skipped")
        expect(page.locator("#trouble")).not_to_contain_text("halted")
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        with service.http(service.operator) as http:
            metrics = http.get("/metrics").text
        for line in ('rows{state="built"} 0.0', 'keeper_key{keeper="south"} 0.0', 'open_row{group="0"} 1.0'):
            assert f"feducb_{line}" in metrics
        service.stop()
        told = read_agent_file(config)
        with Agent.open(told.store, told.agent, member=told.member()) as agent, agent.writing() as db:
            agent_rows.halt(
                db, "another copy of this agent is in row 1 of season 1: this file is older than it"
            )
    with Running(config) as service, opened(browser, service.url) as page:
        log_in(page, service.operator)
        expect(page.locator("#trouble .wrong").first).to_contain_text("another copy of this agent")
        expect(page.locator("#rows-said")).to_contain_text("No row is built any more.")
        with service.http(service.operator) as http:
            assert 'feducb_trouble{kind="halted",severity="wrong"} 1.0' in http.get("/metrics").text
        assert findings(page) == []


# ---------------------------------------------------------------- the controller's page


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """An app of its own that reads a controller's status file; address, key, file."""
    status = tmp_path / "controller.db.status.json"
    key = add_key(tmp_path / "keys", "office", "operator")
    names = ["north", "south", "east", NASTY]
    graph = {
        "nodes": names,
        "edges": [["north", "south"], ["south", "east"], ["north", "east"], ["east", NASTY]],
        "cliques": [["north", "south", "east"], [NASTY]],
    }

    def facts() -> dict[str, Any]:
        now = time.time()  # as if it were written over and over
        return read_status_file(status) | {"at": now, "last_seen": {"north": now}}

    watcher = Watcher(facts, name="shops", agents=names, quorum=2, graph=graph)
    app = create_controller_page(watcher, tmp_path / "keys")
    port = _free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}", key, status
    app.state.stopping = server.should_exit = True
    thread.join(timeout=120)
    assert not thread.is_alive()


def test_the_controllers_page(browser: Browser, controller: tuple[str, str, Path]) -> None:
    url, key, status = controller
    with opened(browser, url, width=390) as page:
        log_in(page, key)
        expect(page.get_by_role("alert")).to_contain_text("No status in controller.db.status.json")
        facts = {
            "connected": True,
            "season": 3,
            "newest_sum": [3, 7],
            "agents_in_it": ["north", "south"],
            "newest_message": {"north": 8, "south": 7},
            "refused": {"east": {"signature": 2}, "(unknown)": {"sender": 5}},
        }
        status.write_text(json.dumps(facts))
        expect(page.locator("#inside")).to_have_text("2 of 4")
        expect(page.locator("#failing")).to_be_hidden()
        expect(page.locator("#sum")).to_have_text("7")
        expect(page.locator("#refused-all")).to_have_text("7")
        expect(page.locator("#t-agents tr")).to_have_count(4)
        expect(page.locator("#t-agents tr").first).to_contain_text("ago")
        expect(page.locator("#graph circle")).to_have_count(4)
        expect(page.locator("#graph line.own")).to_have_count(3)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        expect(page.locator("#t-cliques tr").last).to_contain_text(NASTY)  # as text
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        expect(page.locator("#rows-card")).to_be_hidden()
        status.write_text(json.dumps(facts | {"rows": OPEN_ROW}))
        expect(page.locator("#rows-said")).to_have_text("Row 8 of season 3 waits for keeper south.")
        expect(page.locator("#row-sent")).to_have_text(f"3 of 4: north, south, {NASTY}")
        expect(page.locator("#row-answered")).to_have_text("north")
        expect(page.locator("#row-asked")).to_have_text("south")
        expect(page.locator("#row-over")).to_have_text(
            "6 opened, 1 with a sum that was refused, 2 closed empty"
        )
        expect(page.locator("#agents-note")).to_have_text("a sum needs 3")
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    command = [sys.executable, "-m", "feducb", "watch", "--url", url, "--key", key, "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    for word in ("controller of shops, season 3", "signature 2", "7, 2 agents in it", "cliques"):
        assert word in done.stdout
    for word in ("Row 8 of season 3 waits for keeper south.", "1 keeper: north", "sums refused"):
        assert word in done.stdout


def test_what_the_controllers_page_does_not_have_is_refused_like_the_rest(
    controller: tuple[str, str, Path],
) -> None:
    url, _, _ = controller
    assert httpx.get(f"{url}/v1/nothing").json() == {"error": "there is no such path"}
    assert httpx.put(f"{url}/v1/session").json() == {"error": "this path does not take this method"}
