"""update_all and its relatives: message passing on whole graphs and on parts of them.

Takes: a graph and functions of edges and nodes. Gives: new features in the graph's frames; tempo: every call.
Source: DGL section 3; degree buckets where a reduce function is not a segment reduction.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vgraph.api.adjacency import incident, is_all
from vgraph.api.capture import Bound, Features, family_of, find_captured, function_key
from vgraph.api.derive import Body, Spec
from vgraph.api.message import (
    Columns,
    EdgeBatch,
    EdgeBody,
    NodeBatch,
    RaisedError,
    UpdateBody,
    checked,
)
from vgraph.api.tracer import CaptureError, user_line
from vgraph.errors import FunctionError, GraphError
from vgraph.ir.program import EDGE, SOURCE, VERTEX
from vgraph.ir.topology import Topology
from vgraph.runtime.compiled import Situation
from vgraph.scheduler.degree_buckets import DegreeBucket, active_part, degree_buckets

if TYPE_CHECKING:
    from vgraph.api.frame import Frame
    from vgraph.api.graph import Graph

logger = logging.getLogger("vgraph")
Frames = Mapping[str, Mapping[str, Tensor]]  # "src", "dst" and "edge" to features
Results = dict[str, Tensor]
_SPACES = {"src": SOURCE, "dst": VERTEX, "edge": EDGE}


class _Part:
    """Topology and features of all edges, or of the in-edges of some vertices."""

    def __init__(self, topology: Topology, frames: Frames, bucket: DegreeBucket | None = None) -> None:
        self.topology = topology if bucket is None else bucket.topology
        # as they are now: a further derivative may be recorded when they have changed
        self.frames = {kind: dict(frame) for kind, frame in frames.items()}
        self._rows = {} if bucket is None else {"dst": bucket.vertex_ids, "edge": bucket.edge_ids}
        self._columns: dict[str, Tensor] = {}

    def names(self, kind: str) -> tuple[str, ...]:
        return tuple(self.frames[kind])

    def find(self, full: str) -> Tensor | None:
        known = self._columns.get(full)
        if known is None:
            kind, _, name = full.partition(":")
            known = self.frames[kind].get(name)
            if known is not None and kind in self._rows:
                known = known.index_select(0, self._rows[kind])
            if known is not None:
                self._columns[full] = known
        return known

    def spec(self, full: str) -> Spec:
        value = self.find(full)
        assert value is not None, full
        return Spec(
            _SPACES[full.partition(":")[0]],
            tuple(value.shape[1:]),
            value.dtype,
            value.requires_grad,
        )

    def evaluate(self, key: Any, roots: tuple[Any, ...], make_body: Callable[[], Body]) -> Results:
        """Outputs by name; raises CaptureError where the functions cannot be captured so."""
        family = family_of(key)
        if family.refused:
            raise next(iter(family.refused.values()))
        try:
            bound, tensors = find_captured(family, roots, Features(self.find, self.spec), make_body)
        except RaisedError:  # perhaps a feature is missing that is there next time
            raise
        except CaptureError as error:
            family.refuse(None, error)
            raise
        outputs: Any = bound(tensors, self.topology, "once")
        return dict(zip(bound.captured.facts, outputs, strict=True))


# ---------------------------------------------------------------- message and reduce
def propagate(topology: Topology, frames: Frames, message: Any, reduce: Any) -> Results:
    """One row for every destination: zeros where it has no in-edge."""
    roots = (message, reduce)
    key = tuple(function_key(root) for root in roots)
    try:
        return _as_segments(topology, frames, roots, key)
    except CaptureError as error:
        first = error
    try:
        return _by_degree(topology, frames, roots, key, first)
    except CaptureError as error:
        _log_once(key, "runs uncaptured, degree by degree", error)
    return _uncaptured(topology, frames, message, reduce)


def _as_segments(topology: Topology, frames: Frames, roots: tuple[Any, Any], key: Any) -> Results:
    """All degrees at once, over the vertices that have in-edges."""
    bucket = None if getattr(roots[1], "is_total", False) else active_part(topology)
    part = _Part(topology, frames, bucket)
    found = part.evaluate((*key, "segments"), roots, lambda: UpdateBody(*roots, part.names, True))
    return found if bucket is None else _join([(bucket, found)], topology)


def capture_update(graph: Graph, message: Any, reduce: Any) -> tuple[Bound, Situation]:
    """What ``update_all`` would run over all degrees; raises CaptureError where it would not."""
    on = Relation(graph, None)
    part, roots = _Part(on.topology, on.frames()), (message, reduce)
    family = family_of((*(function_key(root) for root in roots), "segments"))
    features = Features(part.find, part.spec)
    bound, _ = find_captured(family, roots, features, lambda: UpdateBody(*roots, part.names, True))
    return bound, Situation(part.topology, "once", {})


def _by_degree(topology: Topology, frames: Frames, roots: tuple[Any, Any], key: Any, why: CaptureError) -> Results:
    """One dense mailbox a degree: for reduce functions that mix slots, or branch on the degree."""
    done: list[tuple[DegreeBucket, Results]] = []
    for bucket in degree_buckets(topology):
        part, degree = _Part(topology, frames, bucket), bucket.degree
        assert degree is not None

        def body(part: _Part = part, degree: int = degree) -> Body:
            return UpdateBody(*roots, part.names, degree)

        done.append((bucket, part.evaluate((*key, "degree", degree), roots, body)))
    _log_once((*key, "degree"), "runs degree by degree", why)
    return _join(done, topology)


_logged: set[Any] = set()


def _log_once(key: Any, what: str, why: CaptureError) -> None:
    if key not in _logged:
        _logged.add(key)
        logger.info("%s %s: %s %s", getattr(key[0], "co_name", key[0]), what, why.reason, why.line)


def _join(done: list[tuple[DegreeBucket, Results]], topology: Topology) -> Results:
    """Every part's rows at their vertices, zeros elsewhere."""
    joined: Results = {}
    for name in done[0][1] if done else ():
        if any(name not in results or results[name].shape[1:] != done[0][1][name].shape[1:] for _, results in done):
            raise FunctionError(
                f"{name!r} has not the same shape for every degree",
                cure="return rows of one shape whatever the degree",
            )
        rows = torch.cat([results[name] for _, results in done])
        ids = torch.cat([bucket.vertex_ids for bucket, _ in done])
        joined[name] = rows.new_zeros((topology.num_dst, *rows.shape[1:])).index_copy(0, ids, rows)
    return joined


