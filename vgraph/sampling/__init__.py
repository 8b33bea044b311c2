"""Sampling: training on parts of a graph that are drawn step by step.

Takes: a graph, ids to begin with. Gives: blocks, subgraphs, walks, in loaders. Runs at every step.
Source: Hamilton et al. 2017, section 3; Zeng et al. 2021 (ShaDow); DGL's words.
"""

from vgraph.graphs.draw.neighbors import sample_neighbors, select_topk
from vgraph.sampling.edges import EdgePredictionSampler, as_edge_prediction_sampler
from vgraph.sampling.features import open_features
from vgraph.sampling.homogenized import sample_etype_neighbors
from vgraph.sampling.induced import SAINTSampler
from vgraph.sampling.labor import LaborSampler, sample_labors
from vgraph.sampling.loader import DataLoader, GraphDataLoader
from vgraph.sampling.negative import GlobalUniform, Uniform, global_uniform_negative_sampling
from vgraph.sampling.samplers import (
    BlockSampler,
    MultiLayerFullNeighborSampler,
    NeighborSampler,
    Sampler,
    ShaDowKHopSampler,
)
from vgraph.sampling.walk_neighbors import PinSAGESampler, RandomWalkNeighborSampler
from vgraph.sampling.walks import node2vec_random_walk, pack_traces, random_walk

MultiLayerNeighborSampler = NeighborSampler

__all__ = [
    "BlockSampler",
    "DataLoader",
    "EdgePredictionSampler",
    "GlobalUniform",
    "GraphDataLoader",
    "LaborSampler",
    "MultiLayerFullNeighborSampler",
    "MultiLayerNeighborSampler",
    "NeighborSampler",
    "PinSAGESampler",
    "RandomWalkNeighborSampler",
    "SAINTSampler",
    "Sampler",
    "ShaDowKHopSampler",
    "Uniform",
    "as_edge_prediction_sampler",
    "global_uniform_negative_sampling",
    "node2vec_random_walk",
    "open_features",
    "pack_traces",
    "random_walk",
    "sample_etype_neighbors",
    "sample_labors",
    "sample_neighbors",
    "select_topk",
]
