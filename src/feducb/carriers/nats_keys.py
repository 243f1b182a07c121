"""Keys, certificates and the server's configuration for a federation over NATS.

    DIR/
      federation.json  ca.pem              public: everybody needs both
      ca/ca.key                            keep it off line; needed by `rotate` alone
      server/server.pem  server.key  nats-server.conf
      agents/NAME/agent.seed               one folder a machine
      controller/controller.seed  controller.x25519
      admin/admin.seed                     without a controller: makes the streams

Permissions are what the protocol needs and no more. With a controller an agent publishes in its own name and
hears its own replies and the sums. On a graph it publishes to its neighbours and reads what is for itself.
"""

from __future__ import annotations

import ipaddress
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import Topology
from feducb.protocol.names import require_name
from feducb.protocol.roster import Roster, Signer
from feducb.system import optional, write_atomically

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["init", "issue_server_certificate", "rotate", "server_configuration"]

_PREFIX_USER = 20 << 3
_CA_DAYS = 3650
DEFAULT_MAX_PAYLOAD = 2**20
DEFAULT_DAYS = 365


def init(
    folder: Path,
    agents: Sequence[str],
    *,
    federation: str = "feducb",
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    topology: Topology | None = None,
    address: str = "127.0.0.1",
    port: int = 4222,
    days: int = DEFAULT_DAYS,
    max_payload: int = DEFAULT_MAX_PAYLOAD,
) -> Roster:
    """Make everything for a new federation.

    Args:
        folder: where to; it must not exist, or be empty.
        agents: their names.
        federation: its name.
        hosts: names and addresses under which agents reach the server.
        topology: a graph over the agents, in their order; with a controller if not given.
        address: on which the server listens; 0.0.0.0 for all of its machine.
        port: of the server.
        days: until the server's certificate expires.
        max_payload: bytes of the largest message.
    """
    names = [require_name("agent", name) for name in agents]
    if len(set(names)) != len(names) or not names:
        raise ConfigurationError("agents", ",".join(agents), "one or more different names")
    if topology is not None and topology.agents != len(names):
        raise ConfigurationError("agents", len(names), f"{topology.agents}, as many as in {topology.name}")
    require_name("federation", federation)
    require_integer("days", days, at_least=1)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError("folder", str(folder), "a folder that does not exist yet, or is empty")
    folder.mkdir(parents=True, exist_ok=True)
    _make_authority(folder, federation)
    issue_server_certificate(folder, hosts, valid=timedelta(days=days))
    public = {name: _new_seed(folder / "agents" / name / "agent.seed") for name in names}
    if topology is None:
        roster = Roster(
            federation=federation,
            agents=public,
            controller=_new_seed(folder / "controller" / "controller.seed"),
            sealing=_new_sealing_key(folder / "controller" / "controller.x25519"),
        )
    else:
        _new_seed(folder / "admin" / "admin.seed")
        edges = {
            (names[min(one, other)], names[max(one, other)])
            for one, near in enumerate(topology.neighbours)
            for other in near
        }
        roster = Roster(federation=federation, agents=public, edges=tuple(sorted(edges)), ttl=topology.ttl)
    _write_server_settings(folder, address, port, max_payload)
    _finish(folder, roster)
    return roster


def rotate(
    folder: Path,
    *,
    agents: Iterable[str] = (),
    controller: bool = False,
    server: bool = False,
    hosts: Sequence[str] | None = None,
    days: int = DEFAULT_DAYS,
    address: str | None = None,
    port: int | None = None,
) -> Roster:
    """Make new keys in place of old ones, which no longer work once the server has read its configuration.

    Args:
        folder: what `init` made.
        agents: whose keys.
        controller: the controller's keys, both of them.
        server: the server's certificate, for ``hosts`` or those of the old one.
        hosts: see `init`.
        days: until the new certificate expires.
        address: where the server listens from now on; where it did if not given.
        port: likewise.
    """
    roster = Roster.read(folder / "federation.json")
    public = dict(roster.agents)
    for name in agents:
        if name not in public:
            raise ConfigurationError("agent", name, f"one of {', '.join(public)}")
        public[name] = _new_seed(folder / "agents" / name / "agent.seed")
    roster = replace(roster, agents=public)
    if controller:
        if roster.controller is None:
            raise ConfigurationError("controller", True, "a federation with a controller")
        roster = replace(
            roster,
            controller=_new_seed(folder / "controller" / "controller.seed"),
            sealing=_new_sealing_key(folder / "controller" / "controller.x25519"),
        )
    if server or hosts is not None:
        issue_server_certificate(folder, hosts or _hosts_of(folder), valid=timedelta(days=days))
    if address is not None or port is not None:
        old_address, old_port, max_payload = _server_settings(folder)
        _write_server_settings(folder, address or old_address, port or old_port, max_payload)
    _finish(folder, roster)
    return roster


