"""The points of a sweep on Ray: a task each, on this machine or on a cluster, through the loss of workers.

Ray is imported here and nowhere else. Ray and feducb must be installed on every machine of a cluster, feducb
in the same version; files are written by the process that asks, so the folder need not be shared.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from feducb.errors import ConfigurationError, FeducbError
from feducb.system import optional
from feducb.version import __version__
from feducb_lab.experiments.experiment import Point
from feducb_lab.experiments.sweep import Keep, play_point

__all__ = ["play_on_ray"]

_LIVES = 20  # workers that may die under one point; more is the point's own doing
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # "auto" sees the GPU that it would see without Ray
}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray asks no one for a password: not on the network


def play_on_ray(
    waiting: Mapping[str, Point],
    keep: Keep,
    *,
    backend: str = "auto",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Play points on Ray, with the results of `feducb_lab.experiments.sweep.play_here`.

    A point whose worker dies is played again, elsewhere; what still runs is called off if one fails. A Ray
    that the caller has started is used and left running.

    Args:
        waiting: what to play, by key; nothing needs no Ray.
        keep: given each result as it comes.
        backend: as in `feducb.simulate`; each point gets a GPU of its own with ``gpu``.
        address: of a cluster that runs (``auto`` or ``HOST:PORT``); a Ray on this machine, for as long as the
            sweep lasts, if there is none.
        workers: points at the same time on this machine; one per processor if not given.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: no cluster answers at the address, or its feducb is another one.
        FeducbError: a point took its worker down again and again.
    """
    if address is not None and workers is not None:
        raise ConfigurationError("workers", workers, "none beside an address: a cluster has its own")
    if not waiting:
        return
    with _running(address, workers) as ray:
        needs = {"num_cpus": 1, "num_gpus": 1 if backend == "gpu" else 0}
        task = ray.remote(**needs, max_retries=_LIVES, retry_exceptions=False)(_work)
        running = {task.remote(point, backend, __version__): key for key, point in waiting.items()}
        try:
            while running:
                (first, *_), _ = ray.wait(list(running), num_returns=1)
                key = running.pop(first)
                try:
                    keep(key, ray.get(first))
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # as it would be without Ray
                except ray.exceptions.RayError as error:
                    label = dict(waiting[key].label)
                    raise FeducbError(f"point {label} was lost {_LIVES + 1} times over: {error}") from error
        finally:
            for one in running:
                ray.cancel(one, force=True)


def _work(point: Point, backend: str, version: str) -> dict[str, Any]:
    """On a worker: one point on one thread; results do not depend on how many."""
    if version != __version__:
        raise ConfigurationError("feducb on a worker", __version__, f"version {version}, as it was asked by")
    return play_point(point, backend, threads=1)


@contextmanager
def _running(address: str | None, workers: int | None) -> Iterator[Any]:
    """Ray, running; what is started here is shut down here."""
    for name, value in (_QUIET | (_LOOPBACK if address is None else {})).items():
        os.environ.setdefault(name, value)
    with optional("a sweep on Ray", "ray"):
        import ray
        import ray.exceptions
    if ray.is_initialized():
        yield ray
        return
    where: dict[str, Any] = {"address": address}
    if address is None:
        where = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    try:
        _knock(address)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **where)
    except OSError as error:  # ConnectionError is one
        ray.shutdown()
        raise ConfigurationError("address", address, f"a Ray cluster that answers ({error})") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Fail at once where nobody listens at HOST:PORT; Ray would go on trying for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if port.isdecimal() and host and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
