"""Partitioning: which part a node goes to, how parts are numbered, and the folder that comes of it.

Takes: adjacency lists, in memory or mapped. Gives: a partitioned graph on disk. Runs once per graph.
"""
