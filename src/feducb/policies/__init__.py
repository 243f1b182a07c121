"""How one chooses: (belief, candidates, coin) → (index, propensity).

One interface (`policy.Policy`), one conformance suite (tests/policies/test_policies.py). To add a policy,
write its file and its line in `POLICIES` (docs/extending/policy.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from feducb.errors import ConfigurationError
from feducb.policies.greedy import Greedy
from feducb.policies.mixture import Mixture
from feducb.policies.optimistic import Optimistic
from feducb.policies.policy import Policy
from feducb.policies.sifting import Sifting
from feducb.policies.tempered import Tempered
from feducb.policies.thompson import Thompson
from feducb.policies.uniform import Uniform

__all__ = [
    "POLICIES",
    "Greedy",
    "Mixture",
    "Optimistic",
    "Policy",
    "Sifting",
    "Tempered",
    "Thompson",
    "Uniform",
    "parse_policy",
]

POLICIES: dict[str, Callable[..., Policy]] = {
    "optimistic": Optimistic,
    "tempered": Tempered,
    "thompson": Thompson,
    "sifting": Sifting,
    "greedy": Greedy,
    "uniform": Uniform,
}


def parse_policy(text: str | Policy, *, exploration: float = 1.0) -> Policy:
    """The policy that a text names; an object is taken as it is.

    Args:
        text: a name of `POLICIES`, or ``NAME:NUMBER`` where the policy has a number of its own.
        exploration: the number of ``optimistic``, which is not given in any other way.
    """
    if not isinstance(text, str):
        if exploration != 1.0:
            raise ConfigurationError("exploration", exploration, f"1 beside the policy {text!r}")
        if isinstance(text, type) or not callable(getattr(text, "decide", None)):
            raise ConfigurationError("policy", text, f"a policy, or one of {', '.join(POLICIES)}")
        return text
    name, colon, number = text.partition(":")
    if name not in POLICIES:
        raise ConfigurationError("policy", text, f"one of {', '.join(POLICIES)}")
    if name == "optimistic":
        if colon:
            raise ConfigurationError("policy", text, "optimistic; its number is the exploration")
        return Optimistic(exploration)
    if exploration != 1.0:
        expected = f"1 with the policy {name}: it scales the bonus of the optimistic one"
        raise ConfigurationError("exploration", exploration, expected)
    if not colon:
        return POLICIES[name]()
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    try:
        return POLICIES[name](value)
    except TypeError:
        raise ConfigurationError("policy", text, f"{name}, which has no number") from None
