"""A site's wish to be in a federation: it makes its keys itself, and sends the public ones."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from feducb.carriers.authority import write_file
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol.names import require_name
from feducb.protocol.roster import Signer, public_bytes, verify
from feducb.system import optional

with optional("making keys", "nats"):
    import nkeys

__all__ = ["KeyRequest", "make_request", "new_seed", "read_request"]

_PREFIX_USER = 20 << 3


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRequest:
    """Public keys that a site asks an operator to sign."""

    federation: str
    name: str  # of the agent
    nkey: str
    keeper: str | None = None  # the key with which it keeps pads; None if it does not
    before: str | None = None  # the agent's key so far, which signed this too; None if it did not


def new_seed(path: Path) -> str:
    """Make a private key, in a file that nobody else may read; the public one."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), _PREFIX_USER)
    write_file(path, bytes(seed).decode() + "\n", private=True)
    return Signer(path).nkey


def make_request(
    folder: Path, name: str, *, federation: str, keeper: bool = False, before: Path | None = None
) -> Path:
    """Make a site's keys, which stay in the folder, and the file that goes to the operator; its path.

    Keys that are there are kept, so that a request can be made once more. The key ``before`` them signs it
    too, where a site that is in the federation has it still: that proves who asks.
    """
    require_name("agent", name)
    require_name("federation", federation)
    seeds = {"agent": folder / "agent.seed"} | ({"keeper": folder / "keeper.seed"} if keeper else {})
    for seed in seeds.values():
        if not seed.exists():
            new_seed(seed)
    if before is not None:
        seeds["before"] = before
    signers = {role: Signer(seed) for role, seed in seeds.items()}
    plain = {
        "federation": federation,
        "name": name,
        "keys": {role: signer.nkey for role, signer in signers.items()},
    }
    body = json.dumps(plain, sort_keys=True).encode()
    proofs = {role: signer.sign(body, "request", role).hex() for role, signer in signers.items()}
    path = folder / f"{name}.request.json"
    write_file(path, json.dumps(plain | {"proofs": proofs}, indent=1) + "\n")
    return path


def read_request(path: Path) -> KeyRequest:
    """A request whose sender has the private keys; raises `ConfigurationError` for anything else."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        proofs, keys = plain.pop("proofs"), plain["keys"]
        body = json.dumps(plain, sort_keys=True).encode()
        if not isinstance(keys, Mapping) or not {"agent"} <= set(keys) <= {"agent", "keeper", "before"}:
            raise ValueError("keys of an agent, perhaps of a keeper, and the one before")
        for role, nkey in keys.items():
            public_bytes(nkey)
            verify(nkey, bytes.fromhex(proofs[role]), body, "request", role)
        require_name("federation", plain["federation"])
        return KeyRequest(
            federation=plain["federation"],
            name=require_name("agent", plain["name"]),
            nkey=keys["agent"],
            keeper=keys.get("keeper"),
            before=keys.get("before"),
        )
    except ConfigurationError:
        raise
    except RefusedError as error:
        raise ConfigurationError("request", str(path), f"one that its own keys signed ({error})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        expected = f"what `feducb keys request` wrote ({error})"
        raise ConfigurationError("request", str(path), expected) from None
