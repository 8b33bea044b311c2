"""Message passing on a topology with features at both ends: captured, or DGL's own batches.

Takes: a Topology, features by name, functions of edges and nodes. Gives: new features. Runs at every call.
Source: DGL section 3; degree buckets where a reduce function is not a segment reduction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vgraph.api.messages.batches import (
    Columns,
    EdgeBatch,
    EdgeBody,
    EdgeWritesError,
    Names,
    NodeBatch,
    OfEdges,
    OfNodes,
    UpdateBody,
    called,
    checked,
    definition,
    on_edges,
    without_set,
)
from vgraph.api.messages.groups import Groups, outside_a_graph
from vgraph.api.messages.halo_rows import Arrivals, ReadArrivals, has_lonely
from vgraph.capture.again import MakeBody, keep_again, run_again
from vgraph.capture.body import Body
from vgraph.capture.capture import Bound, family_of, find_captured, note_run
from vgraph.capture.capture_cache import RestlessError, function_key, name_of
from vgraph.capture.errors import CaptureError, HookError, UnderivableError
from vgraph.capture.features import ENDS, Features
from vgraph.capture.guards.functorch_checks import refuse_transforms
from vgraph.capture.guards.tracer_leaks import KeptError
from vgraph.capture.refusals import without_frames
from vgraph.capture.session import Spec
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import FunctionError
from vgraph.ir.topology import Topology
from vgraph.runtime.compiled import CallContext
from vgraph.scheduler.degree_buckets import DegreeBucket, active_part, degree_buckets

logger = logging.getLogger("vgraph")
Frames = Mapping[str, Mapping[str, Tensor]]  # "src", "dst" and "edge" to features
Results = dict[str, Tensor]
Roots = tuple[OfEdges, OfNodes]
Function = OfEdges | OfNodes
_LONGEST_RECORDED = 4096  # in-edges of a vertex: a mailbox above costs more than the Python that fills it


class _Part:
    """Topology and features of all edges, or of the in-edges of some vertices."""

    def __init__(
        self,
        topology: Topology,
        frames: Frames,
        bucket: DegreeBucket | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        """``arrivals``: what parts of one topology have exchanged for all of them."""
        self.topology, self.idtype = topology if bucket is None else bucket.topology, topology.idtype
        self.frames = frames
        self._arrivals, self._is_shared = arrivals or arrivals_on(self.topology), arrivals is not None
        # as they are now: a further derivative may be recorded when they have changed, and only the names,
        # for what a backward holds would hold the last step's results, and so all steps before
        self.names = {kind: tuple(frame) for kind, frame in frames.items()}.__getitem__
        self._rows = {} if bucket is None else {"dst": bucket.vertex_ids, "edge": bucket.edge_ids}
        self._columns: dict[str, Tensor] = {}

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
        return Spec.of(ENDS[full.partition(":")[0]], value)

    def evaluate(
        self,
        key: tuple[object, ...],
        roots: tuple[Function, ...],
        make_body: MakeBody,
        *,
        of_edges: bool = False,
    ) -> Results:
        """Outputs by name, which are rows ``of_edges`` or of destinations; ``key`` ends with the way they are made.

        Raises:
            CaptureError: the functions cannot be captured so.
        """
        features = Features(self.find, self.spec, self.topology.device, self.names)
        family = family_of((*key, self.idtype))
        whole = self._arrivals is None or self._is_shared
        bound, tensors = find_captured(family, roots, features, lambda: make_body(roots), compiles=whole)
        if self._arrivals is not None and not self._is_shared:
            return by_name(bound, self._arrivals.run(bound, tensors, of_edges=of_edges))
        if self._arrivals is not None:
            tensors = self._arrivals.inputs(bound.captured.names, tensors)
        outputs = bound(tensors, self.topology, "once")
        if not self._rows:
            keep_again(self.topology, bound, tensors, str(key[-1]), make_body)
        return by_name(bound, outputs)


def by_name(bound: Bound, outputs: Sequence[Tensor | None]) -> Results:
    """What a captured function has given."""
    return {name: rows for name, rows in zip(bound.captured.facts, outputs, strict=True) if rows is not None}


def arrivals_on(topology: Topology) -> Arrivals | None:
    """Where other processes have rows of the sources: what brings them."""
    return None if topology.halo is None else Arrivals(topology)


# ---------------------------------------------------------------- message and reduce
def propagate(
    topology: Topology, frames: Frames, message: OfEdges, reduce: OfNodes, writes: Results | None = None
) -> Results:
    """One row for every destination: zeros where it has no in-edge.

    ``writes`` takes what the message function sets as features of edges.
    """
    if torch.compiler.is_dynamo_compiling():
        made = None if topology.halo is not None else compiled_calls.updated(topology, frames, message, reduce)
        if made is None:
            return compiled_calls.outside(_propagate_outside, topology, frames, message, reduce, writes)
        return made
    refuse_transforms()
    roots = (message, reduce)
    again = run_again(topology, frames, roots, "segments")
    if again is not None:
        return again
    key = (function_key(message), function_key(reduce))
    try:
        return _as_segments(topology, frames, roots, key)
    except EdgeWritesError:
        sent = evaluate_edges(topology, frames, message, {} if writes is None else writes)
        return propagate(topology, {"src": {}, "dst": frames["dst"], "edge": sent}, as_sent, reduce)
    except CaptureError as error:
        first = without_frames(error)
    try:
        if isinstance(first, (RestlessError, KeptError, HookError, UnderivableError)):
            raise first
        return _by_degree(topology, frames, roots, key, first)
    except CaptureError as error:
        log_once(key, "runs uncaptured, degree by degree", error)
    return _uncaptured(topology, frames, message, reduce, writes)


def _propagate_outside(
    topology: Topology | Groups, frames: Frames, message: OfEdges, reduce: OfNodes, writes: Results | None
) -> Results:
    return propagate(outside_a_graph(topology), frames, message, reduce, writes)


def as_sent(edges: EdgeBatch) -> Results:
    """The message function of messages that lie on the edges."""
    return dict(edges.data)


def _as_segments(topology: Topology, frames: Frames, roots: Roots, key: tuple[object, ...]) -> Results:
    """All degrees at once, over the vertices that have in-edges."""
    bucket = None if getattr(roots[1], "is_total", False) else active_part(topology)
    part = _Part(topology, frames, bucket)
    names, idtype = part.names, part.idtype
    found = part.evaluate(
        (*key, "segments"), roots, lambda roots: UpdateBody(roots[0], roots[1], names, True, idtype=idtype)
    )
    return found if bucket is None else _join([(bucket, found)], topology)


def applied(topology: Topology, frames: Frames, roots: tuple[OfEdges, OfNodes, OfNodes]) -> Results | None:
    """Message, reduce and a function of all nodes as one; None where the last must run by itself.

    That is where a node has no in-edge and the reduce function may not give zeros by itself; and under torch.compile,
    which joins the last to what follows.
    """
    if torch.compiler.is_dynamo_compiling():
        return None
    refuse_transforms()
    if not getattr(roots[1], "is_total", False) and has_lonely(topology):
        return None
    again = run_again(topology, frames, roots, "applied")
    if again is not None:
        return again
    part, key = _Part(topology, frames), tuple(function_key(root) for root in roots)
    names, idtype = part.names, part.idtype
    try:
        return part.evaluate(
            (*key, "applied"), roots, lambda roots: UpdateBody(roots[0], roots[1], names, True, roots[2], idtype)
        )
    except CaptureError as error:
        log_once(key, "and the function of nodes run apart", error)
        return None


def capture_segments(
    topology: Topology, frames: Frames, message: OfEdges, reduce: OfNodes
) -> tuple[Bound, CallContext]:
    """What ``propagate`` would run over all degrees; raises CaptureError where it would not."""
    part, roots = _Part(topology, frames), (message, reduce)
    names, features = part.names, Features(part.find, part.spec, topology.device, part.names)
    family = family_of((*(function_key(root) for root in roots), "segments", part.idtype))
    bound, _ = find_captured(family, roots, features, lambda: UpdateBody(*roots, names, True, idtype=part.idtype))
    return bound, CallContext(part.topology, "once", {})


def _by_degree(topology: Topology, frames: Frames, roots: Roots, key: tuple[object, ...], why: CaptureError) -> Results:
    """One dense mailbox a degree: for reduce functions that mix slots, or branch on the degree."""
    done: list[tuple[DegreeBucket, Results]] = []
    arrivals = arrivals_on(topology)
    for bucket in degree_buckets(topology):
        part, degree = _Part(topology, frames, bucket, arrivals), bucket.degree
        assert degree is not None
        if degree > _LONGEST_RECORDED and arrivals is None:
            done.append((bucket, _long_mailboxes(topology, frames, roots, bucket)))
            continue

        def body(_: object, names: Names = part.names, degree: int = degree) -> Body:
            return UpdateBody(*roots, names, degree, idtype=topology.idtype)

        done.append((bucket, part.evaluate((*key, "degree", degree), roots, body)))
    log_once((*key, "degree"), "runs degree by degree", why)
    return _join(done, topology)


def _long_mailboxes(topology: Topology, frames: Frames, roots: Roots, bucket: DegreeBucket) -> Results:
    """The functions as they are on the vertices of one high degree: recording them would cost several runs."""
    message, reduce = roots
    messages, written = without_set(_run_on_edges(topology, frames, message, bucket))
    if written:
        raise CaptureError("it sets features of edges", definition(message))
    return _reduced(topology, frames, reduce, bucket, messages)


_logged: set[tuple[object, ...]] = set()


def log_once(key: tuple[object, ...], what: str, why: CaptureError) -> None:
    """Says at INFO why a function does not run as fast as it could."""
    note_run(name_of(key[0]), why, what)
    if key not in _logged:
        _logged.add(key)
        logger.info("%s %s: %s", name_of(key[0]), what, why.told())


def _join(done: list[tuple[DegreeBucket, Results]], topology: Topology) -> Results:
    """Every part's rows at their vertices, zeros elsewhere."""
    joined: Results = {}
    for name in done[0][1] if done else ():
        if any(name not in results or results[name].shape[1:] != done[0][1][name].shape[1:] for _, results in done):
            raise FunctionError(
                f"{name!r} has not the same shape for every degree", cure="return rows of one shape whatever the degree"
            )
        rows = torch.cat([results[name] for _, results in done])
        ids = torch.cat([bucket.vertex_ids for bucket, _ in done])
        joined[name] = rows.new_zeros((topology.num_dst, *rows.shape[1:])).index_copy(0, ids, rows)
    return joined


