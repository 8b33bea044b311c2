"""Sections of ``partition_runs.py`` that start processes, and what those do."""
