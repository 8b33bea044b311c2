"""Random walks: along all edges, along a path of edge types, or with node2vec's memory.

Takes: a graph, where walks start, how long they are. Gives: traces. Runs at every step.
Source: Perozzi et al. 2014; Dong et al. 2017 (metapaths); Grover and Leskovec 2016, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import ABOVE_ZERO, COUNT, checked
from vgraph.errors import DTypeError, FunctionError, GraphError
from vgraph.graphs.draw.kernels import address, pool, run
from vgraph.graphs.draw.neighbors import weights_of
from vgraph.graphs.draw.pick import among_sums, signed
from vgraph.graphs.draw.random_numbers import Array, below, draw, next_key, uniform
from vgraph.graphs.edge_formats import number_pairs
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.types import EdgeType, EType, Ids
from vgraph.ir.topology import Compressed, Topology

_MOST_TRIALS = 64  # of node2vec's steps


@checked(g=GRAPH, length=COUNT.or_none())
def random_walk(
    g: Graph,
    nodes: Ids,
    *,
    metapath: Sequence[EType] | None = None,
    length: int | None = None,
    prob: str | None = None,
    restart_prob: float | Tensor | None = None,
    return_eids: bool = False,
) -> tuple[Tensor, ...]:
    """Walks from some nodes, one each; -1 from where a walk has ended: at no out-edge, or by chance.

    Args:
        g: a graph on the CPU.
        nodes: where walks start, (walks,); an id may occur often.
        metapath: edge types, of which each begins where the one before ends; None: ``length`` steps along the only
            type.
        length: how many steps along the only edge type; None: as many as ``metapath`` has.
        prob: the name of a feature of edges, (edges,), that they are taken in proportion to; None: all alike.
        restart_prob: the chance to end before a step, or one number a step (steps,); None: 0.
        return_eids: give the edges, too.

    Returns:
        (walks, steps + 1) nodes, with ``return_eids`` also (walks, steps) edges, and (steps + 1,) types as
        ``g.ntypes`` numbers them.

    Raises:
        FunctionError: neither or both of ``metapath`` and ``length``; types that do not follow one another; a length
            alone where there are several types; one below 0; ``restart_prob`` is no chance, or not one a step.
        GraphError: an id is out of range.
        NameLookupError: an unknown edge type or feature.
        FeatureError: ``prob`` is not one number from 0 up an edge.

    Source: DGL 1.1, ``dgl.sampling.random_walk``; Dong et al. 2017 (metapaths).

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import random_walk
        >>> random_walk(vgraph.graph(([0, 1], [1, 2])), [0, 1], length=2)[0].tolist()
        [[0, 1, 2], [1, 2, -1]]
    """
    path = _path(g, metapath, length)
    starts = resolve_ids(nodes, g.num_nodes(path[0][0] if path else None), g.device).long().numpy()
    stops = _stops(restart_prob, len(path))
    lists = [g.relation(etype)[0].csr for etype in path]
    key, shape = next_key(), (len(starts), len(path))
    vertices, edges = np.full((shape[0], shape[1] + 1), -1, np.int64), np.full(shape, -1, np.int64)
    vertices[:, 0] = starts
    is_plain = prob is None and len(set(stops.tolist())) <= 1
    if not (is_plain and _walk_compiled(lists, starts, stops, key, vertices, edges)):
        weights = [
            None if prob is None else weights_of(g.relation(etype)[3], prob, lists[i]) for i, etype in enumerate(path)
        ]
        _walk(lists, weights, stops, key, vertices, edges)
    types = [g.ntypes.index(name) for name in [*(etype[0] for etype in path), path[-1][2] if path else g.ntypes[0]]]
    traces = torch.from_numpy(vertices).to(g.idtype)
    return (traces, *([torch.from_numpy(edges).to(g.idtype)] if return_eids else []), torch.tensor(types, device="cpu"))


def _stops(restart_prob: float | Tensor | None, num_steps: int) -> Array:
    """The chance to end before each step, (steps,)."""
    try:
        given = np.asarray(0.0 if restart_prob is None else restart_prob)
        given = given.astype(np.float64, casting="same_kind" if given.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError) as error:
        fact = f"restart_prob is a {type(restart_prob).__name__}: {error}"
        raise FunctionError(fact, cure="give a chance from 0 to 1, or one for each step") from error
    if given.shape not in ((), (1,), (num_steps,)) or not ((given >= 0) & (given <= 1)).all():
        shown = given.reshape(-1)[:5].tolist()
        fact = f"restart_prob has shape {given.shape} and begins with {shown}, for {num_steps} steps"
        raise FunctionError(fact, cure="give a chance from 0 to 1, or one for each step")
    return np.broadcast_to(given, (num_steps,))


def _path(g: Graph, metapath: Sequence[EType] | None, length: int | None) -> list[EdgeType]:
    if (metapath is None) == (length is None):
        raise FunctionError("a walk has either a metapath or a length", cure="pass one of them")
    if metapath is None:
        assert length is not None
        if len(g.canonical_etypes) != 1:
            fact = f"a length alone in a graph with edges of {len(g.canonical_etypes)} types"
            raise FunctionError(fact, cure="pass metapath=[edge types]")
        path = g.canonical_etypes * length
    else:
        path = [g.to_canonical_etype(etype) for etype in metapath]
    for before, after in pairwise(path):
        if before[2] != after[0]:
            raise FunctionError(f"{after} does not begin where {before} ends", cure="choose types that follow")
    return path


def _walk_compiled(
    lists: list[Compressed], starts: Array, stops: Array, key: int, vertices: Array, edges: Array
) -> bool:
    table = [
        word
        for one in lists
        for word in (
            one.ptr.data_ptr(),
            one.other.data_ptr(),
            0 if one.edge_ids is None else one.edge_ids.data_ptr(),
            one.other.element_size(),
        )
    ]
    steps = np.array(table, np.int64)
    stop = int((stops[0] if len(stops) else 0.0) * 2**32)
    words = [
        signed(key),
        address(starts),
        len(starts),
        len(lists),
        address(steps),
        stop,
        address(vertices),
        address(edges),
    ]
    return run("vg_walk", words) is not None


def _walk(
    lists: list[Compressed], weights: list[Array | None], stops: Array, key: int, vertices: Array, edges: Array
) -> None:
    """All walks a step at a time."""
    walks = np.arange(len(vertices))
    for j, one in enumerate(lists):
        stays = (draw(key, walks, 2 * j) >> np.uint64(32)).astype(np.int64) >= int(stops[j] * 2**32)
        at = np.where(stays, vertices[:, j], -1)
        vertices[:, j + 1], edges[:, j] = _stepped(one, weights[j], at, draw(key, walks, 2 * j + 1))


def _stepped(lists: Compressed, own: Array | None, at: Array, drawn: Array) -> tuple[Array, Array]:
    """Where a step leads from some vertices, and along which edges; -1 from -1, and where there is no way."""
    ptr = lists.ptr.numpy()
    here = np.where(at < 0, 0, at)
    begin, degrees = ptr[here], np.where(at < 0, 0, ptr[here + 1] - ptr[here])
    goes = degrees > 0
    if own is None:
        place = begin + below(drawn, degrees)
    else:
        sums = _sums(own)
        goes &= sums[begin + degrees] > sums[begin]
        place = np.zeros(len(begin), np.int64)
        place[goes] = among_sums(sums, own, begin[goes], (begin + degrees)[goes], drawn[goes])
    places, found, edges = place[goes], np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
    found[goes] = lists.other.numpy()[places]
    edges[goes] = places if lists.edge_ids is None else lists.edge_ids.numpy()[places]
    return found, edges


def _sums(own: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(own)])


@checked(g=GRAPH, p=ABOVE_ZERO, q=ABOVE_ZERO, walk_length=COUNT)
def node2vec_random_walk(
    g: Graph, nodes: Ids, p: float, q: float, walk_length: int, prob: str | None = None, return_eids: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Walks that remember one step: back weighs 1 / p, to a neighbour of the last node 1, elsewhere 1 / q.

    Args:
        g: a graph on the CPU with one type of edges.
        nodes: where walks start, ids (walks,); an id may occur often.
        p: how unlikely the way back is, above 0; ``math.inf``: it is never taken.
        q: how unlikely the way on is, above 0; ``math.inf``: it is never taken.
        walk_length: how many steps.
        prob: the name of a feature of edges, (edges,), that weights are multiplied by; None: nothing is.
        return_eids: give the edges, too.

    Returns:
        Nodes (walks, walk_length + 1), -1 from where a walk has ended, for no step has weight; with ``return_eids`` a
        pair of them and of edges (walks, walk_length).

    Raises:
        ArgumentError: p or q is not above 0, or ``walk_length`` no whole number from 0 up.
        GraphError: the inverse of p or q is not finite.
        FunctionError: the graph has several types of edges, or its edges do not begin where they end.
        NameLookupError: there is no such type.
        FeatureError: ``prob`` is not one number from 0 up an edge.

    Source: Grover and Leskovec 2016, section 3.2.2.

    Example:
        >>> import vgraph
        >>> from vgraph.sampling import node2vec_random_walk
        >>> g = vgraph.graph(([0, 1], [1, 0]))
        >>> node2vec_random_walk(g, [0], p=1.0, q=0.5, walk_length=3).tolist()
        [[0, 1, 0, 1]]
    """
    p, q = float(p), float(q)  # which may be tensors
    if not math.isfinite(1 / p + 1 / q):
        raise GraphError(f"p is {p} and q is {q}", cure="give numbers above 0 whose inverses are finite")
    _path(g, None, walk_length)  # refuses what is no walk
    topology, _, _, frame = g.relation()
    own = None if prob is None else weights_of(frame, prob, topology.csr)
    starts = resolve_ids(nodes, g.num_nodes(), g.device).long().numpy()
    vertices = np.full((len(starts), walk_length + 1), -1, np.int64)
    edges = np.full((len(starts), walk_length), -1, np.int64)
    vertices[:, 0] = starts
    chances, key = np.array([1 / p, 1.0, 1 / q, max(1 / p, 1.0, 1 / q)]), next_key()
    if not _remember_compiled(topology, own, starts, chances, key, (vertices, edges)):
        for j in range(walk_length):
            _remember(topology, own, chances, key, (vertices, edges), j)
    found = torch.from_numpy(vertices).to(g.idtype)
    return (found, torch.from_numpy(edges).to(g.idtype)) if return_eids else found


