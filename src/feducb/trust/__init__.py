"""Whom agents trust: who adds the noise. One file per trust, and one entry here."""

from feducb.errors import ConfigurationError
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
    "with_counts",
]

NOBODY = Nobody()
CONTROLLER = Controller()
KEEPERS = Keepers()

TRUSTS.update({trust.name: trust for trust in (NOBODY, CONTROLLER, KEEPERS)})
TRUST_FAMILIES["keepers"] = Keepers.parse


def with_counts(trust: str | Trust, *, away: int | None, colluding: int | None) -> Trust:
    """The trust of that name, with D and C where they are said beside it: as options and files spell it."""
    made = require_trust(trust)
    if away is None and colluding is None:
        return made
    if made != KEEPERS:
        setting, value = ("colluding", colluding) if away is None else ("away", away)
        raise ConfigurationError(setting, value, "nothing but with the trust keepers, said by its bare name")
    return Keepers(away, colluding)
