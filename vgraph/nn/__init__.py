"""Layers written with the public names only: what a user could have written too.

Takes: graphs and features. Gives: modules; tempo: every call.
"""

from vgraph.nn.attention import edge_softmax
from vgraph.nn.dot_gat_conv import DotGatConv
from vgraph.nn.gat_conv import GATConv
from vgraph.nn.gatv2_conv import GATv2Conv
from vgraph.nn.gin_conv import GINConv
from vgraph.nn.graph_conv import GraphConv
from vgraph.nn.pna_conv import PNAConv
from vgraph.nn.sage_conv import SAGEConv
from vgraph.nn.tree_lstm import ChildSumTreeLSTM, NaryTreeLSTM

__all__ = [
    "ChildSumTreeLSTM",
    "DotGatConv",
    "GATConv",
    "GATv2Conv",
    "GINConv",
    "GraphConv",
    "NaryTreeLSTM",
    "PNAConv",
    "SAGEConv",
    "edge_softmax",
]
