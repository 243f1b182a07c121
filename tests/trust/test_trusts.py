"""The trusts by their numbers, the registry, and how names become objects."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.interfaces import interactions
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import PrivatizerState
from feducb.privacy.terms import Terms
from feducb.protocol.estimators import Estimator, calibrated_estimator
from feducb.protocol.synchronisation import add_up, synchronise
from feducb.trust import CONTROLLER, KEEPERS, NOBODY, TRUSTS, Keepers, Trust, require_trust
from feducb.types import Statistics
from feducb.worlds.streams import Streams

BUDGETS = [feducb.Budget(epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0, 2.0, 8.0)]
TERMS = Terms(problem=feducb.Problem(dim=2), budget=BUDGETS[1], releases=4)


def test_names_stand_for_those_that_ship() -> None:
    assert (TRUSTS["nobody"], TRUSTS["controller"], TRUSTS["keepers"]) == (NOBODY, CONTROLLER, KEEPERS)
    assert len({NOBODY, CONTROLLER, KEEPERS, type(NOBODY)()}) == 3


@pytest.mark.parametrize(
    "made", [Keepers(), Keepers(2, 3), Keepers(0, 1), Keepers(2), Keepers(None, 3)], ids=str
)
def test_a_name_has_the_numbers_of_keepers(made: Keepers) -> None:
    assert require_trust(made.name) == made
    filled = made.among(20)
    assert (filled.away, filled.colluding) == (
        2 if made.away is None else made.away,
        4 if made.colluding is None else made.colluding,
    )
    assert filled.among(20) == filled == require_trust(filled.name)


@pytest.mark.parametrize(
    ("away", "colluding", "agents", "shares"),
    [(10, 20, 100, 70), (2, 3, 16, 11), (1, 1, 4, 2), (None, None, 100, 70), (None, None, 16, 11),
     (None, None, 4, 2), (None, None, 3, 2), (0, None, 5, 4)],
)  # fmt: skip
def test_one_noise_is_divided_between_those_who_are_there_and_honest(
    away: int | None, colluding: int | None, agents: int, shares: int
) -> None:
    trust = Keepers(away, colluding)
    assert trust.shares(agents) == shares
    np.testing.assert_allclose(trust.scales(np.full(agents, 3.0)), 3.0 / math.sqrt(shares))
    assert trust.quorum(agents) == agents - (trust.among(agents).away or 0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Keepers(-1, 1), "away is -1, expected a whole number of at least 0"),
        (lambda: Keepers(1, 0),
         "colluding is 0, expected at least 1: every member can take its own noise out of a sum"),
        (lambda: Keepers(1, 1).on_graph(), "away is 1, expected 0 on a graph: a clique moves only when the "
         "rows of all its members are there"),
        (lambda: require_trust("keepers:1"), "trust is 'keepers:1', expected keepers, or "
         "keepers:AWAY:COLLUDING with two whole numbers"),
        (lambda: Keepers(2, 3).among(6), "trust is 'keepers', expected at least 2 honest shares of noise a "
         "row: of 6 agents 2 may be away and 3 may collude, which leaves 1"),
    ],
)  # fmt: skip
def test_keepers_that_leave_too_few_shares_are_refused(make: Callable[[], Trust], sentence: str) -> None:
    with pytest.raises(feducb.ConfigurationError) as raised:
        make()
    assert str(raised.value) == sentence


@pytest.mark.parametrize("wrong", ["everyone", "", "Nobody", None, 3, ["nobody"], {"nobody"}])
def test_another_name_is_refused_with_a_sentence(wrong: Any) -> None:
    for use in (require_trust, lambda value: replace(TERMS, trust=value)):
        with pytest.raises(feducb.ConfigurationError) as raised:
            use(wrong)
        *others, last = TRUSTS
        assert str(raised.value) == f"trust is {wrong!r}, expected {', '.join(others)} or {last}"


def test_settings_take_the_name_for_the_object() -> None:
    named: Any = "controller"
    assert replace(TERMS, trust=named) == replace(TERMS, trust=CONTROLLER)
    assert TERMS.trust is NOBODY
    settings = feducb.AgentSettings(
        problem=TERMS.problem, budget=TERMS.budget, releases=4, schedule="periodic", trust=named
    )
    assert settings.trust is settings.terms.trust is CONTROLLER
    by_name = feducb.simulate(agents=2, dim=2, arms=3, horizon=60, runs=1, epsilon=8.0, trust="controller")
    by_object = feducb.simulate(agents=2, dim=2, arms=3, horizon=60, runs=1, epsilon=8.0, trust=CONTROLLER)
    assert by_name.mean == by_object.mean
    assert by_name.config == by_object.config


def test_a_process_that_reads_terms_alone_knows_them_by_name() -> None:
    code = "import sys; from feducb.privacy.terms import Terms; print(Terms.from_json(sys.argv[1]).trust)"
    text = replace(TERMS, trust=CONTROLLER).to_json()
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    assert done.stdout == "controller\n"


def test_terms_of_older_files_are_read() -> None:
    plain = json.loads(replace(TERMS, trust=CONTROLLER, records_per_person=2).to_json())
    del plain["agents_per_person"], plain["groups"]
    read = Terms.from_json(json.dumps(plain))
    assert (read.trust, read.agents_per_person, read.groups, read.records_covered) == (CONTROLLER, 1, 1, 2)


def test_independent_noises_cost_less_at_several_agents_than_one_noise() -> None:
    mus, records = (0.3, 0.5), (2, 1)
    assert NOBODY.spend(mus, records) == pytest.approx(math.sqrt(0.6**2 + 0.5**2))
    assert CONTROLLER.spend(mus, records) == pytest.approx(0.3 * 3)
    assert (NOBODY.records_covered(3, 4), CONTROLLER.records_covered(3, 4)) == (3, 12)
    assert KEEPERS.spend(mus, records) == CONTROLLER.spend(mus, records)
    assert NOBODY.mu_at(0.5, 4, agents_per_person=4) == 1.0
    assert CONTROLLER.mu_at(0.5, 4, agents_per_person=4) == 0.5
    assert CONTROLLER.mu_at(0.5, 4, agents_per_person=1) == 2.0


def test_nobody_refuses_nothing_and_a_controller_what_needs_agents_own_noise() -> None:
    assert NOBODY.refusals == {}
    assert CONTROLLER.refusals == {
        "groups": "1 where the controller is trusted",
        "graph": "nobody on a graph: there is no controller",
        "topology": "nobody on a topology: there is no controller",
        "paper mode": "nobody in paper mode: there every agent privatises",
        "budgets": "none: a trusted controller has one budget",
    }


def test_words_about_several_agents() -> None:
    def price(agents: int) -> str:
        return f"[{agents}]"

    assert NOBODY.several_agents(1, 2, price).endswith(
        "A person with 1 interaction at each of k agents has √k times this μ: at 2 agents [2]."
    )
    assert NOBODY.several_agents(2, 5, price).endswith("at 2 agents [2], and at 5, as stated, [5].")
    assert CONTROLLER.several_agents(2, 3, price).startswith(
        "Covered: the controller's noise is for up to 2 interactions at each of up to 3 agents, 6 in all."
    )
    assert CONTROLLER.several_agents(2, 1, price).endswith(
        "A person with 2 interactions at each of k agents has k times this μ: at 2 agents [2]."
    )
    assert (interactions(1), interactions(2)) == ("1 interaction", "2 interactions")


def _estimator(budgets: list[feducb.Budget], rounds: tuple[int, ...], trust: Trust) -> Estimator:
    problem, agents = feducb.Problem(dim=2), len(budgets)
    federation = feducb.Federation(problem=problem, agents=agents, budget=budgets, trust=trust)
    return calibrated_estimator(federation, rounds, range(agents), alpha=federation.alpha)


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_an_estimator_takes_its_noise_from_the_trust(trust: Trust) -> None:
    def scales(budgets: list[feducb.Budget]) -> Any:
        made = _estimator(budgets, (8, 16, 32), trust)
        assert made.privatizer is not None
        return np.asarray(made.privatizer.noise_scale).tolist()

    own = [scales([budget] * len(BUDGETS))[0] for budget in BUDGETS]
    assert own == sorted(own, reverse=True)  # a smaller budget takes more noise
    assert scales(BUDGETS) == {NOBODY: own, CONTROLLER: own[:1], KEEPERS: own[:1] * len(BUDGETS)}[trust]
    one, (largest, *_) = _estimator(BUDGETS[:1], (8, 16, 32), NOBODY).privatizer, own
    assert one is not None
    assert largest == pytest.approx(float(np.max(one.noise_scale)) / math.sqrt(trust.shares(len(BUDGETS))))


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_a_synchronisation_adds_as_many_noises_as_the_trust_says(trust: Trust) -> None:
    agents, runs = len(BUDGETS), range(400)
    budgets = [BUDGETS[1]] * agents
    made = _estimator(budgets, (8,), trust)
    assert made.privatizer is not None
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(len(runs), agents, 2))
    recorded = Statistics(rows[..., :, None] * rows[..., None, :], rows, 1)
    noise = SeededNoise(Streams(5).noise(runs, range(agents), pooled=trust.pooled))
    state, release = synchronise(made.privatizer, PrivatizerState(recorded, 0, ()), noise, trust=trust)
    total = add_up(release)
    assert (state.released, total.number, total.agents) == (1, 1, trust.noises(agents))
    assert state.total is recorded  # agents keep what they have recorded
    scale = float(np.max(made.privatizer.noise_scale))
    drawn = (total.gram - recorded.gram.sum(axis=1))[:, 0, 1] / scale
    # 400 draws: a chi-square at 6 deviations
    assert np.mean(drawn**2) == pytest.approx(trust.noises(agents), rel=6.0 * math.sqrt(2.0 / len(runs)))
    np.testing.assert_allclose(total.variance, trust.noises(agents) * scale**2)


def test_agents_draw_their_own_noise_or_share_one() -> None:
    streams, runs = Streams(3), range(2)
    own = streams.noise(runs, [0, 2], pooled=False)
    shared = streams.noise(runs, [0, 2], pooled=True)
    assert ([len(row) for row in own], [len(row) for row in shared]) == ([2, 2], [1, 1])
    again = streams.noise(runs, [2], pooled=False)
    assert again[1][0].random() == own[1][1].random()  # its stream does not depend on who else is there
    draws = [generator.random() for row in (*own, *shared) for generator in row]
    assert len(set(draws)) == len(draws)
