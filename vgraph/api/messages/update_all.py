"""update_all and its relatives: message passing on whole graphs and on parts of them.

Takes: a graph and functions of edges and nodes. Gives: new features in the graph's frames. Runs at every call.
Source: DGL section 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from vgraph.api.messages.batches import Columns, NodeBatch, OfEdges, OfNodes, called, checked, in_type
from vgraph.api.messages.halo_rows import check_uncut, is_without_edges
from vgraph.api.messages.propagate import (
    Frames,
    Results,
    applied,
    as_sent,
    capture_segments,
    columns_of,
    evaluate_edges,
    propagate,
)
from vgraph.capture.capture import Bound
from vgraph.errors import DTypeError, FeatureError, FunctionError, GraphError
from vgraph.graphs.adjacency import incident, is_all
from vgraph.graphs.frame import Frame
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.ids_by_type import both_ends
from vgraph.graphs.lazy_columns import some_rows
from vgraph.graphs.types import Ends, EType, Ids
from vgraph.ir.topology import Topology
from vgraph.runtime.compiled import CallContext


class Relation:
    """One type of edges of a graph, with the features at both ends."""

    __slots__ = ("dst", "edge", "src", "topology")

    def __init__(self, graph: GraphData, etype: EType) -> None:
        self.topology, self.src, self.dst, self.edge = graph.relation(etype)
        in_type(graph.to_canonical_etype(etype))

    def frames(self) -> Frames:
        return {"src": self.src.columns, "dst": self.dst.columns, "edge": self.edge.columns}


def update_all(
    graph: GraphData,
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """What ``Graph.update_all`` does; the method's docstring is the manual, as for the functions below."""
    on = Relation(graph, etype)
    if is_without_edges(on.topology):
        text = "update_all on a graph without edges: only the apply function runs"
        warnings.warn(text, stacklevel=4)  # at the line that calls the method of Graph
        results = propagate(on.topology, on.frames(), message_func, reduce_func) if _knows_of_none(reduce_func) else {}
        if apply_node_func is not None:
            results = _results_on(on.dst, apply_node_func, None, results)
    else:
        results = _results_of(on, message_func, reduce_func, apply_node_func)
    on.dst.update(results)


def _knows_of_none(reduce: OfNodes) -> bool:
    """Whether the result is known where there is no edge at all, as a batch of single atoms needs it.

    The sum of no messages is; what a user's function makes of none is not.
    """
    return getattr(reduce, "is_total", False)


def results_of(
    graph: GraphData, message: OfEdges, reduce: OfNodes, apply: OfNodes | None = None, etype: EType = None
) -> Results:
    """What ``update_all`` would set; zeros where no edge ends. What the message sets of edges is set already."""
    return _results_of(Relation(graph, etype), message, reduce, apply)


def _results_of(on: Relation, message: OfEdges, reduce: OfNodes, apply: OfNodes | None) -> Results:
    if apply is not None and not on.dst.initializers:
        found = applied(on.topology, on.frames(), (message, reduce, apply))
        if found is not None:
            return found
    writes: Results = {}
    results = propagate(on.topology, on.frames(), message, reduce, writes)
    results = _with_initial(on.dst, on.topology, reduce, results)
    if apply is not None:
        results.update(_results_on(on.dst, apply, None, results))
    on.edge.update(writes)
    return results


def reduction_of(reduce: object) -> str:
    """The name of a built-in reduction, or nothing."""
    name = str(getattr(reduce, "__qualname__", "")).partition(".")[0]
    return name if is_built_in(reduce) else ""


def is_built_in(function: object) -> bool:
    """Whether ``vgraph.function`` made a function."""
    return getattr(function, "__module__", None) == "vgraph.function"


def _with_initial(
    frame: Frame, topology: Topology, reduce: OfNodes, results: Results, ids: Tensor | None = None
) -> Results:
    """What initializers give for nodes without in-edges, where a user's function reduces; ``ids``: the rows' nodes."""
    if not frame.initializers or reduction_of(reduce):
        return results
    lonely = (topology.in_degrees == 0).nonzero().squeeze(1)
    made: Results = {}
    for name, rows in results.items() if lonely.shape[0] else ():
        initial = frame.initial(name, rows).index_select(0, lonely if ids is None else ids.index_select(0, lonely))
        made[name] = rows.index_copy(0, lonely, initial)
    return {**results, **made}


