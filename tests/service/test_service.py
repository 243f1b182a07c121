"""What an application, an operator and a stranger get from a running service."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from harness import ACTIONS, Running, write_config

from feducb.agent import Agent, Outcome
from feducb.agent.agent_file import read_agent_file
from feducb.agent.view import look
from feducb.errors import ConfigurationError
from feducb.service.api_keys import add_key, revoke_key
from feducb.service.client import Client, ServiceError
from feducb.storage import agent_tables
from troubles import troubles


def test_rank_and_reward(running: Running) -> None:
    with Client(running.url, key=running.application, timeout=120.0) as agent:
        decision = agent.decide(ACTIONS)
        assert 0 <= decision.index < 4
        assert (decision.propensity, decision.model, decision.repeated) == (0.25, "1.0", False)
        assert agent.reward(decision.id, 0.5) is Outcome.RECORDED
        assert agent.reward(decision.id, 0.5) is Outcome.REPEATED
        own = agent.decide(ACTIONS, id="visit 17")
        assert agent.decide(ACTIONS, id="visit 17").index == own.index
        others = [agent.decide(ACTIONS).id for _ in range(3)]
        found = agent.rewards({others[0]: 1.0, "visit 17": 0.1, "nobody": 0.2})
        assert found == {others[0]: "recorded", "visit 17": "recorded", "nobody": "unknown"}
        assert agent.discard(others[1]) is Outcome.DISCARDED
        assert agent.reward(others[1], 1.0) is Outcome.DISCARDED
        with pytest.raises(ServiceError, match="operator") as caught:
            agent.status()
        assert caught.value.status == 403


def test_an_operator_sees_how_it_stands(running: Running) -> None:
    with Client(running.url, key=running.operator, timeout=120.0) as agent:
        before = agent.status()["counts"].get("decisions", 0)
        agent.decide(ACTIONS)
        assert agent.status()["counts"]["decisions"] == before + 1
        (season,) = agent.privacy()["seasons"]
        assert (season["epsilon"], season["delta"], season["releases"]) == (1.0, 1e-6, 64)
    with running.http(running.operator) as http:
        page = http.get("/metrics").text
        assert f'feducb_events_total{{event="decisions"}} {before + 1}.0' in page
        assert "feducb_releases_left 64.0" in page
        assert 'feducb_lane_visits{lane="federated"} 0.0' in page  # nothing was learnt yet
        assert "feducb_decision_seconds_bucket" in page
        assert http.get("/v1/outbox").json()["items"] == []
        assert http.post("/v1/erasures", json={"person": "ada"}).json()["removed"] == 0
    with running.http() as http:
        assert http.get("/healthz").json() == {"status": "alive"}
        assert http.get("/readyz").json() == {"status": "ready"}
        paths = http.get("/openapi.json").json()["paths"]
        assert {"/v1/decisions", "/v1/rewards", "/v1/status", "/v1/privacy"} <= paths.keys()
        assert http.get("/docs").status_code == 200


def test_a_viewer_sees_how_it_stands_and_changes_nothing(running: Running) -> None:
    viewer = add_key(running.config.parent / "agent.keys", "scraper", "viewer")
    running.until(viewer, 200)
    with running.http(viewer) as http:
        for path in ("/v1/status", "/v1/privacy", "/metrics"):
            assert http.get(path).status_code == 200
        assert http.post("/v1/session", json={"key": viewer}).json() == {"open": True}
        for path in ("/v1/decisions", "/v1/rewards", "/v1/discards", "/v1/erasures", "/v1/inbox"):
            refused = http.post(path, json={})
            assert refused.status_code == 403
            assert "this key has the role viewer" in refused.json()["error"]
        assert http.get("/v1/outbox").status_code == 403


def test_what_is_not_there_is_refused_like_everything_else(running: Running) -> None:
    with running.http(running.operator) as http:
        for method, path, status in (
            ("GET", "/v1/nothing", 404),
            ("GET", "/v1/decisions", 405),
            ("POST", "/v1/status", 405),
            ("DELETE", "/v1/erasures", 405),
        ):
            answer = http.request(method, path)
            assert (answer.status_code, list(answer.json())) == (status, ["error"])
            assert ("allow" in answer.headers) == (status == 405)


def test_nobody_gets_in_who_does_not_belong(running: Running) -> None:
    paths = [
        ("POST", "/v1/decisions"),
        ("POST", "/v1/rewards"),
        ("POST", "/v1/discards"),
        ("GET", "/v1/status"),
        ("GET", "/v1/privacy"),
        ("GET", "/metrics"),
        ("GET", "/v1/outbox"),
        ("POST", "/v1/outbox/sent"),
        ("POST", "/v1/inbox"),
        ("POST", "/v1/erasures"),
    ]
    for wrong in (None, "feducb_wrong", running.application[:-1], running.application + "x"):
        with running.http(wrong) as http:
            for method, path in paths:
                response = http.request(method, path, json={"actions": ACTIONS})
                assert response.status_code == 401, (method, path, wrong)
                assert response.headers["www-authenticate"] == "Bearer"
    with running.http(running.application) as http:
        for method, path in paths[3:]:
            assert http.request(method, path, json={}).status_code == 403, path


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"actions": []}',
        b'{"actions": [[]]}',
        b'{"actions": [[0.1, 0.2]]}',
        b'{"actions": [[0.1, 0.2, NaN]]}',
        b'{"actions": [[0.1, 0.2, Infinity]]}',
        b'{"actions": [[0.1, 0.2, 1e999]]}',
        b'{"actions": [[0.1, 0.2, "3"]]}',
        b'{"actions": [[0.1, 0.2, 3.0]]}',
        b'{"actions": [[0.1, 0.2, 0.3]], "surprise": 1}',
        b'{"actions": [[0.1, 0.2, 0.3]], "follow": 0}',
        b'{"actions": [[0.1, 0.2, 0.3]], "top": 0}',
        b'{"actions": [[0.1, 0.2, 0.3]], "id": ""}',
        b'{"actions": ' + b"[" * 20000 + b"]" * 20000 + b"}",
    ],
)
def test_a_bad_decision_request_gets_a_clear_4xx(running: Running, body: bytes) -> None:
    with running.http(running.application) as http:
        response = http.post("/v1/decisions", content=body)
        assert response.status_code == 422
        assert response.json()["error"]


def test_a_body_that_is_no_list_of_rewards_is_refused_as_a_whole(running: Running) -> None:
    with running.http(running.application) as http:
        first = http.post("/v1/decisions", json={"actions": ACTIONS}).json()["id"]
        for value in ('"1"', "true", "null", "[0.1]", ""):
            rewards = f'{{"rewards": [{{"id": "{first}", "value": 0.5}}, {{"id": "x", "value": {value}}}]}}'
            assert http.post("/v1/rewards", content=rewards).status_code == 422
        assert http.post("/v1/rewards", json={"rewards": []}).status_code == 422
        told = http.post("/v1/rewards", json={"rewards": [{"id": first, "value": 0.5}]}).json()
        assert told == {"outcomes": ["recorded"]}  # the refused ones left no trace


def test_each_reward_of_a_call_is_judged_by_itself(running: Running) -> None:
    """Out of range or not finite: refused, and remembered for the tally; the others are recorded."""
    values = ["0.5", "2.0", "-0.5", "NaN", "-Infinity", "1e400", "1.0"]
    with running.http(running.application) as http:
        ids = [http.post("/v1/decisions", json={"actions": ACTIONS}).json()["id"] for _ in values]
        rewards = ", ".join(
            f'{{"id": "{id}", "value": {value}}}' for id, value in zip(ids, values, strict=True)
        )
        answer = http.post("/v1/rewards", content=f'{{"rewards": [{rewards}]}}')
        assert answer.status_code == 200
        said = answer.json()
        refused = [place in (1, 3, 4, 5) for place in range(len(values))]
        assert said["outcomes"] == ["refused" if one else "recorded" for one in refused]
        assert [one is not None for one in said["reasons"]] == refused
        assert "from -1 to 1" in said["reasons"][1]
        alone = http.post("/v1/rewards", json={"rewards": [{"id": ids[1], "value": 2.0}]})
        assert (alone.status_code, "from -1 to 1" in alone.json()["error"]) == (422, True)
    with closing(agent_tables.look_into(running.config.parent / "agent.db")) as db:
        newest = "SELECT refused, reward FROM decisions ORDER BY number DESC LIMIT ?"
        rows = db.execute(newest, (len(values),)).fetchall()[::-1]
    assert rows == [(0, 0.5), (1, None), (0, -0.5), (1, None), (1, None), (1, None), (0, 1.0)]


def test_a_wrong_key_is_told_from_none(running: Running) -> None:
    for key, reason in (("feducb_wrong", "this key is not known"), (None, "a key is needed")):
        answer = httpx.post(
            f"{running.url}/v1/decisions",
            json={"actions": ACTIONS},
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            trust_env=False,
        )
        assert (answer.status_code, reason in answer.json()["error"]) == (401, True)


def test_the_client_hands_over_all_rewards_and_says_which_were_refused(running: Running) -> None:
    with Client(running.url, key=running.application, timeout=120.0) as agent:
        ids = [agent.decide(ACTIONS).id for _ in range(3)]
        outcomes = agent.rewards(dict(zip(ids, (float("nan"), 0.25, -7.0), strict=True)))
        assert list(outcomes.values()) == [Outcome.REFUSED, Outcome.RECORDED, Outcome.REFUSED]
        with pytest.raises(ServiceError, match="from -1 to 1"):
            agent.reward(ids[2], -7.0)


def test_a_huge_body_is_refused_and_not_held(running: Running) -> None:
    def pieces(size: int) -> object:
        for _ in range(size // 65536):
            yield b"x" * 65536

    before = running.resident_mib()
    with running.http(running.application) as http:
        for headers in ({"content-length": str(100_000_000)}, {}):  # told in advance, or sent in chunks
            with suppress(httpx.TransportError):  # it may hang up while we are still sending
                http.post("/v1/decisions", content=pieces(100_000_000), headers=headers)  # type: ignore[arg-type]
            assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200
        assert http.post("/v1/decisions", content=b"x" * 300_000).status_code == 413
    assert running.resident_mib() - before < 20


def test_heads_without_end_and_silent_callers_are_cut_off(running: Running) -> None:
    before = running.resident_mib()
    with socket.create_connection(("127.0.0.1", running.port)) as link:
        link.settimeout(120)
        link.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
        sent = 0
        with suppress(OSError):
            while sent < 30_000_000:
                link.sendall(b"a: b\r\n" * 10_000)
                sent += 60_000
            raise AssertionError("30 MB of headers were read")
    assert sent < 5_000_000
    with running.http() as http:
        assert http.get("/healthz").status_code == 200
    assert running.resident_mib() - before < 20


def test_ten_thousand_malformed_bodies_do_nothing(running: Running) -> None:
    """Cut, doubled, flipped and shuffled requests: an answer each, nothing decided, memory as before."""
    rng = np.random.default_rng(20)
    good = json.dumps({"actions": ACTIONS, "id": "malformed"}).encode()
    with running.http(running.operator) as http:

        def send(body: bytes) -> int:
            return http.post("/v1/decisions", content=body).status_code

        for _ in range(500):
            send(good[: rng.integers(len(good))])
        memory, decided = running.resident_mib(), http.get("/v1/status").json()["counts"]["decisions"]
        statuses = set()
        for number in range(10_000):
            body = bytearray(good)
            if number % 3 == 0:
                del body[rng.integers(len(body)) :]
            elif number % 3 == 1:
                body[0] = rng.integers(128, 256)
                body[rng.integers(1, len(body))] = rng.integers(256)
            else:
                body = bytearray(rng.bytes(int(rng.integers(1, 300))))
            statuses.add(send(bytes(body)))
        assert statuses == {422}
        assert http.get("/v1/status").json()["counts"]["decisions"] == decided
        assert running.resident_mib() - memory < 10


def test_rewards_for_unknown_ids_are_counted_and_nothing_grows(running: Running) -> None:
    store = running.config.parent / "agent.db"
    with Client(running.url, key=running.application, timeout=120.0) as agent:
        agent.decide(ACTIONS)
        before, size = look(store)["counts"].get("unknown_rewards", 0), store.stat().st_size
        for number in range(20):
            told = agent.rewards({f"nobody {number} {one}": 0.5 for one in range(500)})
            assert set(told.values()) == {Outcome.UNKNOWN}
        assert look(store)["counts"]["unknown_rewards"] == before + 10_000
        assert store.stat().st_size - size < 100_000


def test_keys_are_made_and_revoked_while_it_runs(running: Running) -> None:
    keys = running.config.parent / "agent.keys"
    fresh = add_key(keys, "rotated")
    assert fresh not in keys.read_text()
    running.until(fresh, 403)  # known, and not one that may look
    with running.http(fresh) as http:
        assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200
        revoke_key(keys, "rotated")
        running.until(fresh, 401)
        assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 401
    assert keys.stat().st_mode & 0o777 == 0o600


def test_logs_and_errors_say_nothing_about_a_visitor(running: Running) -> None:
    with running.http(running.operator) as http:
        marked = {"actions": [[0.123456, 0.2, 0.3]], "id": "order-4711", "person": "ada@example.org"}
        assert http.post("/v1/decisions", json=marked).status_code == 200
        wrong = marked | {"actions": [[7.123456, 0.2, 0.3]], "id": "order-4712"}
        told = http.post("/v1/decisions", json=wrong).text
        assert "order-4712" not in told
        http.post("/v1/discards", json={"id": "order-4711"})
        http.get("/v1/decisions/order-4711", headers={"upgrade": "websocket", "connection": "upgrade"})
        http.post("/v1/erasures", json={"person": "ada@example.org"})
    log = running.log.read_text()
    for secret in ("0.123456", "order-471", "ada@example.org", running.application, running.operator):
        assert secret not in log
    assert all(json.loads(line)["event"] for line in log.splitlines())


def test_it_releases_by_the_clock_and_learns(tmp_path: Path) -> None:
    """A strong signal, a generous budget, a release every two seconds.

    It goes on until 45 of the last 50 decisions were the best: by chance 17 are, with a deviation of 3.3.
    """
    config = write_config(tmp_path, season="240s", window="1s")
    generous = config.read_text().replace("epsilon = 1.0", "epsilon = 100000.0").replace("= 64", "= 120")
    config.write_text(generous)
    with Running(config) as service, Client(service.url, key=service.operator, timeout=120.0) as agent:
        best, told = deque[bool](maxlen=50), agent.status()
        rng = np.random.default_rng(21)
        while sum(best) < 45 or told["releases_made"] < 3:
            told = agent.status()
            assert not told["season_over"]
            actions = rng.permutation(np.eye(3) * 0.9)
            decision = agent.decide(actions.tolist())
            best.append(bool(actions[decision.index, 1] > 0.5))
            agent.reward(decision.id, float(best[-1]))
        assert told["model"] != ["1.0"]
        assert agent.privacy()["seasons"][0]["releases_made"] >= told["releases_made"]
    assert b'"stopped"' in service.log.read_bytes()


def test_settings_that_do_not_fit_are_said_everywhere(tmp_path: Path) -> None:
    """Every second reward was out of range, at ε = 4: a false "no" has a chance far below 1e-9."""
    config = write_config(tmp_path, season="1h")
    config.write_text(config.read_text().replace("epsilon = 1.0", "epsilon = 4.0"))
    told, earlier = read_agent_file(config), time.time() - 1000.0
    with Agent.open(told.store, told.agent, clock=lambda: earlier) as agent, agent.writing():
        for number in range(100):
            id = agent.decide(ACTIONS).id
            with nullcontext() if number % 2 else pytest.raises(ConfigurationError, match="-1 to 1"):
                agent.reward(id, 1.0 if number % 2 else 1.5)
    with Running(config) as service, Client(service.url, key=service.operator, timeout=120.0) as client:
        while not (b"reward_bound" in service.log.read_bytes() and client.status()["releases_made"]):
            time.sleep(0.1)  # windows have closed, and releases are due
        said = troubles(client.status())["reward_bound"]
        assert "reward_bound = 1" in said
        with service.http(service.operator) as http:
            page = http.get("/metrics").text
        assert 'feducb_trouble{kind="reward_bound",severity="doubtful"} 1.0' in page
        assert 'feducb_trouble{kind="parameter_bound",severity="doubtful"} 0.0' in page
        logged = [json.loads(line) for line in service.log.read_text().splitlines()]
        (entry,) = [one for one in logged if (one["event"], one.get("kind")) == ("trouble", "reward_bound")]
        assert (entry["level"], entry["reason"]) == ("warning", said)
        command = [sys.executable, "-m", "feducb", "agent", "status", "--config", str(config)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 3  # not green
        shown = done.stdout
        assert "doubtful" in shown
        assert said in " ".join(shown.replace("│", " ").split())


def test_a_graceful_stop_answers_what_is_under_way(tmp_path: Path) -> None:
    with Running(write_config(tmp_path, keep="1h")) as service:
        acknowledged: list[str] = []

        def decide() -> None:
            with (
                Client(service.url, key=service.application, timeout=120.0, attempts=1) as agent,
                suppress(ServiceError),
            ):
                while True:
                    acknowledged.append(agent.decide(ACTIONS).id)

        callers = [threading.Thread(target=decide) for _ in range(4)]
        for caller in callers:
            caller.start()
        while len(acknowledged) < 50:
            time.sleep(0.01)
        assert service.stop() == 0
        for caller in callers:
            caller.join()
    assert not (tmp_path / "agent.db-wal").exists()  # closed in order
    counted = look(tmp_path / "agent.db")["counts"]["decisions"]
    assert len(acknowledged) <= counted <= len(acknowledged) + 4  # at most one a caller went unheard
