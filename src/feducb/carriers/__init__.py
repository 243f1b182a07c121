"""What carries releases between agents: each engine ships an agent's outbox and fills its inbox, no more."""