def _uncaptured(
    topology: Topology, frames: Frames, message: OfEdges, reduce: OfNodes, writes: Results | None = None
) -> Results:
    """DGL's own batches: the message on all edges at once, the reduce once a degree."""
    messages, written = without_set(_run_on_edges(topology, frames, message))
    if writes is not None:
        writes.update(written)
    buckets = degree_buckets(topology)
    by_bucket = {name: _split(rows, buckets) for name, rows in messages.items()}
    done = [
        (bucket, _reduced(topology, frames, reduce, bucket, {k: rows[i] for k, rows in by_bucket.items()}))
        for i, bucket in enumerate(buckets)
    ]
    return _join(done, topology)


def _split(rows: Tensor, buckets: Sequence[DegreeBucket]) -> tuple[Tensor, ...]:
    """The rows of each bucket's edges, in one copy and with one derivative for all of them.

    No views in autograd's eyes: a reduce function may change its mailbox in place.
    """
    if not buckets:
        return ()
    order = torch.cat([bucket.edge_ids for bucket in buckets])
    return torch.unsafe_split_with_sizes(rows.index_select(0, order), [b.edge_ids.shape[0] for b in buckets])


def _reduced(
    topology: Topology, frames: Frames, reduce: OfNodes, bucket: DegreeBucket, messages: Mapping[str, Tensor]
) -> Results:
    """What a reduce function gives for the vertices of one degree; ``messages`` are rows of their in-edges."""
    count, degree = bucket.vertex_ids.shape[0], bucket.degree
    assert degree is not None
    nodes = NodeBatch(
        columns_of("feature at the destination", frames["dst"], bucket.vertex_ids),
        Columns("message", lambda: tuple(messages), lambda name: _as_mailbox(messages[name], count, degree)),
        lambda ids=bucket.topology.original_ids["vertex"]: ids.to(topology.idtype, copy=True),
        count,
    )
    return checked(reduce, called(reduce, nodes), count, "nodes")


