"""Structured logs: one JSON object a line on standard error, and never anything about a visitor."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from feducb.system import quieten_asyncio

__all__ = ["set_up_logs"]

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


def set_up_logs(level: str = "info") -> None:
    """Everything through one handler; the server's access log stays off, since paths hold ids."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True
    logging.captureWarnings(True)
    quieten_asyncio()
