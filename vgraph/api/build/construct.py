"""Making graphs: of one type of nodes and edges, of several, and blocks.

Takes: edges as users give them. Gives: Graphs. Runs once per sample.
Source: DGL section 3 (homogeneous and heterogeneous graphs, blocks).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import MAPPING, NAME, checked
from vgraph.errors import DTypeError, GraphError
from vgraph.graphs.data import EDGE, NODE
from vgraph.graphs.edge_formats import (
    ROWS,
    check_count,
    check_ends,
    count_nodes,
    make_topology,
    num_nodes_of,
    read_edges,
)
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.seed import generator
from vgraph.graphs.types import EdgeType

Device = torch.device | str | None
Ends = tuple[Tensor, Tensor]


@checked()
def graph(
    data: object,
    *,
    num_nodes: int | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
    row_sorted: bool = False,
    col_sorted: bool = False,
) -> Graph:
    """A graph with the edges ``src[i] -> dst[i]``, in that order.

    Args:
        data: ``(src, dst)``: tensors, arrays or lists of node ids, (num_edges,) each, which are copied. Also a list
            of pairs, a sparse matrix of SciPy or torch (an edge from row to column for every entry),
            ``("coo", (src, dst))``, ``("csr", (indptr, indices, edge_ids))`` or ``("csc", ...)``.
        num_nodes: all ids are below it; None: the largest id + 1, or the larger side of a sparse matrix of torch.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: where the ids are.
        row_sorted: ignored, as sorted edges are seen to be sorted.
        col_sorted: ignored, as ``row_sorted``.

    Returns:
        A Graph without features, with one type of nodes and edges. Edges between the same nodes, and from a node to
        itself, are kept.

    Raises:
        GraphError: the ends differ in length or device, an id is not in [0, num_nodes), or the largest id is far
            larger than the number of ids makes likely.
        DTypeError: ids are not whole numbers, or ``idtype`` is another dtype.
        DeviceError: there is no such device, or ids are on the meta device.

    Source: DGL 1.1, ``dgl.graph``.

    Example:
        >>> import vgraph
        >>> g = vgraph.graph(([0, 1, 1], [2, 2, 3]), num_nodes=5)
        >>> g
        Graph(num_nodes=5, num_edges=3, ndata={}, edata={})
        >>> g.in_degrees().tolist()
        [0, 0, 2, 1, 0]
    """
    ends = read_edges(data, device)
    if num_nodes is None and isinstance(data, Tensor) and data.layout != torch.strided:
        num_nodes = max(data.shape)
    count = count_nodes(ends, num_nodes)
    return Graph(make_topology(ends, count, count, idtype, device))


@checked(num_nodes_dict=MAPPING.or_none())
def heterograph(
    data_dict: Mapping[EdgeType, object],
    num_nodes_dict: Mapping[str, int] | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
) -> Graph:
    """A graph with several types of nodes and edges.

    Args:
        data_dict: ``(type of sources, name, type of destinations)`` to edges, as ``graph`` takes them.
        num_nodes_dict: the number of nodes of every type; None: the largest id of the type + 1.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: where the ids are.

    Returns:
        A Graph without features; types are sorted by name.

    Raises:
        GraphError: a key is no triple of names, a type is not counted, or an id is out of range.
        DTypeError: ids are not whole numbers, or ``idtype`` is another dtype.
        DeviceError: there is no such device.

    Source: DGL 1.1, ``dgl.heterograph``.

    Example:
        >>> import vgraph
        >>> plays, follows = ("user", "plays", "game"), ("user", "follows", "user")
        >>> g = vgraph.heterograph({plays: ([0, 1], [0, 0]), follows: ([0], [1])})
        >>> g.num_nodes("user"), g.num_edges(plays), g.ntypes
        (2, 2, ['game', 'user'])
    """
    edges = _read_typed(data_dict, device)
    counts = _count_types(edges, num_nodes_dict, {t for s, _, d in edges for t in (s, d)})
    idtype = _common_idtype(edges) if idtype is None else idtype
    for (s, name, d), (src, dst) in edges.items():
        check_ends(src, dst, counts[s], counts[d], f"nodes (edge type {name!r})")
    topologies = {t: make_topology(edges[t], counts[t[0]], counts[t[2]], idtype, device) for t in sorted(edges)}
    place = next(iter(topologies.values())).device
    return Graph.of_types(topologies, typed_frames(counts, place))


def typed_frames(counts: Mapping[str, int], device: torch.device) -> dict[str, Frame]:
    """Frames without features for node types, sorted by name; a single type has no name of its own."""
    named = len(counts) > 1
    return {t: Frame(counts[t], device, "node", type_name=t if named else "") for t in sorted(counts)}


def _read_typed(data_dict: object, device: Device) -> dict[EdgeType, Ends]:
    if not isinstance(data_dict, Mapping) or not data_dict:
        cure = 'pass {("user", "plays", "game"): (src, dst)}'
        raise GraphError("a heterogeneous graph needs edges by type", cure=cure)
    for key in data_dict:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(name, str) for name in key)):
            cure = "name edges as (type of sources, name, type of destinations)"
            raise GraphError(f"{key!r} is no edge type", cure=cure)
    return {key: read_edges(data, device) for key, data in data_dict.items()}


def _count_types(edges: Mapping[EdgeType, Ends], given: Mapping[str, int] | None, needed: set[str]) -> dict[str, int]:
    if given is not None:
        missing = sorted(needed - set(given))
        if missing:
            fact = f"num_nodes_dict does not count the nodes of type {missing[0]!r}"
            raise GraphError(fact, cure="count every type, or leave num_nodes_dict out")
        nothing = torch.empty(0, dtype=torch.int64, device="cpu")
        return {name: check_count(count, 0, (nothing, nothing)) for name, count in given.items()}
    return {name: _least(edges, name, (0, 2)) for name in needed}


def _least(edges: Mapping[EdgeType, Ends], name: str, sides: tuple[int, ...]) -> int:
    """One more than the largest id of a type, among sources (side 0), destinations (side 2) or both."""
    return num_nodes_of(tuple(ends[side // 2] for t, ends in edges.items() for side in sides if t[side] == name))


def _common_idtype(edges: Mapping[EdgeType, Ends]) -> torch.dtype:
    kinds = {end.dtype for ends in edges.values() for end in ends if end.numel()}
    return torch.int32 if kinds == {torch.int32} else torch.int64


def create_block(
    data_dict: object,
    num_src_nodes: int | Mapping[str, int] | None = None,
    num_dst_nodes: int | Mapping[str, int] | None = None,
    idtype: torch.dtype | None = None,
    device: Device = None,
) -> Graph:
    """A block: edges from sources to destinations that are numbered apart, even if of one type.

    Args:
        data_dict: edges, or edges by type as in ``heterograph``.
        num_src_nodes: the number of sources, or a dict by type; None: the largest id + 1.
        num_dst_nodes: the number of destinations, or a dict by type; None: the largest id + 1.
        idtype: ``torch.int64`` or ``torch.int32``; None: that of the ids.
        device: where ids and features go; None: where the ids are.

    Returns:
        A Graph without features whose ``is_block`` is true.

    Raises:
        GraphError: a type is not counted, or an id is out of range.
        DTypeError: ids are not whole numbers, ``idtype`` is another dtype, or there are several types and one number
            of nodes.
        DeviceError: there is no such device.

    Source: DGL 1.1, ``dgl.create_block``.

    Example:
        >>> import vgraph
        >>> vgraph.create_block(([0, 1, 2], [0, 0, 1]), num_src_nodes=4)
        Block(num_src_nodes={'_N': 4}, num_dst_nodes={'_N': 2}, num_edges={('_N', '_E', '_N'): 3})
    """
    is_plain = not isinstance(data_dict, Mapping)
    edges = {(NODE, EDGE, NODE): read_edges(data_dict, device)} if is_plain else _read_typed(data_dict, device)
    sides: list[dict[str, int]] = []
    for given, side in ((num_src_nodes, 0), (num_dst_nodes, 2)):
        names = {t[side] for t in edges}
        found = {name: _least(edges, name, (side,)) for name in names}
        sides.append(found if given is None else _count_types(edges, _by_type(given, is_plain), names))
    for (s, name, d), (src, dst) in edges.items():
        check_ends(src, dst, sides[0][s], sides[1][d], f"nodes (edge type {name!r})")
    idtype = _common_idtype(edges) if idtype is None else idtype
    topologies = {t: make_topology(edges[t], sides[0][t[0]], sides[1][t[2]], idtype, device) for t in sorted(edges)}
    place = next(iter(topologies.values())).device
    return Graph.of_types(topologies, typed_frames(sides[0], place), typed_frames(sides[1], place))


def _by_type(given: int | Mapping[str, int], is_plain: bool) -> Mapping[str, int]:
    if is_plain and not isinstance(given, Mapping):
        return {NODE: given}
    if isinstance(given, Mapping):
        return given
    raise DTypeError(f"the number of nodes is {given!r}", cure="give a dict by type")


@checked(block=GRAPH)
def block_to_graph(block: Graph) -> Graph:
    """A block as a graph whose types are called ``name_src`` and ``name_dst``; features come along.

    Args:
        block: a block, as ``to_block`` and ``create_block`` give it.

    Returns:
        A Graph that is no block and has two types of nodes for every one of the block's.

    Source: DGL 1.1, ``dgl.block_to_graph``.

    Example:
        >>> import vgraph
        >>> vgraph.block_to_graph(vgraph.create_block(([0, 1], [0, 0]))).canonical_etypes
        [('_N_src', '_E', '_N_dst')]
    """
    new = {t: (f"{t[0]}_src", t[1], f"{t[2]}_dst") for t in block.canonical_etypes}
    parts = {t: block.relation(t) for t in new}
    frames = {f"{t}_src": block.srcnodes[t].data for t in block.srctypes}
    frames |= {f"{t}_dst": block.dstnodes[t].data for t in block.dsttypes}
    nodes = {name: frame.copy() for name, frame in frames.items() if isinstance(frame, Frame)}
    edges = {new[t]: part[3].copy() for t, part in parts.items()}
    return Graph.of_types({new[t]: part[0] for t, part in parts.items()}, nodes, None, edges)


@checked(num_nodes=ROWS, num_edges=ROWS)
def rand_graph(num_nodes: int, num_edges: int, idtype: torch.dtype = torch.int64, device: Device = None) -> Graph:
    """A graph whose edges have random ends; several may be alike.

    Args:
        num_nodes: how many nodes.
        num_edges: how many edges.
        idtype: ``torch.int64`` or ``torch.int32``.
        device: where ids go; None: the CPU.

    Returns:
        A Graph without features; ends are drawn by the generator that ``vgraph.seed`` seeds, else by torch's.

    Raises:
        DTypeError: ``idtype`` is neither int64 nor int32.
        DeviceError: there is no such device.
        ArgumentError: a number is no whole number from 0 up.
        GraphError: edges have no nodes to join.

    Source: DGL 1.1, ``dgl.rand_graph``.

    Example:
        >>> import vgraph
        >>> vgraph.rand_graph(10, 30).num_edges()
        30
    """
    _refuse_edges_of_none(num_nodes, num_edges)
    ends = torch.randint(0, max(1, num_nodes), (2, num_edges), generator=generator(), device="cpu")
    return graph(ends, num_nodes=num_nodes, idtype=idtype, device=device)


def _refuse_edges_of_none(num_nodes: int, num_edges: int) -> None:
    if num_edges and not num_nodes:
        raise GraphError(f"{num_edges} edges have no nodes to join", cure="pass more nodes")


@checked(utype=NAME, etype=NAME, vtype=NAME, num_src_nodes=ROWS, num_dst_nodes=ROWS, num_edges=ROWS)
def rand_bipartite(
    utype: str,
    etype: str,
    vtype: str,
    num_src_nodes: int,
    num_dst_nodes: int,
    num_edges: int,
    idtype: torch.dtype = torch.int64,
    device: Device = None,
) -> Graph:
    """A graph of edges with random ends between two types of nodes.

    Args:
        utype: the name of the type of sources.
        etype: the name of the type of edges.
        vtype: the name of the type of destinations.
        num_src_nodes: how many sources.
        num_dst_nodes: how many destinations.
        num_edges: how many edges; several may be alike.
        idtype: ``torch.int64`` or ``torch.int32``.
        device: where ids go; None: the CPU.

    Returns:
        A Graph without features; ends are drawn by the generator that ``vgraph.seed`` seeds, else by torch's.

    Raises:
        DTypeError: ``idtype`` is neither int64 nor int32.
        DeviceError: there is no such device.
        ArgumentError: a number is no whole number from 0 up.
        GraphError: edges have no nodes to join.

    Source: DGL 1.1, ``dgl.rand_bipartite``.

    Example:
        >>> import vgraph
        >>> vgraph.rand_bipartite("user", "buys", "thing", 3, 4, 10).num_nodes("thing")
        4
    """
    counted = (num_src_nodes, num_dst_nodes)
    _refuse_edges_of_none(min(counted), num_edges)
    src, dst = (torch.randint(0, max(1, n), (num_edges,), generator=generator(), device="cpu") for n in counted)
    counts = {utype: num_src_nodes, vtype: num_dst_nodes}
    return heterograph({(utype, etype, vtype): (src, dst)}, counts, idtype, device)
