"""What the page to sign says where one noise is shared out between agents (docs/theory.md, 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from feducb.config import Budget
from feducb.interfaces import interactions
from feducb.privacy.calibration import to_epsilon
from feducb.privacy.grid import Certificate
from feducb.privacy.terms import Terms

__all__ = ["CLIQUE_ADVERSARY", "CLIQUE_TRUSTED", "shares_rows", "stated_shares"]

# On a graph members of a clique mask their rows in pairs: there is neither a controller nor a keeper.
CLIQUE_ADVERSARY = (
    "Anyone but the agent itself: everybody outside its clique and whoever carries messages, together with "
    "as many members of the clique as are stated to collude. They read everything that leaves every agent, "
    "choose later visitors by it, and make agents restart at any moment. Computationally bounded: X25519, "
    "HKDF, ChaCha20, Ed25519 and SHA-256 are taken to be sound."
)
CLIQUE_TRUSTED = (
    "Nobody by itself. The other members of the clique, but for those that are stated to collude, must be "
    "honest, and must not all have been put back from a backup: a row then opens once, as the sum over all."
)

_ATTENDANCE = (
    "The fewest honest shares must be fixed in advance. No ε is stated after the fact: whoever chooses who "
    "is there may choose by what he has seen."
)
_OPENED_ALONE = (
    "No promise. They can open an agent's rows one by one; each is built once and has the agent's own share "
    "of noise, so that it alone would make ε"
)
_LEFT_ALONE = (
    "No promise. They can take their own rows out of a sum; each row of this agent is built once and has its "
    "own share of noise, so that it alone would make ε"
)
_SPOILED = (
    "Cannot be named or refused one by one, since nobody sees single uploads. A sum that no honest agents "
    "could have made is published as refused and not used; who spoiled it can only be found out in a season "
    "under the trust nobody."
)
_SECRETS = (
    "No copies: a keeper put back from a backup could answer for a second list, and so open a row twice. One "
    "that has lost its newest store never signs again in the season, and ends it."
)


def stated_shares(terms: Terms, keepers: Sequence[str], clique: Sequence[str] = ()) -> dict[str, Any] | None:
    """The numbers and sentences as plain data; None where noise is not shared out.

    Args:
        terms: what is promised.
        keepers: their names, if known.
        clique: on a graph the members' names; empty with a controller.
    """
    certificate = terms.certificate()
    if certificate.shares == 1:
        return None
    quorum = terms.trust.quorum(terms.agents)
    by_shares = _by_honest_shares(certificate, terms.budget)
    alone = f"= {by_shares[-1]['epsilon']:.4g}. Nothing is claimed here."
    hidden_by: dict[str, Any] = {
        "keepers": list(keepers),
        "all_keepers_collude": f"{_OPENED_ALONE} {alone}",
        "keeper_secrets": _SECRETS,
    }
    if clique:
        hidden_by = {"clique": list(clique), "all_others_collude": f"{_LEFT_ALONE} {alone}"}
    return {
        **hidden_by,
        "agents": terms.agents,
        "away": terms.agents - quorum,
        "colluding": quorum - certificate.shares,
        "quorum": quorum,
        "shares": certificate.shares,
        "deviation_together": certificate.scale * math.sqrt(certificate.shares),
        "by_honest_shares": by_shares,
        "attendance": _ATTENDANCE,
        "records_covered": terms.records_covered,
        "records_of_a_person": _of_a_person(terms),
        "spoiled_uploads": _SPOILED,
    }


def shares_rows(plain: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of the page."""
    fewer = "; ".join(
        f"{one['shares']}: μ = {one['mu']:.4g}, ε = {one['epsilon']:.4g}" for one in plain["by_honest_shares"]
    )
    in_clique = "clique" in plain
    whom = ("Keepers", ", ".join(plain.get("keepers", ())) or "those that the federation's roster names")
    all_collude = "If the controller and all keepers collude", plain.get("all_keepers_collude")
    if in_clique:
        whom = "Clique", f"{', '.join(plain['clique'])}: they mask their rows in pairs"
        all_collude = "If all other members of the clique collude", plain["all_others_collude"]
    return [
        whom,
        (
            "Shares of noise",
            f"Of {plain['agents']} agents {plain['away']} may miss a row (D) and {plain['colluding']} may "
            f"collude (C). A row opens with {plain['quorum']} agents or more, so that "
            f"{plain['shares']} honest shares of noise (H) are in it at least, of deviation "
            f"{plain['deviation_together']:.6g} together",
        ),
        ("With so many honest shares", f"{fewer}. {plain['attendance']}"),
        ("Records of a person", plain["records_of_a_person"]),
        all_collude,
        ("Spoiled uploads", plain["spoiled_uploads"]),
        *([] if in_clique else [("Secrets of keepers", plain["keeper_secrets"])]),
    ]


def _by_honest_shares(certificate: Certificate, budget: Budget) -> list[dict[str, float]]:
    """μ and ε where every sum has so many: from those that are sure to be there down to one."""
    all_of_them = certificate.shares
    counts = {all_of_them, round(5 * all_of_them / 7), all_of_them // 2, all_of_them // 4, 1} - {0}
    mus = {count: certificate.mu_with(count) for count in sorted(counts, reverse=True)}
    return [{"shares": n, "mu": mu, "epsilon": to_epsilon(mu, budget.delta)} for n, mu in mus.items()]


def _of_a_person(terms: Terms) -> str:
    return (
        f"The promise covers Σp_i = {interactions(terms.records_covered)}, p_i at agent i, at all agents "
        "together: a sum has one noise, so that costs add up wherever she has them. With more, μ grows in "
        "proportion."
    )
