"""A federation with keepers in one process, without files and sockets; keys are the same each time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import nkeys
import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms
from feducb.protocol.hiding import Cover
from feducb.protocol.keeping import Duty, quorum_of
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Answer, Ask, KeyCard, Opened, PaddedRow, open_sum

FIRST = Label(1, 0, 1)


def bytes_of(*what: object) -> bytes:
    """32 bytes that are the same each time, and others for anything else."""
    return hashlib.sha256(repr(what).encode()).digest()


def signer_of(*what: object) -> Signer:
    return Signer(bytes(nkeys.encode_seed(bytes_of("sign", *what), nkeys.PREFIX_BYTE_USER)))


class SecureFederation:
    """M agents, of which the first few are keepers."""

    def __init__(
        self,
        agents: int = 6,
        keepers: int = 3,
        *,
        dim: int = 3,
        away: int = 1,
        releases: int = 4,
        season: int = 1,
        epsilon: float = 1.0,
        federation: str = "tests",
        groups: int = 1,
    ) -> None:
        self.names = [f"a{number}" for number in range(agents)]
        self.signers = {name: signer_of(name) for name in self.names}
        self.keepers = {name: signer_of(name, "keeper") for name in self.names[:keepers]}
        self.controller, self.season = signer_of("controller"), season
        self.roster = Roster(
            federation=federation,
            agents={name: signer.nkey for name, signer in self.signers.items()},
            controller=self.controller.nkey,
            sealing="00" * 32,
            keepers={name: signer.nkey for name, signer in self.keepers.items()},
        )
        self.terms = Terms(
            problem=Problem(dim=dim),
            budget=Budget(epsilon=epsilon, delta=1e-6),
            releases=releases,
            trust=f"keepers:{away}:1",  # type: ignore[arg-type]
            agents=agents,
            groups=groups,
        )
        self.charter = Charter.of(self.roster, self.terms, season)
        self.coordinates = self.terms.model.coordinates(dim)
        self.quorum = quorum_of(self.terms)

    @cached_property
    def duties(self) -> dict[str, Duty]:
        return {
            name: Duty(
                name,
                self.roster,
                self.terms,
                self.season,
                signer,
                SeasonKey(bytes_of("keeper", name, self.season)),
                self.charter,
            )
            for name, signer in self.keepers.items()
        }

    @cached_property
    def cards(self) -> dict[str, KeyCard]:
        found = (KeyCard.read(duty.card(), self.charter, self.roster) for duty in self.duties.values())
        return {card.keeper: card for card in found}

    @cached_property
    def covers(self) -> dict[str, Cover]:
        return {name: self.cover(name) for name in self.names}

    def cover(self, name: str) -> Cover:
        key, secret = SeasonKey(bytes_of("agent", name, self.season)), bytes_of("nonce", name, self.season)
        return Cover(name, self.roster, self.signers[name], key, secret, self.charter)

    def rows(self, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """As large as rows under noise are: a few thousand million steps."""
        return {name: rng.integers(-(2**32), 2**32, self.coordinates) for name in self.names}

    def hide(self, rows: Mapping[str, NDArray[np.int64]], label: Label = FIRST) -> dict[str, PaddedRow]:
        return {name: self.covers[name].hide(label, row, self.cards) for name, row in rows.items()}

    def ask_for(self, padded: Mapping[str, PaddedRow], names: Sequence[str], label: Label = FIRST) -> Ask:
        return Ask(label, tuple(padded[name].entry(self.names.index(name)) for name in names))

    def ask(self, padded: Mapping[str, PaddedRow], names: Sequence[str], label: Label = FIRST) -> bytes:
        return self.ask_for(padded, names, label).to_bytes(self.charter, self.controller)

    def answers(self, ask: bytes) -> list[Answer]:
        return [duty.answer(duty.read(ask)) for duty in self.duties.values()]

    def open(
        self, padded: Mapping[str, PaddedRow], names: Sequence[str], answers: Sequence[Answer]
    ) -> NDArray[np.int64]:
        return open_sum([padded[name].body for name in names], answers)

    def opened(
        self, padded: Mapping[str, PaddedRow], names: Sequence[str], label: Label = FIRST, refused: str = ""
    ) -> bytes:
        ask = self.ask_for(padded, names, label)
        answers = self.answers(ask.to_bytes(self.charter, self.controller))
        values = self.open(padded, names, answers) if names else None
        proofs = tuple(answer.proof for answer in answers)
        over = Opened(label, ask.listed(self.roster), proofs, values, refused)
        return over.to_bytes(self.charter, self.roster, self.controller)

    def read_opened(self, data: bytes) -> Opened:
        return Opened.read(data, self.charter, self.roster, coordinates=self.coordinates, quorum=self.quorum)
