"""What a policy is worth on data: off-policy estimators, and comparisons of agents alone with federations."""

from __future__ import annotations

from feducb.evaluation.compare import compare_on_log, compare_source
from feducb.evaluation.exports import Exports, open_exports
from feducb.evaluation.off_policy import (
    effective_sample_size,
    evaluate_arrays,
    evaluate_frame,
    overlap_warnings,
)
from feducb.evaluation.online import compare_online
from feducb.evaluation.question import evaluate
from feducb.evaluation.study import Online, Study
from feducb.evaluation.survey import survey
from feducb.evaluation.verdicts import Comparison
from feducb.evaluation.weighted_sums import Estimate, PolicyValue, Tally
from feducb.worlds.logs import FrameLog, LogColumns, open_log

__all__ = [
    "Comparison",
    "Estimate",
    "Exports",
    "FrameLog",
    "LogColumns",
    "Online",
    "PolicyValue",
    "Study",
    "Tally",
    "compare_on_log",
    "compare_online",
    "compare_source",
    "effective_sample_size",
    "evaluate",
    "evaluate_arrays",
    "evaluate_frame",
    "open_exports",
    "open_log",
    "overlap_warnings",
    "survey",
]
