"""The operator's authority: it certifies the server, and signs rosters (`protocol.signed_roster`)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.system import optional, write_atomically

with optional("making keys", "nats"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "hosts_of",
    "issue_server_certificate",
    "make_authority",
    "require_days",
    "require_hosts",
    "write_file",
]

_CA_DAYS = 3650
_EARLIER = timedelta(minutes=5)  # certificates are valid on machines whose clocks are late
_KEY_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def require_days(days: int) -> None:
    """Raise unless a certificate can last so long."""
    if require_integer("days", days, at_least=1) > _CA_DAYS:
        expected = f"at most {_CA_DAYS}: the authority's own certificate does not last longer"
        raise ConfigurationError("days", days, expected)


def make_authority(folder: Path, federation: str) -> None:
    """A new one, in ``ca/ca.key`` and ``ca.pem``."""
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


def hosts_of(folder: Path) -> list[str]:
    """Names and addresses in the server's certificate."""
    path = folder / "server" / "server.pem"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        expected = "the server's certificate, to be renewed for the same hosts; or name them (--host)"
        raise ConfigurationError("server.pem", str(path), expected) from None
    return [str(name.value) for name in names]


def require_hosts(hosts: Sequence[str]) -> None:
    """Raise unless each is a name or an address that a certificate can be for."""
    for host in hosts:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if len(host) > 253 or not re.fullmatch(
                r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", host
            ):
                raise ConfigurationError("host", host, "a name or an address of the server") from None


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
    write_file(path, text.decode(), private=True)


def _write_certificate(
    path: Path, builder: x509.CertificateBuilder, signing: ec.EllipticCurvePrivateKey
) -> None:
    signed = builder.sign(signing, hashes.SHA256())
    write_file(path, signed.public_bytes(serialization.Encoding.PEM).decode())


def issue_server_certificate(folder: Path, hosts: Sequence[str], *, valid: timedelta) -> None:
    """Sign a new certificate for the server; a negative time makes one that has expired, for tests."""
    if not hosts:
        raise ConfigurationError("hosts", [], "at least one name or address of the server")
    require_hosts(hosts)
    private, public = folder / "ca" / "ca.key", folder / "ca.pem"
    try:
        signing = serialization.load_pem_private_key(private.read_bytes(), None)
    except (TypeError, ValueError):
        raise ConfigurationError("ca.key", str(private), "the key that `feducb keys init` made") from None
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ConfigurationError("ca.key", type(signing).__name__, "the key that `feducb keys init` made")
    try:
        authority = x509.load_pem_x509_certificate(public.read_bytes())
    except ValueError:
        raise ConfigurationError("ca.pem", str(public), "the authority's certificate") from None
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


def write_file(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file, and make its folder if need be; what is private is so from the first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o755)
    write_atomically(path, text, private=private)
