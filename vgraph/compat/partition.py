"""``dgl.partition``: a graph's parts in memory, by METIS or by what the user says.

Takes: a graph, the part of each node. Gives: graphs. Runs once per graph. Parts on disk: docs/guides/partitions.md.
Source: DGL 1.1, ``dgl.partition``; Karypis and Kumar 1998.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vgraph
from vgraph.distributed.partition.constraints import Balance, Classes, few_classes
from vgraph.distributed.partition.metis import Objective, metis_parts
from vgraph.distributed.partition.whole_graph import whole_graph
from vgraph.errors import FunctionError, GraphError

Parts = dict[int, vgraph.Graph]
Ids = Tensor | Sequence[int] | NDArray[np.integer]


def metis_partition_assignment(
    g: vgraph.Graph,
    k: int,
    balance_ntypes: Ids | None = None,
    balance_edges: bool = False,
    mode: str = "k-way",
    objtype: str = "cut",
) -> Tensor:
    """The part of each node, (nodes,), by METIS.

    Args:
        g: a graph with ids of 64 bits.
        k: how many parts.
        balance_ntypes: the class of each node, (nodes,); parts have equal shares of each.
        balance_edges: parts have equal shares of in-edges.
        mode: "k-way" or "recursive", by halves.
        objtype: what is to be small: "cut" edges, or "vol", the rows that parts exchange, not by halves.

    Raises:
        GraphError: ids are of 32 bits, or there is not one class a node.
        FunctionError: there is no such mode or objective, or there are too many classes.
        VGraphError: pymetis is not installed, or METIS gives up.
    """
    if mode not in ("k-way", "recursive") or objtype not in ("cut", "vol"):
        raise FunctionError(f"there is no way {mode!r} to make {objtype!r} small", cure='pass "k-way" and "cut"')
    if g.idtype != torch.int64:
        raise GraphError(f"ids are {g.idtype}", cure="pass g.long()")
    if (mode, objtype) == ("recursive", "vol"):
        raise FunctionError("METIS divides by halves for few cut edges alone", cure='pass mode="k-way"')
    words = () if balance_ntypes is None else ("types",)
    classes = () if balance_ntypes is None else (_classes(balance_ntypes, g.num_nodes()),)
    bare = g.local_var()
    for frame in (*bare.src_frames.values(), *bare.edge_frames.values()):
        frame.clear()
    objective = Objective(mode == "recursive", objtype == "vol")
    parts = metis_parts(whole_graph(bare), k, Balance(words, balance_edges, classes), 0, objective=objective)
    return torch.from_numpy(parts).long()


def _classes(of_nodes: Ids, count: int) -> Classes:
    found, numbers = np.unique(np.asarray(of_nodes), return_inverse=True)
    if numbers.shape != (count,):
        raise GraphError(f"there are {numbers.shape[0]} classes of {count} nodes", cure="give one each")
    return Classes("types", numbers.astype(np.uint8), few_classes("balance_ntypes", len(found)))


def metis_partition(
    g: vgraph.Graph,
    k: int,
    extra_cached_hops: int = 0,
    reshuffle: bool = False,
    balance_ntypes: Ids | None = None,
    balance_edges: bool = False,
    mode: str = "k-way",
) -> Parts:
    """``partition_graph_with_halo`` of the parts that ``metis_partition_assignment`` finds."""
    parts = metis_partition_assignment(g, k, balance_ntypes, balance_edges, mode)
    return partition_graph_with_halo(g, parts, extra_cached_hops, reshuffle)[0]


def partition_graph_with_halo(
    g: vgraph.Graph, node_part: Ids, extra_cached_hops: int, reshuffle: bool = False
) -> tuple[Parts, Tensor | None, Tensor | None]:
    """A graph for each part: its nodes, and others that its edges reach.

    Args:
        g: a graph of one type.
        node_part: the part of each node, (nodes,).
        extra_cached_hops: 0: the edges inside of a part alone; 1: all edges that begin or end in it; from 2 on
            also those that end in nodes fewer hops before it.
        reshuffle: number nodes anew, part by part, and edges by the nodes where they end.

    Returns:
        The graphs by part, with "part_id" and "inner_node" of nodes (those of the part come first), "inner_edge" of
        edges (those that end in the part) and ids in "_ID"; and, where numbers are new, the old ids of all nodes and
        edges, which the graphs have as "orig_id". None otherwise.

    Raises:
        GraphError: there is not one part a node.
    """
    parts = torch.as_tensor(node_part, device=g.device).long()
    if parts.shape != (g.num_nodes(),):
        raise GraphError(f"there are parts {tuple(parts.shape)} of {g.num_nodes()} nodes", cure="give one each")
    if not reshuffle:
        return _parts_of(g, parts, extra_cached_hops), None, None
    nodes = parts.argsort(stable=True)
    g = reorder_nodes(g, nodes.argsort())
    edges = g.edges()[1].argsort(stable=True)
    g = vgraph.graph(tuple(end[edges] for end in g.edges()), num_nodes=g.num_nodes())
    found = _parts_of(g, parts[nodes], extra_cached_hops)
    for own in found.values():
        own.ndata["orig_id"], own.edata["orig_id"] = nodes[own.ndata[vgraph.NID]], edges[own.edata[vgraph.EID]]
    return found, nodes, edges


def _parts_of(g: vgraph.Graph, parts: Tensor, hops: int) -> Parts:
    return {part: _with_halo(g, parts, part, hops) for part in range(int(parts.max()) + 1)}


def _with_halo(g: vgraph.Graph, parts: Tensor, part: int, hops: int) -> vgraph.Graph:
    src, dst = (end.long() for end in g.edges())
    is_inner = parts == part
    ends = is_inner[src], is_inner[dst]
    kept, before = ends[0] & ends[1], is_inner.clone()
    for _ in range(hops):
        arriving = before[dst]
        kept = kept | ends[0] | arriving
        before[src[arriving]] = True
    touched = torch.cat([src[kept], dst[kept]]).unique()
    nodes = torch.cat([is_inner.nonzero().squeeze(1), touched[~is_inner[touched]]])
    places = torch.zeros_like(parts).scatter_(0, nodes, torch.arange(len(nodes), device=g.device))
    edges = kept.nonzero().squeeze(1)
    edges = edges[places[dst[edges]].argsort(stable=True)]  # those that end in the part come first
    made = vgraph.graph((places[src[edges]], places[dst[edges]]), num_nodes=len(nodes))
    made.ndata.update({vgraph.NID: nodes, "inner_node": is_inner[nodes].int(), "part_id": parts[nodes]})
    made.edata.update({vgraph.EID: edges, "inner_edge": is_inner[dst[edges]].to(torch.int8)})
    return made


def reorder_nodes(g: vgraph.Graph, new_node_ids: Ids) -> vgraph.Graph:
    """The graph with other numbers of nodes, (nodes,), without features; "orig_id" has those of before.

    Raises:
        GraphError: the numbers are not those of all nodes, each once.
    """
    places = torch.as_tensor(new_node_ids, device=g.device).long()
    order = places.argsort()
    if not torch.equal(places[order], torch.arange(g.num_nodes(), device=g.device)):
        raise GraphError(f"new ids of {g.num_nodes()} nodes are no permutation", cure="give each number once")
    src, dst = g.edges()
    made = vgraph.graph((places[src.long()], places[dst.long()]), num_nodes=g.num_nodes(), idtype=g.idtype)
    made.ndata["orig_id"] = order
    return made


def reorder_graph(
    g: vgraph.Graph,
    node_permute_algo: str | None = None,
    edge_permute_algo: str = "src",
    store_ids: bool = True,
    permute_config: Mapping[str, Ids] | None = None,
) -> vgraph.Graph:
    """``vgraph.reorder_graph``, also by METIS: "metis" orders nodes by ``permute_config["k"]`` parts.

    Raises:
        FunctionError: METIS is not told how many parts.
    """
    config = dict(permute_config or {})
    if node_permute_algo == "metis":
        if "k" not in config:
            raise FunctionError("METIS is not told how many parts", cure='pass permute_config={"k": parts}')
        count = int(torch.as_tensor(config.pop("k")))
        config["nodes_perm"] = metis_partition_assignment(g.long(), count).argsort(stable=True)
        node_permute_algo = "custom"
    return vgraph.reorder_graph(g, node_permute_algo, edge_permute_algo, store_ids, config)
