"""Which backend plays a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from feducb.errors import ConfigurationError
from feducb.simulation.backends.backend import Backend
from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.backends.foreign import foreign
from feducb.simulation.backends.gpu import GpuBackend
from feducb.simulation.backends.reference_backend import ReferenceBackend
from feducb.simulation.plan import Plan

__all__ = ["BackendName", "choose_backend"]

BackendName = Literal["auto", "reference", "cpu", "gpu"]

_MAKE: dict[str, Callable[[], Backend]] = {
    "gpu": GpuBackend,
    "cpu": CpuBackend,
    "reference": ReferenceBackend,
}


def choose_backend(name: BackendName, plan: Plan) -> tuple[Backend, str | None]:
    """The backend for a plan, and a line on why it is not the one that was asked for, if it is not.

    ``auto`` takes the first of gpu, cpu and reference that can play the plan, and says nothing.

    Raises:
        ConfigurationError: kernels were asked for by name, but were not written for the plan.
    """
    if name not in get_args(BackendName):
        raise ConfigurationError("backend", name, f"one of {', '.join(get_args(BackendName))}")
    if name in ("gpu", "cpu") and (unknown := foreign(plan)) is not None:
        raise ConfigurationError("backend", name, f"auto or reference, since {unknown}")
    order = list(_MAKE) if name == "auto" else list(_MAKE)[list(_MAKE).index(name) :]
    reasons: list[str] = []
    for candidate in order:
        backend = _MAKE[candidate]()
        reason = backend.refusal(plan)
        if reason is None:
            asked = reasons and name != "auto"
            return backend, f"{'; '.join(reasons)}: playing on {candidate}" if asked else None
        reasons.append(f"{candidate}: {reason}")
    raise AssertionError("the reference plays everything")