def _remember_compiled(
    topology: Topology, own: Array | None, starts: Array, chances: Array, key: int, found: tuple[Array, Array]
) -> bool:
    out, into = topology.csr, topology.csc
    sums = None if own is None else _sums(own)
    words = [signed(key), address(starts), len(starts), found[1].shape[1], out.ptr.data_ptr(), out.other.data_ptr()]
    words += [0 if out.edge_ids is None else out.edge_ids.data_ptr(), into.ptr.data_ptr(), into.other.data_ptr()]
    words += [out.other.element_size(), address(chances), address(sums), address(own), *map(address, found), pool()]
    return run("vg_remember", [*words, _MOST_TRIALS]) is not None


def _remember(
    topology: Topology, own: Array | None, chances: Array, key: int, found: tuple[Array, Array], step: int
) -> None:
    """One step of all walks: proposed as a plain walk would, kept in proportion to node2vec's weight."""
    vertices, edges = found
    waiting, trial, length = np.arange(len(vertices)), 0, edges.shape[1]
    while len(waiting):
        slot = 2 * (trial * length + step)
        if trial == _MOST_TRIALS:  # hardly any is kept: all are looked at
            parts = uniform(draw(key, waiting, slot))
            for walk, part in zip(waiting.tolist(), parts.tolist(), strict=True):
                last, now = vertices[walk, step - 1], vertices[walk, step]
                vertices[walk, step + 1], edges[walk, step] = _among_steps(topology, own, chances, last, now, part)
            return
        after, along = _stepped(topology.csr, own, vertices[waiting, step], draw(key, waiting, slot))
        is_kept = after < 0
        if step == 0:
            is_kept[:] = True
        else:
            goes = (~is_kept).nonzero()[0]
            before = vertices[waiting[goes], step - 1]
            joined = _joined(topology, before, after[goes])
            chance = np.where(after[goes] == before, chances[0], np.where(joined, chances[1], chances[2]))
            is_kept[goes] = uniform(draw(key, waiting[goes], slot + 1)) * chances[3] <= chance
        vertices[waiting[is_kept], step + 1], edges[waiting[is_kept], step] = after[is_kept], along[is_kept]
        waiting, trial = waiting[~is_kept], trial + 1


