"""The ClientApp: at a SuperNode, beside a running agent, it answers the ServerApp's questions."""

from __future__ import annotations

import os

from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import RECORD, Answer, Ask, quoted
from feducb.carriers.flower.site import visit
from feducb.errors import ConfigurationError
from feducb.system import optional

with optional("Flower", "flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp

__all__ = ["app"]

app = ClientApp()


@app.query("exchange")
def exchange(message: Message, context: Context) -> Message:
    """One visit at the agent; a site that is set up wrongly says so instead of falling silent."""
    ask = Ask.from_plain(message.content[RECORD])
    try:
        with AgentDoor.configured(context.node_config, os.environ) as door:
            answer = visit(door, ask)
    except ConfigurationError as error:
        answer = Answer(problems=(str(error),))
    for problem in answer.problems:
        print(f"feducb: {quoted(problem)}", flush=True)  # the SuperNode's own log
    return Message(RecordDict({RECORD: ConfigRecord(answer.to_plain())}), reply_to=message)
