"""Layers written with the public names only: what a user could have written too.

Takes: graphs and features. Gives: modules; tempo: every call.
"""

from vgraph.nn.graph_conv import GraphConv
from vgraph.nn.tree_lstm import ChildSumTreeLSTM, NaryTreeLSTM

__all__ = ["ChildSumTreeLSTM", "GraphConv", "NaryTreeLSTM"]
