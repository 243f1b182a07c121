"""The agent's file: whatever leaves is in here, on disk, before it leaves, and stays the same for ever.

One SQLite file (write-ahead log, fsync at every commit) and one process at a time. The file is private: it
holds the records that wait, the mechanism's state and the key of the person hashes (deleted content is
overwritten, in the log once it is reused or the store is closed). Never put an old copy of it back: that
would draw new noise for release numbers that are already out. Open a new season under another path instead.
"""

from __future__ import annotations

from feducb.errors import StoreError, StoreInUseError
from feducb.storage.agent_store import AgentStore
from feducb.storage.controller_store import ControllerStore
from feducb.storage.peer_book import PeerBook
from feducb.storage.release_book import Quorum, ReleaseBook
from feducb.storage.row_book import RowBook

__all__ = [
    "AgentStore",
    "ControllerStore",
    "PeerBook",
    "Quorum",
    "ReleaseBook",
    "RowBook",
    "StoreError",
    "StoreInUseError",
]
