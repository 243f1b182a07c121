"""Whom agents trust: who adds the noise. One file per trust, and one entry here."""

from feducb.interfaces import TRUST_FAMILIES, TRUSTS, Trust, TrustWords, require_trust
from feducb.trust.controller import Controller
from feducb.trust.keepers import Keepers
from feducb.trust.nobody import Nobody

__all__ = [
    "CONTROLLER",
    "KEEPERS",
    "NOBODY",
    "TRUSTS",
    "Controller",
    "Keepers",
    "Nobody",
    "Trust",
    "TrustWords",
    "require_trust",
]

NOBODY = Nobody()
CONTROLLER = Controller()
KEEPERS = Keepers()

TRUSTS.update({trust.name: trust for trust in (NOBODY, CONTROLLER, KEEPERS)})
TRUST_FAMILIES["keepers"] = Keepers.parse