def capture_update(graph: GraphData, message: OfEdges, reduce: OfNodes) -> tuple[Bound, CallContext]:
    """What ``update_all`` would run over all degrees; raises CaptureError where it would not."""
    on = Relation(graph, None)
    return capture_segments(on.topology, on.frames(), message, reduce)


def apply_edges(graph: GraphData, func: OfEdges, edges: Ids | Ends | None = None, etype: EType = None) -> None:
    """What ``Graph.apply_edges`` does."""
    on = Relation(graph, etype)
    ids, part, frames = some_edges(graph, on, edges, etype)
    writes: Results = {}
    found = evaluate_edges(part, frames, func, writes)
    if ids is None:
        on.edge.update({**writes, **found})
    else:
        _set_rows(on.edge, ids, found)


def evaluated_on_edges(graph: GraphData, func: OfEdges, etype: EType) -> Results:
    """What ``apply_edges`` would set on all edges of a type."""
    on, found = Relation(graph, etype), Results()
    fresh = evaluate_edges(on.topology, on.frames(), func, found)
    return {**found, **fresh}


def apply_nodes(graph: GraphData, func: OfNodes, v: Ids | None = None, ntype: str | None = None) -> None:
    """What ``Graph.apply_nodes`` does."""
    frame = graph.node_frame(ntype) if ntype is not None or not graph.is_block else graph.dstdata
    known = graph.dst_frames if graph.is_block else graph.src_frames
    name = next((name for name, one in known.items() if one is frame), ntype or "")
    in_type((name, "", name))
    ids = None if is_all(v) else _ids_of(v, frame.num_rows, "node", graph.device)
    apply_on(frame, func, ids)


def apply_to_type(graph: GraphData, ntype: str, function: OfNodes) -> None:
    """Sets what a function of nodes returns on all destinations of a type."""
    in_type((ntype, "", ntype))
    apply_on(graph.dst_frames[ntype], function)


def apply_on(frame: Frame, function: OfNodes, ids: Tensor | None = None) -> None:
    """Sets what a function of nodes returns in a frame, on all rows or on those given."""
    results = _results_on(frame, function, ids, {})
    if ids is None:
        frame.update(results)
    else:
        _set_rows(frame, ids, results)


def results_on_nodes(frame: Frame, function: OfNodes, ids: Tensor | None) -> Results:
    """What a function of nodes gives on all rows of a frame, or on those given; nothing is set."""
    return _results_on(frame, function, ids, {})


def some_edges(
    graph: GraphData, on: Relation, edges: Ids | Ends | None, etype: EType
) -> tuple[Tensor | None, Topology, Frames]:
    """Ids, topology and features of the edges given; None for ids of all."""
    if is_all(edges):
        return None, on.topology, on.frames()
    ids = edge_ids_of(graph, edges, etype)
    return ids, *_edge_part(on, ids)


def _results_on(frame: Frame, function: OfNodes, ids: Tensor | None, fresh: Mapping[str, Tensor]) -> Results:
    """A function of nodes; ``fresh`` features (one row for each of ``ids``) hide the graph's."""
    count = frame.num_rows if ids is None else ids.shape[0]
    known = columns_of("feature", frame, ids)
    columns = Columns(
        "feature", lambda: tuple({**dict.fromkeys(known), **fresh}), lambda n: fresh[n] if n in fresh else known[n]
    )
    all_ids = torch.arange(count, device=frame.device) if ids is None else ids
    nodes = NodeBatch(columns, {}, all_ids.clone, count)
    return checked(function, called(function, nodes), count, "nodes")


