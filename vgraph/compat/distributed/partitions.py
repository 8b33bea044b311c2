"""Partitions on disk in DGL's words: made, and looked at one by one.

Takes: the name of a graph, where its parts lie. Gives: folders; a part with its halo. Runs once per graph.
The folder is ``out_path/graph_name``; DGL's ``out_path/graph_name.json`` leads there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from vgraph.compat.distributed.partition_book import GraphPartitionBook
from vgraph.errors import DataError, FunctionError, GraphError
from vgraph.graphs.data import EdgeType

_METHODS = {"random": "hash"}  # DGL's word for it


def folder_of(graph_name: str, part_config: str | Path | None = None) -> Path:
    """Where the parts of a graph are.

    Raises:
        DataError: DGL wrote the partition.
    """
    config = Path() if part_config is None else Path(part_config)
    folder = (config.parent if config.suffix == ".json" else config) / graph_name
    if config.suffix == ".json" and config.is_file() and not folder.is_dir():
        fact = f"{config} is a partition that DGL wrote"
        raise DataError(fact, cure=f"divide the graph anew: vgraph partition-graph {config} {folder}")
    return folder


def partition_graph(
    g: vgraph.Graph,
    graph_name: str,
    num_parts: int,
    out_path: str,
    num_hops: int = 1,
    part_method: str = "metis",
    balance_ntypes: Any = None,
    balance_edges: bool = False,
    return_mapping: bool = False,
    num_trainers_per_machine: int = 1,
    objtype: str = "cut",
    graph_formats: Any = None,
) -> Any:
    """Divides a graph into ``num_parts`` times ``num_trainers_per_machine`` parts; halos are found when it is loaded.

    ``balance_ntypes``: a class of every node, or the name of a feature; parts get equal shares of each class.
    ``return_mapping`` gives (original ids of nodes by new ids, of edges by new ids), by type where there are several.
    """
    if objtype != "cut":
        raise FunctionError(f"objtype is {objtype!r}, and edges that are cut are counted", cure='leave it "cut"')
    words = ["edges"] if balance_edges else []
    if isinstance(balance_ntypes, str):
        words.append(balance_ntypes)
    elif balance_ntypes is not None:
        words.append("_balance")
        g = g.local_var()  # which other threads do not see
        by_type = balance_ntypes if isinstance(balance_ntypes, Mapping) else {g.ntypes[0]: balance_ntypes}
        for name, classes in by_type.items():
            g.nodes[name].data["_balance"] = torch.as_tensor(classes)
    folder, count = Path(out_path) / graph_name, num_parts * num_trainers_per_machine
    vd.partition_graph(g, folder, count, _METHODS.get(part_method, part_method), words)
    return _mapping(vd.PartitionedGraph.open(folder)) if return_mapping else None


def _mapping(stored: vd.PartitionedGraph) -> tuple[Any, Any]:
    parts = [stored.part(number) for number in range(stored.num_parts)]
    nodes = {t: torch.cat([part.orig(t) for part in parts]).long() for t in stored.ntypes}
    edges = {e: torch.cat([part.eid(e) for part in parts]).long() for e in stored.canonical_etypes}
    plain_nodes: Any = nodes if len(nodes) > 1 else nodes[stored.ntypes[0]]
    return plain_nodes, edges if len(edges) > 1 else edges[stored.canonical_etypes[0]]


# ---------------------------------------------------------------- one part, in one process
def load_partition_book(part_config: str | Path, part_id: int) -> tuple[GraphPartitionBook, str, list[str], list[str]]:
    """(a partition book of parts on disk, the graph's name, types of nodes, names of the types of edges)."""
    stored, name = _opened(part_config, part_id)
    book = GraphPartitionBook(
        part_id,
        {t: stored.bounds(t) for t in stored.ntypes},
        {e: stored.edge_bounds(e) for e in stored.canonical_etypes},
    )
    return book, name, book.ntypes, book.etypes


def load_partition_feats(
    part_config: str | Path, part_id: int, load_nodes: bool = True, load_edges: bool = True
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Features of a part's nodes by "type/name", and of its edges by "source type:type:destination type/name"."""
    stored, _ = _opened(part_config, part_id)
    part = stored.part(part_id)
    nodes = {f"{t}/{n}": part.node_data(t, n) for t in stored.ntypes for n in stored.node_schemes(t)}
    edges = {
        f"{':'.join(e)}/{n}": part.edge_data(e, n) for e in stored.canonical_etypes for n in stored.edge_schemes(e)
    }
    return nodes if load_nodes else {}, edges if load_edges else {}


def load_partition(
    part_config: str | Path, part_id: int, load_feats: bool = True
) -> tuple[vgraph.Graph, dict[str, Tensor], dict[str, Tensor], GraphPartitionBook, str, list[str], list[str]]:
    """A part's nodes with the halo behind them, and the edges that end in its nodes.

    ``_ID`` of nodes and edges are new ids, ``inner_node`` and ``inner_edge`` tell what is the part's own.
    """
    stored, _ = _opened(part_config, part_id)
    book, name, ntypes, etypes = load_partition_book(part_config, part_id)
    nodes, edges = load_partition_feats(part_config, part_id, load_feats, load_feats)
    return _with_halo(stored, part_id), nodes, edges, book, name, ntypes, etypes


def _opened(part_config: str | Path, part_id: int) -> tuple[vd.PartitionedGraph, str]:
    config = Path(part_config)
    folder = folder_of(config.stem, config) if config.suffix == ".json" else config
    stored = vd.PartitionedGraph.open(folder)
    if not 0 <= part_id < stored.num_parts:
        fact = f"there is no part {part_id} among {stored.num_parts}"
        raise GraphError(fact, cure="give a number from 0 up, below the number of parts")
    return stored, folder.name


def _with_halo(stored: vd.PartitionedGraph, part_id: int) -> vgraph.Graph:
    part = stored.part(part_id)
    own = {t: tuple(stored.bounds(t)[part_id : part_id + 2].tolist()) for t in stored.ntypes}
    sources = {e: part.src(e).long() for e in stored.canonical_etypes}
    halos = {t: _halo([ids for e, ids in sources.items() if e[0] == t], *own[t]) for t in stored.ntypes}
    ends: dict[EdgeType, tuple[Tensor, Tensor]] = {}
    for etype, ids in sources.items():
        first, last = own[etype[0]]
        far = torch.searchsorted(halos[etype[0]], ids) + (last - first)
        near = (ids >= first) & (ids < last)
        dst = torch.repeat_interleave(torch.arange(part.num_nodes(etype[2])), part.ptr(etype).diff())
        ends[etype] = torch.where(near, ids - first, far), dst
    g = vgraph.heterograph(ends, {t: own[t][1] - own[t][0] + len(halos[t]) for t in stored.ntypes})
    for name in stored.ntypes:
        inner = torch.arange(*own[name])
        g.nodes[name].data[vgraph.NID] = torch.cat([inner, halos[name]])
        g.nodes[name].data["inner_node"] = torch.arange(g.num_nodes(name)) < len(inner)
    for etype in stored.canonical_etypes:
        g.edges[etype].data[vgraph.EID] = torch.arange(*stored.edge_bounds(etype)[part_id : part_id + 2].tolist())
        g.edges[etype].data["inner_edge"] = torch.ones(g.num_edges(etype), dtype=torch.bool)
    return g


def _halo(sources: list[Tensor], first: int, last: int) -> Tensor:
    ids = torch.cat([*sources, torch.empty(0, dtype=torch.int64)]).unique()
    return ids[(ids < first) | (ids >= last)]
