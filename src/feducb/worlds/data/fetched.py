"""Files that no package of the ``[data]`` extra carries: where they are looked for, and how to get them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from feducb.errors import MissingExtraError

__all__ = ["Fetched"]


class Fetched:
    """A file of somebody else's package, found by its name in the first of a few folders.

    Args:
        name: of the file.
        how: the command that gets it.
        folders: where that command, or its package, puts it.
        package: one that is installed for its files alone and never imported.
        inside: the folder inside that package.
    """

    def __init__(
        self, name: str, how: str, *, folders: tuple[str, ...] = (), package: str = "", inside: str = ""
    ) -> None:
        self.name, self.how, self._folders, self._package, self._inside = name, how, folders, package, inside

    def path(self) -> Path | None:
        """Where it is; None if it is nowhere."""
        given = os.environ.get("FEDUCB_DATA")
        folders = [Path(given)] if given else []
        folders += [Path(sys.prefix) / "share" / "feducb", *map(Path, self._folders)]
        found = find_spec(self._package) if self._package else None
        if found is not None:
            folders += [Path(one) / self._inside for one in found.submodule_search_locations or ()]
        return next((one / self.name for one in folders if (one / self.name).is_file()), None)

    def require(self, user: str) -> Path:
        """Where it is.

        Raises:
            MissingExtraError: it is nowhere; the message says how to get it.
        """
        path = self.path()
        if path is None:
            raise MissingExtraError(f"{user} needs {self.name}: {self.how}")
        return path
