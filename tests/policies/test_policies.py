"""Every policy passes the same checks; so does the skeleton in docs/extending/policy.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from policy_checks import CHECKS, some_beliefs

import feducb
from feducb.errors import ConfigurationError
from feducb.policies import POLICIES, Greedy, Mixture, Optimistic, Policy, Tempered, Uniform, parse_policy
from page_code import run_page

Check = Callable[[Policy], None]

EVERY: dict[str, Policy] = {name: make() for name, make in POLICIES.items()} | {
    "less optimistic": Optimistic(0.3),
    "mixture": Mixture(Optimistic(), 0.3),
    "mixture of what is random": Mixture(Uniform(), 0.3),
    "mixture of what is tempered": Mixture(Tempered(0.4), 0.3),
    "all uniform": Mixture(Greedy(), 1.0),
    "none uniform": Mixture(Greedy(), 0.0),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EVERY)
def test_conforms(name: str, check: Check) -> None:
    check(EVERY[name])


def _skeleton() -> Any:
    return run_page("extending/policy.md")["Noisy"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_skeleton_of_the_guide_conforms(check: Check) -> None:
    check(_skeleton()())


def test_the_skeleton_plays_in_a_simulation() -> None:
    world: dict[str, Any] = {"agents": 2, "dim": 2, "arms": 3, "horizon": 40, "runs": 1}
    result = feducb.simulate(**world, baseline="no-privacy", policy=_skeleton()())
    assert result.config["backend"] == "reference"
    assert result.config["proven_bound"] is False


class _Stubborn:
    """Says that every candidate is as likely, and always takes the first."""

    name, needs_coins = "stubborn", True

    def decide(self, belief: Any, candidates: Any, coins: Any = None) -> tuple[Any, Any]:
        shape = candidates.shape[:-2]
        return np.zeros(shape, dtype=np.int64), np.full(shape, 1.0 / candidates.shape[-2])

    def propensities(self, belief: Any, candidates: Any) -> Any:
        return Uniform().propensities(belief, candidates)


def test_the_checks_see_a_law_that_is_not_the_one_that_is_told() -> None:
    failed = []
    for check in CHECKS:
        try:
            check(_Stubborn())
        except AssertionError:
            failed.append(check.__name__)
    assert failed == ["frequencies_are_the_propensities", "without_a_belief_evenly"]


def test_texts_name_policies() -> None:
    assert parse_policy("optimistic", exploration=0.5) == Optimistic(0.5)
    assert parse_policy("greedy") == Greedy()
    assert parse_policy(Uniform()) == Uniform()
    assert {make().name for make in POLICIES.values()} == set(POLICIES)


@pytest.mark.parametrize(
    ("text", "exploration", "message"),
    [
        ("boldest", 1.0, "policy is 'boldest', expected one of optimistic, "),
        ("", 1.0, "policy is ''"),
        ("optimistic:0.5", 1.0, "its number is the exploration"),
        ("optimistic", -1.0, "exploration is -1.0"),
        ("greedy", 0.5, "expected 1 with the policy greedy"),
        ("tempered", 0.5, "expected 1 with the policy tempered: it scales the bonus of the optimistic one"),
        ("tempered:2", 1.0, "full is 2"),
        ("greedy:2", 1.0, "greedy, which has no number"),
        (Greedy(), 0.5, "exploration is 0.5"),
    ],
)
def test_what_names_no_policy(text: Any, exploration: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_policy(text, exploration=exploration)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ConfigurationError, match="share"):
        Mixture(Greedy(), share)


def test_chance_needs_coins() -> None:
    candidates = np.zeros((1, 2, 3))
    belief = some_beliefs(np.random.default_rng(0), (), 3)[1]
    for policy in EVERY.values():
        with pytest.raises(ValueError, match="coins are needed"):
            policy.decide(None, candidates)
        if policy.needs_coins:
            with pytest.raises(ValueError, match="coins are needed"):
                policy.decide(belief, candidates)
