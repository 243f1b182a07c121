"""How an agent, or a controller, is reached over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from feducb.config import require_integer
from feducb.errors import ConfigurationError

__all__ = ["ServiceSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """How the agent is reached.

    Attributes:
        host: address to listen on.
        port: 0 takes a free one.
        keys: the file of API keys.
        certificate: TLS certificate chain (PEM); without one only this machine should reach the port.
        private_key: of the certificate (PEM).
        client_ca: if given, callers must show a certificate signed by it, beside their key.
        largest_body: bytes of one request.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    keys: Path = Path("agent.keys")
    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    largest_body: int = 1_048_576

    def __post_init__(self) -> None:
        if require_integer("service.port", self.port, at_least=0) > 65535:
            raise ConfigurationError("service.port", self.port, "a port up to 65535")
        require_integer("service.largest_body", self.largest_body, at_least=1024)
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigurationError("service.certificate", self.certificate, "given with its private_key")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigurationError(
                "service.client_ca", str(self.client_ca), "nothing without a certificate"
            )
