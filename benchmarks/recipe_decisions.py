"""A durable decision over HTTP by a recipe, beside one with the same visitors' vectors, in one run.

    python benchmarks/recipe_decisions.py         # pairs, alternating; about half a minute

The shop of examples/shop: six offers, five columns, d = 34; 64 connections on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from load import Load, prepared, run_load

from feducb.service.api_keys import add_key
from feducb.worlds.features import Recipe
from feducb.worlds.features.encoder import Encoder

SHOP = Path(__file__).parents[1] / "examples" / "shop"
CONNECTIONS, VISITORS = 64, 500


def bodies() -> dict[str, list[bytes]]:
    """The same visitors in words and as vectors."""
    sys.path.insert(0, str(SHOP))
    import visitors

    encoder = Encoder(Recipe.read(SHOP / "recipe.json"))
    some = list(visitors.arrive(VISITORS, per_second=1e9))
    return {
        "vectors": [json.dumps({"actions": encoder.vectors(one).tolist()}).encode() for one in some],
        "recipe": [json.dumps({"context": one}).encode() for one in some],
    }


def play(port: int, requests: list[bytes], seconds: float) -> Load:
    """Send requests in turn for so long."""
    ends, turn = time.perf_counter() + seconds, itertools.cycle(requests)
    return asyncio.run(
        run_load(port, lambda: next(turn) if time.perf_counter() < ends else None, connections=CONNECTIONS)
    )


def main(pairs: int, seconds: float, port: int) -> None:
    """Print medians over pairs of what each takes, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        init = ("agent", "init", "--recipe", str(SHOP / "recipe.json"), "--port", str(port))
        feducb = [sys.executable, "-m", "feducb"]
        subprocess.run([*feducb, *init], cwd=folder, check=True, capture_output=True)
        key = add_key(Path(folder) / "agent.keys", "bench")
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            service = subprocess.Popen([*feducb, "agent", "serve"], cwd=folder, stderr=errors)
        try:
            while b'"listening"' not in log.read_bytes():
                time.sleep(0.1)
            asked = {
                kind: [prepared("POST", "/v1/decisions", key, body) for body in some]
                for kind, some in bodies().items()
            }
            seen: dict[str, list[Load]] = {kind: [] for kind in asked}
            for _ in range(pairs):
                for kind, requests in asked.items():
                    seen[kind].append(play(port, requests, seconds))
        finally:
            service.terminate()
            service.wait()
    for kind, loads in seen.items():
        rates = [one.rate for one in loads]
        halves, tails = ([one.percentile(share) * 1000 for one in loads] for share in (0.5, 0.99))
        print(
            f"{kind:8} {statistics.median(rates):7,.0f} a second, p50 {statistics.median(halves):.1f} ms, "
            f"p99 {statistics.median(tails):.1f} ms, {sum(one.failures for one in loads)} failures"
        )
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        ratios = [
            one.percentile(share) / other.percentile(share)
            for one, other in zip(seen["recipe"], seen["vectors"], strict=True)
        ]
        low, high = min(ratios), max(ratios)
        print(f"recipe over vectors, {name}: {statistics.median(ratios):.2f} (from {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--port", type=int, default=8763)
    main(**vars(arguments.parse_args()))
