"""An audit of what is deployed: attacks that know all but the noise, and checks that must hold exactly."""

from __future__ import annotations

from feducb.audit.results import AuditReport, Broken, Check, ClaimResult
from feducb.audit.runner import run_audit

__all__ = ["AuditReport", "Broken", "Check", "ClaimResult", "run_audit"]
