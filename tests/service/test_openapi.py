"""Schemathesis reads the OpenAPI document and tries what it promises: no 5xx, no undocumented answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import Running

# What is made up for a batch may be too large to be looked at: that is a refusal too.
STATUSES = ("400", "401", "403", "404", "405", "413", "422")
REFUSED = f"[checks]\nnegative_data_rejection.expected-statuses = {json.dumps(STATUSES)}\n"
# Of several rows one that cannot be read is refused by itself, with 200 for all.
EACH = (
    '[[operations]]\ninclude-path = "/v1/decisions/batch"\n'
    f"[operations.checks]\nnegative_data_rejection.expected-statuses = {json.dumps(('200', *STATUSES))}\n"
)


def test_schemathesis_finds_nothing(running: Running, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(REFUSED + EACH)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(tmp_path / "schemathesis.toml")),
        *("run", f"{running.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {running.operator}"),
        *("--max-examples", "60", "--seed", "1", "--phases", "examples,coverage,fuzzing"),
        *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
        *("--checks", "response_schema_conformance,negative_data_rejection,ignored_auth"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
