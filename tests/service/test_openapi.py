"""Schemathesis reads the OpenAPI document and tries what it promises: no 5xx, no undocumented answer."""

from __future__ import annotations

import subprocess
import sys

from harness import Running


def test_schemathesis_finds_nothing(running: Running) -> None:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {running.operator}"),
        *("--max-examples", "60", "--seed", "1", "--phases", "examples,coverage,fuzzing"),
        *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
        *("--checks", "response_schema_conformance,negative_data_rejection,ignored_auth"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
