"""Experiments: one file a figure (settings, plot, text), run as a sweep of independent points.

Figure.points ──▶ sweep (here, on threads, or on Ray) ──▶ Results ──▶ Figure.draw, Figure.text ──▶ report
"""
