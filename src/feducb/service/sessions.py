"""Log-ins of the page: a key in, an operator's or a viewer's; a cookie out that opens only what is read.

A session is a random token in a cookie. Here only its hash is kept, in memory, with the hash of the key it
came from: it ends after half a day, at log-out, when the service stops, or when the key is revoked. Since no
route that changes anything looks at the cookie, a request that another site makes a browser send (CSRF) can
change nothing; it is ``SameSite=Strict`` all the same.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from feducb.service.api_keys import LOOKERS, ApiKeys, hash_of

__all__ = ["Sessions", "set_cookie"]

_SECONDS = 12 * 3600
_MOST = 1000  # the oldest goes first


class Sessions:
    """Who looks at the page."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()  # token's hash → key's hash, end

    def log_in(self, key: str) -> tuple[str | None, Literal[200, 401, 403]]:
        """A token for an operator's or a viewer's key; else why not, as a status."""
        hashed = hash_of(key)
        role = self._keys.role_of(hashed)
        if role not in LOOKERS:
            return None, 401 if role is None else 403
        token = secrets.token_urlsafe(32)
        self._open[hash_of(token)] = (hashed, time.monotonic() + _SECONDS)
        while len(self._open) > _MOST:
            self._open.popitem(last=False)
        return token, 200

    def log_out(self, request: Request) -> None:
        """End the session of this request, if it has one."""
        self._open.pop(hash_of(request.cookies.get(_cookie(request), "")), None)

    def may_look(self, request: Request) -> bool:
        """Whether it comes with an open session, or such a key; ask again while a stream goes on."""
        header = request.headers.get("authorization")
        if header is not None:
            return self._keys.role(header.encode("latin-1")) in LOOKERS
        name = hash_of(request.cookies.get(_cookie(request), ""))
        key, until = self._open.get(name, ("", 0.0))
        if time.monotonic() > until or self._keys.role_of(key) not in LOOKERS:
            self._open.pop(name, None)
            return False
        return True

    def why_not(self, request: Request) -> tuple[Literal[401, 403], str]:
        """Status and reason for whom `may_look` does not let in."""
        header = request.headers.get("authorization")
        role = None if header is None else self._keys.role(header.encode("latin-1"))
        if role is None:
            return 401, "log in, or show an operator's or a viewer's key"
        return 403, f"this key has the role {role}; this needs an operator's or a viewer's"


def set_cookie(request: Request, response: Response, token: str | None) -> None:
    """Give a token to the browser, out of reach of scripts and of other sites; None takes it back."""
    response.set_cookie(
        _cookie(request),
        token or "",
        max_age=_SECONDS if token else 0,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _cookie(request: Request) -> str:
    """By port: cookies do not tell ports apart, and several agents may run on one machine."""
    return f"feducb_session_{request.url.port or request.url.scheme}"
