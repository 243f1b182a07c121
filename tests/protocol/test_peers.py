"""Messages reach whom they should when they should, views are whole, and what gets lost heals."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from feducb.errors import ConfigurationError
from feducb.protocol import messages, peers
from feducb.protocol.graphs import Topology, parse_topology
from feducb.protocol.peers import Announcement, Outgoing, PeerState, Request

State = PeerState[str]
Link = Callable[[int, int], list[int]]  # sender, receiver: rounds that each copy takes; [] if lost


def _one_round(sender: int, receiver: int) -> list[int]:
    return [1]


@dataclass
class Network:
    """Carries messages between the agents of a graph, a round at a time."""

    topology: Topology
    groups: int | None = None
    link: Link = _one_round
    draws: random.Random = field(default_factory=lambda: random.Random(0))
    sent: Counter[str] = field(default_factory=Counter)
    now: int = 0

    def __post_init__(self) -> None:
        agents = range(self.topology.agents)
        self.states: list[State] = [peers.start(self.topology, agent, groups=self.groups) for agent in agents]
        self.flying: dict[int, list[tuple[int, Outgoing[str]]]] = defaultdict(list)

    def send(self, sender: int, outgoing: Iterable[Outgoing[str]]) -> None:
        for one in outgoing:
            self.sent[type(one.message).__name__] += 1
            for delay in self.link(sender, one.to):
                self.flying[self.now + delay].append((sender, one))

    def next_round(self) -> int:
        """Deliver what is due, in any order."""
        self.now += 1
        due = self.flying.pop(self.now, [])
        self.draws.shuffle(due)
        for sender, one in due:
            state, outgoing = peers.receive(self.states[one.to], one.message, sender=sender, now=self.now)
            self.states[one.to] = state
            self.send(one.to, outgoing)
        return self.now

    def publish(self, agent: int, group: int, number: int) -> None:
        state, outgoing = peers.publish(
            self.states[agent], group=group, number=number, payload=f"{agent}/{group}/{number}", now=self.now
        )
        self.states[agent] = state
        self.send(agent, outgoing)

    def ask(self, agent: int) -> None:
        group = self.now % self.states[agent].groups
        self.states[agent], outgoing = peers.ask(self.states[agent], group=group, now=self.now)
        self.send(agent, outgoing)

    def held(self, agent: int, origin: int, group: int) -> int:
        kept = self.states[agent].kept.get((origin, group), ())
        return kept[-1].number if kept else 0

    def complete(self, agent: int, group: int) -> tuple[Announcement[str], ...]:
        return peers.complete_view(self.states[agent], group=group, now=self.now)


def _random_topology(draws: random.Random) -> Topology:
    agents = draws.randint(4, 24)
    name = draws.choice(
        [
            f"erdos:{agents}:{draws.uniform(0.2, 0.5):.3f}",
            f"ring:{agents}",
            f"line:{agents}",
            f"grid:2x{agents // 2}",
            f"star:{agents}",
            f"smallworld:{agents + 2}:4:0.2",
        ]
    )
    seed = draws.randrange(1000)
    diameter = parse_topology(name, seed=seed).diameter
    return parse_topology(name, ttl=draws.randint(1, min(diameter, 6)), seed=seed)


def _random_schedule(draws: random.Random, ttl: int, horizon: int) -> dict[int, list[int]]:
    """Public release rounds of each group, some of them back to back."""
    busy = draws.uniform(0.2, 1.0)
    return {
        group: [t for t in range(1, horizon + 1) if t % ttl == group and draws.random() < busy]
        for group in range(ttl)
    }


def test_calibrated_every_use_sees_one_complete_version_and_the_newest_there_can_be() -> None:
    draws = random.Random(41)
    pairs = 0
    for _ in range(30):
        topology = _random_topology(draws)
        ttl, horizon = topology.ttl, 40
        schedule = _random_schedule(draws, ttl, horizon)
        network = Network(topology, draws=draws)
        for _ in range(horizon + ttl):
            now = network.next_round()
            for group, rounds in schedule.items():
                visible = sum(t + ttl <= now for t in rounds)  # k, of the newest with t_k + ttl <= now
                for agent in range(topology.agents):
                    members = topology.members(agent)
                    for origin in members:
                        reach = max(int(topology.distances[agent, origin]), 1)
                        assert network.held(agent, origin, group) == sum(t + reach <= now for t in rounds)
                        pairs += 1
                    view = network.complete(agent, group)
                    expected = [(m, visible, f"{m}/{group}/{visible}") for m in members] if visible else []
                    assert [(one.origin, one.number, one.payload) for one in view] == expected
                    assert view == network.complete(members[0], group)
            if now in schedule[now % ttl]:
                for agent in range(topology.agents):
                    network.publish(agent, now % ttl, schedule[now % ttl].index(now) + 1)
    assert pairs > 100_000


def test_nothing_is_kept_of_other_cliques() -> None:
    network = Network(parse_topology("line:6", ttl=2))
    network.next_round()
    for agent in range(6):
        network.publish(agent, 1, 1)
    for _ in range(4):
        network.next_round()
    for agent, state in enumerate(network.states):
        assert {origin for origin, _ in state.kept} == set(network.topology.members(agent))


def test_paper_members_answer_each_request_once_and_agree_two_ttl_later() -> None:
    draws = random.Random(42)
    checked = 0
    for _ in range(40):
        topology = _random_topology(draws)
        ttl, often = topology.ttl, draws.uniform(0.005, 0.1)
        network = Network(topology, draws=draws)
        asked: dict[tuple[int, int], set[int]] = defaultdict(set)  # (clique, g): rounds asked
        releases: Counter[tuple[int, int]] = Counter()
        for _ in range(60):
            now = network.next_round()
            group = now % ttl
            views = [peers.newest_view(state, group=group, now=now) for state in network.states]
            for agent in range(topology.agents):
                assert views[agent] == views[topology.members(agent)[0]]
            for index, clique in enumerate(topology.cliques):
                if now - 2 * ttl in asked[index, group]:  # newer requests have not been answered yet
                    assert [(one.origin, one.round) for one in views[clique[0]]] == [
                        (member, now - ttl) for member in clique
                    ]
                    checked += 1
            for agent in range(topology.agents):
                if peers.owes_release(network.states[agent], now=now):
                    releases[agent, group] += 1
                    network.publish(agent, group, releases[agent, group])
                    assert not peers.owes_release(network.states[agent], now=now)
            if now <= 60 - ttl:
                for agent in range(topology.agents):
                    if draws.random() < often:
                        network.ask(agent)
                        asked[topology.clique_of[agent], group].add(now)
        for agent in range(topology.agents):
            for group in range(ttl):
                assert releases[agent, group] == len(asked[topology.clique_of[agent], group])
    assert checked > 1_000


def _troubled(draws: random.Random) -> Link:
    """20 % of messages lost, 20 % twice, each copy one to four rounds on its way."""

    def link(sender: int, receiver: int) -> list[int]:
        if draws.random() < 0.2:
            return []
        return [draws.randint(1, 4) for _ in range(1 + (draws.random() < 0.2))]

    return link


def test_loss_duplication_and_reordering_heal_with_the_next_release_that_gets_through() -> None:
    draws = random.Random(43)
    behind = uses = 0
    for _ in range(25):
        topology = _random_topology(draws)
        ttl, trouble = topology.ttl, 40
        schedule = _random_schedule(draws, ttl, trouble)
        network = Network(topology, draws=draws, link=_troubled(draws))
        last: Counter[tuple[int, int]] = Counter()

        def use_all(network: Network, group: int, last: Counter[tuple[int, int]]) -> list[int]:
            """Whatever happens, a view is of all members and of one number, which never goes back."""
            numbers = []
            for agent in range(network.topology.agents):
                view = network.complete(agent, group)
                found = {one.number for one in view} or {0}
                number = found.pop()
                assert not found
                assert [one.payload for one in view] == [
                    f"{m}/{group}/{number}" for m in network.topology.members(agent) if number
                ]
                assert number >= last[agent, group]
                last[agent, group] = number
                numbers.append(number)
            return numbers

        for _ in range(trouble):
            now = network.next_round()
            numbers = use_all(network, now % ttl, last)
            visible = sum(t + ttl <= now for t in schedule[now % ttl])
            behind += sum(number < visible for number in numbers)
            uses += len(numbers)
            if now in schedule[now % ttl]:
                for agent in range(topology.agents):
                    network.publish(agent, now % ttl, schedule[now % ttl].index(now) + 1)

        network.link = _one_round  # the next release gets through, while old messages still arrive
        for _ in range(ttl):
            now = network.next_round()
            for agent in range(topology.agents):
                network.publish(agent, now % ttl, len(schedule[now % ttl]) + 1)
        for _ in range(ttl):
            group = network.next_round() % ttl
            assert set(use_all(network, group, last)) == {len(schedule[group]) + 1}
    assert 0.05 < behind / uses < 0.9  # the trouble was real


def _uneven(draws: random.Random) -> Link:
    """Every link has its own slowness, one to nine rounds, in each direction."""
    slowness: dict[tuple[int, int], int] = defaultdict(lambda: draws.randint(1, 9))
    return lambda sender, receiver: [slowness[sender, receiver]]


def _pairs_lost_on_uneven_links(draws: random.Random) -> tuple[int, int]:
    """One release each over uneven links, nothing lost on them: (clique pairs, pairs not reached)."""
    pairs = lost = 0
    for _ in range(60):
        topology = _random_topology(draws)
        network = Network(topology, draws=draws, link=_uneven(draws))
        for _ in range(topology.ttl):
            network.next_round()
        for agent in range(topology.agents):
            network.publish(agent, 0, 1)
        while network.flying:
            network.next_round()
        for clique in topology.cliques:
            pairs += len(clique) ** 2
            lost += sum(not network.held(one, other, 0) for one in clique for other in clique)
    return pairs, lost


def test_uneven_links_lose_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, lost = _pairs_lost_on_uneven_links(random.Random(44))
    assert pairs > 3_000
    assert lost == 0

    # Forwarding only what is first seen, as floods often do, loses some: the test can tell.
    exact = peers._forward

    def first_seen_only(state: State, message: peers.Message[str], sender: int) -> peers._Step[str]:
        seen = message.version in state.forwarded.get((type(message), message.origin, message.group), {})
        if seen:
            return state, ()
        flow = (type(message), message.origin, message.group)
        after, outgoing = exact(state, message, sender)
        return replace(after, forwarded={**after.forwarded, flow: {message.version: message.life}}), outgoing

    monkeypatch.setattr(peers, "_forward", first_seen_only)
    assert _pairs_lost_on_uneven_links(random.Random(44))[1] > 0


@pytest.mark.parametrize(
    ("name", "ttl", "by_hand"),
    [
        ("line:5", 1, [1, 2, 2, 2, 1]),  # 2─▶1, 2─▶3
        ("line:5", 2, [2, 3, 4, 3, 2]),  # 2─▶1─▶0, 2─▶3─▶4
        ("line:5", 4, [4, 4, 4, 4, 4]),  # every link once
        ("ring:6", 2, [4] * 6),
        ("ring:6", 3, [6] * 6),  # the last agent hears it from both sides
        ("star:4", 2, [3, 3, 3, 3]),  # a leaf: itself to the middle, the middle to two others
        ("complete:5", 1, [4] * 5),
    ],
)
def test_messages_counted_by_hand(name: str, ttl: int, by_hand: list[int]) -> None:
    topology = parse_topology(name, ttl=ttl)
    assert list(topology.flood_sizes()) == by_hand
    for agent, expected in enumerate(by_hand):
        network = Network(topology)
        network.next_round()
        network.publish(agent, 1 % ttl, 1)
        for _ in range(2 * ttl):
            network.next_round()
        assert network.sent == {"Announcement": expected}


def test_flood_sizes_are_what_is_sent_on_any_graph() -> None:
    draws = random.Random(45)
    for _ in range(40):
        topology = _random_topology(draws)
        network = Network(topology, draws=draws)
        network.next_round()
        for agent in range(topology.agents):
            network.publish(agent, 1 % topology.ttl, 1)
            network.ask(agent)
        while network.flying:
            network.next_round()
        total = sum(topology.flood_sizes())
        assert network.sent == {"Announcement": total, "Request": total}


def test_no_flood_of_requests_makes_an_agent_publish_more() -> None:
    draws = random.Random(46)
    for _ in range(20):
        topology = parse_topology("grid:3x3", ttl=draws.randint(1, 4))
        ttl = topology.ttl
        state: State = peers.start(topology, 4)
        answers: Counter[int] = Counter()
        for now in range(1, 61):
            for _ in range(30):
                forged = Request(
                    origin=draws.randrange(9),
                    group=draws.randint(-1, ttl),
                    round=now + draws.randint(-2 * ttl, 2),
                    life=draws.randint(-1, 2 * ttl),
                )
                state, outgoing = peers.receive(state, forged, sender=draws.choice((1, 3, 5, 7, 8)), now=now)
                assert all(1 <= one.message.life < ttl for one in outgoing)
            if peers.owes_release(state, now=now):
                answers[now % ttl] += 1
                state, _ = peers.publish(
                    state, group=now % ttl, number=answers[now % ttl], payload="own", now=now
                )
                again = Request(topology.members(4)[0], now % ttl, now - ttl, 1)
                state, _ = peers.receive(state, again, sender=1, now=now)
                assert not peers.owes_release(state, now=now)
            assert len(state.owed) <= 2 * ttl
        assert all(count <= 60 // ttl + 1 for count in answers.values())
        assert len(state.forwarded) <= 9 * ttl
        assert all(len(lives) <= peers.WINDOW for lives in state.forwarded.values())


def test_a_message_is_forwarded_again_only_with_more_life() -> None:
    topology = parse_topology("line:9", ttl=4)
    state: State = peers.start(topology, 4)
    first = Announcement(2, 0, 1, 4, 2, "x")
    lives = []
    for life in (2, 2, 1, 3, 2, 3, 4, 4):
        state, outgoing = peers.receive(state, replace(first, life=life), sender=3, now=9)
        lives += [(one.to, one.message.life) for one in outgoing]
    assert lives == [(5, 1), (5, 2), (5, 3)]


def test_older_numbers_never_replace_newer_ones_and_memory_is_bounded() -> None:
    topology = parse_topology("complete:2")
    state: State = peers.start(topology, 0)
    for number in (3, 1, 2, 3):
        news = Announcement(1, 0, number, number, 1, f"{number}")
        state, _ = peers.receive(state, news, sender=1, now=10)
    assert [one.payload for one in peers.newest_view(state, group=0, now=10)] == ["3"]
    assert peers.complete_view(state, group=0, now=10) == ()
    for number in (1, 2):
        state, _ = peers.publish(state, group=0, number=number, payload="own", now=10 + number)
    assert [one.number for one in peers.complete_view(state, group=0, now=12)] == [1, 1]
    for number in range(4, 60):  # the own release 3 never comes; version 2 is not forgotten
        news = Announcement(1, 0, number, number + 10, 1, f"{number}")
        state, _ = peers.receive(state, news, sender=1, now=number + 11)
    assert [one.payload for one in peers.complete_view(state, group=0, now=70)] == ["own", "2"]
    assert [one.payload for one in peers.newest_view(state, group=0, now=70)] == ["own", "59"]
    assert len(state.kept[1, 0]) == peers.WINDOW + 2  # the complete one, and one that may be too young


def test_a_state_is_not_changed_by_what_follows() -> None:
    state: State = peers.start(parse_topology("line:3", ttl=2), 1)
    before = repr(state)
    after, outgoing = peers.receive(state, Announcement(0, 1, 1, 1, 2, "x"), sender=0, now=2)
    peers.publish(after, group=0, number=1, payload="y", now=2)
    peers.ask(after, group=0, now=2)
    assert repr(state) == before
    assert [one.to for one in outgoing] == [2]


@pytest.mark.parametrize(
    "strange",
    [
        Announcement(1, 1, 1, 1, 2, "from itself"),
        Announcement(0, 1, 1, 1, 3, "lives too long"),
        Announcement(0, 1, 1, 1, 0, "dead"),
        Announcement(0, 1, 1, 3, 2, "from the future"),
        Announcement(0, 0, 1, 1, 2, "of a group that round 1 does not belong to"),
        Announcement(0, 3, 1, 1, 2, "of no group"),
    ],
)
def test_messages_that_cannot_be_are_dropped(strange: Announcement[str]) -> None:
    state: State = peers.start(parse_topology("line:3", ttl=2), 1)
    assert peers.receive(state, strange, sender=0, now=2) == (state, ())
    usual = Announcement(0, 1, 1, 1, 2, "usual")
    assert peers.receive(state, usual, sender=1, now=2) == (state, ())  # not a neighbour
    assert peers.receive(state, usual, sender=0, now=2) != (state, ())


def test_one_estimator_uses_what_is_there() -> None:
    network = Network(parse_topology("line:3", ttl=2), groups=1)
    network.next_round()
    for agent in range(3):
        network.publish(agent, 0, 1)
    seen = []
    for _ in range(2):
        now = network.next_round()
        seen.append([one.origin for one in peers.newest_view(network.states[0], group=0, now=now)])
    assert seen == [[0, 1], [0, 1, 2]]
    assert peers.newest_view(network.states[0], group=0, now=1) == ()  # the own release enters a round later


def test_impossible_steps_say_what_is_expected() -> None:
    topology = parse_topology("line:3", ttl=2)
    state: State = peers.start(topology, 1)
    with pytest.raises(ConfigurationError, match="agent is 3, expected 0 to 2"):
        peers.start(topology, 3)
    with pytest.raises(ConfigurationError, match="groups is 3, expected 1 or the time-to-live, 2"):
        peers.start(topology, 0, groups=3)
    with pytest.raises(ConfigurationError, match="group is 0, expected 1, the group of round 5"):
        peers.publish(state, group=0, number=1, payload="x", now=5)
    state, _ = peers.publish(state, group=1, number=1, payload="x", now=5)
    with pytest.raises(ConfigurationError, match="number is 1, expected a whole number of at least 2"):
        peers.publish(state, group=1, number=1, payload="x", now=7)
    with pytest.raises(ConfigurationError, match="round is 5, expected a round after 5"):
        peers.publish(state, group=1, number=2, payload="x", now=5)


def _random_message(draws: random.Random) -> peers.Message[bytes]:
    origin, group, number, round_ = (draws.choice((0, 1, draws.getrandbits(32))) for _ in range(4))
    life = draws.randint(1, 2**16 - 1)
    if draws.random() < 0.5:
        return Request(origin, group, round_, life)
    payload, season = draws.randbytes(draws.randint(1, 99)), draws.randint(1, 2**32 - 1)
    return Announcement(origin, group, max(number, 1), round_, life, payload, season)


def test_what_travels_reads_back_and_has_the_size_that_is_counted() -> None:
    draws = random.Random(47)
    for _ in range(2_000):
        message = _random_message(draws)
        data = peers.encode(message)
        assert peers.decode(data) == message
        payload = message.payload if isinstance(message, Announcement) else b""
        assert len(data) == peers.envelope_size() + len(payload)
    assert peers.envelope_size() == 32


def test_garbage_is_refused_or_is_the_only_way_to_write_a_message() -> None:
    draws = random.Random(48)
    refused = 0
    for _ in range(20_000):
        data = bytearray(peers.encode(_random_message(draws)))
        for _ in range(draws.randint(1, 3)):
            data[draws.randrange(len(data))] = draws.getrandbits(8)
        if draws.random() < 0.3:
            data = data[: draws.randint(0, len(data))]
        garbage = draws.choice((bytes(data), draws.randbytes(draws.randint(0, 60))))
        try:
            message = peers.decode(garbage)
        except ValueError:
            refused += 1
        else:
            assert peers.encode(message) == garbage
    assert 10_000 < refused < 20_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:27],
        lambda data: b"PEAR" + data[4:],
        lambda data: data[:4] + b"\x02" + data[5:],
        lambda data: data[:6] + b"\x00\x00" + data[8:],
        lambda data: data + b"x",
        lambda data: data[:16] + b"\x01" + data[17:],
        lambda data: data[:20] + b"\x01" + data[21:],
    ],
    ids=["too short", "mark", "kind", "life", "trailing bytes", "season", "number"],
)
def test_damaged_requests_are_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="message has"):
        peers.decode(damage(peers.encode(Request(1, 2, 3, 4))))


def test_announcements_are_neither_empty_nor_larger_than_any_release(monkeypatch: pytest.MonkeyPatch) -> None:
    assert messages.message_size(10_000) == peers.LARGEST_PAYLOAD
    monkeypatch.setattr(peers, "LARGEST_PAYLOAD", 50)
    for size in (0, 51):
        with pytest.raises(ValueError, match=f"a payload of {size} bytes"):
            peers.encode(Announcement(1, 2, 3, 4, 5, bytes(size)))
    fits = peers.encode(Announcement(1, 2, 3, 4, 5, bytes(50)))
    with pytest.raises(ValueError, match="a payload of 51 bytes"):
        peers.decode(fits + b"x")
    with pytest.raises(ValueError, match="does not fit its envelope"):
        peers.encode(Request(-1, 2, 3, 4))


def test_a_new_season_replaces_the_old_one_though_its_numbers_start_again() -> None:
    topology = parse_topology("line:2", ttl=1)
    state: peers.PeerState[str] = peers.start(topology, 0)
    for season, number in ((1, 1), (1, 2), (2, 1)):
        now = 10 * season + number
        state, outgoing = peers.publish(
            state, group=0, number=number, payload=f"own {season}.{number}", now=now, season=season
        )
        assert outgoing[0].message == Announcement(0, 0, number, now, 1, f"own {season}.{number}", season)
        told = Announcement(1, 0, number, now, 1, f"peer {season}.{number}", season)
        state, _ = peers.receive(state, told, sender=1, now=now + 1)
        view = peers.complete_view(state, group=0, now=now + 1)
        assert [one.payload for one in view] == [f"own {season}.{number}", f"peer {season}.{number}"]
    late = Announcement(1, 0, 3, 13, 1, "of the season before", 1)
    after, _ = peers.receive(state, late, sender=1, now=40)
    assert after.kept == state.kept
    with pytest.raises(ConfigurationError, match="season is 1, expected at least 2"):
        peers.publish(state, group=0, number=3, payload="x", now=50)


def test_a_release_of_a_new_season_is_passed_on_though_its_number_was_heard_before() -> None:
    state: peers.PeerState[str] = peers.start(parse_topology("line:3", ttl=2), 1, groups=1)
    for season, passed_on in ((1, 1), (2, 1), (2, 0), (1, 0)):
        told = Announcement(0, 0, 1, 4, 2, f"season {season}", season)
        state, outgoing = peers.receive(state, told, sender=0, now=9)
        assert len(outgoing) == passed_on
