"""One person at every agent that she may visit, where the controller is trusted: one noise has to cover her.

Through the deployed path: agents' files, raw uploads as bytes, the controller's privatizer. What each release
was made of is read off the controller's encoder, in whole numbers, so that chance has no part in it.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.audit.bounds import gaussian_epsilon
from feducb.audit.canary import background, canary_pair, placements
from feducb.audit.exact import Make
from feducb.audit.findings import Check
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import SMOOTHING
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import decode_upload
from feducb.storage import AgentStore

__all__ = ["check_several_agents"]

Ints = NDArray[np.int64]


def check_several_agents(make: Make, terms: Terms) -> Check:
    """Replace a person's records at all her agents: the noise covers how far the controller's rows move.

    She comes once more to each agent than the terms allow, so that the check also fails where an agent lets
    that in. ε is accounted for anew, from the move and the noise alone. Her records point the same way, in
    one batch: that is the worst there is ((EᵀE)_ij ≥ 0), and the check fails if it is not reached, since it
    would be idle.

    Args:
        make: a controller's privatizer.
        terms: what it promises; the controller is trusted.
    """
    certificate = make(terms).certificate
    step, farthest = math.ldexp(1.0, certificate.exponent), 0.0
    for place in placements(terms.releases):
        one, other = (_rows(make, terms, place, world) for world in (0, 1))
        farthest = max(farthest, step * float(np.linalg.norm(np.subtract(one, other).astype(np.float64))))
    deviation = step * math.sqrt(float(certificate.sigma**2 - SMOOTHING**2))
    epsilon = gaussian_epsilon(farthest / deviation, terms.budget.delta)
    records = terms.records_per_person * terms.agents_per_person
    worst = records * math.sqrt(2.0) * terms.radius
    return Check(
        f"several agents p={terms.records_per_person} agents={terms.agents_per_person}",
        epsilon <= terms.budget.epsilon and abs(farthest / worst - 1.0) < 1e-3,
        f"one person moves the controller's rows by {farthest:.6f} (the worst there is: {worst:.6f}), "
        f"the noise covers {certificate.sensitivity:.6f}; epsilon accounted anew {epsilon:.6f} of "
        f"{terms.budget.epsilon:g}",
    )


def _rows(make: Make, terms: Terms, place: int, world: int) -> list[Ints]:
    """A whole season of rows before noise; the person's records of this world are in one batch."""
    rows, door = list[Ints](), make(terms)
    hers = canary_pair(terms)[world]
    others = background(terms.problem, terms.releases)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        paths = [folder / f"{number}.db" for number in range(terms.agents_per_person)]
        agents = [opened.enter_context(AgentStore.open(path, terms)) for path in paths]
        for number, other in enumerate(others):
            for agent in agents:
                agent.record(other.actions, other.rewards, [f"somebody else, {number}"])
                for _ in range(terms.records_per_person + 1 if number == place else 0):
                    agent.record(hers.actions, hers.rewards, ["she"])
                door.receive(decode_upload(agent.upload(), terms)[2])
            rows.append(_row_to_come(door))
            door.release()
    return rows


def _row_to_come(door: DeployedPrivatizer) -> Ints:
    """What the next release will be made of, before noise."""
    before = door._encoder.dump()
    row = door._encoder.encode(door._batch)
    door._encoder.load(before)
    return row
