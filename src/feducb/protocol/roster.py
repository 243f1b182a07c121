"""Who is in a federation: names, public keys and the graph. Public; everybody has the same file.

Names are signed for with nkeys (Ed25519, as NATS writes them), so that neither a broker nor an agent in
between can speak for somebody else. The file itself has a version, and the operator's authority signs it
(`signed_roster`): agents come and go by a newer one, which holds from a season on that it names.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feducb.config import require_integer
from feducb.errors import ConfigurationError, RefusedError
from feducb.formats import ROSTER
from feducb.protocol.graphs import Topology, build_topology
from feducb.protocol.names import require_name
from feducb.system import optional

if TYPE_CHECKING:
    from nacl.signing import VerifyKey

__all__ = ["SIGNATURE_SIZE", "Roster", "Signer", "public_bytes", "signed_bytes", "verify"]

SIGNATURE_SIZE = 64
_MOST_AGENTS = 2**16 - 1  # in lists of secure sums, which number them in two bytes
_USER = 20 << 3  # what nkeys of users begin with


@dataclass(frozen=True, kw_only=True, slots=True)
class Roster:
    """The public file of a federation."""

    federation: str  # its name
    agents: dict[str, str]  # names in order, each with its public nkey
    controller: str | None = None  # the controller's public nkey; None without one
    sealing: str | None = None  # the controller's X25519 key, hexadecimal; None without a controller
    keepers: dict[str, str] = field(default_factory=dict)  # agents that keep pads, each with a key for that
    edges: tuple[tuple[str, str], ...] | None = None  # pairs of names; None with a controller
    ttl: int = 1  # γ, hops that a release lives
    version: int = 1  # each change has the next; one of an earlier feducb has none, and is the first
    since: int = 1  # the season from which on it holds
    signature: str = field(default="", repr=False, compare=False)  # the authority's, hexadecimal

    names: tuple[str, ...] = field(init=False, repr=False, compare=False)  # of the agents, in order

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.agents))
        require_name("federation", self.federation)
        require_integer("version", self.version, at_least=1)
        require_integer("since", self.since, at_least=1)
        if not self.agents:
            raise ConfigurationError("agents", [], "at least one")
        for name, key in self.agents.items():
            require_name("agent", name)
            public_bytes(key)
        if self.controller is not None:
            public_bytes(self.controller)
        for name, key in self.keepers.items():
            if name not in self.agents:
                raise ConfigurationError("keeper", name, f"one of {', '.join(self.agents)}")
            public_bytes(key)
        if self.keepers and (len(self.keepers) < 2 or self.controller is None):
            expected = "at least two keepers, of different owners, and a controller"
            raise ConfigurationError("keepers", ", ".join(self.keepers), expected)
        if self.keepers:
            self.require_apart()
            if len(self.agents) > _MOST_AGENTS:
                raise ConfigurationError("agents", len(self.agents), f"at most {_MOST_AGENTS} with keepers")
        if (self.edges is None) == (self.controller is None):
            raise ConfigurationError("federation", self.federation, "either a controller or edges of a graph")

    def require_apart(self) -> None:
        """Raise unless nobody has two voices: one key, one name, one role.

        A roster without keepers that an earlier version made may have a key twice, and is read all the same.
        """
        keys = [*self.agents.values(), *self.keepers.values(), self.controller]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConfigurationError("nkey", twice, "a key of its own for each agent, keeper and controller")

    def topology(self) -> Topology:
        """The graph, its cliques and the like; the same wherever it is computed."""
        if self.edges is None:
            expected = "a roster with edges; this one has a controller"
            raise ConfigurationError("mode", "decentralised", expected)
        labels = list(self.agents)
        known = {name: index for index, name in enumerate(labels)}
        for edge in self.edges:
            if not known.keys() >= set(edge):
                raise ConfigurationError("edge", edge, "agents of the roster")
        pairs = [(known[one], known[other]) for one, other in self.edges]
        return build_topology(self.federation, labels, pairs, ttl=self.ttl)

    def content(self) -> str:
        """Who is in it and how they are connected, as text; whatever the version."""
        plain = asdict(self)
        for name in ("names", "version", "since", "signature"):
            del plain[name]
        if not self.keepers:  # as it was before there were any
            del plain["keepers"]
        return json.dumps(plain, indent=1) + "\n"

    def to_json(self) -> str:
        """The text of the federation's file."""
        if not self.signature:  # as it was before there were versions
            return self.content()
        facts = {"version": self.version, "since": self.since, "signature": self.signature}
        return json.dumps(json.loads(self.content()) | facts, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Roster:
        """From a file that `to_json` wrote."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            expected = f"a file that can be read ({getattr(error, 'strerror', error)})"
            raise ConfigurationError("roster", str(path), expected) from None
        return cls.parse(text, named=str(path))

    @classmethod
    def parse(cls, text: str, *, named: str = "a text") -> Roster:
        """From the text of a file; ``named`` is how an error calls it."""
        try:
            plain: dict[str, Any] = json.loads(text)
            ROSTER.require(plain.pop("format", 1), f"format of the roster in {named}")
            edges = plain.pop("edges")
            roster = cls(
                edges=None if edges is None else tuple((one, other) for one, other in edges), **plain
            )
        except ConfigurationError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            expected = f"what `feducb keys init` wrote ({error})"
            raise ConfigurationError("roster", named, expected) from None
        if roster.version > 1 and not roster.signature:
            raise ConfigurationError("roster", named, f"a signature, in version {roster.version}")
        return roster


def public_bytes(nkey: str) -> bytes:
    """The 32 bytes of a public user nkey."""
    expected = "a public user nkey: U and 55 letters or digits"
    try:
        raw = base64.b32decode(nkey + "=" * (-len(nkey) % 8))
    except (binascii.Error, TypeError, ValueError):
        raise ConfigurationError("nkey", nkey, expected) from None
    sound = len(raw) == 35 and binascii.crc_hqx(raw[:33], 0) == int.from_bytes(raw[33:], "little")
    if not sound or raw[0] != _USER:
        raise ConfigurationError("nkey", nkey, expected)
    return raw[1:33]


class Signer:
    """Signs in one name; made from the seed file that `feducb keys` wrote, or from the seed itself."""

    def __init__(self, seed: Path | bytes) -> None:
        with optional("signing", "keepers"):
            import nkeys
            from nacl.signing import SigningKey
        try:
            text = bytearray(seed if isinstance(seed, bytes) else seed.read_bytes().strip())
            pair = nkeys.from_seed(text)
            _, raw = nkeys.decode_seed(text)
            self._key = SigningKey(bytes(raw))
            self.nkey: str = pair.public_key.decode()
        except OSError as error:
            expected = f"a file that can be read ({error.strerror})"
            raise ConfigurationError("seed", str(seed), expected) from None
        except Exception:
            shown = "some bytes" if isinstance(seed, bytes) else str(seed)
            raise ConfigurationError("seed", shown, "a file with the seed of a user nkey") from None

    @classmethod
    def fresh(cls) -> Signer:
        """A new one, for everybody in one process."""
        with optional("signing", "keepers"):
            import nkeys
        return cls(bytes(nkeys.encode_seed(secrets.token_bytes(32), _USER)))

    def sign(self, body: bytes, *context: str) -> bytes:
        """64 bytes, for this body in this context alone."""
        return self._key.sign(signed_bytes(body, context)).signature


def verify(nkey: str, signature: bytes, body: bytes, *context: str) -> None:
    """Raise `RefusedError` unless the owner of the key signed this body in this context."""
    from nacl.exceptions import BadSignatureError
    from nacl.exceptions import ValueError as WrongSizeError

    try:
        _public_key(nkey).verify(signed_bytes(body, context), signature)
    except (BadSignatureError, WrongSizeError):
        raise RefusedError("signature", "not signed by whom it claims to be from") from None


@lru_cache(maxsize=4096)
def _public_key(nkey: str) -> VerifyKey:
    from nacl.signing import VerifyKey

    return VerifyKey(public_bytes(nkey))


def signed_bytes(body: bytes, context: tuple[str, ...]) -> bytes:
    """Names hold no zero byte, so two contexts never read the same."""
    return "\0".join(("feducb", *context, "")).encode() + body
