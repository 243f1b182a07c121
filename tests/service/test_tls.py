"""TLS, with and without certificates for callers."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness import ACTIONS, Running, write_config

from feducb.service.client import Client


def _certificate(folder: Path, name: str, issuer: str | None = None) -> None:
    """Write NAME.pem and NAME.key; signed by the issuer, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, signed_by = key, subject
    if issuer is not None:
        loaded = serialization.load_pem_private_key((folder / f"{issuer}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer, signed_by = loaded, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(__import__("ipaddress").ip_address("127.0.0.1"))]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def test_over_tls_strangers_cannot_read_or_pretend(tmp_path: Path) -> None:
    for name, issuer in (
        ("ca", None),
        ("other", None),
        ("server", "ca"),
        ("caller", "ca"),
        ("stranger", "other"),
    ):
        _certificate(tmp_path, name, issuer)
    service = 'certificate = "server.pem"\nprivate_key = "server.key"\nclient_ca = "ca.pem"'
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    trusting.load_cert_chain(tmp_path / "caller.pem", tmp_path / "caller.key")
    with Running(write_config(tmp_path, service=service), scheme="https", verify=trusting) as running:
        with running.http(running.application) as http:
            assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200
            cookie = http.post("/v1/session", json={"key": running.operator}).headers["set-cookie"]
            assert {"HttpOnly", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
        with pytest.raises(httpx.TransportError):  # no TLS
            httpx.get(running.url.replace("https", "http") + "/healthz")
        with pytest.raises(httpx.TransportError):  # a server that we do not trust
            httpx.get(
                running.url + "/healthz",
                verify=ssl.create_default_context(cafile=str(tmp_path / "other.pem")),
            )
        unknown = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with pytest.raises(httpx.TransportError):  # a caller without a certificate
            httpx.get(running.url + "/healthz", verify=unknown)
        unknown.load_cert_chain(tmp_path / "stranger.pem", tmp_path / "stranger.key")
        with pytest.raises(httpx.TransportError):  # a caller with a certificate of another CA
            httpx.get(running.url + "/healthz", verify=unknown)


def test_the_client_takes_a_ca(tmp_path: Path) -> None:
    _certificate(tmp_path, "ca")
    _certificate(tmp_path, "server", "ca")
    service = 'certificate = "server.pem"\nprivate_key = "server.key"'
    with (
        Running(write_config(tmp_path, service=service), scheme="https") as running,
        Client(running.url, key=running.application, ca=tmp_path / "ca.pem") as agent,
    ):
        assert agent.reward(agent.decide(ACTIONS).id, 1.0) == "recorded"
