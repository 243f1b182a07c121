"""`feducb tour`: three agents, a controller and visitors on this machine."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from feducb.cli.options import option
from feducb.system import optional

if TYPE_CHECKING:
    from feducb_lab.tour import Tour

__all__ = ["tour"]

_SAY_SECONDS = 5.0


def tour(
    seconds: float | None = option(
        None, "Stop this many seconds after all have started; runs until interrupted if not given.", min=1
    ),
    browser: bool = option(True, "Open the dashboards."),
    epsilon: float = option(
        1e4, "Large, so that three agents learn within a minute; no privacy to speak of."
    ),
    trust: str = option(
        "nobody", "nobody: every agent adds its own noise; keepers: secure sums, each agent keeps pads too."
    ),
) -> None:
    """Three agents, a controller and simulated visitors here: look at them, kill one, watch it come back."""
    with optional("the tour", "service"):
        from feducb_lab.tour import Tour
    with tempfile.TemporaryDirectory(prefix="feducb-tour-") as folder:
        typer.echo("starting three agents and a controller …")
        made = Tour(Path(folder), epsilon=epsilon, trust=trust, say=typer.echo)
        asyncio.run(_run(made, seconds, browser=browser))
    typer.echo(f"ended, nothing is left. {made.summary()}")


async def _run(made: Tour, seconds: float | None, *, browser: bool) -> None:
    until, begun, loop = asyncio.Event(), time.monotonic(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, until.set)
    kills: set[asyncio.Task[None]] = set()

    def ready() -> None:
        typer.echo(f"running after {time.monotonic() - begun:.1f} s:")
        typer.echo(f"  controller {made.page}")
        for agent in made.agents.values():
            typer.echo(f"  {agent.name:10} {agent.page}")
        if browser:
            webbrowser.open(made.page)
            webbrowser.open(next(iter(made.agents.values())).page)
        if sys.stdin.isatty():
            typer.echo("type `kill north`, `kill` (somebody), or `quit`")
            loop.add_reader(sys.stdin, heard)
        kills.add(asyncio.create_task(_report(made)))
        if seconds is not None:
            loop.call_later(seconds, until.set)

    def heard() -> None:
        words = sys.stdin.readline().split()
        if not words or words[0] in ("quit", "q", "exit"):
            until.set()
        elif words[0] == "kill" and (len(words) == 1 or words[1] in made.agents):
            name = words[1] if len(words) > 1 else random.choice(sorted(made.agents))
            kills.add(asyncio.create_task(made.kill(name)))
        else:
            typer.echo(f"expected kill [{'|'.join(made.agents)}] or quit")

    await made.run(until, ready)
    for task in kills:
        task.cancel()


async def _report(made: Tour) -> None:
    while True:
        await asyncio.sleep(_SAY_SECONDS)
        typer.echo(made.summary())