def _as_mailbox(rows: Tensor, count: int, degree: int) -> Tensor:
    return rows.view(count, degree, *rows.shape[1:])


def columns_of(words: str, frame: Mapping[str, Tensor], ids: Tensor | None) -> Columns:
    def get(name: str) -> Tensor:
        return frame[name] if ids is None else frame[name].index_select(0, ids)

    return Columns(words, lambda: tuple(frame), get)


def evaluate_edges(topology: Topology, frames: Frames, function: OfEdges, writes: Results | None = None) -> Results:
    """What a function of edges gives, by name; ``writes`` takes what it sets."""
    if torch.compiler.is_dynamo_compiling():
        made = None if topology.halo is not None else compiled_calls.edges_evaluated(topology, frames, function)
        if made is None:
            return compiled_calls.outside(_evaluate_outside, topology, frames, function, writes)
        return made
    refuse_transforms()
    found = run_again(topology, frames, (function,), "edges") or _of_edges(topology, frames, function)
    found, written = without_set(found)
    if writes is not None:
        writes.update(written)
    return found


def _evaluate_outside(
    topology: Topology | Groups, frames: Frames, function: OfEdges, writes: Results | None
) -> Results:
    return evaluate_edges(outside_a_graph(topology), frames, function, writes)


def _of_edges(topology: Topology, frames: Frames, function: OfEdges) -> Results:
    part, key = _Part(topology, frames), (function_key(function), "edges")
    names, idtype = part.names, part.idtype
    try:
        return part.evaluate(key, (function,), lambda roots: EdgeBody(roots[0], names, idtype), of_edges=True)
    except CaptureError as error:
        log_once(key, "runs uncaptured on all edges", error)
        return _run_on_edges(topology, frames, function)


