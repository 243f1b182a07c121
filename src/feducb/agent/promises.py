"""Which settings are promised for a season."""

from __future__ import annotations

__all__ = ["PLACE", "PROMISED"]

# What must stay as it is in a season, beside the terms. What an operator sees within a season is raw (the
# learning curve, counts): if it could decide what later visitors are shown, one record would move many
# (docs/theory.md, 2). Those that terms follow from come first, since an error names the first that changed.
PROMISED = (
    *(
        "recipe",
        "agents",
        "budgets",
        "quorum",
        "decisions",
        "history",
        "releases",
        "season",
        "schedule",
        "first_release",
    ),
    *("last_release", "alpha", "play", "distance", "groups", "name", "window", "default_reward"),
    *("policy", "exploration", "uniform_share", "holdout", "shadow", "follow_policy"),
    *("remember", "discount", "drift"),
)
PLACE = ("clique", "cliques")  # decides on a graph how sums are read; stays for a season once it is known
