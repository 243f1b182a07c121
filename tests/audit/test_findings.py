"""The report: what it calls a failure, what it puts on top, how it is written, and the words for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from feducb import __version__
from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult, ScoreResult
from feducb.cli.privacy import app


def _claim(**changes: Any) -> ClaimResult:
    plain: dict[str, Any] = {
        "epsilon_claimed": 2.0,
        "delta": 1e-6,
        "trust": "nobody",
        "trials": 10,
        "mu_claimed": 0.5,
        "mu_lower_bound": 0.4,
        "epsilon_lower_bound_gaussian": 1.5,
        "epsilon_lower_bound": 1.0,
        "scores": (),
    }
    return ClaimResult(**(plain | changes))


def test_a_claim_holds_up_to_and_with_its_epsilon() -> None:
    assert _claim(epsilon_lower_bound=2.0, epsilon_lower_bound_gaussian=2.0).holds
    for name in ("epsilon_lower_bound", "epsilon_lower_bound_gaussian"):
        assert not _claim(**{name: np.nextafter(2.0, 3.0)}).holds
        assert not _claim(**{name: float("inf")}).holds


def test_the_headline_is_the_largest_claim_under_no_trust() -> None:
    claims = (_claim(), _claim(epsilon_claimed=8.0, trust="controller"), _claim(epsilon_claimed=4.0))
    report = AuditReport(claims=claims, checks=(), broken=(), false_alarm=1e-6)
    assert report.headline.epsilon_claimed == 4.0
    assert report.passed
    assert report.as_dict()["claims"][1]["trust"] == "controller"


def test_one_thing_wrong_is_enough() -> None:
    sound = AuditReport(
        claims=(_claim(),),
        checks=(Check("a", passed=True, detail=""), Check("b", passed=True, detail="")),
        broken=(Broken("c", caught=True, by=("a",)),),
        false_alarm=1e-6,
    )
    assert sound.passed
    assert not replace(sound, checks=(*sound.checks, Check("d", passed=False, detail=""))).passed
    assert not replace(sound, broken=(*sound.broken, Broken("e", caught=False, by=()))).passed
    assert not replace(sound, claims=(*sound.claims, _claim(epsilon_lower_bound=3.0))).passed
    assert sound.as_dict()["passed"] is True


def _report(**changes: Any) -> AuditReport:
    plain: dict[str, Any] = {
        "claims": (
            _claim(scores=(ScoreResult("all releases", 0, 0.4, 1.5, 1.0),)),
            _claim(epsilon_claimed=8.0, trust="controller"),
        ),
        "checks": (Check("noise epsilon=2 trust=nobody", passed=True, detail="as certified"),),
        "broken": (Broken("telling header", caught=True, by=("grid", "noise")),),
        "false_alarm": 1e-6,
        "false_alarm_split": {"claims": 8e-7, "noise checks": 2e-7},
        "seconds": 3.5,
    }
    return AuditReport(**(plain | changes))


def test_the_report_as_plain_data() -> None:
    """Names, order and kinds of what is written: programs read it."""
    plain = _report().as_dict()
    assert list(plain) == [
        "epsilon_claimed",
        "delta",
        "epsilon_lower_bound_gaussian",
        "epsilon_lower_bound",
        "mu_lower_bound",
        "trials",
        "claims",
        "checks",
        "broken",
        "false_alarm",
        "false_alarm_split",
        "seconds",
        "passed",
    ]
    assert (plain["epsilon_claimed"], plain["trials"], plain["mu_lower_bound"]) == (2.0, 10, 0.4)
    assert plain["checks"] == [
        {"name": "noise epsilon=2 trust=nobody", "passed": True, "detail": "as certified"}
    ]
    assert plain["broken"] == [{"name": "telling header", "caught": True, "by": ["grid", "noise"]}]
    assert plain["claims"][0]["scores"] == [
        {"score": "all releases", "placement": 0, "mu": 0.4, "epsilon_gaussian": 1.5, "epsilon": 1.0}
    ]
    assert plain["claims"][0]["holds"] is True
    assert json.loads(json.dumps(plain)) == plain


def test_nothing_in_the_report_can_be_changed_through_what_is_written() -> None:
    report = _report()
    report.as_dict()["false_alarm_split"]["claims"] = 1.0
    assert report.false_alarm_split["claims"] == 8e-7


def test_a_report_without_a_claim_under_no_trust_has_no_headline() -> None:
    with pytest.raises(ValueError, match="empty"):
        _ = _report(claims=(_claim(trust="controller"),)).headline


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("noise epsilon=8 trust=nobody", "noise"),
        ("low bits epsilon=1 trust=controller", "low bits"),
        ("encoder dense n=16 quiet=5", "encoder"),
        ("presence mechanism=blt n=8 quiet=0", "presence"),
        ("spaced records n=5 quiet=2 decay=1.7", "spaced records"),
        ("presence at an agent groups=2", "presence at an agent"),
        ("on a graph estimators=2", "on a graph"),
        ("quorum", "quorum"),
    ],
)
def test_the_kind_of_a_check_is_its_name_without_its_setting(name: str, kind: str) -> None:
    assert Check(name, passed=True, detail="").kind == kind


def _shown(monkeypatch: pytest.MonkeyPatch, report: AuditReport, *options: str) -> Any:
    """What `feducb privacy audit` says of a report, without an audit."""
    monkeypatch.setattr("feducb.audit.run_audit", lambda **_: report)
    return CliRunner().invoke(app, ["audit", *options], env={"COLUMNS": "200"})


def test_the_words_of_a_report_without_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _shown(monkeypatch, _report())
    assert shown.exit_code == 0
    assert "ok  noise epsilon=2 trust=nobody: as certified" in shown.output
    assert "ok  broken on purpose, telling header: caught by grid, noise" in shown.output
    assert shown.output.rstrip().endswith("No claim is broken (4 s; false alarm at most 1e-06).")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claims": (_claim(epsilon_lower_bound=2.5),)}, "NO"),
        ({"checks": (Check("grid", passed=False, detail="it tells"),)}, "FAILED grid: it tells"),
        (
            {"broken": (Broken("telling header", caught=False, by=()),)},
            "FAILED broken on purpose, telling header: NOT CAUGHT",
        ),
    ],
)
def test_the_words_of_a_report_with_a_fault(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _shown(monkeypatch, _report(**changes))
    assert shown.exit_code == 1
    assert words in shown.output
    assert "A CLAIM IS BROKEN" in shown.output


def test_the_report_on_standard_output_is_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _shown(monkeypatch, _report(), "--json", "-")
    assert json.loads(shown.stdout) == {**_report().as_dict(), "version": __version__}
