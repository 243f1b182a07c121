"""Your own world, from two functions: who comes, and what they pay.

Clinics choose one of three treatments. A patient is one number, how severe the case is; a candidate's vector
says which treatment it is and how that treatment meets this patient. Treatments help by hidden weights; the
clinics find them together, without showing each other a patient.

    python examples/own_environment.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

import feducb

Array = NDArray[np.float64]

TREATMENTS = 3
DIM = 2 * TREATMENTS  # a treatment's own effect, and its effect times the patient's severity


def draw(generator: np.random.Generator, agent: int, rounds: int) -> Array:
    """The candidates of the next patients of one clinic: (rounds, K, d), each of length at most 1."""
    severity = generator.random(rounds)
    actions = np.zeros((rounds, TREATMENTS, DIM))
    for treatment in range(TREATMENTS):
        actions[:, treatment, treatment] = 1.0
        actions[:, treatment, TREATMENTS + treatment] = severity
    actions /= np.sqrt(2.0)
    return actions


def pay(generator: np.random.Generator, actions: Array, means: Array) -> Array:
    """Whether each patient got better: 1 with probability ⟨x, θ*⟩, else 0."""
    return (generator.random(len(means)) < means).astype(np.float64)


def world() -> feducb.OwnEnvironment:
    """The first treatment is good for mild cases, the last for severe ones."""
    alone, with_severity = np.array([0.7, 0.3, 0.0]), np.array([-0.5, 0.0, 0.6])
    theta = np.concatenate([alone, with_severity])
    theta /= np.linalg.norm(theta)
    return feducb.OwnEnvironment(
        problem=feducb.Problem(dim=DIM), arms=TREATMENTS, theta=theta, draw=draw, pay=pay
    )


def main(agents: int, horizon: int, runs: int) -> None:
    """Play it privately, alone and at random."""
    clinics = world()
    setting: dict[str, Any] = {"environment": clinics, "agents": agents, "horizon": horizon, "runs": runs}
    private = feducb.simulate(**setting, epsilon=1.0, delta=1e-6)
    alone = feducb.simulate(**setting, baseline="alone")
    uniform = feducb.simulate(**setting, baseline="uniform")
    print(f"{agents} clinics, {horizon} patients each; patients not helped who could have been, a clinic:")
    for name, result in (("at random", uniform), ("each alone", alone), ("together, ε = 1", private)):
        print(f"{name:>18}: {result.mean:7.1f}")
    print("together is better" if private.mean < alone.mean else "stay alone: too few clinics for this ε")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--agents", type=int, default=1000)
    arguments.add_argument("--horizon", type=int, default=1000)
    arguments.add_argument("--runs", type=int, default=1)
    main(**vars(arguments.parse_args()))
