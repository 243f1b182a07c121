"""The other side of `pool`: jobs as lines in, results as sized archives out."""

from __future__ import annotations

import io
import json
import sys

import numpy as np

from feducb.audit.trials import Job, draw

__all__: list[str] = []


def _serve() -> None:
    """Jobs as lines in, results as sized archives out."""
    for line in sys.stdin.buffer:
        result = draw(Job(**json.loads(line)))
        kept, archive = sorted(result.headers), io.BytesIO()
        np.savez(
            archive,
            values=result.values,
            numbers=np.array([number for number, _ in kept]),
            headers=np.array([header.hex() for _, header in kept]),
        )
        data = archive.getvalue()
        sys.stdout.buffer.write(len(data).to_bytes(8, "little") + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
