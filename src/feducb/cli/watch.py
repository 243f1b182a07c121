"""`feducb watch`: the page in a terminal, for an agent, a controller or a simulation that runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from feducb.agent.agent_file import read_agent_file
from feducb.agent.view import look
from feducb.cli.options import option
from feducb.cli.watch_frames import frame
from feducb.errors import ConfigurationError, FeducbError
from feducb.protocol.trouble import WRONG, Plain
from feducb.simulation.checkpoint import look as look_at_simulation
from feducb.system import optional

__all__ = ["watch"]

Snapshots = Iterator[dict[str, Any]]
_LONGEST_WAIT = 8.0
_QUIET_SECONDS = 15.0  # a service says something every few seconds


def watch(
    config: Path | None = option(
        None, "An agent on this machine, by its configuration file.", "--config", "-c"
    ),
    url: str | None = option(None, "A running service, such as http://127.0.0.1:8750; needs --key."),
    key: str | None = option(
        None, "An operator's or a viewer's key for --url.", envvar="FEDUCB_KEY", show_envvar=True
    ),
    ca: Path | None = option(None, "The CA that signed the service's certificate (PEM)."),
    checkpoint: Path | None = option(None, "A simulation, by its `feducb simulate --checkpoint` folder."),
    once: bool = option(False, "Print the current state once and exit.", "--once"),
    every: float = option(1.0, "Seconds between updates.", min=0.1),
) -> None:
    """Watch a running agent, controller or simulation; ends with Ctrl-C."""
    given = [name for name, value in (("--url", url), ("--checkpoint", checkpoint)) if value is not None]
    if config is not None or not given:
        given.append("--config")
    if len(given) != 1:
        raise ConfigurationError("watch", " ".join(given), "one of --config, --url, --checkpoint")
    if url is not None:
        if key is None:
            raise ConfigurationError(
                "--key", None, "an operator's or a viewer's key, or FEDUCB_KEY in the environment"
            )
        snapshots = _from_service(url, key, ca, once=once)
    elif checkpoint is not None:
        snapshots = _again_and_again(partial(look_at_simulation, checkpoint), every)
    else:
        file = read_agent_file(config or Path("agent.toml"))
        look_again = partial(
            look,
            file.store,
            over_time=True,
            keepers=file.keepers(),
            keeper=file.keeper_state(),
            joins=file.joins(),
            settings=file.agent,
        )
        snapshots = _again_and_again(look_again, every)
    console = Console(markup=False)
    if once:
        console.print(frame(next(snapshots)))
        return
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, screen=console.is_terminal) as live,
    ):
        for snapshot in snapshots:
            live.update(frame(snapshot), refresh=True)


def _again_and_again(look: Callable[[], dict[str, Any]], every: float) -> Snapshots:
    """The first look must succeed; later ones may fail, since files come and go with their programs."""
    last = look()
    yield last
    while True:
        time.sleep(every)
        try:
            last = look()
        except (FeducbError, OSError) as error:
            last = last | {"trouble": [_away(str(error))]}
        yield last


def _away(why: str) -> Plain:
    """Said in place of what was wrong when it was last seen."""
    return {"kind": "away", "severity": WRONG, "says": why}


def _from_service(url: str, key: str, ca: Path | None, *, once: bool) -> Snapshots:
    """Follow the service's events; when it goes away, say so and try again."""
    with optional("--url", "client"):
        import httpx
    import ssl

    verify = ssl.create_default_context(cafile=str(ca)) if ca is not None else True
    timeout = httpx.Timeout(5.0, read=_QUIET_SECONDS)
    last, wait = dict[str, Any](), 0.5
    with httpx.Client(
        base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=timeout, verify=verify
    ) as http:
        while True:
            reason = "the service has ended the stream"
            try:
                with http.stream("GET", "/v1/events") as answer:
                    if answer.status_code == 401:
                        raise FeducbError(
                            f"{url} does not know this key: it needs an operator's or a viewer's"
                        )
                    if answer.status_code == 403:
                        raise FeducbError(f"{url}: {json.loads(answer.read())['error']}")
                    answer.raise_for_status()
                    for line in answer.iter_lines():
                        if line.startswith("data: {") and line != "data: {}":
                            last, wait = json.loads(line[6:]), 0.5
                            yield last
            except (httpx.HTTPError, httpx.InvalidURL, json.JSONDecodeError) as error:
                reason = f"{url} does not answer ({type(error).__name__})"
            if once or not last:
                raise ConfigurationError("--url", url, f"a running feducb service: {reason}")
            yield last | {"trouble": [_away(f"away, trying again: {reason}")]}
            time.sleep(wait)
            wait = min(2.0 * wait, _LONGEST_WAIT)
