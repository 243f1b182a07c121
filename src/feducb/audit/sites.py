"""Several deployed agents in one process, and what is between them: a controller, and keepers if need be.

All of them have the files and the code that are shipped. An audit says who can be reached and when messages
are carried, and notes what leaves each agent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Agent, AgentSettings
from feducb.audit.circle import BuiltRow, Circle, name_of, watch_rows
from feducb.controller.collector import Collector, TrustedCollector, open_collector
from feducb.protocol.pads import Label
from feducb.protocol.parcels import Parcel
from feducb.storage import RowBook

__all__ = ["SameNoise", "Sites"]

_PATIENCE = 2.0  # seconds, with rows that lack an agent


class SameNoise:
    """Stands in for the noise: numbers that are the same in all worlds."""

    def __init__(self) -> None:
        self._draws = np.random.default_rng(7)

    def draw(self, count: int) -> NDArray[np.int64]:
        """As many as are asked for."""
        return self._draws.integers(-1000, 1001, count)


class _Desk(Protocol):
    """What is between the agents."""

    def exchange(self, agents: Mapping[str, Agent], now: float) -> None:
        """Take in what these have to send, publish what is due, and tell them."""

    def close(self) -> None:
        """Give the files back."""


class _Sums:
    """A controller that adds releases up, or raw uploads if it is trusted; two agents will do for a sum."""

    def __init__(self, folder: Path, settings: AgentSettings) -> None:
        terms = dict.fromkeys(_names(settings), settings.terms)
        opened = open_collector(folder / "controller.db", terms, quorum=len(terms) - 1, deadline=0.0)
        assert not isinstance(opened, RowBook)
        self._collector: Collector = opened
        if isinstance(opened, TrustedCollector):
            opened.store.database.execute("PRAGMA synchronous = OFF")
            opened.store._privatizers[0]._noise = SameNoise()  # type: ignore[assignment]

    def exchange(self, agents: Mapping[str, Agent], now: float) -> None:
        sent = [(name, item) for name, agent in agents.items() for item in agent.outbox()]
        self._collector.receive([(name, item.body) for name, item in sent], now=now)
        for name, item in sent:
            agents[name].mark_sent(item)
        self._collector.publish_due(now=now)
        if (newest := self._collector.newest()) is not None:
            for agent in agents.values():
                with suppress(ValueError):  # it lacks an agent
                    agent.absorb(newest.total, agents=len(newest.names), sealed=newest.sealed)

    def close(self) -> None:
        self._collector.close()


class _Rows:
    """A controller and keepers of rows under pads; one that lacks an agent is closed empty after a while."""

    def __init__(self, folder: Path, circle: Circle) -> None:
        self._book = circle.row_book(folder / "controller.db", close_after=_PATIENCE)
        self._keepers = {
            name: circle.keeper_book(folder / f"{name}.keeper.db", name) for name in circle.roster.keepers
        }
        for file in (self._book, *self._keepers.values()):
            file.database.execute("PRAGMA synchronous = OFF")

    def exchange(self, agents: Mapping[str, Agent], now: float) -> None:
        book = self._book
        book.hear([(name, keeper.card()) for name, keeper in self._keepers.items()], now=now)
        self._tell(agents)
        sent = [(name, item) for name, agent in agents.items() for item in agent.outbox()]
        book.receive([(name, item.body) for name, item in sent], now=now)
        for name, item in sent:
            agents[name].mark_sent(item)
        book.publish_due(now=now)
        book.hear([(name, self._keepers[name].answer(ask)) for name, ask in book.asks().items()], now=now)
        self._tell(agents)

    def _tell(self, agents: Mapping[str, Agent]) -> None:
        for agent in agents.values():
            place = agent.place()
            for data in (*self._book.since(Label.from_bytes(place) if place else None), *self._book.cards()):
                agent.hear(data)

    def close(self) -> None:
        self._book.close()
        for keeper in self._keepers.values():
            keeper.close()


@dataclass(frozen=True)
class _Begun:
    """A season that begins: everybody's keys and files. They are made once, since that takes a while."""

    circle: Circle | None
    files: Mapping[str, bytes]


class Sites:
    """Agents of one kind, named after their places, and who is between them; noise is the same each time.

    Attributes:
        agents: by name.
    """

    def __init__(
        self, kind: type[Agent], settings: AgentSettings, folder: Path, clock: Callable[[], float]
    ) -> None:
        """Begin a season.

        Args:
            kind: of agent.
            settings: of all of them, but for their names.
            folder: an empty one.
            clock: in seconds since 1970, later than any file was made.
        """
        begun = _begin(settings)
        for name, content in begun.files.items():
            (folder / name).write_bytes(content)
        self.agents = _open_agents(kind, settings, begun.circle, folder, clock)
        self._desk = _open_desk(settings, begun.circle, folder)
        self._built: dict[str, list[BuiltRow]] = {name: [] for name in self.agents}
        for name, agent in self.agents.items():
            agent.store.database.execute("PRAGMA synchronous = OFF")
            agent.store._privatizers[0]._noise = SameNoise()  # type: ignore[assignment]
            if settings.trust.padded:
                watch_rows(agent.store, self._built[name])

    def exchange(self, names: Collection[str], *, now: float) -> None:
        """What waits at these agents is sent, and they hear what there is."""
        self._desk.exchange({name: self.agents[name] for name in names}, now)

    def content(self, name: str, item: Parcel) -> bytes:
        """What leaves an agent, as its newest parcel: of a row what it was before it was padded."""
        return self._built[name][-1].values.tobytes() if item.padded else item.body

    def close(self) -> None:
        """Give all files back."""
        self._desk.close()
        for agent in self.agents.values():
            agent.close()


@lru_cache(maxsize=4)
def _begin(settings: AgentSettings) -> _Begun:
    circle = Circle(settings.terms) if settings.trust.padded else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _open_desk(settings, circle, folder).close()
        for agent in _open_agents(Agent, settings, circle, folder, lambda: settings.start or 0.0).values():
            agent.close()
        files = {path.name: path.read_bytes() for path in folder.glob("*.db")}
    return _Begun(circle, files)


def _open_agents(
    kind: type[Agent],
    settings: AgentSettings,
    circle: Circle | None,
    folder: Path,
    clock: Callable[[], float],
) -> dict[str, Agent]:
    return {
        name: kind.open(
            folder / f"{name}.db",
            replace(settings, name=name),
            clock=clock,
            member=None if circle is None else circle.member(place),
        )
        for place, name in enumerate(_names(settings))
    }


def _open_desk(settings: AgentSettings, circle: Circle | None, folder: Path) -> _Desk:
    return _Sums(folder, settings) if circle is None else _Rows(folder, circle)


def _names(settings: AgentSettings) -> list[str]:
    return [name_of(place) for place in range(settings.agents)]
