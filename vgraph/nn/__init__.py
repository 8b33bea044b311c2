"""Layers written with the public names only: what a user could have written too.

Takes: graphs and features. Gives: modules. Runs at every call.
"""

from vgraph.nn.agnn_conv import AGNNConv
from vgraph.nn.atomic_conv import AtomicConv
from vgraph.nn.attention import edge_softmax
from vgraph.nn.combine import EdgePredictor, JumpingKnowledge, KNNGraph, LabelPropagation, WeightBasis
from vgraph.nn.dense_conv import DenseChebConv, DenseGraphConv, DenseSAGEConv
from vgraph.nn.dgn_conv import DGNConv
from vgraph.nn.dot_gat_conv import DotGatConv
from vgraph.nn.edge_conv import EdgeConv
from vgraph.nn.edge_gat_conv import EdgeGATConv
from vgraph.nn.edge_network import CFConv, GMMConv, NNConv
from vgraph.nn.egat_conv import EGATConv
from vgraph.nn.egnn_conv import EGNNConv
from vgraph.nn.egt_layer import EGTLayer
from vgraph.nn.encoders import DegreeEncoder, PathEncoder, SpatialEncoder, SpatialEncoder3d
from vgraph.nn.gat_conv import GATConv
from vgraph.nn.gated_gcn_conv import GatedGCNConv
from vgraph.nn.gated_graph_conv import GatedGraphConv
from vgraph.nn.gatv2_conv import GATv2Conv
from vgraph.nn.gcn2_conv import GCN2Conv
from vgraph.nn.gin_conv import GINConv, GINEConv
from vgraph.nn.gnn_explainer import GNNExplainer, HeteroGNNExplainer
from vgraph.nn.graph_conv import GraphConv
from vgraph.nn.graphormer import BiasedMHA, GraphormerLayer
from vgraph.nn.group_rev_res import GroupRevRes
from vgraph.nn.hetero import HeteroEmbedding, HeteroGraphConv, HeteroLinear
from vgraph.nn.hgt_conv import HGTConv
from vgraph.nn.lap_pos_encoder import LapPosEncoder
from vgraph.nn.norm import EdgeWeightNorm
from vgraph.nn.pg_explainer import PGExplainer
from vgraph.nn.pna_conv import PNAConv
from vgraph.nn.point_graphs import RadiusGraph, SegmentedKNNGraph
from vgraph.nn.polynomial_conv import APPNPConv, ChebConv, SGConv, TAGConv
from vgraph.nn.pooling import (
    AvgPooling,
    GlobalAttentionPooling,
    MaxPooling,
    Set2Set,
    SortPooling,
    SumPooling,
    WeightAndSum,
)
from vgraph.nn.rel_graph_conv import RelGraphConv, RelGraphEmbedding
from vgraph.nn.sage_conv import SAGEConv
from vgraph.nn.sequential import Sequential
from vgraph.nn.set_transformer import SetTransformerDecoder, SetTransformerEncoder
from vgraph.nn.subgraphx import HeteroSubgraphX, SubgraphX
from vgraph.nn.translation import TransE, TransR
from vgraph.nn.tree_lstm import ChildSumTreeLSTM, NaryTreeLSTM
from vgraph.nn.twirls_conv import TWIRLSConv, TWIRLSUnfoldingAndAttention
from vgraph.nn.typed_linear import TypedLinear
from vgraph.nn.walk_embedding import DeepWalk, MetaPath2Vec

__all__ = [
    "AGNNConv",
    "APPNPConv",
    "AtomicConv",
    "AvgPooling",
    "BiasedMHA",
    "CFConv",
    "ChebConv",
    "ChildSumTreeLSTM",
    "DGNConv",
    "DeepWalk",
    "DegreeEncoder",
    "DenseChebConv",
    "DenseGraphConv",
    "DenseSAGEConv",
    "DotGatConv",
    "EGATConv",
    "EGNNConv",
    "EGTLayer",
    "EdgeConv",
    "EdgeGATConv",
    "EdgePredictor",
    "EdgeWeightNorm",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GNNExplainer",
    "GatedGCNConv",
    "GatedGraphConv",
    "GlobalAttentionPooling",
    "GraphConv",
    "GraphormerLayer",
    "GroupRevRes",
    "HGTConv",
    "HeteroEmbedding",
    "HeteroGNNExplainer",
    "HeteroGraphConv",
    "HeteroLinear",
    "HeteroSubgraphX",
    "JumpingKnowledge",
    "KNNGraph",
    "LabelPropagation",
    "LapPosEncoder",
    "MaxPooling",
    "MetaPath2Vec",
    "NNConv",
    "NaryTreeLSTM",
    "PGExplainer",
    "PNAConv",
    "PathEncoder",
    "RadiusGraph",
    "RelGraphConv",
    "RelGraphEmbedding",
    "SAGEConv",
    "SGConv",
    "SegmentedKNNGraph",
    "Sequential",
    "Set2Set",
    "SetTransformerDecoder",
    "SetTransformerEncoder",
    "SortPooling",
    "SpatialEncoder",
    "SpatialEncoder3d",
    "SubgraphX",
    "SumPooling",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
    "TransE",
    "TransR",
    "TypedLinear",
    "WeightAndSum",
    "WeightBasis",
    "edge_softmax",
]
