"""A durable agent: decide now, send the reward later; nothing that was acknowledged is lost."""

from __future__ import annotations

from feducb.agent.decision import Decision, Outcome
from feducb.agent.durable import Agent
from feducb.agent.settings import AgentSettings

__all__ = ["Agent", "AgentSettings", "Decision", "Outcome"]