def _uncaptured(topology: Topology, frames: Frames, message: Any, reduce: Any) -> Results:
    """DGL's own batches: the message on all edges at once, the reduce once a degree."""
    messages = _run_on_edges(topology, frames, message)
    done: list[tuple[DegreeBucket, Results]] = []
    for bucket in degree_buckets(topology):
        count, degree = bucket.vertex_ids.shape[0], bucket.degree

        def slots(name: str, bucket: DegreeBucket = bucket, shape: Any = (count, degree)) -> Tensor:
            return messages[name].index_select(0, bucket.edge_ids).view(*shape, *messages[name].shape[1:])

        nodes = NodeBatch(
            _columns("feature at the destination", frames["dst"], bucket.vertex_ids),
            Columns("message", lambda: tuple(messages), slots),
            lambda ids=bucket.topology.original_ids["vertex"]: ids.to(topology.src.dtype), count,
        )  # fmt: skip
        done.append((bucket, checked(reduce, reduce(nodes), count, "nodes")))
    return _join(done, topology)


def _columns(words: str, frame: Mapping[str, Tensor], ids: Tensor | None) -> Columns:
    def get(name: str) -> Tensor:
        return frame[name] if ids is None else frame[name].index_select(0, ids)

    return Columns(words, lambda: tuple(frame), get)


