"""Whom agents trust: who adds the noise. One file per trust, and one entry here."""

from feducb.errors import ConfigurationError
from feducb.interfaces import SOLITARY, TRUST_FAMILIES, TRUSTS, Trust, TrustWords, require_trust
from feducb.trust.alone import Alone
from feducb.trust.controller import Controller
from feducb.trust.keepers import Keepers
from feducb.trust.nobody import Nobody

__all__ = [
    "CONTROLLER",
    "KEEPERS",
    "NOBODY",
    "SELF",
    "TRUSTS",
    "Alone",
    "Controller",
    "Keepers",
    "Nobody",
    "Trust",
    "TrustWords",
    "require_trust",
    "trust_with",
]

NOBODY = Nobody()
CONTROLLER = Controller()
KEEPERS = Keepers()
SELF = Alone()

TRUSTS.update({trust.name: trust for trust in (NOBODY, CONTROLLER, KEEPERS)})
TRUST_FAMILIES["keepers"] = Keepers.parse
SOLITARY[SELF.name] = SELF


def trust_with(name: str | Trust, *, away: int | None = None, colluding: int | None = None) -> Trust:
    """The trust of that name; how many may be away, and may collude, as files and options say it."""
    trust = require_trust(name)
    for setting, value in (("away", away), ("colluding", colluding)):
        if value is not None and not isinstance(trust, Keepers):
            raise ConfigurationError(setting, value, f"nothing under trust {trust.name}: it is for keepers")
    if isinstance(trust, Keepers):
        return Keepers(
            trust.away if away is None else away, trust.colluding if colluding is None else colluding
        )
    return trust
