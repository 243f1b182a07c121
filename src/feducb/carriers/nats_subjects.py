"""Subjects of a federation on NATS, and who may use which.

    with a controller                              on a graph
    feducb.FED.release.AGENT   agent → controller  feducb.FED.peer.FROM.TO   one an edge and direction
    feducb.FED.upload.AGENT    agent → controller
    feducb.FED.ask.AGENT       the newest sum? the newest roster?
    feducb.FED.sum             controller → all; with keepers their cards too

    with keepers besides
    feducb.FED.row.AGENT       agent → controller
    feducb.FED.card.KEEPER     keeper → controller
    feducb.FED.answer.KEEPER   keeper → controller
    feducb.FED.ask.+keeper-KEEPER  the newest roster?
    feducb.FED.list.KEEPER     controller → keeper

Replies go to ``_INBOX.AGENT.…``, which only its owner may hear. An agent that is a keeper too has another key
and another inbox for that.
"""

from __future__ import annotations

from feducb.protocol.roster import Roster

__all__ = [
    "KINDS_FROM_KEEPERS",
    "admin_permissions",
    "agent_permissions",
    "controller_permissions",
    "edge",
    "inbox",
    "keeper_permissions",
    "keeper_user",
    "kinds_from_agents",
    "topic",
]

CONTROLLER = "+controller"  # no agent is called so
ADMIN = "+admin"

KINDS_FROM_KEEPERS = ("card", "answer")

_Permissions = tuple[list[str], list[str]]  # publish, subscribe


def topic(federation: str, kind: str, agent: str | None = None) -> str:
    """Where messages of a kind go."""
    return f"feducb.{federation}.{kind}" + ("" if agent is None else f".{agent}")


def edge(federation: str, sender: str, to: str) -> str:
    """From one agent to a neighbour; ``*`` stands for all."""
    return f"feducb.{federation}.peer.{sender}.{to}"


def inbox(name: str) -> str:
    """Prefix of where replies to somebody go."""
    return f"_INBOX.{name}"


def keeper_user(name: str) -> str:
    """By which name a keeper is connected; no agent is called so."""
    return f"+keeper-{name}"


def stream_name(federation: str) -> str:
    """The JetStream stream of a graph."""
    return f"feducb-{federation}"


def agent_permissions(roster: Roster, agent: str) -> _Permissions:
    """What an agent may publish and subscribe to."""
    fed, own = roster.federation, [f"{inbox(agent)}.>"]
    if roster.edges is None:
        publish = [topic(fed, kind, agent) for kind in kinds_from_agents(roster)]
        return publish, [topic(fed, "sum"), *own]
    near = {one for pair in roster.edges if agent in pair for one in pair if one != agent}
    stream = stream_name(fed)
    publish = [edge(fed, agent, other) for other in sorted(near)]
    publish += [f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{agent}", f"$JS.ACK.{stream}.{agent}.>"]
    return publish, own


def kinds_from_agents(roster: Roster) -> tuple[str, ...]:
    """What agents send to a controller."""
    return ("release", "upload", "ask", *(("row",) if roster.keepers else ()))


def controller_permissions(roster: Roster) -> _Permissions:
    """What the controller may publish and subscribe to."""
    fed = roster.federation
    hears = [topic(fed, kind, "*") for kind in kinds_from_agents(roster)]
    for keeper in roster.keepers:
        hears += [topic(fed, kind, keeper) for kind in KINDS_FROM_KEEPERS]
    says = [topic(fed, "sum"), "_INBOX.*.>", *(topic(fed, "list", keeper) for keeper in roster.keepers)]
    return says, [*hears, f"{inbox(CONTROLLER)}.>"]


def keeper_permissions(roster: Roster, keeper: str) -> _Permissions:
    """What a keeper may publish and subscribe to."""
    fed = roster.federation
    says = [topic(fed, kind, keeper) for kind in KINDS_FROM_KEEPERS]
    says.append(topic(fed, "ask", keeper_user(keeper)))
    return says, [topic(fed, "list", keeper), f"{inbox(keeper_user(keeper))}.>"]


def admin_permissions(roster: Roster) -> _Permissions:
    """Makes streams and consumers; reads and writes no release."""
    stream = stream_name(roster.federation)
    api = [
        "$JS.API.INFO",
        *(f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO")),
        *(f"$JS.API.CONSUMER.{verb}.{stream}.>" for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE")),
    ]
    return api, [f"{inbox(ADMIN)}.>"]