def _run_on_edges(topology: Topology, frames: Frames, function: Any) -> Results:
    edges = EdgeBatch(
        _columns("feature at the source", frames["src"], topology.src),
        _columns("feature at the destination", frames["dst"], topology.dst),
        _columns("edge feature", frames["edge"], None),
        lambda: (topology.src, topology.dst, _edge_ids(topology)), topology.num_edges,
    )  # fmt: skip
    return checked(function, function(edges), topology.num_edges, "edges")


def _edge_ids(topology: Topology) -> Tensor:
    known = topology.original_ids.get("edge")
    ids = torch.arange(topology.num_edges, device=topology.src.device) if known is None else known
    return ids.to(topology.src.dtype)


# ---------------------------------------------------------------- on graphs
class Relation:
    """One type of edges of a graph, with the features at both ends."""

    __slots__ = ("dst", "edge", "src", "topology")

    def __init__(self, graph: Graph, etype: Any) -> None:
        self.topology, self.src, self.dst, self.edge = graph.relation(etype)

    def frames(self) -> Frames:
        return {"src": self.src, "dst": self.dst, "edge": self.edge}


def update_all(graph: Graph, message: Any, reduce: Any, apply: Any = None, etype: Any = None) -> None:
    """Sends along all edges, reduces at every vertex, and sets what the reduce returned."""
    on = Relation(graph, etype)
    if on.topology.num_edges == 0:
        warnings.warn("update_all on a graph without edges: only the apply function runs", stacklevel=3)
        results: Results = {}
    else:
        results = propagate(on.topology, on.frames(), message, reduce)
    if apply is not None:
        results.update(_run_on_nodes(on.dst, apply, None, results))
    on.dst.update(results)


def apply_edges(graph: Graph, function: Any, edges: Any = None, etype: Any = None) -> None:
    """Sets what a function of edges returns, on all edges or on those given."""
    on = Relation(graph, etype)
    if is_all(edges):
        on.edge.update(_edge_results(on.topology, on.frames(), function))
        return
    ids = edge_ids_of(graph, edges, etype)
    part, frames = _edge_part(on, ids)
    for name, rows in _edge_results(part, frames, function).items():
        on.edge[name] = _with_rows(on.edge, name, ids, rows)


def _edge_results(topology: Topology, frames: Frames, function: Any) -> Results:
    part, key = _Part(topology, frames), (function_key(function), "edges")
    try:
        return part.evaluate(key, (function,), lambda: EdgeBody(function, part.names))
    except CaptureError as error:
        _log_once(key, "runs uncaptured on all edges", error)
    return _run_on_edges(topology, frames, function)


def apply_nodes(graph: Graph, function: Any, v: Any = None, ntype: str | None = None) -> None:
    """Sets what a function of nodes returns, on all nodes or on those given."""
    frame = graph.node_frame(ntype) if ntype is not None or not graph.is_block else graph.dstdata
    ids = None if is_all(v) else _ids_of(v, frame.num_rows, "node", graph.device)
    for name, rows in _run_on_nodes(frame, function, ids, {}).items():
        frame[name] = rows if ids is None else _with_rows(frame, name, ids, rows)


def _run_on_nodes(frame: Frame, function: Any, ids: Tensor | None, fresh: Mapping[str, Tensor]) -> Results:
    """A function of nodes; ``fresh`` features (one row for each of ``ids``) hide the graph's."""
    count = frame.num_rows if ids is None else ids.shape[0]
    known = _columns("feature", frame, ids)
    columns = Columns(
        "feature",
        lambda: tuple({**dict.fromkeys(known), **fresh}),
        lambda n: fresh[n] if n in fresh else known[n],
    )
    all_ids = torch.arange(count, device=frame.device) if ids is None else ids
    nodes = NodeBatch(columns, {}, lambda: all_ids, count)
    return checked(function, function(nodes), count, "nodes")


def send_and_recv(graph: Graph, edges: Any, message: Any, reduce: Any, apply: Any = None, etype: Any = None) -> None:
    """update_all along the given edges; only their destinations are touched."""
    on, ids = Relation(graph, etype), edge_ids_of(graph, edges, etype)
    touched = torch.unique(on.topology.dst.index_select(0, ids))
    _update_part(on, ids, touched, message, reduce, apply)


