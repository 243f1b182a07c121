"""Commands and calls whose results must not change unless somebody means them to.

`python tests/same_results/result_cases.py` records them anew, into ``results.json`` beside this file; say in
the commit why. Only public names and the command line are used, so that code may move freely underneath.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import feducb
from feducb.cli import main
from feducb.privacy.grid import Certificate, GridNoise
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import AgentStore, ControllerStore
from feducb.trust import require_trust

RESULTS = Path(__file__).with_name("results.json")
# What a clock, a version or the number of processors decides.
VOLATILE = {
    "seconds",
    "agent_steps_per_second",
    "versions",
    "version",
    "written",
    "made_at",
    "opened_at",
    "at",
}

_SMALL = "--agents 4 --dim 3 --arms 5 --horizon 300 --runs 2 --seed 3"
_MANY = "--agents 60 --dim 2 --arms 4 --horizon 400 --runs 2 --seed 5 --epsilon 4"  # they learn
_SIMULATE = {
    "calibrated": _SMALL,
    "calibrated, learning": _MANY,
    "optimistic, 64 releases": f"{_MANY} --policy optimistic --schedule geometric",
    "controller": f"{_SMALL} --trust controller",
    "controller, learning": f"{_MANY} --trust controller",
    "no privacy": f"{_SMALL} --no-privacy",
    "alone": f"{_SMALL} --alone",
    "uniform": f"{_SMALL} --uniform",
    "paper": f"{_SMALL} --mode paper --epsilon 1 --delta 0.1",
    "paper, periodic": f"{_SMALL} --mode paper --schedule periodic:30",
    "loose budget": f"{_SMALL} --epsilon 8 --delta 1e-3",
    "less exploration": f"{_MANY} --exploration 0.5",
    "small alpha": f"{_MANY} --alpha 0.01",
    "every round": f"{_SMALL} --schedule every-round",
    "explicit": f"{_MANY} --schedule explicit:50,100,200,300",
    "periodic": f"{_MANY} --schedule periodic:40",
    "two records per person": f"{_MANY} --records-per-person 2",
    "ring": "--topology ring:6 --ttl 2 --dim 2 --arms 4 --horizon 200 --runs 2 --seed 1 --epsilon 8",
    "ring, no privacy": "--topology ring:6 --ttl 2 --dim 2 --arms 4 --horizon 200 --runs 2 --no-privacy",
    "ring, one estimator": "--topology ring:6 --ttl 2 --estimators one --dim 2 --arms 4 --horizon 200 "
    "--runs 2 --no-privacy",
    "small world": "--topology smallworld:24:4:0.1 --ttl 2 --dim 2 --arms 4 --horizon 120 --runs 1 --seed 2 "
    "--epsilon 8",
}
_REFERENCE_ONLY = {
    "isotropic world": f"{_MANY} --world isotropic",
    "tree": f"{_MANY} --mechanism tree",
    "optimal tree": f"{_MANY} --mechanism optimal-tree",
    "toeplitz": f"{_MANY} --mechanism toeplitz",
    "buffered": f"{_MANY} --mechanism blt",
    "wide gap": f"{_MANY} --gap 0.2",
    "paper on a graph": "--topology line:4 --ttl 2 --mode paper --dim 2 --arms 4 --horizon 80 --runs 1 "
    "--epsilon 1 --delta 0.1",
    "one agent, one arm, one dimension": "--agents 1 --dim 1 --arms 1 --horizon 50 --runs 1",
}
_PLANS = {
    "few releases": "--epsilon 1 --delta 1e-6 --releases 16 --dim 4 --agents 20 --visitors 300",
    "controller": "--epsilon 1 --delta 1e-6 --releases 16 --dim 3 --agents 20 --visitors 300 "
    "--trust controller",
    "a million releases": "--epsilon 1 --delta 1e-6 --releases 1000000 --dim 10",
}


def command(arguments: str, *, folder: Path | None = None) -> Any:
    """The JSON that a command prints."""
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.chdir(folder or Path.cwd()),
        contextlib.suppress(SystemExit),
    ):
        main(arguments.split())
    text = out.getvalue()
    if not text.lstrip().startswith(("{", "[")):
        raise AssertionError(f"feducb {arguments}: {errors.getvalue()[-2000:]}")
    return json.loads(text[text.index("{") :])


def cases() -> dict[str, Callable[[], Any]]:
    """All of them, by name."""
    made: dict[str, Callable[[], Any]] = {}
    for name, flags in _SIMULATE.items():
        for backend in ("reference", "cpu"):
            line = f"simulate {flags} --backend {backend} --threads 2 --json -"
            made[f"simulate {name}, {backend}"] = partial(command, line)
    for name, flags in _REFERENCE_ONLY.items():
        line = f"simulate {flags} --backend reference --json -"
        made[f"simulate {name}, reference"] = partial(command, line)
    for name, flags in _PLANS.items():
        made[f"privacy plan, {name}"] = partial(command, f"privacy plan {flags} --json -")
    made |= {
        "evaluate a log": _evaluate_log,
        "evaluate exports": _evaluate_exports,
        "own budgets": _own_budgets,
        "own world": _own_world,
        "privacy statement": _statement,
        "releases of a store": _releases_of_a_store,
        "releases of a trusted controller": _releases_of_a_controller,
        "decisions of an agent": _decisions_of_an_agent,
    }
    return made


def _evaluate_log() -> Any:
    rng = np.random.default_rng(3)
    lines = ["shop,age,region,offer,bought,p"]
    for _ in range(600):
        age, offer = rng.integers(18, 90), rng.choice(["a", "b"], p=[0.7, 0.3])
        chance = 0.1 + 0.8 * ((age > 50) == (offer == "a"))
        row = (rng.integers(20), age, rng.choice(["N", "S"]), offer, int(rng.random() < chance))
        lines.append(",".join(map(str, row)) + f",{0.7 if offer == 'a' else 0.3}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log.csv").write_text("\n".join(lines) + "\n")
        return command(
            "evaluate log.csv --agent-column shop --action offer --reward bought --propensity p "
            "--context age:0:120,region:N|S --actions a,b --epsilon 8 --folds 2 --repeats 2 --json -",
            folder=Path(folder),
        )


def _evaluate_exports() -> Any:
    rng = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("north", "south"):
            lines = []
            for number in range(300):
                features = rng.uniform(-0.6, 0.6, size=(3, 2)).round(3)
                chosen = int(rng.integers(3))
                reward = round(float(features[chosen, 0] > 0) * 0.8 + 0.1, 3)
                lines.append(
                    json.dumps(
                        {
                            "number": number + 1,
                            "open": False,
                            "features": features.tolist(),
                            "index": chosen,
                            "propensity": round(1 / 3, 6),
                            "reward": reward,
                            "default_reward": 0.0,
                            "shadow": False,
                        }
                    )
                )
            (Path(folder) / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        return command(
            "evaluate north.jsonl south.jsonl --epsilon 8 --trust controller --folds 2 --repeats 1 --json -",
            folder=Path(folder),
        )


def _own_budgets() -> Any:
    budgets = [feducb.Budget(epsilon=one, delta=1e-5) for one in (1.0, 2.0, 4.0, 8.0)]
    made = feducb.simulate(agents=4, dim=2, arms=3, horizon=200, runs=2, budgets=budgets, backend="reference")
    return json.loads(made.to_json())


def _own_world() -> Any:
    candidates = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    world = feducb.OwnEnvironment(
        problem=feducb.Problem(dim=2),
        arms=3,
        theta=np.array([0.3, 0.6]),
        draw=lambda generator, agent, rounds: np.tile(candidates, (rounds, 1, 1)),
        pay=lambda generator, actions, means: (generator.random(len(means)) < means).astype(float),
    )
    made = feducb.simulate(environment=world, agents=40, horizon=200, runs=2, epsilon=4.0)
    return json.loads(made.to_json())


def _statement() -> Any:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(f"privacy statement --epsilon 2 --releases 8 --dim 3 --out {folder}/page".split())
        return json.loads((Path(folder) / "page.json").read_text())


@contextlib.contextmanager
def _seeded_noise(seed: int) -> Iterator[None]:
    """In place of OpenDP's noise, which cannot be seeded: whole numbers of the same scale."""
    rng = np.random.default_rng(seed)
    scales: dict[int, float] = {}

    def remember(self: GridNoise, certificate: Certificate) -> None:
        scales[id(self)] = float(certificate.sigma)

    def draw(self: GridNoise, count: int) -> NDArray[np.int64]:
        return np.rint(rng.normal(0.0, scales[id(self)], count)).astype(np.int64)

    with mock.patch.object(GridNoise, "__init__", remember), mock.patch.object(GridNoise, "draw", draw):
        yield


