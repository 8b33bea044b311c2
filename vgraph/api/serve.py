"""Serve: graphs join and leave between frontiers, so that none waits for a batch to fill or to end.

Takes: a vertex function, graphs as they come. Gives: a Future a graph; tempo: every run of frontiers.
A loop over few frontiers takes less time in native code than one frontier driven from here: graphs that are not
deep run whole, together, as soon as what ran before is done. Deep ones go a frontier at a time between such runs.
Source: Cavs section 3.2 (a batch is a set of vertices that are ready, of whatever graphs); cellular batching.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.batching import batch
from vgraph.api.capture import Features, family_of, find_captured
from vgraph.api.derive import Spec
from vgraph.api.families import function_key
from vgraph.api.feed import At, Feed
from vgraph.api.frontier_body import FrontierBody, frontier_body
from vgraph.api.graph import Graph
from vgraph.api.requests import Futures, Request, dense, result_of, rows_or_at
from vgraph.api.tracer import CaptureError, user_line
from vgraph.api.vertex_function import VertexFunction, check_call, check_children, known_levels
from vgraph.errors import FunctionError
from vgraph.ir.program import EDGE, GRAPH, SOURCE, VERTEX
from vgraph.ir.topology import Topology

WHOLE = 128  # frontiers of a graph that is not worth interrupting
_SPACES = {"vertex": VERTEX, "edge": EDGE, "graph": GRAPH}


def serve(function: VertexFunction, *, most_vertices: int = 4096, whole: int | None = None) -> Server:
    """Starts a thread that evaluates graphs with ``function`` as they are submitted; without gradient.

    Graphs of up to ``whole`` frontiers (128) that wait run together at once, in one go; a deeper one joins the others
    between two frontiers, and graphs that come meanwhile are not kept waiting. One that is done leaves at once.
    ``whole=0``: every graph joins and leaves between frontiers. ``most_vertices``: of all graphs together in one
    frontier. Use it in a ``with``, or call ``close()``.

    Raises:
        FunctionError: the function has types of vertices (``ByType``), or one of the numbers is too small.

    Source: Xu et al. 2018 (Cavs), section 3.2; Gao et al. 2018 (cellular batching).

    >>> import torch, vgraph
    >>> from vgraph.nn import ChildSumTreeLSTM
    >>> tree = vgraph.graph(([0, 1], [2, 2]))
    >>> with vgraph.serve(ChildSumTreeLSTM(3, 4)) as server:
    ...     futures = [server.submit(tree, x=torch.ones(3, 3)) for _ in range(2)]
    ...     futures[0].result()["h"].shape
    torch.Size([3, 4])
    """
    return Server(function, most_vertices, WHOLE if whole is None else whole)


class Server:
    """Evaluates graphs between whose frontiers others join and leave; made by ``serve``.

    Raises:
        FunctionError: a graph is submitted after ``close()``.
        FeatureError, NameLookupError: features that do not fit the graph, at once.
        CycleError: the graph has a cycle, at once.

    Source: Xu et al. 2018 (Cavs), section 3.2; Gao et al. 2018 (cellular batching).

    >>> import torch, vgraph
    >>> from vgraph.nn import ChildSumTreeLSTM
    >>> server = vgraph.serve(ChildSumTreeLSTM(3, 4))
    >>> future = server.submit(vgraph.graph(([0], [1])), x=torch.ones(2, 3))
    >>> server.close()
    >>> future.result()["c"].shape
    torch.Size([2, 4])
    """

    def __init__(self, function: VertexFunction, most_vertices: int, whole: int) -> None:
        if most_vertices < 1 or whole < 0:
            fact = f"serve(most_vertices={most_vertices}, whole={whole}) leaves no frontier to run"
            raise FunctionError(fact, cure="give one vertex or more, and whole=0 or more", line=user_line())
        if function.part_spaces():
            raise FunctionError(
                f"{type(function).__name__} has several types of vertices, which are not served",
                cure="call it on batches", line=user_line(),
            )  # fmt: skip
        self.function, self.most_vertices, self.whole = function, most_vertices, whole
        self.num_frontiers = 0  # evaluated so far
        self._read: tuple[str, ...] | None = None  # features, by full name
        self._is_uncaptured = False  # graphs run one by one, one vertex at a time
        self._bodies: dict[tuple[Any, ...], FrontierBody] = {}  # by what features are like
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._pools: dict[tuple[Any, ...], dict[str, Tensor]] = {}  # states, likewise
        self._room, self._end = 0, 0  # rows of a pool, and where the free ones begin
        self._wake = threading.Condition()
        self._closed = False
        self._runs_whole = False  # a function that cannot be captured runs no frontier alone
        self._thread = threading.Thread(target=self._work, name="vgraph-serve", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ the caller's side
    def submit(self, graph: Graph, **features: Any) -> Futures:
        """Hands a graph over; the Future gives what the function pushes, one row a vertex.

        Raises:
            FeatureError, NameLookupError, CycleError: at once, before the graph joins.
        """
        topology = check_call(self.function, graph)
        widths = np.bincount(known_levels(topology))
        feed = Feed(graph, topology, {name: dense(value, topology) for name, value in features.items()})
        names = self._names(feed)
        given = {name: rows_or_at(feed, features, name) for name in names or ()}
        alone = features if names is None else None
        request = Request(feed, given, Future(), len(widths), int(widths.max(initial=0)), alone)
        with self._wake:
            if self._closed:
                raise FunctionError("the server is closed", cure="submit inside the with", line=user_line())
            self._waiting.append(request)
            self._wake.notify()
        return request.future

    def close(self) -> None:
        """Finishes what was submitted and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _names(self, feed: Feed) -> list[str] | None:
        """The features that the function reads, found by running it once on examples; None: it is not captured."""
        with self._wake:
            if self._read is None and not self._is_uncaptured:
                try:
                    self._read = frontier_body(self.function, feed).read
                except CaptureError:
                    self._is_uncaptured = True
            read = self._read
        return None if read is None else [name for name in read if feed.full_name(*name.split(":", 1))]

    # ------------------------------------------------------------ the thread's side
    def _work(self) -> None:
        torch.set_grad_enabled(False)
        while True:
            with self._wake:
                while not (self._waiting or self._running or self._closed):
                    self._wake.wait()
                if self._closed and not (self._waiting or self._running):
                    return
                joining = list(self._waiting)
                self._waiting.clear()
            joining = [r for r in joining if r.future.set_running_or_notify_cancel()]
            self._try(self._run_whole, self._admit(joining))
            self._try(self._evaluate, self._next())

    def _try(self, run: Callable[[Sequence[Request]], None], requests: list[Request]) -> None:
        """What fails is told to the graphs that it was done for; the others go on."""
        while requests:
            now, requests = self._alike(requests)
            try:
                run(now)
            except BaseException as error:  # the function's own
                if len(now) > 1:  # of one graph, say: the others get their results
                    for request in now:
                        self._try(run, [] if request.future.done() else [request])
                else:
                    self._leave(now)
                    now[0].future.set_exception(error)

    def _alike(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """Those to evaluate with the first, as many as one frontier takes; the others."""
        now, later, count = list[Request](), list[Request](), 0
        for request in requests:
            fits = not now or (request.kind == now[0].kind and count + request.width <= self.most_vertices)
            (now if fits else later).append(request)
            count += request.width if fits else 0
        return now, later

    def _admit(self, requests: list[Request]) -> list[Request]:
        """Makes room for deep graphs; gives those that run whole."""
        whole = list[Request]()
        for request in requests:
            if not request.num_rows or request.alone is not None or request.depth <= self.whole or self._runs_whole:
                whole.append(request)
            else:
                if self._end + request.num_rows > self._room:
                    self._make_room(request.num_rows)
                request.base, request.width = self._end, request.schedule.frontiers[0].batch_size
                self._end += request.num_rows
                self._running.append(request)
        return whole

    def _run_whole(self, now: Sequence[Request]) -> None:
        """All frontiers of some graphs, as a call on their batch."""
        if now[0].alone is not None:
            now[0].future.set_result(self.function(now[0].feed.graph, **now[0].alone))
            return
        graph = batch([_bare(r.feed.graph) for r in now])
        first = np.cumsum([0, *(r.num_rows for r in now)])
        some = dict[str, At]()
        for name in now[0].given:
            kind, _, key = name.partition(":")
            values = [r.given[name] for r in now]
            if isinstance(values[0], At):
                pairs = [(v, int(shift)) for v, shift in zip(values, first, strict=False) if isinstance(v, At)]
                rows, ids = torch.cat([v.rows for v, _ in pairs]), torch.cat([v.ids + shift for v, shift in pairs])
                some[key] = At(rows, ids)
            else:
                frame = {"vertex": graph.ndata, "edge": graph.edata, "graph": graph.gdata}[kind]
                frame[key] = torch.cat([v for v in values if isinstance(v, Tensor)])
        found = self.function(graph, **some)
        self.num_frontiers += max(r.depth for r in now)
        parts = {name: tensor.split([r.num_rows for r in now]) for name, tensor in found.items()}
        self._leave(now)
        for number, request in enumerate(now):
            request.future.set_result({name: rows[number].clone() for name, rows in parts.items()})

    def _make_room(self, num_rows: int) -> None:
        """Moves what is in use to the front of a pool that holds twice as much."""
        used = sum(r.num_rows for r in self._running)
        self._room = 2 * (used + num_rows)
        kept = [torch.arange(r.base, r.base + r.num_rows) for r in self._running]
        rows, self._end = torch.cat([*kept, torch.empty(0, dtype=torch.int64, device="cpu")]), 0
        for request in self._running:
            request.base, self._end = self._end, self._end + request.num_rows
        in_use = {r.kind for r in self._running}
        self._pools = {kind: pools for kind, pools in self._pools.items() if kind in in_use}
        for pools in self._pools.values():
            for name, pool in pools.items():
                pools[name] = pool.new_zeros((self._room, *pool.shape[1:]))
                pools[name][: rows.shape[0]] = pool.index_select(0, rows)

    def _next(self) -> list[Request]:
        """Those that came first, as many as one frontier takes."""
        return self._alike(self._running)[0] if self._running else []

    def _leave(self, requests: Sequence[Request]) -> None:
        gone = set(map(id, requests))
        self._running = [r for r in self._running if id(r) not in gone]

    def _evaluate(self, now: Sequence[Request]) -> None:
        kind, topology, rows = now[0].kind, self._frontier(now), _rows(now)
        if kind not in self._bodies:
            self._bodies[kind] = frontier_body(self.function, now[0].feed)
        body, pools = self._bodies[kind], self._pools.setdefault(kind, {})
        specs = body.states
        for name, spec in specs.items():
            if name not in pools:
                pools[name] = torch.zeros((self._room, *spec.row_shape), dtype=spec.dtype)
        tick = _Tick(now, pools)
        family = family_of((type(self.function), function_key(self.function.forward), "serve"))
        given = Features(tick.find, tick.spec, topology.src.device)
        try:
            bound, tensors = find_captured(family, (self.function.forward,), given, lambda: body)
        except CaptureError:
            bound, tensors = None, ()
        if bound is None or any(phase.is_loop for phase in bound.plain(()).phases):
            self._runs_whole = True  # an op of it must see one vertex at a time
            self._run_whole(now)
            return
        for request in now:
            if not request.at:
                needs, lines = bound.captured.num_slots_needed, bound.captured.facts.gather_lines
                check_children(needs, lines, request.feed.topology, None)
        outputs = [t for t in bound.run(tensors, bound.situation(topology, "once")) if t is not None]
        names = bound.captured.facts.names
        pushed = outputs[: len(names) - len(specs)]
        for name, state in zip(names[len(pushed) :], outputs[len(pushed) :], strict=True):
            pools[name].index_copy_(0, rows, state)
        self.num_frontiers += 1
        self._hand_out(now, names[: len(pushed)], pushed)

    def _frontier(self, now: Sequence[Request]) -> Topology:
        """The next frontier of each graph, as edges from rows of the pool."""
        src, dst = [r.ends[0][r.at] for r in now], [r.ends[1][r.at] for r in now]
        sizes = [r.width for r in now]
        ends = np.cumsum(sizes)
        shifts = np.array([[r.base for r in now], ends - sizes - [r.row for r in now]]).repeat([len(s) for s in src], 1)
        moved = torch.cat([torch.cat(src), torch.cat(dst)]).view(2, -1) + torch.from_numpy(shifts)
        return Topology(moved[0], moved[1], max(self._room, 1), int(ends[-1]), tuple(sizes))

    def _hand_out(self, now: Sequence[Request], names: Sequence[str], pushed: Sequence[Tensor]) -> None:
        widths = [r.width for r in now]
        parts = list(zip(*(t.split(widths) for t in pushed), strict=True)) or [()] * len(now)
        done = list[Request]()
        for request, part in zip(now, parts, strict=True):
            request.found.append(part)
            if not request.advance():
                done.append(request)
        self._leave(done)
        for request in done:
            request.future.set_result(result_of(request, names))


@dataclass(eq=False)
class _Tick:
    """The features of one frontier: those of its graphs one below the other, and the states below."""

    requests: Sequence[Request]
    pool: Mapping[str, Tensor]

    def find(self, full: str) -> Tensor | None:
        kind, _, name = full.partition(":")
        if kind == "below":
            return self.pool.get(name)
        if full not in self.requests[0].features:
            return None
        return torch.cat([request.parts[full][request.at] for request in self.requests])

    def spec(self, full: str) -> Spec:
        kind, _, name = full.partition(":")
        found = self.pool[name] if kind == "below" else self.requests[0].features[full]
        space = SOURCE if kind == "below" else _SPACES[kind]
        return Spec(space, tuple(found.shape[1:]), found.dtype, requires_grad=False)


def _rows(now: Sequence[Request]) -> Tensor:
    """The rows of the pool that a frontier writes."""
    sizes = [r.width for r in now]
    starts = np.array([r.base + r.row for r in now]) - (np.cumsum(sizes) - sizes)
    return torch.from_numpy(starts.repeat(sizes) + np.arange(sum(sizes)))


def _bare(graph: Graph) -> Graph:
    """The same edges without features."""
    return Graph(graph.topology)
