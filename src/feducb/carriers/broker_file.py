"""What nats-server reads: where it listens, who may say and hear what, and how much."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.authority import require_days, require_hosts, write_file
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.roster import Roster, Signer

__all__ = ["Server", "choose_sync", "server_configuration", "server_settings", "write_server_settings"]

_KNOWS_SYNC = (2, 10)  # the first version of nats-server that may write through
_SYNC = "sync"


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """How the server is reached, and what it lets through."""

    hosts: Sequence[str] = ("localhost", "127.0.0.1")  # names and addresses under which agents reach it
    address: str = "127.0.0.1"  # on which it listens; 0.0.0.0 for all of its machine
    port: int = 4222
    days: int = 365  # until its certificate expires
    max_payload: int = 2**20  # bytes of the largest message
    sync: bool | None = None  # on a graph: on disk before it is acknowledged; as the nats-server here can

    def __post_init__(self) -> None:
        require_integer("max_payload", self.max_payload, at_least=1)
        require_days(self.days)
        require_hosts(self.hosts)


def write_server_settings(folder: Path, listen: tuple[str, int], max_payload: int, *, sync: bool) -> None:
    """Note where the server listens, its largest message, and whether it writes through."""
    address, port = listen
    require_integer("port", port, at_least=1)
    through = f" {_SYNC}" if sync else ""
    write_file(folder / "server" / "settings", f"{address} {port} {max_payload}{through}\n")


def server_settings(folder: Path) -> tuple[tuple[str, int], int, bool]:
    """Address and port, largest message, whether it writes through.

    Before there was a choice the server listened on all addresses, and did not write through.
    """
    words = (folder / "server" / "settings").read_text().split()
    sync = words[-1] == _SYNC
    *address, port, max_payload = words[:-1] if sync else words
    return ((address or ["0.0.0.0"])[0], int(port)), int(max_payload), sync


def choose_sync(sync: bool | None, *, stores: bool) -> bool:
    """Whether the server is to write through: as wished; else where the nats-server of this machine can.

    Args:
        sync: the wish.
        stores: whether the server keeps messages at all, as on a graph.
    """
    if sync and not stores:
        raise ConfigurationError("sync", True, "nothing with a controller: the server stores no message")
    return stores and (sync if sync is not None else _server_version() >= _KNOWS_SYNC)


def _server_version() -> tuple[int, int]:
    """Of the nats-server on this machine; (0, 0) if there is none that says."""
    if (path := shutil.which("nats-server")) is None:
        return 0, 0
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    found = re.search(r"v(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def server_configuration(folder: Path, roster: Roster) -> str:
    """What nats-server reads; its paths are relative to the folder it is started in."""
    (address, port), max_payload, sync = server_settings(folder)
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
    through = ", sync_interval: always" if sync else ""
    stored = "" if roster.edges is None else f'jetstream {{ store_dir: "jetstream"{through} }}\n'
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
