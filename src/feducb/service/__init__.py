"""An agent over HTTP: ask for a decision, send the reward later (`[service]` extra)."""
