"""Sections of the partitioner's benchmark: each gives the rows of one table."""
