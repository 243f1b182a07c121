"""How fast decisions and steps are, beside other libraries and beside what the machine can do."""

from __future__ import annotations

from feducb_lab.bench.backends import BACKENDS, Backend
from feducb_lab.bench.bench_run import Report, draw_report, run_bench
from feducb_lab.bench.measure import Effort
from feducb_lab.bench.rivals import PEERS, Peer

__all__ = ["BACKENDS", "PEERS", "Backend", "Effort", "Peer", "Report", "draw_report", "run_bench"]
