"""Partitioned graphs on disk: which file holds what, how files are written, mapped and checked.

Takes: arrays of a graph in new order. Gives: a folder, and tensors over its files. Runs once per graph.
"""
