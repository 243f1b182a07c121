"""Figures, benchmarks, earlier algorithms and the tour: they use the library as anybody would."""
