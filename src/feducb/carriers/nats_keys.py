"""Keys, certificates and the server's configuration for a federation over NATS.

    DIR/
      federation.json  ca.pem              public: everybody needs both
      ca/ca.key                            keep it off line; needed by `rotate` alone
      server/server.pem  server.key  nats-server.conf
      agents/NAME/agent.seed               one folder a machine
      controller/controller.seed  controller.x25519
      keepers/NAME/keeper.seed             for those agents that keep pads, another key than the agent's
      admin/admin.seed                     without a controller: makes the streams

Permissions are what the protocol needs and no more. With a controller an agent publishes in its own name and
hears its own replies and the sums; a keeper hears lists for itself, and says its card and answers. On a graph
an agent publishes to its neighbours and reads what is for itself.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from feducb.carriers import nats_subjects as subjects
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import Topology
from feducb.protocol.names import require_name
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import ask_size
from feducb.system import optional, write_atomically

with optional("making keys", "nats"):
    import nkeys
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Server", "init", "issue_server_certificate", "rotate"]

_PREFIX_USER = 20 << 3
_CA_DAYS = 3650
_EARLIER = timedelta(minutes=5)  # certificates are valid on machines whose clocks are late
_KEY_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


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
        _require_days(self.days)


def _require_days(days: int) -> None:
    if require_integer("days", days, at_least=1) > _CA_DAYS:
        expected = f"at most {_CA_DAYS}: the authority's own certificate does not last longer"
        raise ConfigurationError("days", days, expected)


_SERVER = Server()


def init(
    folder: Path,
    agents: Sequence[str],
    *,
    federation: str = "feducb",
    topology: Topology | None = None,
    keepers: Sequence[str] = (),
    server: Server = _SERVER,
) -> Roster:
    """Make everything for a new federation, in a folder that does not exist or is empty.

    With a ``topology``, a graph over the agents in their order, there is no controller, and no ``keepers``.
    """
    names = [require_name("agent", name) for name in agents]
    if len(set(names)) != len(names) or not names:
        raise ConfigurationError("agents", ",".join(agents), "one or more different names")
    if topology is not None and topology.agents != len(names):
        raise ConfigurationError("agents", len(names), f"{topology.agents}, as many as in {topology.name}")
    require_name("federation", federation)
    _require_keepers(keepers, names, topology, server)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError("folder", str(folder), "a folder that does not exist yet, or is empty")
    folder.mkdir(parents=True, exist_ok=True)
    _make_authority(folder, federation)
    issue_server_certificate(folder, server.hosts, valid=timedelta(days=server.days))
    public = {name: _new_seed(folder / "agents" / name / "agent.seed") for name in names}
    if topology is None:
        controller, sealing = _new_controller(folder)
        own = {name: _new_seed(folder / "keepers" / name / "keeper.seed") for name in keepers}
        roster = Roster(
            federation=federation, agents=public, controller=controller, sealing=sealing, keepers=own
        )
    else:
        _new_seed(folder / "admin" / "admin.seed")
        near = enumerate(topology.neighbours)
        pairs = ((one, other) for one, others in near for other in others if one < other)
        edges = sorted((names[one], names[other]) for one, other in pairs)
        roster = Roster(federation=federation, agents=public, edges=tuple(edges), ttl=topology.ttl)
    _write_server_settings(folder, server.address, server.port, server.max_payload)
    _finish(folder, roster)
    return roster


def _require_keepers(
    keepers: Sequence[str], names: Sequence[str], topology: Topology | None, server: Server
) -> None:
    """Raise unless these can be keepers."""
    if not keepers:
        return
    given = ", ".join(keepers)
    if topology is not None:
        raise ConfigurationError(
            "keepers", given, "none on a graph: members of a clique hide each other's rows"
        )
    if strangers := set(keepers) - set(names):
        raise ConfigurationError("keepers", ", ".join(sorted(strangers)), f"agents: {', '.join(names)}")
    if len(set(keepers)) < 2 or len(set(keepers)) != len(keepers):
        raise ConfigurationError("keepers", given, "at least two different agents, of different owners")
    if (size := ask_size(len(names))) > server.max_payload:
        expected = f"at least {size}, the bytes of a list of {len(names)} agents"
        raise ConfigurationError("max_payload", server.max_payload, expected)


def rotate(
    folder: Path,
    *,
    agents: Iterable[str] = (),
    keepers: Iterable[str] = (),
    controller: bool = False,
    server: bool = False,
    hosts: Sequence[str] | None = None,
    days: int = _SERVER.days,
    listen: tuple[str, int] | None = None,
) -> Roster:
    """Make new keys in place of old ones, which no longer work once the server has read its configuration.

    Args:
        folder: what `init` made.
        agents: whose keys.
        keepers: whose keys as keepers.
        controller: whether to renew the controller's, both of them.
        server: whether to renew the server's certificate, for ``hosts`` or those of the old one.
        hosts: see `Server`, as for ``days``.
        days: until the new certificate expires.
        listen: address and port of the server from now on; as they were if not given.
    """
    roster = Roster.read(folder / "federation.json")
    public = dict(roster.agents)
    for name in agents:
        if name not in public:
            raise ConfigurationError("agent", name, f"one of {', '.join(public)}")
        public[name] = _new_seed(folder / "agents" / name / "agent.seed")
    kept = dict(roster.keepers)
    for name in keepers:
        if name not in kept:
            expected = f"one of {', '.join(kept)}" if kept else "none: this federation has no keepers"
            raise ConfigurationError("keeper", name, expected)
        kept[name] = _new_seed(folder / "keepers" / name / "keeper.seed")
    roster = replace(roster, agents=public, keepers=kept)
    if controller:
        if roster.controller is None:
            raise ConfigurationError("controller", True, "a federation with a controller")
        public_key, sealing = _new_controller(folder)
        roster = replace(roster, controller=public_key, sealing=sealing)
    if server or hosts is not None:
        _require_days(days)
        issue_server_certificate(folder, hosts or _hosts_of(folder), valid=timedelta(days=days))
    if listen is not None:
        _write_server_settings(folder, *listen, _server_settings(folder)[2])
    _finish(folder, roster)
    return roster


def _write_server_settings(folder: Path, address: str, port: int, max_payload: int) -> None:
    require_integer("port", port, at_least=1)
    _write(folder / "server" / "settings", f"{address} {port} {max_payload}\n")


def _server_settings(folder: Path) -> tuple[str, int, int]:
    """Address, port and largest message; before there was a choice, the server listened on all addresses."""
    *address, port, max_payload = (folder / "server" / "settings").read_text().split()
    return (address or ["0.0.0.0"])[0], int(port), int(max_payload)


def _server_configuration(folder: Path, roster: Roster) -> str:
    """What nats-server reads; its paths are relative to the folder it is started in."""
    address, port, max_payload = _server_settings(folder)
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


def issue_server_certificate(folder: Path, hosts: Sequence[str], *, valid: timedelta) -> None:
    """Sign a new certificate for the server; a negative time makes one that has expired, for tests."""
    if not hosts:
        raise ConfigurationError("hosts", [], "at least one name or address of the server")
    signing = serialization.load_pem_private_key((folder / "ca" / "ca.key").read_bytes(), None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ConfigurationError("ca.key", type(signing).__name__, "the key that `feducb keys init` made")
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(hosts[0], now - _EARLIER + min(valid * 2, timedelta(0)), now + valid, key)
        .issuer_name(authority.subject)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    _write_key(folder / "server" / "server.key", key)
    _write_certificate(folder / "server" / "server.pem", certificate, signing)


def _finish(folder: Path, roster: Roster) -> None:
    """Write what follows from the roster, and put the public files beside every key."""
    _write(folder / "server" / "nats-server.conf", _server_configuration(folder, roster))
    _write(folder / "federation.json", roster.to_json())
    several = [*sorted(folder.glob("agents/*")), *sorted(folder.glob("keepers/*"))]
    for part in (*several, folder / "controller", folder / "admin"):
        if part.is_dir():
            for name in ("federation.json", "ca.pem"):
                shutil.copyfile(folder / name, part / name)


def _user(nkey: str, publish: Sequence[str], subscribe: Sequence[str], *, comment: str) -> str:
    return (
        f"    # {comment}\n"
        f"    {{ nkey: {nkey}, permissions: {{\n"
        f"      publish: {{ allow: {json.dumps(publish)} }}\n"
        f"      subscribe: {{ allow: {json.dumps(subscribe)} }} }} }}\n"
    )


def _new_controller(folder: Path) -> tuple[str, str]:
    """New keys of the controller; the public ones, to sign and to seal."""
    sealing = X25519PrivateKey.generate()
    private = sealing.private_bytes_raw().hex() + "\n"
    _write(folder / "controller" / "controller.x25519", private, private=True)
    signing = _new_seed(folder / "controller" / "controller.seed")
    return signing, sealing.public_key().public_bytes_raw().hex()


def _new_seed(path: Path) -> str:
    seed = nkeys.encode_seed(secrets.token_bytes(32), _PREFIX_USER)
    _write(path, bytes(seed).decode() + "\n", private=True)
    return Signer(path).nkey


def _make_authority(folder: Path, federation: str) -> None:
    start, key = datetime.now(UTC) - _EARLIER, ec.generate_private_key(ec.SECP256R1())
    name = f"feducb {federation}"
    uses = {use: use in ("key_cert_sign", "crl_sign") for use in _KEY_USES}
    certificate = (
        _builder(name, start, start + timedelta(days=_CA_DAYS), key)
        .issuer_name(_subject(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.KeyUsage(**uses), critical=True)
    )
    _write_key(folder / "ca" / "ca.key", key)
    _write_certificate(folder / "ca.pem", certificate, key)


def _hosts_of(folder: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate((folder / "server" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    name: str, start: datetime, end: datetime, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .public_key(key.public_key())
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path, text.decode(), private=True)


def _write_certificate(
    path: Path, builder: x509.CertificateBuilder, signing: ec.EllipticCurvePrivateKey
) -> None:
    signed = builder.sign(signing, hashes.SHA256())
    _write(path, signed.public_bytes(serialization.Encoding.PEM).decode())


def _write(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file, and make its folder if need be; what is private is so from the first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)
    write_atomically(path, text, private=private)
