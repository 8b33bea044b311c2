"""The sets of ``dgl.data`` from files that are there, in the form that DGL's archives have, and those made by rules.

Takes: a folder. Gives: data sets of graphs. Runs once per file. Nothing is downloaded.
"""
