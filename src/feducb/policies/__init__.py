"""How one chooses: (belief, candidates, coin) → (index, propensity)."""
