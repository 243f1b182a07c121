"""By what a result was made: commit, versions, command, and a fingerprint of the code that decides it.

A fingerprint covers the modules of feducb that a player's module imports, directly or not, now or later, and
the data files that these name. Comments, docstrings and blank lines do not count, nor does what only serves,
stores or shows, nor the number of the version: a result is older than the code if the code that would make it
again has changed.
"""

from __future__ import annotations

import ast
import hashlib
import io
import platform
import subprocess
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import feducb
import feducb_lab

__all__ = ["fingerprint", "is_fresh", "made_by", "modules_of"]

_ROOTS = {
    name: Path(package.__path__[0]) for name, package in (("feducb", feducb), ("feducb_lab", feducb_lab))
}
_LIBRARIES = ("feducb", "numpy", "numba")
_DATA = (".cu", ".json")
_VERSION = "feducb.version"  # decides no result


def made_by(command: str, modules: Iterable[str]) -> dict[str, Any]:
    """What every result file says of itself: the same for the same code, so without a date.

    Args:
        command: makes it again.
        modules: those that played it, by name.
    """
    names = sorted(set(modules))
    return {
        "command": command,
        "commit": commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}},
        "modules": names,
        "code": fingerprint(*names),
    }


def is_fresh(made: Mapping[str, Any] | None) -> bool:
    """Whether the code that made a result, all of it, is the code that is here."""
    if not made or "code" not in made or made.get("older"):
        return False
    try:
        return bool(made["code"] == fingerprint(*made["modules"]))
    except FileNotFoundError:  # a module that is gone
        return False


@cache
def commit() -> str:
    """Of the working tree, with a mark if it has changes; of a wheel, its version."""
    folder = Path(feducb_lab.__path__[0]).parent
    asked = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--match=v[0-9]*"]
    try:
        if not (folder.parent / ".git").exists():  # installed, perhaps below somebody else's repository
            raise FileNotFoundError
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return f"feducb {_version('feducb')}"


def fingerprint(*modules: str) -> str:
    """Of all that these modules are made of."""
    found = sorted({name for module in modules for name in modules_of(module)} - {_VERSION})
    parts = [*found, *map(_code, found), *_data(found)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def modules_of(module: str) -> frozenset[str]:
    """It, and the modules of feducb that it imports, directly or not."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _imported(name)
    return frozenset(seen)


@cache
def _imported(module: str) -> tuple[str, ...]:
    names = []
    for node in ast.walk(ast.parse(_path(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{one.name}" for one in node.names] + [node.module]
    ours = [name for name in names if name.partition(".")[0] in _ROOTS and name not in _ROOTS]
    return tuple(name for name in ours if _there(name))


def _path(module: str) -> Path:
    package, *parts = module.split(".")
    if package not in _ROOTS:  # a player of one's own
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(module)
        return Path(spec.origin)
    folder = _ROOTS[package].joinpath(*parts)
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if not path.exists():
        raise FileNotFoundError(path)
    return path


def _there(module: str) -> bool:
    try:
        return _path(module).exists()
    except FileNotFoundError:
        return False


@cache
def _code(module: str) -> str:
    """Source without what the interpreter does not read: the same under every version of Python."""
    text = _path(module).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                for at in range(first.lineno - 1, first.end_lineno or first.lineno):
                    lines[at] = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _data(modules: Iterable[str]) -> list[str]:
    """What is in the files beside modules whose source has their names."""
    found = set()
    for path, source in ((_path(module), _code(module)) for module in modules):
        beside = (one for one in path.parent.iterdir() if one.suffix in _DATA)
        found |= {one for one in beside if f'"{one.name}"' in source}
    return [one.read_text(encoding="utf-8") for one in sorted(found)]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
