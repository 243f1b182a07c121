"""Everything that a privacy proof rests on. Small on purpose; each file cites its theorem."""
