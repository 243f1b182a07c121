"""Figures, benchmarks, prior work and the tour: what uses the library as a user does."""
