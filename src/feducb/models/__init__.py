"""Pure functions: arrays in, arrays out.

Every function takes arrays with any leading axes ``...``: one agent (none), or runs × agents at once.
"""
