"""`feducb agent serve`: the service on uvicorn."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import signal
import socket
import ssl
import sys
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from feducb.agent import Agent
from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.agent.kept import edited, misfit
from feducb.agent.mailbox import Engine, EngineFacts
from feducb.agent.service_settings import ServiceSettings
from feducb.errors import ConfigurationError, StoreError
from feducb.privacy.grid import GridNoise
from feducb.service.api_keys import ApiKeys, read_keys
from feducb.service.app import create_app
from feducb.service.http_limits import LimitedProtocol, hang_up_on_the_slow
from feducb.service.json_logs import set_up_logs

__all__ = ["serve"]

log = logging.getLogger("feducb.service")
_LOOK_SECONDS = 5.0


def serve(file: AgentFile, engine: Engine | None, status: EngineFacts | None) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are answered first.

    Args:
        file: the agent's file.
        engine: what carries its releases; None if it is on its own.
        status: how that goes, if it is known.
    """
    keys, kind = file.service.keys, file.engine.get("kind", "none")
    if file.keeper is not None and kind == "none":
        raise ConfigurationError("keeper", "a table", "an [engine] table too: somebody must ask the keeper")
    if not read_keys(keys):
        raise ConfigurationError("service.keys", str(keys), "keys: `feducb agent key add` makes one")
    if not file.store.exists():
        raise StoreError(
            f"{file.store} does not exist: restore a backup, or `feducb agent create` one; if it was lost, "
            "in a season that it never opened, since noise of old releases must not be drawn again"
        )

    _require_address(file.service)
    changed: list[str] = []

    def waiting(now: AgentFile) -> str | None:
        """Why settings wait for the next season, for which they were edited; None if they do not."""
        with suppress(StoreError):  # a file of an earlier version is read once it is opened
            return misfit(now.store, now.agent)
        return None

    waits, comes = waiting(file), file.joins()

    def open_agent() -> Agent:
        """By what the files say by now: where the disk failed it is opened again, in a later season maybe."""
        try:
            now = read_agent_file(file.path)
            settings, joins = None if waiting(now) else now.agent, now.joins()
        except (ConfigurationError, OSError):  # what is wrong with it now can wait
            now, settings, joins = file, None, comes
        agent = Agent.open(file.store, settings, member=now.member())
        agent.renewal, agent.comes_in = file.renewed, file.place()
        agent.wait_for(joins)
        return agent

    with suppress(StoreError):  # a file of an earlier version is read once it is opened
        changed = edited(file.store, file.agent)
    with open_agent() as agent:  # whatever is wrong with the file is said now, in one sentence
        open_keeper = partial(file.open_keeper, agent.store.terms, agent.store.season)
    at_the_door = file.keeper is not None and kind == "door"
    if at_the_door:
        open_keeper().close()
    GridNoise(file.agent.terms.certificate()).draw(1)  # loads OpenDP now, not while decisions wait
    set_up_logs()
    if waits:
        log.warning("settings_wait", extra={"settings": changed, "reason": f"for the next season: {waits}"})
    elif changed:
        log.warning("settings_taken", extra={"settings": changed})
    sys.setswitchinterval(0.0005)  # the thread that waited for the disk is let back in soon
    app = create_app(
        open_agent,
        ApiKeys(keys),
        largest_body=file.service.largest_body,
        engine=engine,
        engine_status=status,
        engine_file=file.store,
        open_keeper=open_keeper if at_the_door else None,
        keeper_file=file.keeper_state(),
    )
    run(app, file.service)


def _require_address(service: ServiceSettings) -> None:
    """Raise in one sentence where nothing can listen; the server itself would say so in its log alone."""
    host, port = service.host, service.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # one that has just ended is no hindrance
            tried.bind(address)
    except OSError as error:
        why = error.strerror or str(error)
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ConfigurationError("service.host", host, f"an address of this machine ({why})") from None
        expected = f"one on which this process may listen at {host} ({why})"
        raise ConfigurationError("service.port", port, expected) from None


class _Server(uvicorn.Server):
    """Says where it listens, once it does; a stop that was asked for is no failure."""

    async def _watch_the_slow(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(_LOOK_SECONDS)
            hang_up_on_the_slow(self.server_state.connections, asyncio.get_running_loop().time())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if isinstance(self.config.app, FastAPI):
            self.config.app.state.stopping = True  # streams of the page end by themselves
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._slow = asyncio.create_task(self._watch_the_slow())
        # What is loaded by now stays: looking through it for garbage over and over took most of the time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        for server in self.servers:
            for one in server.sockets:
                host, port = one.getsockname()[:2]
                log.info("listening", extra={"host": host, "port": port, "tls": self.config.is_ssl})


def _raise_open_files() -> int:
    """As many connections as the system lets this process have; how many files may be open now."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if most == resource.RLIM_INFINITY else min(most, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted


def run(app: FastAPI, settings: ServiceSettings) -> None:
    """Run an app on uvicorn, with TLS if there is a certificate."""
    certificate, key, client_ca = (
        None if path is None else str(path)
        for path in (settings.certificate, settings.private_key, settings.client_ca)
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
        http=LimitedProtocol,
        ws="none",
        limit_concurrency=_raise_open_files() - 100,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.client_ca else ssl.CERT_NONE,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_ca_certs=client_ca,
    )
    _Server(config).run()
