"""Where visitors come from. An environment is anything that follows `base.Environment`."""
