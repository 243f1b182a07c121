"""Experiments: one file a figure (settings, plot, text), run as a sweep of independent points.

Figure.points(scale) ──▶ sweep (here, or on threads) ──▶ Results ──▶ Figure.draw, .text, .table ──▶ run
"""
