"""The only package that sees user functions and graphs.

Takes: graphs, features, Python functions. Gives: tensors; source: Cavs section 3.1, DGL section 3.
"""
