"""What is asked of the machine and of other libraries (whole files, extras, threads, warnings); plurals."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feducb.errors import MissingExtraError

__all__ = [
    "counted",
    "current_user",
    "optional",
    "quieten_asyncio",
    "single_threaded_blas",
    "write_atomically",
]


def counted(count: float, noun: str, form: str = ",") -> str:
    """A number of things: 1 agent, 2 agents."""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def optional(user: str, extra: str) -> Iterator[None]:
    """Around imports of libraries that an extra brings: if one is missing, say how to get it.

    >>> with optional("the tour", "service"):
    ...     import no_such_library
    Traceback (most recent call last):
    feducb.errors.MissingExtraError: the tour needs no_such_library: pip install 'feducb[service]'

    Args:
        user: what needs them, as the sentence begins.
        extra: which extra, or several with commas between them.
    """
    try:
        yield
    except ImportError as error:
        library = (error.name or extra).partition(".")[0]
        if library.startswith("feducb"):  # a mistake of ours, not a library that is missing
            raise
        raise MissingExtraError(f"{user} needs {library}: pip install 'feducb[{extra}]'") from None


def current_user() -> str:
    """Who this process runs as, for logs: ``user NAME``."""
    import getpass

    try:
        return f"user {getpass.getuser()}"
    except (OSError, KeyError):  # no name for this number
        return f"user {os.getuid()}"


def write_atomically(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file so that a reader, and a crash, sees the old one or the new one, never half of one.

    Args:
        path: its folder must exist. One process at a time writes it, one thread at a time.
        content: text is written as UTF-8.
        private: nobody but its owner may read it, not even for a moment.
    """
    data = content.encode() if isinstance(content, str) else content
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644
    try:
        with open(os.open(fresh, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def single_threaded_blas() -> Any:
    """A context with one BLAS thread: small matrices gain nothing from more, and sums keep their order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # only tidies up: results depend on it neither way at these sizes
        return contextlib.nullcontext()
    return threadpool_limits(limits=1, user_api="blas")


# nats-py's reader keeps a connection half open when the server hangs up, which TLS cannot do.
_NEEDLESS = "returning true from eof_received() has no effect when using ssl"


def _needed(record: logging.LogRecord) -> bool:
    return record.getMessage() != _NEEDLESS


def quieten_asyncio() -> None:
    """Drop that one warning; once more changes nothing."""
    logging.getLogger("asyncio").addFilter(_needed)