def _run_on_edges(topology: Topology, frames: Frames, function: OfEdges, bucket: DegreeBucket | None = None) -> Results:
    """The function as it is, on all edges or on a bucket's."""
    part, halo, own = topology if bucket is None else bucket.topology, topology.halo, frames["src"]
    dst = part.dst if bucket is None else bucket.vertex_ids.index_select(0, part.dst)
    edges = EdgeBatch(
        columns_of("feature at the source", own if halo is None else ReadArrivals(halo, own), part.src),
        columns_of("feature at the destination", frames["dst"], dst),
        columns_of("edge feature", frames["edge"], None if bucket is None else bucket.edge_ids),
        lambda: (*_ends(topology, part.src, dst), _edge_ids(part).clone()),
        part.num_edges,
    )
    return on_edges(function, edges, part.num_edges)


def _ends(topology: Topology, src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of sources and destinations as the user knows them, (edges,) each."""
    if topology.halo is None:
        return src.clone(), dst.clone()
    known, dtype = topology.original_ids, topology.idtype
    return known["src"].index_select(0, src).to(dtype), known["vertex"].index_select(0, dst).to(dtype)


def _edge_ids(topology: Topology) -> Tensor:
    known = topology.original_ids.get("edge")
    ids = torch.arange(topology.num_edges, device=topology.device) if known is None else known
    return ids.to(topology.idtype)