def _among_steps(
    topology: Topology, own: Array | None, chances: Array, before: int, now: int, part: float
) -> tuple[int, int]:
    """The vertex and edge in which a part of all steps' weights falls; -1 where none has weight."""
    lists = topology.csr
    places = np.arange(int(lists.ptr[now]), int(lists.ptr[now + 1]))
    after = lists.other[places].numpy().astype(np.int64)
    joined = _joined(topology, np.full(len(after), before), after)
    weights = np.where(after == before, chances[0], np.where(joined, chances[1], chances[2])) / chances[3]
    weights = weights if own is None else own[places] * weights
    able = (weights > 0).nonzero()[0]
    if not len(able):
        return -1, -1
    sums = weights[able].cumsum()
    at = able[min(int(np.searchsorted(sums, part * sums[-1])), len(able) - 1)]
    edge = places[at] if lists.edge_ids is None else lists.edge_ids[places[at]]
    return int(after[at]), int(edge)


def _joined(topology: Topology, src: Array, dst: Array) -> Array:
    """Whether an edge leads from each source to its destination."""
    sizes = topology.num_src, topology.num_dst
    edges = number_pairs(topology.src, topology.dst, *sizes)
    return np.isin(number_pairs(torch.from_numpy(src), torch.from_numpy(dst), *sizes), edges)


