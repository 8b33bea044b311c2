"""Types as features: a typed graph as one without types, and back.

Takes: a Graph. Gives: a Graph. Runs once per sample.
Source: DGL section 3; ``"_TYPE"`` and ``"_ID"`` say what a node or an edge was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.arguments import WORDS, Bound, checked, is_list_of
from vgraph.errors import FeatureError, GraphError, NameLookupError
from vgraph.graphs.data import NODE, UNTYPED
from vgraph.graphs.edge_formats import check_idtype
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.mutation import ID
from vgraph.graphs.transform import one_type
from vgraph.graphs.types import EdgeType
from vgraph.ir.topology import Topology

TYPE = "_TYPE"  # the feature that holds the number of a type


def _is_type(name: object) -> bool:
    return isinstance(name, str) or (is_list_of(name, str) and len(name) == 3)  # pyright: ignore[reportArgumentType]


_TYPES = Bound("a name, or a triple of names", _is_type).each()


@checked(G=GRAPH, ndata=WORDS.or_none(), edata=WORDS.or_none())
def to_homogeneous(
    G: GraphData,
    ndata: Sequence[str] | None = None,
    edata: Sequence[str] | None = None,
    store_type: bool = True,
    return_count: bool = False,
) -> Any:
    """A graph of one type: nodes type by type, then edges type by type.

    Args:
        G: a graph.
        ndata: the names of node features to take along; one that not every type has is left out; None: none.
        edata: the names of edge features to take along; one that not every type has is left out; None: none.
        store_type: set the features ``"_TYPE"`` to numbers of types; ``"_ID"`` holds ids within the type in any case.
        return_count: also give how many nodes and edges each type has.

    Returns:
        A graph of the same class; with ``return_count`` a triple of it and two lists of numbers, by type of nodes and
        of edges.

    Raises:
        FeatureError: a feature differs in row shape or dtype between types.
        GraphError: there are too many nodes or edges for ids of 32 bits.
        NameLookupError: no type has such a feature.

    Source: DGL 1.1, ``dgl.to_homogeneous``.

    Example:
        >>> import vgraph
        >>> g = vgraph.heterograph({("a", "to", "b"): ([0, 1], [0, 0])})
        >>> made = vgraph.to_homogeneous(g)
        >>> made.edges(), made.ndata["_TYPE"].tolist()
        ((tensor([0, 1]), tensor([2, 2])), [0, 0, 1])
    """
    counts = [frame.num_rows for frame in G.src_frames.values()]
    check_idtype(G.idtype, sum(counts), G.num_edges())
    starts = dict(zip(G.src_frames, torch.tensor([0, *counts], device="cpu").cumsum(0).tolist(), strict=False))
    parts = [(key, G.relation(key)[0]) for key in G.canonical_etypes]
    src = torch.cat([t.src + starts[key[0]] for key, t in parts])
    dst = torch.cat([t.dst + starts[key[2]] for key, t in parts])
    nodes = _stacked(list(G.src_frames.values()), ndata, G.idtype, store_type)
    edges = _stacked(list(G.edge_frames.values()), edata, G.idtype, store_type)
    whole = {UNTYPED: Topology(src, dst, sum(counts), sum(counts))}
    made = type(G).of_types(whole, {NODE: nodes}, None, {UNTYPED: edges})
    return (made, counts, [t.num_edges for _, t in parts]) if return_count else made


def _stacked(frames: Sequence[Frame], names: Sequence[str] | None, idtype: torch.dtype, store: bool) -> Frame:
    counts = torch.tensor([frame.num_rows for frame in frames], device="cpu")
    device = frames[0].device
    made = Frame(int(counts.sum()), device, frames[0].kind)
    for name in names or ():
        if frames and not all(name in frame for frame in frames):
            if not any(name in frame for frame in frames):
                _ = frames[0][name]  # says what there is
            full = [frame for frame in frames if frame.num_rows]
            if not all(name in frame for frame in full):
                continue
        columns = [frame[name] for frame in frames if name in frame]
        if len({(column.dtype, column.shape[1:]) for column in columns}) > 1:
            shapes = ", ".join(f"{column.dtype} {tuple(column.shape)}" for column in columns)
            fact = f"the {made.kind} feature {name!r} is not alike in all types: {shapes}"
            raise FeatureError(fact, cure="give all types one row shape and dtype")
        made[name] = torch.cat(columns)
    made[ID] = torch.cat([torch.arange(int(n), dtype=idtype, device=device) for n in counts])
    if store:
        made[TYPE] = torch.repeat_interleave(torch.arange(len(frames), device="cpu"), counts).to(device, idtype)
    return made


@checked(G=GRAPH, ntypes=WORDS, etypes=_TYPES)
def to_heterogeneous(
    G: AnyGraph,
    ntypes: Sequence[str],
    etypes: Sequence[str | EdgeType],
    ntype_field: str = TYPE,
    etype_field: str = TYPE,
    metagraph: object = None,
) -> AnyGraph:
    """A typed graph from numbers of types as features; ``"_ID"`` holds the ids in ``G``.

    Args:
        G: a graph of one type.
        ntypes: names of the node types.
        etypes: names of the edge types, or triples (type of sources, name, type of destinations).
        ntype_field: the node feature, (nodes,), that numbers the types.
        etype_field: the edge feature, (edges,), that numbers the types.
        metagraph: ignored; DGL has it.

    Returns:
        A graph of the same class without the two features. A name of edges makes a type of every pair of node types
        that it joins.

    Raises:
        GraphError: a number has no name, two types have one, there are no edges and no triples, an edge joins other
            types than its triple names, or ``G`` has types already.
        NameLookupError: a triple names an unknown node type, or there is no such feature.

    Source: DGL 1.1, ``dgl.to_heterogeneous``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["_TYPE"], g.edata["_TYPE"] = torch.tensor([0, 0, 1]), torch.tensor([0, 0])
        >>> vgraph.to_heterogeneous(g, ["a", "b"], ["to"]).canonical_etypes
        [('a', 'to', 'b')]
    """
    if len(set(ntypes)) < len(ntypes):
        raise GraphError(f"two types of nodes have one name in {list(ntypes)}", cure="give each a name of its own")
    t = G.relation(one_type(G, "to_heterogeneous"))[0]
    ntype, etype = G.ndata[ntype_field].long(), G.edata[etype_field].long()
    _check_types(ntype, len(ntypes), "node")
    _check_types(etype, len(etypes), "edge")
    ids = {name: (ntype == i).nonzero().squeeze(1) for i, name in enumerate(ntypes)}
    places = torch.empty_like(ntype)
    for own in ids.values():
        places[own] = torch.arange(own.shape[0], device=G.device)
    src, dst = t.src.long(), t.dst.long()
    edges = _edges_by_type(ntype[src], etype, ntype[dst], ntypes, etypes)
    topologies: dict[EdgeType, Topology] = {}
    frames: dict[EdgeType, Frame] = {}
    for key in sorted(edges):
        own = edges[key]
        starts, ends = (places[end[own]].to(G.idtype) for end in (src, dst))
        topologies[key] = Topology(starts, ends, ids[key[0]].shape[0], ids[key[2]].shape[0])
        frames[key] = _selected(G.edata, own, etype_field, G.idtype)
    if not topologies:
        raise GraphError("there are no edges, so no types of edges", cure="name them as triples")
    nodes = {name: _selected(G.ndata, ids[name], ntype_field, G.idtype) for name in sorted(ids)}
    return type(G).of_types(topologies, nodes, None, frames)


def _edges_by_type(
    first: Tensor, middle: Tensor, last: Tensor, ntypes: Sequence[str], etypes: Sequence[str | EdgeType]
) -> Mapping[EdgeType, Tensor]:
    """Ids by type: a name may stand for several types, one for each pair of node types that it joins."""
    found: dict[EdgeType, Tensor] = {}
    for number, given in enumerate(etypes):
        if not isinstance(given, str):
            if given[0] not in ntypes or given[2] not in ntypes:
                known = ", ".join(map(repr, ntypes))
                fact = f"{given!r} names a node type that there is not; there is: {known}"
                raise NameLookupError(fact, cure="name one of them")
            own = (middle == number).nonzero().squeeze(1)
            for end, name in ((first[own], given[0]), (last[own], given[2])):
                if not bool((end == ntypes.index(name)).all()):
                    edge = int(own[end != ntypes.index(name)][0])
                    fact = f"edge {edge} of type {given!r} is at a node that is no {name!r}"
                    raise GraphError(fact, cure="correct the types, or name the type of edges alone")
            _put(found, given, own)
            continue
        own = (middle == number).nonzero().squeeze(1)
        pairs = first[own] * len(ntypes) + last[own]
        for pair in torch.unique(pairs).tolist():
            key = (str(ntypes[pair // len(ntypes)]), given, str(ntypes[pair % len(ntypes)]))
            _put(found, key, own[pairs == pair])
    return found


def _put(found: dict[EdgeType, Tensor], key: EdgeType, ids: Tensor) -> None:
    if key in found:
        raise GraphError(f"two types of edges are {key}", cure="give each a name of its own")
    found[key] = ids


def _selected(frame: Frame, ids: Tensor, type_field: str, idtype: torch.dtype) -> Frame:
    made = frame.take(ids)
    made.columns.pop(type_field, None)
    made[ID] = ids.to(idtype)
    return made


def _check_types(numbers: Tensor, count: int, kind: str) -> None:
    if numbers.numel() and not (int(numbers.min()) >= 0 and int(numbers.max()) < count):
        fact = f"{kind} types are numbered from {int(numbers.min())} to {int(numbers.max())}; {count} have names"
        raise GraphError(fact, cure="name every type")
