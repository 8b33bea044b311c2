"""Neighbours in a graph whose types have become ranges of edge ids: so many of each type.

Takes: a graph of one type, where each type's ids begin. Gives: a graph of what is drawn. Runs at every step.
Source: DGL 1.1, ``dgl.sampling.sample_etype_neighbors``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import checked, is_list_of
from vgraph.errors import FeatureError, GraphError
from vgraph.graphs.draw.lists import Spans
from vgraph.graphs.draw.neighbors import Hop, Seeds, fanouts_of, graph_of, seeds_by_type
from vgraph.graphs.draw.pick import are_weights, pick_uniform, pick_weighted
from vgraph.graphs.draw.random_numbers import Array
from vgraph.graphs.given import GRAPH
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.graphs.types import Device, Nodes


@checked(g=GRAPH)
def sample_etype_neighbors(
    g: Graph,
    nodes: Nodes,
    etype_offset: Sequence[int] | Tensor,
    fanout: Tensor | Sequence[int],
    edge_dir: str = "in",
    prob: Sequence[Tensor] | str | None = None,
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    etype_sorted: bool = False,
    output_device: Device = None,
) -> Graph:
    """A graph of all nodes with up to so many in-edges (out-edges) of each type of each of ``nodes``.

    The graph has lost its types, as by ``to_homogeneous``: a type is a range of edge ids.

    Args:
        g: a graph on the CPU with one type of edges.
        nodes: ids (nodes,).
        etype_offset: (types + 1,), the first edge id of every type, and behind the last one.
        fanout: (types,), how many edges of each type; -1: all.
        edge_dir: "in" for the edges that end in the nodes, "out" for those that begin there.
        prob: numbers that edges are drawn in proportion to, one tensor (its edges,) a type, empty where all are
            alike; or the name of a feature (edges,); None: all alike.
        replace: let an edge be drawn more than once.
        copy_ndata: take the features of nodes along.
        copy_edata: take the features of edges along.
        etype_sorted: ignored, as nothing is gained by it.
        output_device: where the result goes; None: it stays on the CPU.

    Returns:
        A graph of the same class; its edges' feature ``"_ID"`` holds their ids in ``g``.

    Raises:
        GraphError: there are several types of edges, ``fanout`` or ``etype_offset`` do not have one number a type,
            an id is out of range, or the graph is not on the CPU.
        FeatureError: ``prob`` does not have one number from 0 up for every edge.
        NameLookupError: there is no such feature.
        FunctionError: ``edge_dir`` is not "in" or "out".

    Source: DGL 1.1, ``dgl.sampling.sample_etype_neighbors``.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import sample_etype_neighbors
        >>> g = vgraph.graph(([0, 1, 2, 3], [4, 4, 4, 4]))
        >>> sample_etype_neighbors(g, [4], [0, 3, 4], [1, 1]).edata["_ID"].tolist()[1]
        3
    """
    counts, offsets = _ranges(g, etype_offset, fanout)
    weights, seeds = _weights(g, prob, offsets), nodes_by_type(g, nodes)
    hop = Hop(seeds, -1, replace=replace)
    drawn = {
        one.etype: one.drawn(*_drawn(one, offsets, counts, weights, hop))
        for one in seeds_by_type(g, seeds, -1, edge_dir)
    }
    return graph_of(g, drawn, copy_ndata, copy_edata, output_device)


def _ranges(g: Graph, etype_offset: Sequence[int] | Tensor, fanout: Tensor | Sequence[int]) -> tuple[list[int], Array]:
    """How many edges of each type, and where each type's ids begin."""
    if len(g.canonical_etypes) != 1:
        fact = f"the graph has edges of {len(g.canonical_etypes)} types"
        raise GraphError(fact, cure="pass vgraph.to_homogeneous(g), or call sample_neighbors with a fanout by type")
    counts: list[int] = _numbers(fanout, "fanout").tolist()
    offsets = _numbers(etype_offset, "etype_offset").numpy()
    if len(offsets) != len(counts) + 1:
        fact = f"etype_offset has {len(offsets)} numbers for {len(counts)} fanouts"
        raise GraphError(fact, cure="give where each type's ids begin, and where the last type's end")
    if offsets[0] != 0 or offsets[-1] != g.num_edges() or (np.diff(offsets) < 0).any():
        fact = f"etype_offset is {offsets.tolist()} for {g.num_edges()} edges"
        raise GraphError(fact, cure="give where each type's ids begin, from 0 up, and where the last type's end")
    return [fanouts_of(g, count)[g.canonical_etypes[0]] for count in counts], offsets


def _numbers(given: object, what: str) -> Tensor:
    """(n,); GraphError: they are not."""
    try:
        found = torch.as_tensor(given, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphError(f"{what} is a {type(given).__name__}: {error}", cure="give a list of whole numbers") from error
    if found.ndim != 1 or found.is_complex() or found.dtype == torch.bool or bool((found != found.long()).any()):
        fact = f"{what} has shape {tuple(found.shape)} and dtype {found.dtype}"
        raise GraphError(fact, cure="give a list of whole numbers")
    return found.long()


def _weights(g: Graph, prob: Sequence[Tensor] | str | None, offsets: Array) -> Array | None:
    """One number an edge, by id."""
    if prob is None:
        return None
    if isinstance(prob, str):
        column = g.edata[prob]
    else:
        sizes = np.diff(offsets).tolist()
        if not is_list_of(prob, Tensor) or len(prob) != len(sizes):
            fact = f"prob is a {type(prob).__name__}, not {len(sizes)} tensors"
            raise FeatureError(fact, cure="give a list with one tensor a type, or the name of a feature")
        ones = (torch.ones(count, dtype=torch.float64, device="cpu") for count in sizes)
        column = torch.cat([p.double() if len(p) else all_alike for p, all_alike in zip(prob, ones, strict=True)])
    rows = column.detach().reshape(-1).double()
    if len(rows) != g.num_edges() or not are_weights(rows):
        fact = f"prob has {len(rows)} numbers for {g.num_edges()} edges, or some below 0, or not finite"
        raise FeatureError(fact, cure="give one finite number from 0 up an edge")
    return rows.numpy()


def _drawn(
    seeds: Seeds, offsets: Array, counts: list[int], weights: Array | None, hop: Hop
) -> tuple[Array, Array, Array]:
    """(other ends, edge ids, which seed each was drawn for), type by type of each seed."""
    lists = seeds.lists
    spans = lists.spans(seeds.ids)
    owners, slots = spans.entries
    far, edge_ids = lists.fetch(spans.begins[owners] + slots)
    kinds = np.searchsorted(offsets, edge_ids, side="right") - 1
    chosen: list[Array] = []
    for kind, count in enumerate(counts):
        own = (kinds == kind).nonzero()[0]
        lengths = np.bincount(owners[own], minlength=len(seeds.ids))
        of_kind = Spans(np.cumsum(lengths) - lengths, lengths, spans.names)
        key = hop.key_of(kind)
        if weights is None:
            places, _ = pick_uniform(of_kind, count, key, replace=hop.replace)
        else:
            places, _ = pick_weighted(of_kind, weights[edge_ids[own]], count, key, replace=hop.replace)
        chosen.append(own[places])
    every = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
    every = every[np.argsort(owners[every], kind="stable")]
    return far[every], edge_ids[every], owners[every]
