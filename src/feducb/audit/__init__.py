"""An audit of what is deployed: attacks that know all but the noise, and checks that must hold exactly."""

from __future__ import annotations

from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult
from feducb.audit.suite import run_audit

__all__ = ["AuditReport", "Broken", "Check", "ClaimResult", "run_audit"]
