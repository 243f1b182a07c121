"""Whom agents trust: who adds the noise. One file per trust, and one entry here."""

from feducb.interfaces import TRUSTS, Trust, TrustWords, require_trust
from feducb.trust.controller import Controller
from feducb.trust.nobody import Nobody

__all__ = ["CONTROLLER", "NOBODY", "TRUSTS", "Controller", "Nobody", "Trust", "TrustWords", "require_trust"]

NOBODY = Nobody()
CONTROLLER = Controller()

TRUSTS.update({trust.name: trust for trust in (NOBODY, CONTROLLER)})
