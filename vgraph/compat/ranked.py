"""The names that programs written for DGL call most, counted over 44 public repositories, and what they find here.

Takes: nothing. Gives: a table in Markdown, as docs/coming_from/dgl_names.md has it. Runs once per process.
"""

from __future__ import annotations

import inspect
from typing import Any

from vgraph.api.graph import Graph
from vgraph.api.messages.batches import Columns, EdgeBatch, NodeBatch
from vgraph.compat.modules import MODULES, lookup

_COUNTED = """
    g.ndata 41; g.num_nodes 39; g.edata 37; g.to 37; g.edges 34; g.update_all 33; g.num_edges 31; g.apply_edges 31;
    dgl.function.sum 31; edges.src 29; edges.dst 28; dgl.graph 27; edges.data 26; g.local_scope 26; dgl.DGLGraph 25;
    dgl.batch 25; g.in_degrees 24; g.nodes 23; g.add_edges 22; dgl.function.copy_e 19; dgl.heterograph 17;
    dgl.function.copy_u 17; nodes.mailbox 17; dgl.nn.edge_softmax 17; dgl.function.mean 17; g.srcdata 16;
    dgl.add_self_loop 15; dgl.remove_self_loop 15; dgl.function.u_mul_e 15; g.dstdata 14; g.device 14;
    dgl.load_graphs 14; g.all_edges 14; g.out_degrees 14; g.ntypes 13; g.add_nodes 13; g.batch_num_nodes 13;
    g.adj 13; dgl.nn.GraphConv 12; dgl.backend 11; g.etypes 11; g.num_dst_nodes 11; dgl.save_graphs 11;
    g.batch_size 11; dgl.nn.AvgPooling 11; dgl.nn.MaxPooling 11; g.canonical_etypes 10; nodes.data 10;
    dgl.nn.GATConv 10; dgl.mean_nodes 10; dgl.to_homogeneous 10; dgl.node_subgraph 10; g.local_var 9;
    dgl.nn.SAGEConv 9; dgl.sum_nodes 8; g.adj_external 8; dgl.function.u_add_v 8; dgl.unbatch 8; dgl.seed 8;
    dgl.dataloading.DataLoader 7; dgl.NID 7; g.apply_nodes 7; dgl.data.DGLDataset 7; dgl.max_nodes 7;
    dgl.dataloading.MultiLayerFullNeighborSampler 7; dgl.nn.SumPooling 7; g.cpu 7; dgl.__version__ 7;
    g.find_edges 6; dgl.EID 6; dgl.dataloading.GraphDataLoader 6; dgl.nn.HeteroGraphConv 6; g.is_block 6;
    g.is_homogeneous 6; g.multi_update_all 6; g.num_src_nodes 6; g.send_and_recv 6; dgl.to_bidirected 6;
    dgl.nn.Set2Set 6; g.in_edges 6; dgl.function.max 6; g.to_networkx 6; dgl.data.download 5;
    dgl.data.get_download_dir 5; dgl.dataloading.NeighborSampler 5; g.remove_edges 5; dgl.utils.expand_as_pair 5;
    g.successors 5; dgl.NTYPE 5; dgl.data.PubmedGraphDataset 5; dgl.ETYPE 5; dgl.data.CoraGraphDataset 5;
    dgl.from_scipy 5; dgl.nn.GINConv 5; g.remove_nodes 5; g.batch_num_edges 5; g.dstnodes 4; g.idtype 4;
    g.to_canonical_etype 4;
"""
_NEXT = """
    dgl.from_networkx g.create_formats_ dgl.nn.NNConv dgl.readout_nodes dgl.to_block dgl.broadcast_nodes
    dgl.function.u_dot_v dgl.nn.EdgeWeightNorm dgl.edge_subgraph dgl.to_simple g.astype g.pull g.push dgl.prop_nodes
    dgl.prop_edges dgl.prop_nodes_topo dgl.topological_nodes_generator dgl.bfs_nodes_generator dgl.line_graph
    dgl.reverse dgl.in_subgraph dgl.khop_in_subgraph dgl.sampling.random_walk dgl.rand_graph dgl.ops
    dgl.softmax_nodes dgl.softmax_edges dgl.topk_nodes dgl.ops.segment_reduce g.clone g.int g.long g.formats
    g.edge_ids g.has_edges_between g.out_edges dgl.to_heterogeneous
"""
_BEYOND = """
    g.filter_nodes g.filter_edges dgl.knn_graph dgl.segmented_knn_graph dgl.radius_graph dgl.norm_by_dst
    dgl.random_walk_pe dgl.lap_pe dgl.laplacian_lambda_max dgl.nn.JumpingKnowledge dgl.nn.Sequential
    dgl.nn.WeightBasis dgl.nn.LabelPropagation dgl.nn.EdgePredictor dgl.nn.KNNGraph dgl.data.TUDataset
    dgl.data.GINDataset dgl.data.KarateClubDataset dgl.data.utils.split_dataset dgl.AddSelfLoop dgl.GCNNorm
    dgl.RowFeatNormalizer dgl.RandomWalkPE dgl.DropEdge dgl.DropNode dgl.AddReverse dgl.ToSimple dgl.LineGraph
    dgl.FeatMask dgl.NodeShuffle dgl.AddEdge dgl.AddMetaPaths dgl.ToLevi dgl.SVDPE dgl.PPR dgl.HeatKernel dgl.GDC
    dgl.SIGNDiffusion dgl.shortest_dist dgl.node_homophily dgl.edge_homophily dgl.linkx_homophily dgl.svd_pe
    dgl.double_radius_node_labeling dgl.adj_product_graph dgl.adj_sum_graph dgl.to_double dgl.to_half
    dgl.dataloading.SAINTSampler dgl.sampling.PinSAGESampler dgl.sampling.RandomWalkNeighborSampler
    dgl.data.utils.makedirs dgl.data.utils.save_tensors dgl.data.utils.check_sha1 g.sample_neighbors g.select_topk
"""
COUNTS: dict[str, int] = {}
for _item in _COUNTED.replace("\n", " ").split(";"):
    if _item.strip():
        _name, _, _count = _item.strip().rpartition(" ")
        COUNTS[_name] = int(_count)
