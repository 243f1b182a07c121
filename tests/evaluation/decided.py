"""Lines as agents export them, made by hand, and a world of them that is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """As a file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def line(number: int, vectors: Any, **changed: Any) -> dict[str, Any]:
    """A decision between these vectors, drawn uniformly."""
    plain: dict[str, Any] = {"number": number, "open": False, "index": 0, "features": vectors}
    return plain | {"propensity": 1 / len(vectors), "reward": 0.0} | changed


@dataclass
class World:
    """Lines of a world that is known: a decision takes the best of its candidates with probability ½."""

    lines: list[dict[str, Any]]
    logged: float  # expected reward a decision, given the candidates
    uniform: float
    best: float


def world(rows: int, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    theta = np.array([0.5, -0.4, 0.2])
    lines, sums = [], np.zeros(3)
    for number in range(1, rows + 1):
        count = int(rng.integers(1, 7))
        vectors = rng.standard_normal((count, 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        means = vectors @ theta
        chances = np.full(count, 0.5 / count)
        chances[np.argmax(means)] += 0.5
        index = int(rng.choice(count, p=chances))
        reward = 1.0 if rng.random() < (1 + means[index]) / 2 else -1.0
        lines.append(line(number, vectors.tolist(), index=index, propensity=chances[index], reward=reward))
        sums += chances @ means, means.mean(), means.max()
    return World(lines, *(sums / rows).tolist())
