"""Over NATS: an agent's engine with a controller or on a graph; controller's and keepers' links.

Every loss of the connection ends a *session*; the next begins from what is on disk. So there is one way to
start, and it is the way to go on after a crash of any part. Only this folder imports nats-py.
"""

from __future__ import annotations

from feducb.carriers.nats.agent_engine import NatsEngine
from feducb.carriers.nats.controller_link import NatsController
from feducb.carriers.nats.keeper_link import NatsKeeper
from feducb.carriers.nats.link import Link
from feducb.carriers.nats.link_status import EngineStatus
from feducb.carriers.nats.on_graph import make_streams

__all__ = ["EngineStatus", "Link", "NatsController", "NatsEngine", "NatsKeeper", "make_streams"]
