"""What a test needs of the machine."""

from __future__ import annotations

import pytest

from feducb.simulation.backends.gpu_kernels import missing_gpu

MISSING_GPU = missing_gpu()

# What needs no device (bounds, frames, refusals) is tested everywhere; where there is one,
# `pytest tests/simulation -k gpu` runs the rest.
needs_gpu = pytest.mark.skipif(  # CUDA kernels run on a CUDA device or not at all; most machines have none
    MISSING_GPU is not None, reason=f"CUDA kernels need a GPU to run on: {MISSING_GPU}"
)