def pack_traces(traces: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Walks one behind the other, without what came after their ends.

    Args:
        traces: (walks, steps + 1) nodes, -1 behind the end of a walk.
        types: (steps + 1,), the types of the nodes.

    Returns:
        Nodes and their types, (nodes,); the length of every walk and where it begins, (walks,).

    Raises:
        DTypeError: these are no tensors of whole numbers.
        GraphError: there is not one type for each step.

    Source: DGL 1.1, ``dgl.sampling.pack_traces``.

    Example:
        >>> import torch
        >>> from vgraph.sampling import pack_traces
        >>> nodes, kinds, lengths, offsets = pack_traces(torch.tensor([[0, 1, -1], [2, 3, 4]]), torch.tensor([0, 1, 0]))
        >>> nodes.tolist(), kinds.tolist(), lengths.tolist(), offsets.tolist()
        ([0, 1, 2, 3, 4], [0, 1, 0, 1, 0], [2, 3], [0, 2])
    """
    given: dict[str, object] = {"traces": traces, "types": types}
    for name, ids in given.items():
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex():
            told = f"has dtype {ids.dtype}" if isinstance(ids, Tensor) else f"is a {type(ids).__name__}"
            raise DTypeError(f"{name} {told}", cure="give what random_walk gives: tensors of whole numbers")
    if traces.dim() != 2 or types.shape != traces.shape[1:]:
        fact = f"traces have shape {tuple(traces.shape)}, types {tuple(types.shape)}"
        raise GraphError(fact, cure="give what random_walk gives: (walks, steps + 1) nodes and (steps + 1,) types")
    is_there = traces >= 0
    lengths = is_there.sum(1)
    return traces[is_there], types.expand_as(traces)[is_there], lengths, lengths.cumsum(0) - lengths
