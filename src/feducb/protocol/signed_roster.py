"""Rosters that the operator's authority signed, their versions, and which one holds in a season.

    federation.json      the one that a machine was given at the start
    federation.2.json    version 2, and so on: they come by hand or over the network, and prove themselves

In a season the newest one holds that names this season or an earlier one. So everybody takes a change over in
the same season, whenever he heard of it, and a restart changes nothing. The authority (``ca.pem``) is the one
that certifies the server: what it signs here begins with words that no certificate begins with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol.roster import Roster
from feducb.system import optional, write_atomically

__all__ = [
    "all_rosters",
    "keep_roster",
    "newest_roster",
    "of_season",
    "quorum_among",
    "require_signed",
    "sign_roster",
    "stamp",
    "with_newest_keys",
]

_CONTEXT = b"feducb\0roster\0"
_LARGEST = 2**24  # bytes of a roster


def sign_roster(roster: Roster, authority: Path) -> Roster:
    """The roster with the signature of the authority, whose key is in this file."""
    with optional("signing a roster", "nats"):
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    try:
        key = serialization.load_pem_private_key(authority.read_bytes(), None)
    except OSError as error:
        expected = f"the authority's key, which signs rosters ({error.strerror})"
        raise ConfigurationError("ca.key", str(authority), expected) from None
    except (TypeError, ValueError):
        raise ConfigurationError("ca.key", str(authority), "the key that `feducb keys init` made") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError("ca.key", type(key).__name__, "the key that `feducb keys init` made")
    return replace(roster, signature=key.sign(_signed(roster), ec.ECDSA(hashes.SHA256())).hex())


def require_signed(roster: Roster, authority: Path) -> None:
    """Raise `RefusedError` unless an authority of this file (PEM) signed the roster."""
    with optional("reading a signed roster", "nats"):
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
    try:
        known = x509.load_pem_x509_certificates(authority.read_bytes())
        signature = bytes.fromhex(roster.signature)
    except (OSError, TypeError, ValueError) as error:
        raise RefusedError("signature", f"no signature or no authority to check it with ({error})") from None
    for key in (one.public_key() for one in known):
        if not isinstance(key, ec.EllipticCurvePublicKey):
            continue
        try:
            key.verify(signature, _signed(roster), ec.ECDSA(hashes.SHA256()))
            return
        except InvalidSignature:
            continue
    raise RefusedError("signature", f"version {roster.version} is not signed by the authority in {authority}")


def _signed(roster: Roster) -> bytes:
    """Numbers first, and one zero byte after each: no two rosters read the same."""
    return _CONTEXT + f"{roster.version}\0{roster.since}\0{roster.content()}".encode()


def _file(path: Path, version: int) -> Path:
    return path.with_name(f"{path.stem}.{version}{path.suffix}")


def all_rosters(path: Path, authority: Path | None) -> list[Roster]:
    """The one in a federation's file, which is trusted as it was given, and those beside it, by version.

    Args:
        path: of the first one.
        authority: its certificate; None leaves signatures unchecked, for who only looks.
    """
    first = Roster.read(path)
    named = re.compile(rf"{re.escape(path.stem)}\.(\d+){re.escape(path.suffix)}")
    found = {first.version: first}
    for beside in sorted(path.parent.glob(f"{path.stem}.*{path.suffix}")):
        if (match := named.fullmatch(beside.name)) is None:
            continue
        roster = Roster.read(beside)
        if roster.version != int(match[1]) or roster.federation != first.federation:
            expected = f"version {match[1]} of {first.federation}, as its name says"
            raise ConfigurationError("roster", str(beside), expected)
        if authority is not None:
            _require_good(roster, beside, authority)
        found[roster.version] = roster
    return [found[version] for version in sorted(found)]


def stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Another one whenever one of these files is: quick to look at often."""
    with os.scandir(path.parent) as entries:
        beside = [entry for entry in entries if entry.name.startswith(path.stem)]
        found = ((entry.name, entry.stat()) for entry in beside)
        return tuple(sorted((name, facts.st_mtime_ns, facts.st_size) for name, facts in found))


def _require_good(roster: Roster, path: Path, authority: Path) -> None:
    try:
        require_signed(roster, authority)
    except RefusedError as error:
        raise ConfigurationError("roster", str(path), f"one that is signed ({error.text})") from None


def newest_roster(path: Path, authority: Path | None) -> Roster:
    """The one of the highest version, whether it holds already or not."""
    return all_rosters(path, authority)[-1]


def of_season(rosters: Sequence[Roster], season: int) -> Roster:
    """The one of them that holds in a season; the oldest, if none does yet."""
    return next((one for one in reversed(rosters) if one.since <= season), rosters[0])


def with_newest_keys(roster: Roster, newest: Roster) -> Roster:
    """A season's roster with the keys that the server knows, which are those of the newest one.

    A newer version may wait for its season while a key in it is another one already. Where there are
    keepers a season goes by the keys of its start.
    """
    if newest.version == roster.version or newest.keepers or roster.keepers:
        return roster
    agents = {name: newest.agents.get(name, key) for name, key in roster.agents.items()}
    controller, sealing = newest.controller, newest.sealing
    return replace(roster, agents=agents, controller=controller, sealing=sealing, signature="")


def quorum_among(quorum: int | None, before: int, after: int) -> int | None:
    """A quorum of so many agents, among others: as many may be missing. None stands for all."""
    return None if quorum is None else max(1, quorum + after - before)


def keep_roster(path: Path, authority: Path, data: bytes) -> Roster | None:
    """Put a roster that somebody brought beside the others; None if its version is no news.

    Raises:
        RefusedError: it is of another federation, not signed by the authority, of a lower version than one
            that is here, or holds from an earlier season on.
    """
    if len(data) > _LARGEST:
        raise RefusedError("size", f"a roster of {len(data)} bytes, expected at most {_LARGEST}")
    try:
        roster = Roster.parse(data.decode())
    except (ConfigurationError, UnicodeDecodeError) as error:
        raise RefusedError("malformed", str(error)) from None
    newest = newest_roster(path, authority)
    if roster.federation != newest.federation:
        raise RefusedError("sender", f"a roster of {roster.federation}, expected {newest.federation}")
    require_signed(roster, authority)
    if roster.version == newest.version and roster == newest:
        return None
    if roster.version <= newest.version or roster.since < newest.since:
        stands = f"version {roster.version} from season {roster.since} on"
        expected = f"a later one than version {newest.version} from season {newest.since} on"
        raise RefusedError("replay", f"{stands}, expected {expected}")
    write_atomically(_file(path, roster.version), roster.to_json())
    return roster
