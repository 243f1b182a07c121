"""Where visitors come from. An environment is anything that follows `world.Environment`."""
