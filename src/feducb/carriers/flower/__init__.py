"""Flower: sites that already run a SuperLink and SuperNodes federate over them.

`server_app` runs at the SuperLink and adds up what all agents released; `client_app` runs at a SuperNode and
carries between it and the agent beside it. They alone import flwr, and use none of its aggregation, noise or
secure sums: what passes through was made private, or padded, by the agent before it came here.
docs/flower.md sets it up.
"""