NEXT = tuple(_NEXT.split())
BEYOND = tuple(_BEYOND.split())
NAMES = (*COUNTS, *NEXT, *BEYOND)


def resolve(name: str) -> Any:
    """What a name leads to; LookupError: there is no such thing."""
    owner, _, last = name.rpartition(".")
    if owner in ("edges", "nodes"):  # what functions of edges and nodes see
        return {"edges": EdgeBatch, "nodes": NodeBatch}[owner], Columns
    if owner == "g":
        if not hasattr(Graph, last):
            raise LookupError(name)
        return getattr(Graph, last)
    return name if name in MODULES else lookup(owner, last)


def where(name: str) -> str:
    """The Python name of what is found; a dash where there is nothing."""
    try:
        found = resolve(name)
    except LookupError:
        return "-"
    if isinstance(found, tuple):  # features by name
        return f"{found[0].__module__}.{found[0].__name__}.{name.partition('.')[2]}"
    if name in MODULES:
        return MODULES[name][0]
    found = found.fget if isinstance(found, property) else found
    if inspect.isroutine(found) or inspect.isclass(found):
        return f"{found.__module__}.{found.__qualname__}"
    return f"{found!r}"


def table() -> str:
    """Every ranked name, how many repositories call it, and where it leads."""
    lines = [
        "# Names of DGL that lead into vgraph",
        "",
        "Written by `python -m vgraph.compat --table`; each name has a check in `tests/compat`. The number counts",
        "public repositories, of 44, that call the name; those without a number come next, and some beyond.",
        "",
        "| name | repositories | leads to |",
        "|---|---|---|",
        *(f"| `{name}` | {COUNTS.get(name, '')} | `{where(name)}` |" for name in NAMES),
    ]
    return "\n".join(lines) + "\n"
