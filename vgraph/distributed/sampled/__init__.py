"""Sampled training on any number of ranks: whose seeds, whose edges, whose rows, and where a loader stands.

Takes: parts of a graph, ids, a sampler. Gives: each rank's share of batches that are the same on any number of ranks.
"""
