"""Over NATS: an agent's engine with a controller or on a graph, and the controller's link. See `subjects`.

Every loss of the connection ends a *session*; the next begins from what is on disk. So there is one way to
start, and it is the way to go on after a crash of any part. Only this folder imports nats-py.
"""

from __future__ import annotations

from feducb.engines.nats.agent import NatsEngine
from feducb.engines.nats.controller import NatsController
from feducb.engines.nats.link import Link
from feducb.engines.nats.on_graph import make_streams
from feducb.engines.nats.status import EngineStatus

__all__ = ["EngineStatus", "Link", "NatsController", "NatsEngine", "make_streams"]
