"""Serve: graphs join and leave between frontiers, so that none waits for a batch to fill or to end.

Takes: a vertex function, graphs as they come. Gives: a Future a graph. Runs at every run of frontiers.
A loop over few frontiers takes less time in native code than one frontier driven from here: graphs that are not
deep run whole, together, as soon as what ran before is done. Deep ones go a frontier at a time between such runs.
Source: Cavs section 3.2 (a batch is a set of vertices that are ready, of whatever graphs); cellular batching.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.frontier_body import FrontierBody, frontier_body
from vgraph.api.serving.request_queue import Bound, RequestQueue, answer, ended, tell
from vgraph.api.serving.requests import (
    Answer,
    Request,
    Tick,
    dense,
    next_frontier,
    own,
    own_graph,
    pool_rows,
    result_of,
    rows_or_at,
)
from vgraph.api.vertex.call_features import At, Feed
from vgraph.api.vertex.function import VertexFunction, check_call, check_children, known_levels
from vgraph.api.vertex.hooks import refuse_hooks
from vgraph.arguments import COUNT, FROM_ZERO, POSITIVE, checked
from vgraph.capture.capture import family_of, find_captured
from vgraph.capture.capture_cache import function_key
from vgraph.capture.errors import CaptureError
from vgraph.capture.features import Features
from vgraph.errors import FunctionError, ServerError
from vgraph.graphs.batching import batch
from vgraph.graphs.graph_data import GraphData

WHOLE = 128  # frontiers of a graph that is not worth interrupting
MOST_WAITING = 1024  # graphs whose results are waited for
_MOST_KINDS = 64  # combinations of features' widths and dtypes that are known
_SECONDS_AT_EXIT = 10.0  # for the run that is under way when the interpreter shuts down


@checked(most_vertices=POSITIVE, whole=COUNT.or_none(), max_waiting=POSITIVE, timeout=FROM_ZERO.or_none())
def serve(
    function: VertexFunction,
    *,
    most_vertices: int = 4096,
    whole: int | None = None,
    max_waiting: int = MOST_WAITING,
    when_full: str = "wait",
    timeout: float | None = None,
) -> Server:
    """Starts a thread that evaluates graphs with a vertex function as they are submitted; without gradient.

    Graphs of few frontiers that wait run together at once, in one go; a deeper one joins the others between two
    frontiers, and graphs that come meanwhile are not kept waiting. One that is done leaves at once. Use the server in
    a ``with``, or call ``close()``.

    Args:
        function: a VertexFunction, but no ``ByType``.
        most_vertices: how many vertices of all graphs together run in one frontier, from 1 up.
        whole: graphs of up to so many frontiers run whole; None: 128; 0: every graph joins and leaves between
            frontiers.
        max_waiting: how many graphs may wait for their results at once, from 1 up.
        when_full: what ``submit`` does where so many wait: "wait" until there is room, or "raise".
        timeout: seconds that ``submit`` waits at most before it raises; None: for as long as it takes.

    Returns:
        A Server.

    Raises:
        ArgumentError: a number is too small, or none.
        FunctionError: this is no vertex function, or one with types of vertices (``ByType``); ``when_full`` is another
            word.

    Source: Xu et al. 2018 (Cavs), section 3.2; Gao et al. 2018 (cellular batching).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import ChildSumTreeLSTM
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> with vgraph.serve(ChildSumTreeLSTM(3, 4)) as server:
        ...     futures = [server.submit(tree, x=torch.ones(3, 3)) for _ in range(2)]
        ...     futures[0].result()["h"].shape
        torch.Size([3, 4])
    """
    whole = WHOLE if whole is None else whole
    if when_full not in ("wait", "raise"):
        fact = f"serve(when_full={when_full!r}) says not what to do with one graph too many"
        raise FunctionError(fact, cure="give 'wait' or 'raise'")
    timeout = None if timeout is None else min(float(timeout), threading.TIMEOUT_MAX)
    return Server(function, most_vertices, whole, Bound(max_waiting, when_full, timeout))


def _check_function(function: object) -> None:
    if not isinstance(function, VertexFunction):
        fact = f"serve is given a {type(function).__name__}, which is no vertex function"
        raise FunctionError(fact, cure="give a vgraph.VertexFunction, made")


class Server:
    """Evaluates graphs between whose frontiers others join and leave; made by ``vgraph.serve``.

    What a graph meets is told to that graph alone, by its Future. What meets the server itself (no memory to admit
    graphs, say) is told to all who wait, and the server begins anew; where its thread has ended, every later
    ``submit`` is told why. Callbacks of Futures run on the server's thread: they keep it from its work.

    Raises:
        FunctionError: a graph is submitted after ``close()``.
        FeatureError, NameLookupError: features that do not fit the graph, at once.
        CycleError: the graph has a cycle, at once.
        ServerFullError: too many wait already, see ``serve``.
        ServerError: the server's thread has ended, or runs in the process that this one was forked from.

    Source: Xu et al. 2018 (Cavs), section 3.2; Gao et al. 2018 (cellular batching).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import ChildSumTreeLSTM
        >>> server = vgraph.serve(ChildSumTreeLSTM(3, 4))
        >>> future = server.submit(vgraph.graph(([0], [1])), x=torch.ones(2, 3))
        >>> server.close()
        >>> future.result()["c"].shape
        torch.Size([2, 4])
    """

    def __init__(self, function: VertexFunction, most_vertices: int, whole: int, bound: Bound) -> None:
        _check_function(function)
        if function.part_spaces():
            raise FunctionError(
                f"{type(function).__name__} has several types of vertices, which are not served",
                cure="call it on batches",
            )
        self.function, self.most_vertices, self.whole = function, most_vertices, whole
        self.num_frontiers = 0  # evaluated so far
        self._read: tuple[str, ...] | None = None  # features, by full name
        self._is_uncaptured = False  # graphs run one by one, one vertex at a time
        self._bodies: OrderedDict[tuple[object, ...], FrontierBody] = OrderedDict()  # by what features are like
        self._queue = RequestQueue(bound)
        self._running: list[Request] = []
        self._pools: dict[tuple[object, ...], dict[str, Tensor]] = {}  # states, likewise
        self._room, self._end = 0, 0  # rows of a pool, and where the free ones begin
        self._recording = threading.Lock()
        self._runs_whole = False  # a function that cannot be captured runs no frontier alone
        self._thread = threading.Thread(target=self._work, name="vgraph-serve", daemon=True)
        self._thread.start()
        atexit.register(self._exit)

    # ------------------------------------------------------------ the caller's side
    def submit(self, graph: Graph, **features: Tensor | At) -> Future[dict[str, Tensor]]:
        """Hands a graph over; the Future gives what the function pushes, one row a vertex.

        Features are copied: they may be changed afterwards. A Future that is cancelled before its graph's turn frees
        its place.

        Args:
            graph: a graph with one type of nodes and edges.
            **features: as in a call of the function: (vertices, ...), (edges, ...) or (graphs, ...); the graph's own
                may be left out.

        Returns:
            A Future of a dict of what the function pushes, (vertices, ...) each, without gradient.

        Raises:
            ServerFullError: too many wait already, see ``serve``.
            FeatureError: a feature has the wrong number of rows.
            NameLookupError: a feature is missing.
            GraphError: the graph has several types of nodes or edges.
            CycleError: the graph has a cycle.
            FunctionError: the server is closed. What the function itself raises on features of such widths and dtypes
                is raised here, too, before the graph joins.
            ServerError: the server has ended.
        """
        self._queue.check()
        topology = check_call(self.function, graph)
        refuse_hooks(self.function, type(self.function).__name__)
        widths = np.bincount(known_levels(topology))
        graph = graph.local_var()  # of which nobody else changes the edges
        feed = Feed(graph, topology, {name: dense(value, topology) for name, value in features.items()})
        names = self._names(feed)
        given = {name: rows_or_at(feed, features, name) for name in names or ()}
        request = Request(feed, given, Answer(), len(widths), int(widths.max(initial=0)))
        if names is None or not self._is_recorded(request):
            request.alone = {name: own(value) for name, value in features.items()}
            request.feed = Feed(own_graph(graph), topology, {})
        self._queue.put(request)
        return request.future

    def close(self) -> None:
        """Finishes what was submitted and ends the thread."""
        self._queue.close()
        if self._thread is not threading.current_thread():  # which ends after the callback that closes it
            self._thread.join()
        atexit.unregister(self._exit)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _exit(self) -> None:
        """The interpreter shuts down: nobody waits in vain, and no thread runs into what is torn down."""
        cure = "use the server in a with, or close() it"
        self._queue.end(ServerError("the interpreter shut down before the server was closed", cure=cure))
        self._thread.join(_SECONDS_AT_EXIT)

    def _names(self, feed: Feed) -> list[str] | None:
        """The features that the function reads, found by running it once on examples; None: it is not captured."""
        with self._recording:
            if self._read is None and not self._is_uncaptured:
                try:
                    self._read = frontier_body(self.function, feed).read
                except CaptureError:
                    self._is_uncaptured = True
            read = self._read
        return None if read is None else [name for name in read if feed.full_name(*name.split(":", 1))]

    def _is_recorded(self, request: Request) -> bool:
        """Whether the function runs on a frontier with such features; what it raises on them is the caller's."""
        with self._recording:
            found = self._bodies.get(request.kind)
            if found is None:
                try:
                    found = frontier_body(self.function, request.feed)
                except CaptureError:
                    return False
                self._bodies[request.kind] = found
                if len(self._bodies) > _MOST_KINDS:
                    self._bodies.popitem(last=False)
        request.body = found
        return True

    # ------------------------------------------------------------ the thread's side
    def _work(self) -> None:
        try:
            torch.set_grad_enabled(False)
            while (joining := self._queue.take(wait=not self._running)) is not None:
                self._turn(joining)
        except BaseException as error:
            self._queue.end(ended(error))
            raise

    def _turn(self, joining: list[Request]) -> None:
        """One run of what is not deep, and one frontier of what is."""
        try:
            self._try(self._run_whole, self._admit(joining))
            self._try(self._evaluate, self._next())
        except Exception as error:  # of the server, not of a graph: those who wait are told, and it begins anew
            everybody = [*joining, *self._running]
            self._running, self._pools, self._room, self._end = [], {}, 0, 0
            for request in everybody:
                tell(request, error)

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
                    tell(now[0], error)

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
                try:
                    self._join(request)
                except Exception as error:  # no memory for its states, say
                    tell(request, error)
        return whole

    def _join(self, request: Request) -> None:
        """A place in the pool of states."""
        width = request.schedule.frontiers[0].batch_size
        if self._end + request.num_rows > self._room:
            self._make_room(request.num_rows)
        request.base, request.width = self._end, width
        self._end += request.num_rows
        self._running.append(request)

    def _run_whole(self, now: Sequence[Request]) -> None:
        """All frontiers of some graphs, as a call on their batch."""
        if now[0].alone is not None:
            answer(now[0], self.function(now[0].feed.graph, **now[0].alone))
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
            answer(request, {name: rows[number].clone() for name, rows in parts.items()})

    def _make_room(self, num_rows: int) -> None:
        """Moves what is in use to the front of a pool that holds twice as much; all of it, or nothing."""
        used = sum(r.num_rows for r in self._running)
        room = 2 * (used + num_rows)
        kept = [torch.arange(r.base, r.base + r.num_rows, device="cpu") for r in self._running]
        rows = torch.cat([*kept, torch.empty(0, dtype=torch.int64, device="cpu")])
        in_use, moved = {r.kind for r in self._running}, dict[tuple[object, ...], dict[str, Tensor]]()
        for kind, pools in self._pools.items():
            if kind in in_use:
                moved[kind] = {name: _grown(pool, rows, room) for name, pool in pools.items()}
        self._pools, self._room, self._end = moved, room, 0
        for request in self._running:
            request.base, self._end = self._end, self._end + request.num_rows

    def _next(self) -> list[Request]:
        """Those that came first, as many as one frontier takes."""
        return self._alike(self._running)[0] if self._running else []

    def _leave(self, requests: Sequence[Request]) -> None:
        gone = set(map(id, requests))
        self._running = [r for r in self._running if id(r) not in gone]

    def _evaluate(self, now: Sequence[Request]) -> None:
        kind, topology, rows = now[0].kind, next_frontier(now, self._room), pool_rows(now)
        body, pools = now[0].body, self._pools.setdefault(kind, {})
        assert body is not None, kind
        specs = body.states
        for name, spec in specs.items():
            if name not in pools:
                pools[name] = torch.zeros((self._room, *spec.row_shape), dtype=spec.dtype, device="cpu")
        tick = Tick(now, pools)
        family = family_of((type(self.function), function_key(self.function.forward), "serve"))
        given = Features(tick.find, tick.spec, topology.device)
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
        outputs = [t for t in bound.run(tensors, bound.call_context(topology, "once")) if t is not None]
        names = bound.captured.facts.names
        pushed = outputs[: len(names) - len(specs)]
        for name, state in zip(names[len(pushed) :], outputs[len(pushed) :], strict=True):
            pools[name].index_copy_(0, rows, state)
        self.num_frontiers += 1
        self._hand_out(now, names[: len(pushed)], pushed)

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
            answer(request, result_of(request, names))


def _grown(pool: Tensor, rows: Tensor, room: int) -> Tensor:
    """Some rows of a pool at the front of a larger one."""
    made = pool.new_zeros((room, *pool.shape[1:]))
    made[: rows.shape[0]] = pool.index_select(0, rows)
    return made


def _bare(graph: GraphData) -> Graph:
    """The same edges without features."""
    return Graph(graph.topology)
