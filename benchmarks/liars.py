"""What an honest agent loses whose others lie about what they saw (own play), beside an agent alone.

    python benchmarks/liars.py [--agents 100] [--runs 5] [--horizon 10000] [--trust nobody keepers]
        [--distance H]

All sums that an agent hears, before the close and at it, are what the others say in place of what they saw:
every agent here is the honest one. The paper's world, d = 10, K = 100, ε = 1, δ = 1e-6.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np

import feducb
from feducb.models.joint import Others
from feducb.models.play import JointPlay, Knowledge
from feducb.types import Array, ReleasedSum

Lie = Callable[[Array], Array]

LIES: dict[str, Lie] = {  # of the moment
    "the truth": lambda moment: moment,
    "the opposite": lambda moment: -moment,
    "another θ": lambda moment: np.roll(moment, 1, axis=-1),
    "nothing gained": np.zeros_like,
    "half of it": lambda moment: 0.5 * moment,
}


def lied_to(lie: Lie) -> Callable[[JointPlay, Knowledge, ReleasedSum], Knowledge]:
    """`JointPlay.absorb`, of sums in which the others lie."""
    absorb = JointPlay.absorb

    def hear(self: JointPlay, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        if total.number < self.last:  # what one honest agent adds to the sum does not matter
            return absorb(self, knowledge, replace(total, moment=lie(total.moment)))
        own = knowledge.sums
        assert own is not None
        gram, moment = total.gram[..., None, :, :] - own.gram, total.moment[..., None, :] - own.moment
        return self._read(replace(knowledge, others=Others.of(gram, lie(moment))))

    return hear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--trust", nargs="+", default=["nobody", "keepers"])
    parser.add_argument("--distance", type=float)
    asked = parser.parse_args()
    setting = {"dim": 10, "arms": 100, "horizon": asked.horizon, "runs": asked.runs, "backend": "cpu"}
    alone = feducb.simulate(agents=10, baseline="alone", **setting)
    print(f"alone: {alone.mean:.1f} ± {alone.stderr or 0.0:.1f}", flush=True)
    for trust in asked.trust:
        for name, lie in LIES.items():
            with mock.patch.object(JointPlay, "absorb", lied_to(lie)):
                result = feducb.simulate(
                    agents=asked.agents, play="own", distance=asked.distance, trust=trust, **setting
                )
            close = result.release_rounds[0][-1]
            before = float(np.interp(close, result.rounds, result.mean_curve))
            said = f"{result.mean:.1f} ± {result.stderr or 0.0:.1f}, {before:.1f} of it before the close"
            print(f"{trust}, others say {name}: {said}", flush=True)


if __name__ == "__main__":
    main()
