"""Long runs that can be killed: what is done so far, in a folder.

One file a piece of work, replaced as a whole, so that a crash leaves the one before. Files are Python
pickles: go on only from a folder that you wrote yourself.
"""

from __future__ import annotations

import fcntl
import json
import pickle
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feducb.errors import ConfigurationError
from feducb.system import write_atomically

__all__ = ["EVERY", "Checkpoint", "Piece", "look"]

EVERY = 20.0
"""Seconds between two savings of a piece of work: what a crash can lose."""

_SETTINGS, _SECONDS, _LOCK, _PROGRESS = "settings.json", "seconds.json", "lock", "progress.json"
_TELL = 0.5  # seconds between two words about progress


class Checkpoint:
    """A folder with the state of one simulation.

    Attributes:
        folder: where.
        seconds_before: how long it took to get to what is here.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self._saved: dict[str, float] = {}
        self._opened, self._lock = time.monotonic(), threading.Lock()
        self._told_at = 0.0
        text = json.dumps(settings, indent=2, sort_keys=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        known = self.folder / _SETTINGS
        if not known.exists():
            if any(path.name != _LOCK for path in self.folder.iterdir()):
                raise ConfigurationError("checkpoint", str(folder), "an empty folder, or one of a simulation")
            write_atomically(known, text.encode())
        elif known.read_text(encoding="utf-8") != text:
            raise ConfigurationError(
                "checkpoint", str(folder), "a folder with the same settings, backend and version of feducb"
            )
        self._lock_file = (self.folder / _LOCK).open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock_file.close()
            raise ConfigurationError(
                "checkpoint", str(folder), "a folder that no other simulation is using now"
            ) from None
        clock = self.folder / _SECONDS
        self.seconds_before: float = json.loads(clock.read_text()) if clock.exists() else 0.0

    def load(self, piece: str) -> Any:
        """What was saved last; None if nothing was."""
        path = self.folder / f"{piece}.pickle"
        if not path.exists():
            return None
        try:
            with path.open("rb") as file:
                return pickle.load(file)
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError):
            raise ConfigurationError(
                "checkpoint", str(path), "a file as it was written; delete it to play that piece again"
            ) from None

    def close(self) -> None:
        """Let go of the folder."""
        self._lock_file.close()

    def due(self, piece: str) -> bool:
        """Whether so much time has passed that the piece should be saved now."""
        return time.monotonic() - self._saved.setdefault(piece, time.monotonic()) >= EVERY

    def save(self, piece: str, state: Any) -> None:
        """Keep the state of a piece in place of the one before."""
        write_atomically(self.folder / f"{piece}.pickle", pickle.dumps(state, protocol=5))
        now = time.monotonic()
        self._saved[piece] = now
        with self._lock:
            write_atomically(self.folder / _SECONDS, json.dumps(self.seconds_before + now - self._opened))

    def tell(self, done: int, total: int) -> None:
        """Say how many agent-steps are done, now and then, for `look`; a crash may lose a word."""
        now = time.monotonic()
        if done < total and now - self._told_at < _TELL:
            return
        self._told_at = now
        seconds = self.seconds_before + now - self._opened
        progress = {"done": done, "total": total, "seconds": seconds, "at": time.time()}
        write_atomically(self.folder / _PROGRESS, json.dumps(progress))


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work, kept through a crash; without a checkpoint it is not."""

    checkpoint: Checkpoint | None
    name: str

    def load(self) -> Any:
        """What was saved last; None if nothing was."""
        return None if self.checkpoint is None else self.checkpoint.load(self.name)

    def due(self) -> bool:
        """Whether it should be saved now."""
        return self.checkpoint is not None and self.checkpoint.due(self.name)

    def save(self, state: Any) -> None:
        """Keep its state in place of the one before."""
        if self.checkpoint is not None:
            self.checkpoint.save(self.name, state)


def look(folder: str | Path) -> dict[str, Any]:
    """How far a simulation is, which may be running elsewhere: its settings, and its last word."""
    folder = Path(folder)
    try:
        settings: dict[str, Any] = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigurationError("checkpoint", str(folder), "a folder of a simulation") from None
    try:
        progress = json.loads((folder / _PROGRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        progress = {"done": 0, "total": None, "seconds": 0.0, "at": None}
    pieces = [path.stat().st_mtime for path in folder.glob("*.pickle")]
    return {
        "kind": "simulation",
        "settings": settings,
        "pieces": len(pieces),
        "saved_at": max(pieces, default=None),
        **progress,
    }
