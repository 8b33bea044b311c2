"""Graphs that are evaluated as they come, and batches that are loaded ahead."""
