"""Batches: many graphs as one, and one as many.

Takes: graphs. Gives: a graph of many components, and back. Runs at every step.
Source: DGL section 3 (a batch is one graph of many components).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, WORDS, Bound, checked
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import GraphError
from vgraph.graphs.batch_slices import Whole, batch_of_members
from vgraph.graphs.data import NODE, UNTYPED
from vgraph.graphs.edge_formats import MAX_INT32
from vgraph.graphs.frame import Frame, add_rows, concat_frames
from vgraph.graphs.given import GRAPH, GRAPHS, refuse_others
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.mutation import ID, Counts
from vgraph.graphs.types import EdgeType
from vgraph.ir.joined_ends import join_ends
from vgraph.ir.topology import Topology

Names = Sequence[str] | None
Sizes = tuple[int, ...]


def _is_all(names: object) -> bool:
    return isinstance(names, str) and names == "__ALL__"


_NAMES = Bound('a list of names, or "__ALL__"', lambda given: _is_all(given) or WORDS.accepts(given)).or_none()


@checked(graphs=GRAPHS, ndata=_NAMES, edata=_NAMES)
def batch(graphs: Iterable[AnyGraph], ndata: Names = "__ALL__", edata: Names = "__ALL__") -> AnyGraph:
    """One graph of all ``graphs``, their nodes, edges and features one after the other.

    Differentiable in every feature. A batch among ``graphs`` counts as the graphs it was made of.

    Args:
        graphs: graphs of the same types, one or more.
        ndata: the names of the node features to take along; "__ALL__": all; None: none.
        edata: the names of the edge features to take along; "__ALL__": all; None: none.

    Returns:
        A graph of the class of the first, with a row of ``gdata`` for each.

    Raises:
        GraphError: there are no graphs, or they differ in device, idtype or types.
        FeatureError: a feature is missing in some, or differs in dtype, row shape or device.
        FunctionError: an item is no graph.
        ArgumentError: ``ndata`` or ``edata`` is no list of names.
        NameLookupError: a feature that is named is not there.

    Source: Wang et al. 2019 (DGL), section 3; DGL 1.1, ``dgl.batch``.

    Example:
        >>> import vgraph
        >>> g = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [2, 2]))])
        >>> g.batch_num_nodes().tolist(), g.edges()[0].tolist()
        ([2, 3], [0, 2, 3])
    """
    members = list(graphs)
    known = batch_of_members(members) if _is_all(ndata) and _is_all(edata) else None
    if known is not None:
        return known
    _check_members(members)
    first = members[0]
    is_single = len(first.edge_frames) == 1
    counts = {t: [g.src_frames[t].num_rows for g in members] for t in first.src_frames}
    is_flat = not any(g.sizes for g in members)
    sizes = {t: tuple(counts[t]) if is_flat else _sizes(members, t) for t in first.src_frames}
    topologies = {
        e: _join(
            [g.topology if is_single else g.relation(e)[0] for g in members], counts[e[0]], counts[e[2]], sizes[e[2]]
        )
        for e in first.canonical_etypes
    }
    nodes = {t: _concat([g.src_frames[t] for g in members], ndata) for t in first.src_frames}
    edges = {e: _concat([g.edge_frames[e] for g in members], edata) for e in first.canonical_etypes}
    return type(first).of_types(topologies, nodes, None, edges, concat_frames([g.gdata for g in members]), sizes)


def _concat(frames: Sequence[Frame], names: Names) -> Frame:
    if _is_all(names):
        return concat_frames(frames)
    chosen: list[Frame] = []
    for frame in frames:
        part = frame.empty()
        part.update({name: frame[name] for name in names or ()})
        chosen.append(part)
    return concat_frames(chosen)


def _sizes(graphs: Sequence[GraphData], ntype: str) -> Sizes:
    found: list[int] = []
    for g in graphs:
        found += (g.src_frames[ntype].num_rows,) if g.sizes is None else g.sizes[ntype]
    return tuple(found)


def _check_members(graphs: Sequence[GraphData]) -> None:
    if not graphs:
        raise GraphError("there are no graphs to batch", cure="pass one or more")
    refuse_others(graphs)
    form = graphs[0].form
    if not form[2] and all(g.form is form or g.form == form for g in graphs):
        return
    kinds = [(g.idtype, g.device) for g in graphs]
    if any(kind != kinds[0] for kind in kinds):
        index = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        (dtype, device), (first_dtype, first_device) = kinds[index], kinds[0]
        fact = f"graph {index} has {dtype} ids on {device}, graph 0 {first_dtype} on {first_device}"
        cure = "convert them with .long() or .int() and .to(device)"
        raise GraphError(fact, cure=cure)
    for index, g in enumerate(graphs):
        if (
            g.is_block
            or g.src_frames.keys() != graphs[0].src_frames.keys()
            or g.canonical_etypes != graphs[0].canonical_etypes
        ):
            fact = f"graph {index} has other types than graph 0, or is a block"
            raise GraphError(fact, cure="batch graphs of the same types")


def _join(parts: Sequence[Topology], num_src: Sequence[int], num_dst: Sequence[int], sizes: Sizes) -> Topology:
    first = parts[0].src
    totals = (sum(num_src), sum(num_dst))
    if first.dtype == torch.int32 and max(totals) > MAX_INT32:
        fact = f"{max(totals)} nodes cannot be numbered in int32"
        raise GraphError(fact, cure="convert the graphs with .long()")
    if torch.compiler.is_dynamo_compiling():  # which reads no bytes
        src, dst = compiled_calls.outside(join_ends, parts, num_src, num_dst)
    else:
        src, dst = join_ends(parts, num_src, num_dst)
    flat = tuple([part for t in parts for part in t.parts or (t,)])
    hosts = [] if first.device.type == "cpu" else [t.host for t in parts if t.host is not None]
    host = _join(hosts, num_src, num_dst, sizes) if len(hosts) == len(parts) else None  # planned without a wait
    return Topology(src, dst, *totals, sizes, flat, host=host)


# ---------------------------------------------------------------- one as many
@checked(g=GRAPH)
def unbatch(
    g: AnyGraph,
    node_split: Counts | Mapping[str, Counts] | None = None,
    edge_split: Counts | Mapping[EdgeType, Counts] | None = None,
) -> list[AnyGraph]:
    """The graphs that a batch was made of; their features are views of the batch's.

    Features of edges that are not in order of the graphs are copies.

    Args:
        g: a batch.
        node_split: the number of nodes of every graph, (graphs,) (by type, where there are several), where it is no
            batch.
        edge_split: ignored, as an edge belongs to the graph where it ends.

    Returns:
        As many graphs of the same class as ``batch_size`` says; a graph that is no batch alone.

    Raises:
        GraphError: an edge joins two of them, or the numbers do not sum to the nodes there are.

    Source: DGL 1.1, ``dgl.unbatch``.

    Example:
        >>> import vgraph
        >>> pair = vgraph.graph(([0], [1]))
        >>> [part.num_nodes() for part in vgraph.unbatch(vgraph.batch([pair, pair]))]
        [2, 2]
    """
    if node_split is not None:
        g = g.local_var()
        g.set_batch_num_nodes(node_split)
    if g.sizes is None:
        return [g.local_var()]
    whole = _whole_of(g)
    if whole is not None:
        return [whole.graph(number, type(g)) for number in range(g.batch_size)]
    nodes = {t: frame.split(g.sizes[t]) for t, frame in g.src_frames.items()}
    topologies: dict[EdgeType, Sequence[Topology]] = {}
    edges: dict[EdgeType, list[Frame]] = {}
    for e in g.canonical_etypes:
        whole, _, _, frame = g.relation(e)
        topologies[e], order = _divide(whole, g.sizes[e[0]], g.sizes[e[2]])
        frame = frame if order is None else frame.take(order)
        edges[e] = frame.split([t.num_edges for t in topologies[e]])
    graphs = g.gdata.split([1] * g.batch_size)
    return [
        type(g).of_types(
            {e: found[i] for e, found in topologies.items()},
            {t: found[i] for t, found in nodes.items()},
            None,
            {e: found[i] for e, found in edges.items()},
            gdata,
        )
        for i, gdata in enumerate(graphs)
    ]


def _whole_of(g: GraphData) -> Whole | None:
    """A batch on the CPU of one type of nodes and edges, ready to be sliced; kept for as long as it is the same."""
    if not g.is_homogeneous or g.device.type != "cpu" or g.sizes is None:
        return None
    topology, frames = g.topology, (g.node_frame(), g.edge_frames[g.canonical_etypes[0]], g.gdata)
    if g.src_frames.keys() != {NODE} or g.canonical_etypes != [UNTYPED]:
        return None
    known = g.__dict__.get("whole")
    if isinstance(known, Whole) and known.fits(topology, frames):
        return known.renewed(frames)
    sizes = next(iter(g.sizes.values()))
    parts = _known_parts(topology, sizes)
    if parts is None:
        ends, counts, order = _local_ends(topology, sizes, sizes)
    else:
        counts, order = [t.num_edges for t in parts], None
        starts = torch.from_numpy(np.repeat(np.cumsum(sizes) - sizes, counts)).to(topology.src)
        ends = [topology.src - starts, topology.dst - starts]
    g.__dict__["whole"] = whole = Whole(topology, frames, sizes, ends, counts, order, parts)
    return whole


def _known_parts(whole: Topology, sizes: Sizes) -> Sequence[Topology] | None:
    parts, stored = whole.parts or (), (whole.src.dtype, whole.device)
    return parts if len(parts) == len(sizes) and all((t.src.dtype, t.device) == stored for t in parts) else None


def _divide(whole: Topology, num_src: Sizes, num_dst: Sizes) -> tuple[Sequence[Topology], Tensor | None]:
    """A topology for every graph; and the order of edges that groups them, if it is another."""
    parts = _known_parts(whole, num_dst)
    if parts is not None:
        return parts, None
    ends, counts, order = _local_ends(whole, num_src, num_dst)
    pairs = zip(ends[0].split(counts), ends[1].split(counts), num_src, num_dst, strict=True)
    return [Topology(u, v, m, n) for u, v, m, n in pairs], order


def _local_ends(whole: Topology, num_src: Sizes, num_dst: Sizes) -> tuple[list[Tensor], list[int], Tensor | None]:
    """Ends of edges counted within each graph, graph by graph; how many each has; the order that groups them."""
    graphs = whole.graph_ids.index_select(0, whole.dst)
    src_graphs = graphs_of(num_src, whole.src)
    astray = (graphs != src_graphs).nonzero()
    if len(astray):
        edge = int(astray[0])
        fact = f"edge {edge} ({int(whole.src[edge])} -> {int(whole.dst[edge])}) joins two graphs"
        raise GraphError(fact, cure="remove it before unbatch")
    order = None if bool((graphs[1:] >= graphs[:-1]).all()) else graphs.argsort(stable=True)
    counts = torch.bincount(graphs, minlength=len(num_dst)).tolist()
    ends: list[Tensor] = []
    for end, sizes in ((whole.src, num_src), (whole.dst, num_dst)):
        starts = torch.from_numpy(np.cumsum(sizes) - np.array(sizes)).to(end)
        moved = end - starts.index_select(0, graphs)
        ends.append(moved if order is None else moved.index_select(0, order))
    return ends, counts, order


def graphs_of(sizes: Sizes, ids: Tensor) -> Tensor:
    """The graph of every one of ``ids``, where graphs have that many nodes."""
    ends = torch.from_numpy(np.cumsum(sizes)).to(ids.device)
    return torch.searchsorted(ends, ids.long(), right=True)


@checked(g=GRAPH, gid=COUNT)
def slice_batch(g: AnyGraph, gid: int, store_ids: bool = False) -> AnyGraph:
    """One graph of a batch, with its features.

    Args:
        g: a batch.
        gid: its number, from 0 up.
        store_ids: set the features ``"_ID"`` of nodes and edges to the ids in the batch.

    Returns:
        A graph of the same class.

    Raises:
        ArgumentError: ``gid`` is no whole number from 0 up.
        GraphError: there is no such graph, or an edge joins two of them.

    Source: DGL 1.1, ``dgl.slice_batch``.

    Example:
        >>> import vgraph
        >>> pair = vgraph.graph(([0], [1]))
        >>> vgraph.slice_batch(vgraph.batch([pair, pair]), 1, store_ids=True).ndata["_ID"].tolist()
        [2, 3]
    """
    if gid >= g.batch_size:
        fact = f"there is no graph {gid!r} in a batch of {g.batch_size}"
        raise GraphError(fact, cure=f"pass a number from 0 to {g.batch_size - 1}")
    slices = None if store_ids else _whole_of(g)
    if slices is not None:
        return slices.graph(gid, type(g))
    whole = g.local_var()
    for frame in (*whole.src_frames.values(), *whole.edge_frames.values()) if store_ids else ():
        frame[ID] = torch.arange(frame.num_rows, dtype=g.idtype, device=g.device)
    return unbatch(whole)[gid]


@checked(graphs=GRAPHS)
def merge(graphs: Sequence[AnyGraph]) -> AnyGraph:
    """One graph with the edges of all, over the same nodes: those of the one that has most.

    Features of a node come from the last graph that has it.

    Args:
        graphs: graphs of the same types, one or more.

    Returns:
        A graph of the class of the first, which is no batch; edges between the same nodes stay apart.

    Raises:
        GraphError: there are no graphs, or they differ in device, idtype or types.
        FunctionError: an item is no graph.
        FeatureError: an edge feature is missing in some, or differs in dtype or row shape.

    Source: DGL 1.1, ``dgl.merge``.

    Example:
        >>> import vgraph
        >>> vgraph.merge([vgraph.graph(([0], [1])), vgraph.graph(([1], [2]))]).edges()
        (tensor([0, 1]), tensor([1, 2]))
    """
    graphs = list(graphs)
    _check_members(graphs)
    first = graphs[0]
    counts = {t: max(g.num_nodes(t) for g in graphs) for t in first.ntypes}
    topologies: dict[EdgeType, Topology] = {}
    for e in first.canonical_etypes:
        parts = [g.relation(e)[0] for g in graphs]
        ends = (torch.cat([t.src for t in parts]), torch.cat([t.dst for t in parts]))
        topologies[e] = Topology(*ends, counts[e[0]], counts[e[2]])
    nodes = {t: _overlaid([g.src_frames[t] for g in graphs], counts[t]) for t in first.ntypes}
    edges = {e: concat_frames([g.edge_frames[e] for g in graphs]) for e in first.canonical_etypes}
    return type(first).of_types(topologies, nodes, None, edges)


def _overlaid(frames: Sequence[Frame], count: int) -> Frame:
    made = frames[0].copy()
    add_rows(made, count - made.num_rows)
    for frame in frames[1:]:
        rows: Mapping[str, Tensor] = frame.columns
        for name, column in rows.items():
            old = made[name] if name in made else made.initial(name, column)
            made[name] = torch.cat([column, old[frame.num_rows :]])
    return made
