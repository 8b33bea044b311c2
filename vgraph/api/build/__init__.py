"""Graphs from and to other libraries, files and points."""
