"""Numbers of the documentation: each is found in the JSON file that it came from, and written from there.

docs/*.md ──marks──▶ number and source ──sources──▶ value, compared with what the page says, or written there
"""
