"""What a test needs of the machine."""

from __future__ import annotations

import pytest

from feducb.simulation.backends.gpu_kernels import missing_gpu

MISSING_GPU = missing_gpu()

# CUDA kernels run on a CUDA device or not at all, and most machines have none. What needs no device (bounds,
# frames, refusals) is tested everywhere; `pytest tests/simulation -k gpu` runs the rest where there is one.
needs_gpu = pytest.mark.skipif(
    MISSING_GPU is not None, reason=f"CUDA kernels need a GPU to run on: {MISSING_GPU}"
)
