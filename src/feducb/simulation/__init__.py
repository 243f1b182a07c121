"""Federations simulated on one machine. Imports with numpy and scipy alone."""