def pull(graph: Graph, v: Any, message: Any, reduce: Any, apply: Any = None, etype: Any = None) -> None:
    """update_all along the in-edges of the given nodes, which alone are touched."""
    on = Relation(graph, etype)
    touched = _ids_of(v, on.dst.num_rows, "node", graph.device)
    _update_part(on, incident(on.topology.csc, touched), touched, message, reduce, apply)


def push(graph: Graph, u: Any, message: Any, reduce: Any, apply: Any = None, etype: Any = None) -> None:
    """update_all along the out-edges of the given nodes; only their destinations are touched."""
    on = Relation(graph, etype)
    ids = incident(on.topology.csr, _ids_of(u, on.src.num_rows, "node", graph.device))
    touched = torch.unique(on.topology.dst.index_select(0, ids))
    _update_part(on, ids, touched, message, reduce, apply)


def _update_part(on: Relation, ids: Tensor, touched: Tensor, message: Any, reduce: Any, apply: Any) -> None:
    results: Results = {}
    if ids.shape[0]:
        part, frames = _edge_part(on, ids)
        whole = propagate(part, frames, message, reduce)
        results = {name: rows.index_select(0, touched) for name, rows in whole.items()}
    if apply is not None and touched.shape[0]:
        results.update(_run_on_nodes(on.dst, apply, touched, results))
    for name, rows in results.items():
        on.dst[name] = _with_rows(on.dst, name, touched, rows)


def _edge_part(on: Relation, ids: Tensor) -> tuple[Topology, Frames]:
    """The same vertices with some of the edges."""
    whole = on.topology
    part = Topology(
        whole.src.index_select(0, ids),
        whole.dst.index_select(0, ids),
        whole.num_src,
        whole.num_dst,
        whole.graph_sizes,
        original_ids={"edge": ids},
    )
    columns: dict[str, Tensor] = {name: column.index_select(0, ids) for name, column in on.edge.items()}
    return part, {**on.frames(), "edge": columns}


def _with_rows(frame: Frame, name: str, ids: Tensor, rows: Tensor) -> Tensor:
    """The feature with some rows replaced, as a new tensor: autograd may have saved the old one."""
    old = frame.get(name)
    if old is None or old.shape[1:] != rows.shape[1:] or old.dtype != rows.dtype:
        old = frame.initial(name, rows)
    return old.index_copy(0, ids, rows)


def edge_ids_of(graph: Graph, edges: Any, etype: Any = None) -> Tensor:
    """Edge ids from ids, from a pair (sources, destinations), or from a boolean mask; ascending."""
    if isinstance(edges, tuple):
        u, v = (torch.as_tensor(end, device=graph.device).reshape(-1) for end in edges)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        edges = torch.as_tensor(graph.edge_ids(u, v, etype=etype))
    return _ids_of(edges, graph.num_edges(etype), "edge", graph.device)


def _ids_of(given: Any, count: int, word: str, device: torch.device) -> Tensor:
    """Each once: what is written twice has two gradients, and messages lie in order of edge ids."""
    ids = torch.as_tensor(given, device=device).reshape(-1)
    if ids.dtype == torch.bool:
        if ids.shape[0] != count:
            raise GraphError(
                f"the mask has {ids.shape[0]} entries where there are {count} {word}s",
                cure=f"give one truth value a {word}", line=user_line(),
            )  # fmt: skip
        return ids.nonzero().squeeze(1)
    if ids.numel() == 0:
        return ids.to(torch.int64)
    if ids.is_floating_point() or int(ids.min()) < 0 or int(ids.max()) >= count:
        method = 'edges("eid")' if word == "edge" else "nodes()"
        raise GraphError(
            f"{word} ids must be whole numbers from 0 to {count - 1}",
            cure=f"give ids as g.{method} does", line=user_line(),
        )  # fmt: skip
    return torch.unique(ids.to(torch.int64))
