"""Readers: graphs as others store them, mapped rather than read, for the partitioner.

Takes: a path. Gives: a ``RawGraph``. Runs once per graph.
"""