def _terms(trust: Literal["nobody", "controller"]) -> Terms:
    return Terms(
        problem=feducb.Problem(dim=3),
        budget=feducb.Budget(epsilon=2.0, delta=1e-6),
        releases=4,
        trust=require_trust(trust),
    )


def _records(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    actions = rng.standard_normal((count, 3))
    actions /= 1.1 * np.linalg.norm(actions, axis=1, keepdims=True)
    return actions, rng.uniform(-1.0, 1.0, count)


def _releases_of_a_store() -> Any:
    """What is in every release of an agent's file."""
    rng, made = np.random.default_rng(7), []
    with (
        _seeded_noise(8),
        tempfile.TemporaryDirectory() as folder,
        AgentStore.open(Path(folder) / "agent.db", _terms("nobody")) as store,
    ):
        for _ in range(4):
            store.record(*_records(rng, 5))
            made.append(store.release())
    return [_content(one) for one in made]


def _content(release: bytes) -> dict[str, Any]:
    """What is in a release; noise's variance is a float, whose last bits are the machine's."""
    told = messages.decode(release)
    named = {name: getattr(told, name) for name in ("season", "number", "group", "dim", "exponent", "agents")}
    return named | {"variance": told.variance, "values": [int(value) for value in told.values]}


def _releases_of_a_controller() -> Any:
    """The same of a trusted controller, fed by two agents."""
    rng, made = np.random.default_rng(9), []
    with _seeded_noise(10), tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        controller = stack.enter_context(
            ControllerStore.open(Path(folder) / "controller.db", _terms("controller"))
        )
        agents = {
            name: stack.enter_context(AgentStore.open(Path(folder) / f"{name}.db", _terms("controller")))
            for name in ("north", "south")
        }
        for _ in range(4):
            for name, agent in agents.items():
                agent.record(*_records(rng, 5))
                controller.receive(agent.upload(), from_agent=name)
            made.append(controller.release())
    return [_content(one) for one in made]


def _decisions_of_an_agent() -> Any:
    """What a durable agent on its own decides, over a season with seeded noise."""
    rng, now, chosen, learnt = np.random.default_rng(11), [1_000_000.0], list[Any](), False
    settings = feducb.AgentSettings(
        problem=feducb.Problem(dim=2),
        budget=feducb.Budget(epsilon=8.0, delta=1e-6),
        releases=4,
        schedule="periodic",
        season=4000.0,
        window=10.0,
        decisions=4000,
        policy="optimistic",  # a tempered one draws coins
    )
    with (
        _seeded_noise(12),
        tempfile.TemporaryDirectory() as folder,
        feducb.Agent.open(Path(folder) / "agent.db", settings, clock=lambda: now[0]) as agent,
    ):
        for number in range(2000):
            now[0] += 2.0
            # One candidate while actions are drawn uniformly: the agent's coins cannot be seeded either.
            candidates = rng.uniform(-0.7, 0.7, (4, 2))[: 4 if learnt else 1]
            decision = agent.decide(candidates, scores=True)
            agent.reward(decision.id, float(np.clip(candidates[decision.index] @ [0.6, -0.5], -1, 1)))
            if number % 100 == 0:
                agent.tick()
            learnt = decision.scores is not None
            if learnt and number % 50 == 0:
                chosen.append([decision.model, decision.index, decision.propensity, *(decision.scores or ())])
    return chosen


def without_time(found: Any) -> Any:
    """A result less what a clock or a version decides."""
    if isinstance(found, dict):
        return {name: without_time(value) for name, value in found.items() if name not in VOLATILE}
    if isinstance(found, list) and len(found) > 12 and all(isinstance(value, int | float) for value in found):
        # A curve, in short: any digit that moves moves its sums.
        return {
            "numbers": len(found),
            "last": found[-1],
            "sum": math.fsum(found),
            "weighted": math.fsum((at + 1) * value for at, value in enumerate(found)),
        }
    if isinstance(found, list) and len(found) > 12 and all(isinstance(row, dict) for row in found):
        return without_time({name: [row[name] for row in found] for name in found[0]})
    if isinstance(found, list):
        return [without_time(value) for value in found]
    return found


if __name__ == "__main__":
    wanted = sys.argv[1:]
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() and wanted else {}
    for name, run in cases().items():
        if not wanted or name in wanted:
            kept[name] = without_time(run())
            print(name, flush=True)
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