def _write_server_settings(folder: Path, address: str, port: int, max_payload: int) -> None:
    require_integer("port", port, at_least=1)
    _write(folder / "server" / "settings", f"{address} {port} {max_payload}\n")


def _server_settings(folder: Path) -> tuple[str, int, int]:
    """Address, port and largest message; before there was a choice, the server listened on all addresses."""
    *address, port, max_payload = (folder / "server" / "settings").read_text().split()
    return (address or ["0.0.0.0"])[0], int(port), int(max_payload)


def server_configuration(
    roster: Roster, *, admin: str | None, address: str, port: int, max_payload: int
) -> str:
    """What nats-server reads; its paths are relative to the folder it is started in."""
    users = []
    for name, nkey in roster.agents.items():
        users.append(_user(nkey, *subjects.agent_permissions(roster, name), comment=name))
    if roster.controller is not None:
        users.append(_user(roster.controller, *subjects.controller_permissions(roster), comment="controller"))
    if admin is not None:
        users.append(_user(admin, *subjects.admin_permissions(roster), comment="admin"))
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
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not hosts:
        raise ConfigurationError("hosts", [], "at least one name or address of the server")
    authority, signing = _read_authority(folder)
    key = _new_private_key()
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    start = datetime.now(UTC) - timedelta(minutes=5) + min(valid * 2, timedelta(0))
    certificate = (
        _builder(hosts[0], start, datetime.now(UTC) + valid)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    _write_certificate(folder / "server", "server", certificate, key, signing)


def _finish(folder: Path, roster: Roster) -> None:
    """Write what follows from the roster, and put the public files beside every key."""
    address, port, max_payload = _server_settings(folder)
    seed = folder / "admin" / "admin.seed"
    admin = Signer(seed).nkey if seed.exists() else None
    _write(
        folder / "server" / "nats-server.conf",
        server_configuration(roster, admin=admin, address=address, port=port, max_payload=max_payload),
    )
    _write(folder / "federation.json", roster.to_json())
    for part in (*sorted((folder / "agents").iterdir()), folder / "controller", folder / "admin"):
        if part.is_dir():
            for name in ("federation.json", "ca.pem"):
                shutil.copyfile(folder / name, part / name)


def _user(nkey: str, publish: Sequence[str], subscribe: Sequence[str], *, comment: str) -> str:
    def listed(some: Sequence[str]) -> str:
        return "[" + ", ".join(f'"{one}"' for one in some) + "]"

    return (
        f"    # {comment}\n"
        f"    {{ nkey: {nkey}, permissions: {{\n"
        f"      publish: {{ allow: {listed(publish)} }}\n"
        f"      subscribe: {{ allow: {listed(subscribe)} }} }} }}\n"
    )


def _new_seed(path: Path) -> str:
    with optional("making keys", "nats"):
        import nkeys
    seed = nkeys.encode_seed(secrets.token_bytes(32), _PREFIX_USER)
    _write(path, bytes(seed).decode() + "\n", private=True)
    return Signer(path).nkey


def _new_sealing_key(path: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    _write(path, key.private_bytes_raw().hex() + "\n", private=True)
    return key.public_key().public_bytes_raw().hex()


def _make_authority(folder: Path, federation: str) -> None:
    with optional("making keys", "nats"):
        from cryptography import x509
    key = _new_private_key()
    start = datetime.now(UTC) - timedelta(minutes=5)
    name = f"feducb {federation}"
    certificate = (
        _builder(name, start, start + timedelta(days=_CA_DAYS))
        .issuer_name(_subject(name))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    _write_certificate(folder / "ca", "ca", certificate, key, key)
    (folder / "ca" / "ca.pem").rename(folder / "ca.pem")


def _read_authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key((folder / "ca" / "ca.key").read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigurationError("ca.key", type(key).__name__, "the key that `feducb keys init` made")
    return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key


def _hosts_of(folder: Path) -> list[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((folder / "server" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(name: str, start: datetime, end: datetime) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _new_private_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _write_certificate(
    folder: Path,
    name: str,
    builder: x509.CertificateBuilder,
    key: EllipticCurvePrivateKey,
    signing: EllipticCurvePrivateKey,
) -> None:
    from cryptography.hazmat.primitives import hashes, serialization

    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / f"{name}.key", text.decode(), private=True)
    signed = builder.sign(signing, hashes.SHA256())
    _write(folder / f"{name}.pem", signed.public_bytes(serialization.Encoding.PEM).decode())


def _write(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file, and make its folder if need be; what is private is so from the first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)
    write_atomically(path, text, private=private)
