"""What nats-server reads: where it listens, who may say and hear what, and how much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.authority import require_days, write_file
from feducb.config import require_integer
from feducb.protocol.roster import Roster, Signer

__all__ = ["Server", "server_configuration", "server_settings", "write_server_settings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """How the server is reached, and what it lets through."""

    hosts: Sequence[str] = ("localhost", "127.0.0.1")  # names and addresses under which agents reach it
    address: str = "127.0.0.1"  # on which it listens; 0.0.0.0 for all of its machine
    port: int = 4222
    days: int = 365  # until its certificate expires
    max_payload: int = 2**20  # bytes of the largest message

    def __post_init__(self) -> None:
        require_integer("max_payload", self.max_payload, at_least=1)
        require_days(self.days)


def write_server_settings(folder: Path, address: str, port: int, max_payload: int) -> None:
    """Note where the server listens, and its largest message."""
    require_integer("port", port, at_least=1)
    write_file(folder / "server" / "settings", f"{address} {port} {max_payload}\n")


def server_settings(folder: Path) -> tuple[str, int, int]:
    """Address, port and largest message; before there was a choice, the server listened on all addresses."""
    *address, port, max_payload = (folder / "server" / "settings").read_text().split()
    return (address or ["0.0.0.0"])[0], int(port), int(max_payload)


def server_configuration(folder: Path, roster: Roster) -> str:
    """What nats-server reads; its paths are relative to the folder it is started in."""
    address, port, max_payload = server_settings(folder)
    users = []
    for name, nkey in roster.agents.items():
        users.append(_user(nkey, *subjects.agent_permissions(roster, name), comment=name))
    if roster.controller is not None:
        users.append(_user(roster.controller, *subjects.controller_permissions(roster), comment="controller"))
    for name, nkey in roster.keepers.items():
        users.append(_user(nkey, *subjects.keeper_permissions(roster, name), comment=f"keeper {name}"))
    admin = folder / "admin" / "admin.seed"
    if admin.exists():
        users.append(_user(Signer(admin).nkey, *subjects.admin_permissions(roster), comment="admin"))
    stored = "" if roster.edges is None else 'jetstream { store_dir: "jetstream" }\n'
    return (
        f"# Written by feducb keys; start in this folder: nats-server -c nats-server.conf\n"
        f'server_name: "feducb-{roster.federation}"\n'
        f"listen: {address}:{port}\n"
        f"max_payload: {max_payload}\n"
        f'tls {{ cert_file: "server.pem", key_file: "server.key", timeout: 5 }}\n'
        f"{stored}"
        f"authorization {{\n  timeout: 5\n  users = [\n{''.join(users)}  ]\n}}\n"
    )


def _user(nkey: str, publish: Sequence[str], subscribe: Sequence[str], *, comment: str) -> str:
    return (
        f"    # {comment}\n"
        f"    {{ nkey: {nkey}, permissions: {{\n"
        f"      publish: {{ allow: {json.dumps(publish)} }}\n"
        f"      subscribe: {{ allow: {json.dumps(subscribe)} }} }} }}\n"
    )
