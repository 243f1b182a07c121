"""Whole files and optional imports."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from feducb.errors import MissingExtraError
from feducb.system import optional, write_atomically


@pytest.mark.parametrize("content", ["ä\n", "ä\n".encode()])
def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "facts.json"
    path.write_text("old")
    write_atomically(path, content)
    assert path.read_bytes() == "ä\n".encode()
    assert os.listdir(tmp_path) == ["facts.json"]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_a_private_file_is_its_owners_alone(tmp_path: Path, private: bool, mode: int) -> None:
    path = tmp_path / "seed"
    path.touch(0o666)
    before = os.umask(0)
    try:
        write_atomically(path, "secret", private=private)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "facts.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["facts.json"]


def test_a_missing_library_names_its_extra_in_one_sentence() -> None:
    expected = "the tour needs no_such_library: pip install 'feducb[nats,service]'"
    with (
        pytest.raises(MissingExtraError, match=f"^{re.escape(expected)}$"),
        optional("the tour", "nats,service"),
    ):
        import no_such_library.part  # type: ignore[import-not-found]  # noqa: F401


def test_a_mistake_of_ours_is_not_called_a_missing_library() -> None:
    with pytest.raises(ImportError, match="no_such_name"), optional("the tour", "service"):
        from feducb.system import no_such_name  # type: ignore[attr-defined]  # noqa: F401