def send_and_recv(
    graph: GraphData,
    edges: Ids | Ends,
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """What ``Graph.send_and_recv`` does."""
    on, ids = Relation(graph, etype), edge_ids_of(graph, edges, etype, repeats=True)
    touched = torch.unique(on.topology.dst.index_select(0, ids)).long()
    _update_part(on, ids, touched, message_func, reduce_func, apply_node_func)


def pull(
    graph: GraphData,
    v: Ids,
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
    *,
    keeps: bool = False,
) -> None:
    """What ``Graph.pull`` does; ``keeps``: nodes of which none has in-edges keep their features."""
    on = Relation(graph, etype)
    touched = _ids_of(v, on.dst.num_rows, "node", graph.device)
    ids = incident(on.topology.csc, touched)
    if ids.shape[0] or not keeps:
        _update_part(on, ids, touched, message_func, reduce_func, apply_node_func)
    elif apply_node_func is not None and touched.shape[0]:
        apply_on(on.dst, apply_node_func, touched)


def push(
    graph: GraphData,
    u: Ids,
    message_func: OfEdges,
    reduce_func: OfNodes,
    apply_node_func: OfNodes | None = None,
    etype: EType = None,
) -> None:
    """What ``Graph.push`` does."""
    on = Relation(graph, etype)
    ids = incident(on.topology.csr, _ids_of(u, on.src.num_rows, "node", graph.device))
    touched = torch.unique(on.topology.dst.index_select(0, ids)).long()
    _update_part(on, ids, touched, message_func, reduce_func, apply_node_func)


def _update_part(
    on: Relation, ids: Tensor, touched: Tensor, message: OfEdges, reduce: OfNodes, apply: OfNodes | None
) -> None:
    check_uncut(on.topology, "passing messages along some edges")
    _set_rows(on.dst, touched, _results_of_part(on, _edge_part(on, ids, touched), touched, message, reduce, apply))


def results_on_part(on: Relation, touched: Tensor, message: OfEdges, reduce: OfNodes, apply: OfNodes | None) -> Results:
    """What ``pull`` would set at the vertices ``touched`` (k,) ascending."""
    check_uncut(on.topology, "passing messages to some nodes")
    ids = incident(on.topology.csc, touched)
    return _results_of_part(on, _edge_part(on, ids, touched), touched, message, reduce, apply)


def _results_of_part(
    on: Relation,
    part: tuple[Topology, Frames],
    touched: Tensor,
    message: OfEdges,
    reduce: OfNodes,
    apply: OfNodes | None,
) -> Results:
    """Rows of the vertices that a part ends in, and of no others."""
    has_rows = part[0].num_edges or (touched.shape[0] and _knows_of_none(reduce))
    results = propagate(*part, message, reduce) if has_rows else {}
    results = _with_initial(on.dst, part[0], reduce, results, touched)
    if apply is not None and touched.shape[0]:
        results.update(_results_on(on.dst, apply, touched, results))
    return results


def _set_rows(frame: Frame, ids: Tensor, results: Results) -> None:
    """Some rows of all features, or, where one does not fit, of none."""
    frame.update({name: _with_rows(frame, name, ids, rows) for name, rows in results.items()})


def _edge_part(on: Relation, ids: Tensor, touched: Tensor | None = None) -> tuple[Topology, Frames]:
    """Some of the edges, and of their destinations those ``touched`` (k,) ascending, or all."""
    whole = on.topology
    src, dst = (end.index_select(0, ids) for end in (whole.src, whole.dst))
    frames: Frames = {**on.frames(), "edge": some_rows(on.edge.columns, ids)}
    if touched is None:
        known = {**whole.original_ids, "edge": ids}
        return Topology(src, dst, whole.num_src, whole.num_dst, original_ids=known, halo=whole.halo), frames
    dst = torch.searchsorted(touched, dst.to(touched.dtype)).to(dst.dtype)
    original = {"edge": ids, "vertex": touched}
    part = Topology(src, dst, whole.num_src, touched.shape[0], original_ids=original)
    return part, {**frames, "dst": some_rows(on.dst.columns, touched)}


# ---------------------------------------------------------------- send and recv apart
def send(graph: GraphData, edges: Ids | Ends | None, message_func: OfEdges, etype: EType = None) -> None:
    """What ``Graph.send`` does."""
    key, on = graph.to_canonical_etype(etype), Relation(graph, etype)
    count = on.topology.num_edges
    ids = torch.arange(count, device=graph.device) if is_all(edges) else edge_ids_of(graph, edges, etype)
    fresh = evaluate_edges(*_edge_part(on, ids), message_func)
    old_ids, old = graph.messages.get(key, (ids[:0], {}))
    kept = (~torch.isin(old_ids, ids)).nonzero().squeeze(1)
    if kept.shape[0] and (old.keys() != fresh.keys() or any(old[n].shape[1:] != fresh[n].shape[1:] for n in old)):
        fact = f"messages {sorted(fresh)} do not fit those that lie there: {sorted(old)}"
        raise FunctionError(fact, cure="send messages of the same names and shapes, or recv first")
    all_ids, order = torch.sort(torch.cat([old_ids.index_select(0, kept), ids]))
    for name in fresh if kept.shape[0] else ():
        fresh[name] = torch.cat([old[name].index_select(0, kept), fresh[name]]).index_select(0, order)
    graph.messages = {**graph.messages, key: (all_ids, fresh)}


def recv(
    graph: GraphData, v: Ids | None, reduce_func: OfNodes, apply_node_func: OfNodes | None = None, etype: EType = None
) -> None:
    """What ``Graph.recv`` does."""
    key, on = graph.to_canonical_etype(etype), Relation(graph, etype)
    count, device = on.dst.num_rows, graph.device
    asked = torch.arange(count, device=device) if is_all(v) else _ids_of(v, count, "node", device)
    ids, sent = graph.messages.get(key, (asked[:0], {}))
    ends = on.topology.dst.index_select(0, ids).long()
    at = torch.isin(ends, asked)
    taken, left = at.nonzero().squeeze(1), (~at).nonzero().squeeze(1)
    touched, dst = torch.unique(ends.index_select(0, taken), return_inverse=True)
    results: Results = {}
    if taken.shape[0]:
        src = on.topology.src.index_select(0, ids.index_select(0, taken))
        original = {"edge": ids.index_select(0, taken), "vertex": touched}
        part = Topology(src, dst.to(src.dtype), on.topology.num_src, touched.shape[0], original_ids=original)
        rows = {name: column.index_select(0, taken) for name, column in sent.items()}
        frames: Frames = {"src": {}, "dst": some_rows(on.dst.columns, touched), "edge": rows}
        results = _results_of_part(on, (part, frames), touched, as_sent, reduce_func, None)
    with graph.all_or_nothing():
        _set_rows(on.dst, touched, results)
        if apply_node_func is not None:
            apply_on(on.dst, apply_node_func, None if is_all(v) else asked)
    remaining = {name: column.index_select(0, left) for name, column in sent.items()}
    graph.messages = {**graph.messages, key: (ids.index_select(0, left), remaining)}


def _with_rows(frame: Frame, name: str, ids: Tensor, rows: Tensor) -> Tensor:
    """The feature with some rows replaced, as a new tensor: autograd may have saved the old one."""
    if rows.device != frame.device:
        fact = f"rows of {name!r} are on {rows.device}; the graph is on {frame.device}"
        raise FeatureError(fact, cure="move one of them with .to(device)")
    old = frame.get(name)
    if old is None or old.shape[1:] != rows.shape[1:] or old.dtype != rows.dtype:
        old = frame.initial(name, rows)
    return old.index_copy(0, ids, rows)


def edge_ids_of(graph: GraphData, edges: Ids | Ends | None, etype: EType = None, *, repeats: bool = False) -> Tensor:
    """Edge ids from ids, from a pair (sources, destinations), or from a boolean mask; ascending, each once.

    ``repeats``: as often as they are given.
    """
    if isinstance(edges, tuple):
        u, v = (torch.as_tensor(end, device=graph.device).reshape(-1) for end in both_ends(edges))
        edges = torch.as_tensor(graph.edge_ids(u, v, etype=etype))
    return _ids_of(edges, graph.num_edges(etype), "edge", graph.device, repeats=repeats)


def _ids_of(given: Ids | None, count: int, word: str, device: torch.device, *, repeats: bool = False) -> Tensor:
    """Each once: what is written twice has two gradients, and messages lie in order of edge ids."""
    method = 'edges("eid")' if word == "edge" else "nodes()"
    try:
        ids = torch.as_tensor(given, device=device).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        fact = f"{word} ids are a {type(given).__name__}: {error}"
        raise DTypeError(fact, cure=f"give ids as g.{method} does") from error
    if ids.dtype == torch.bool:
        if ids.shape[0] != count:
            raise GraphError(
                f"the mask has {ids.shape[0]} entries where there are {count} {word}s",
                cure=f"give one truth value a {word}",
            )
        return ids.nonzero().squeeze(1)
    if ids.numel() == 0:
        return ids.to(torch.int64)
    if ids.is_floating_point() or ids.is_complex() or int(ids.min()) < 0 or int(ids.max()) >= count:
        raise GraphError(f"{word} ids must be whole numbers from 0 to {count - 1}", cure=f"give ids as g.{method} does")
    return torch.sort(ids.to(torch.int64)).values if repeats else torch.unique(ids.to(torch.int64))
