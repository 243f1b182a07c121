"""The page on scale says what was measured."""

import json
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FOUND = json.loads((DOCS / "figures" / "scale.json").read_text(encoding="utf-8"))
PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")


def test_page_has_every_regret_that_was_played() -> None:
    cells = [one for visitors in FOUND["regret"].values() for one in visitors.values()]
    assert len(cells) > 20
    for one in cells:
        assert f"{one['mean']:.3g} ± {one['stderr']:.1g}" in PAGE


def test_a_sum_of_many_agents_is_mostly_the_list_of_them() -> None:
    """18 bytes for each agent, to each agent: what the page says grows beyond bounds."""
    sizes = {int(agents): one["bytes of opened"] for agents, one in FOUND["parties"].items()}
    low, high = min(sizes), max(sizes)
    assert sizes[high] - sizes[low] == 18 * (high - low)
