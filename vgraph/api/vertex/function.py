"""VertexFunction: a static function of one vertex, evaluated over trees, sequences and DAGs.

Takes: a module whose forward sees one batch of vertices. Gives: one row a vertex. Runs at every call.
Source: Cavs section 3.1 (gather, scatter, pull, push).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from vgraph.api.messages.batches import definition
from vgraph.api.messages.halo_rows import check_uncut
from vgraph.api.vertex.call_features import At, Feed, subset_names
from vgraph.api.vertex.call_features import Features as Given
from vgraph.api.vertex.hooks import call_with_hooks, has_hooks
from vgraph.api.vertex.infer_states import infer_states
from vgraph.api.vertex.padding import pad
from vgraph.api.vertex.serial import child_error, run_serially
from vgraph.api.vertex.vertex import StateSpec, Vertex, VertexBody
from vgraph.api.vertex.wrong_widths import in_users_words
from vgraph.capture.capture import Bound, family_of, find_captured, note_run
from vgraph.capture.capture_cache import class_key, function_key
from vgraph.capture.errors import CaptureError, OutsideWriteError
from vgraph.capture.features import Features
from vgraph.capture.guards.functorch_checks import refuse_transforms
from vgraph.capture.guards.hooks import LookerError
from vgraph.capture.refusals import without_frames
from vgraph.capture.session import Spec, Specs
from vgraph.compiled_calls import compiled_calls
from vgraph.compiler import levels
from vgraph.errors import CycleError, FunctionError, GraphError
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.space import Space, subset
from vgraph.ir.topology import Topology
from vgraph.runtime.call_rows import CallContext, VertexTypes
from vgraph.runtime.cuda import driver as cuda
from vgraph.scheduler.frontiers import Levels

logger = logging.getLogger("vgraph")


class VertexFunction(nn.Module):
    """A module whose ``forward(v)`` says what one vertex does; calling it evaluates a whole graph.

    ``forward`` sees one batch of vertices ``v`` (see ``vgraph.Vertex``). Edges run from child to
    parent; a vertex is evaluated after all its children. Calling the module with a graph and
    features returns a mapping from pushed names to tensors of one row a vertex, in vertex-id order.

    Args:
        states: widths (or row shapes) of scattered states, where they cannot be inferred; None: all can.
        direction: "forward", or "reverse" to evaluate parents before children.
        policy: "frontier" evaluates all vertices whose children are done together, "serial" one vertex at a time
            (Cavs' baseline), "type-aware" (of ``ByType``) the types in an order that takes few batches.

    Raises:
        CycleError: the graph has a cycle.
        GraphError: it has several types of nodes or edges.
        FunctionError: there is no such direction, the width of a state is no number or row shape, or the call is not
            given a graph.
        FeatureError: a feature has the wrong number of rows.
        NameLookupError: a feature is missing.

    Source: Xu et al. 2018 (Cavs), section 3.1.

    Example:
        >>> import torch, vgraph
        >>> class Sum(vgraph.VertexFunction):
        ...     def forward(self, v):
        ...         total = v.pull("x") + v.gather()["s"].sum()
        ...         v.scatter(s=total)
        ...         v.push(total=total)
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> Sum()(tree, x=torch.tensor([[1.0], [2.0], [4.0]]))["total"]
        tensor([[1.],
                [2.],
                [7.]])
    """

    has_operator = True  # of ``torch.compile``

    def __init__(
        self,
        *,
        states: Mapping[str, int | tuple[int, ...]] | None = None,
        direction: str = "forward",
        policy: str = "frontier",
    ) -> None:
        super().__init__()
        if direction not in ("forward", "reverse"):
            raise FunctionError(f"there is no direction {direction!r}", cure="forward or reverse")
        self.direction, self.policy = direction, policy
        self.given_states = {name: _row_shape(name, shape) for name, shape in (states or {}).items()}

    def forward(self, v: Vertex) -> None:
        """What one batch of vertices does; to be written by the user.

        Args:
            v: one batch of vertices, with ``gather``, ``pull``, ``scatter`` and ``push``.

        Raises:
            FunctionError: it was not written.
        """
        raise FunctionError(
            f"{type(self).__name__} has no forward(v)",
            cure="define forward(self, v) with gather, pull, scatter, push",
        )

    def vertex_types(self, graph: GraphData, given: Given) -> VertexTypes | None:
        """The type of every vertex; None, as all vertices are alike but in ``ByType``.

        Args:
            graph: the graph of the call.
            given: the features of the call by name.

        Returns:
            None.
        """
        return None

    def parts(self, graph: GraphData, given: Given) -> tuple[Sequence[VertexFunction], Sequence[int]]:
        """The functions there are, and which of them every vertex runs.

        Args:
            graph: the graph of the call.
            given: the features of the call by name.

        Returns:
            This function alone, and 0 for every vertex.
        """
        return (self,), [0] * graph.topology.num_dst

    def part_spaces(self) -> tuple[Space, ...]:
        """The spaces of vertices and edges of each type; none, as there are types in ``ByType`` only.

        Returns:
            An empty tuple.
        """
        return ()

    def __call__(self, graph: GraphData, *unnamed: object, **features: Tensor | At) -> dict[str, Tensor]:
        """Evaluates every vertex of ``graph``; ``features`` are looked up before the graph's frames."""
        if unnamed:
            _refuse_unnamed(self, graph, unnamed)
        if torch.compiler.is_dynamo_compiling():
            made = None if has_hooks(self) else compiled_calls.vertices_evaluated(self, graph, features)
            return compiled_calls.outside(self, graph, **features) if made is None else made
        if has_hooks(self):
            return call_with_hooks(self, self._call, graph, features)
        return self._call(graph, **features)

    def _call(self, graph: GraphData, **features: Tensor | At) -> dict[str, Tensor]:
        refuse_transforms()
        feed = _feed(self, graph, features)
        try:
            outputs = self._evaluate(feed)
        except RuntimeError as error:
            better = in_users_words(error, self, feed.topology.num_dst)
            if better is None:
                raise
            raise better from error
        if not outputs:
            _say_silent(self)
        return outputs

    def _evaluate(self, feed: Feed) -> dict[str, Tensor]:
        graph, features = feed.graph, feed.given
        try:
            bound, tensors, call_context = _bind(self, feed)
        except OutsideWriteError as error:
            raise _write_error(self, error) from None
        except LookerError as error:
            raise _hook_error(self, error) from None
        except CaptureError as error:
            why = without_frames(error)
        else:
            outputs = [rows for rows in bound.run(tensors, call_context) if rows is not None]
            if feed.padded is not None:
                outputs = [rows[: feed.topology.num_dst] for rows in outputs]
            return dict(zip(bound.captured.facts.names, outputs, strict=True))
        say_serial(self, why)
        feed = _feed(self, graph, features)  # without vertices that were added
        return run_serially(self, self.given_states, *self.parts(graph, features), feed)


_said: WeakKeyDictionary[VertexFunction, str] = WeakKeyDictionary()
_silent = WeakSet[VertexFunction]()


def _say_silent(function: VertexFunction) -> None:
    """Once for each function."""
    if function not in _silent:
        _silent.add(function)
        words = "%s pushes nothing, so that a call gives nothing: end forward(v) with v.push(h=h) (%s)"
        logger.warning(words, type(function).__name__, definition(function.forward))


def say_serial(function: VertexFunction, why: CaptureError) -> None:
    """Once for each reason."""
    name = type(function).__name__
    note_run(name, why, "runs one vertex at a time")
    if _said.get(function) != why.reason:
        _said[function] = why.reason
        logger.info("%s runs one vertex at a time, uncaptured: %s", name, why.told())


def capture_vertex(function: VertexFunction, graph: GraphData, features: Given) -> tuple[Bound, CallContext]:
    """What a call would run; raises CaptureError where it would run one vertex at a time."""
    bound, _, call_context = _bind(function, _feed(function, graph, features))
    return bound, call_context


def _row_shape(name: str, shape: object) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, (tuple, list)) or not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise FunctionError(
            f"the width of the state {name!r} is {shape!r}",
            cure='give a number or a row shape: states={"h": 128, "memory": (4, 32)}',
        )
    return tuple(sizes)


def _refuse_unnamed(function: VertexFunction, graph: object, unnamed: tuple[object, ...]) -> None:
    name = type(function).__name__
    if not isinstance(graph, GraphData):
        check_call(function, graph)
    raise FunctionError(
        f"{name} is called with {len(unnamed)} more than a graph",
        cure=f"give features by the names under which forward(v) pulls them: {name.lower()}(g, x=x)",
    )


def _feed(function: VertexFunction, graph: GraphData, features: Given) -> Feed:
    topology = check_call(function, graph)
    known_levels(topology)  # a cycle is refused before anything else happens
    return Feed(graph, topology, features, is_typed=bool(function.part_spaces()))


def check_call(function: VertexFunction, graph: object) -> Topology:
    """What a call runs on; refuses what is no graph, and functions that are not ready."""
    if "given_states" not in function.__dict__:
        raise FunctionError(
            f"{type(function).__name__} was not initialised",
            cure="call super().__init__() first in __init__",
        )
    if not isinstance(graph, GraphData):
        batch = ": vgraph.batch makes one graph of several" if isinstance(graph, (list, tuple)) else ""
        made = ": of an edge_index, vgraph.graph((edge_index[0], edge_index[1]), num_nodes=n) makes it"
        raise FunctionError(
            f"{type(function).__name__} is called on a {type(graph).__name__}",
            cure=f"pass a vgraph.Graph first{made if isinstance(graph, Tensor) else batch}, then features by name",
        )
    if not graph.is_homogeneous:
        raise GraphError(
            f"{type(function).__name__} is called on a graph of several types: {graph!r}",
            cure="vgraph.to_homogeneous(g) has nodes and edges of one type; ByType runs a function for each type",
        )
    check_uncut(graph.topology, f"{type(function).__name__}, a function of a vertex and its children,")
    return graph.topology if function.direction == "forward" else graph.topology.reversed


def known_levels(topology: Topology) -> Levels:
    """The level of every vertex; a cycle is told with the user's line."""
    try:
        return levels(topology)
    except CycleError as error:
        raise CycleError(error.fact, cycle=error.cycle, cure=error.cure) from None


def _bind(function: VertexFunction, feed: Feed) -> tuple[Bound, tuple[Tensor, ...], CallContext]:
    types = function.vertex_types(feed.graph, feed.given)
    if types is None and cuda.recorder(feed.topology.device.type) is not None and _can_be_padded(function, feed):
        feed.padded = pad(feed.topology)
    forward = function.forward
    family = family_of((class_key(type(function)), function_key(forward), tuple(function.given_states.items())))
    family.has_fallback = False  # a recording is faster than one vertex at a time
    names, device = tuple(feed.subsets), feed.topology.device
    bound, tensors = find_captured(
        family,
        (forward,),
        Features(feed.find, feed.spec, device),
        lambda: _make_body(function, names, feed.full_name, feed.spec, device),
        lambda captured: _make_body(
            function, names, partial(_known_name, captured.specs), captured.specs.__getitem__, device
        ),
        lambda states: VertexBody(function, states, feed.full_name, _spaces_of(function, names)),
    )
    if bound.captured.num_slots_needed:
        check_children(bound.captured.num_slots_needed, bound.captured.facts.gather_lines, feed.topology, types)
    topology = feed.topology if feed.padded is None else feed.padded.topology
    return bound, tensors, bound.call_context(topology, function.policy, feed.subsets, types)


def _can_be_padded(function: VertexFunction, feed: Feed) -> bool:
    """Where nothing tells graphs of a batch apart, and vertices go level by level."""
    return function.policy == "frontier" and not feed.subsets and not feed.graph.gdata and feed.topology.num_dst > 0


def _write_error(function: VertexFunction, error: CaptureError) -> FunctionError:
    return FunctionError(
        f"{type(function).__name__} writes in place to a tensor that is not its own",
        cure="write out of place, as in x = x + 1, or to a clone; BatchNorm in training writes to its statistics: "
        "put it on the features before the call or on what the call gives, use LayerNorm, or .eval(); an Embedding "
        "with max_norm writes to its weights: look its rows up before the call",
        line=error.line,
    )


def _hook_error(function: VertexFunction, error: CaptureError) -> FunctionError:
    return FunctionError(
        f"{type(function).__name__} is recorded, and then runs as a whole: {error.reason}; it would do so once, "
        "on rows of an example",
        cure="register it on the vertex function itself, whose hooks run once a call, and push what it is to see; "
        "or return a value from it, which becomes part of the function",
        line=error.line,
    )


def check_children(
    needs: Sequence[int | tuple[int, str]],
    lines: Mapping[int, str],
    topology: Topology,
    types: VertexTypes | None,
    vertex_ids: Sequence[int] | None = None,
) -> None:
    """``gather(k)`` without a default needs vertices with no children at all, or more than k.

    ``vertex_ids``: as the user numbers the vertices of the topology; None: from 0.
    """
    for need in needs:
        k, part = need if isinstance(need, tuple) else (need, "")
        if types is None or not part:
            vertex = topology.keep(("short of", k), lambda k=k: _first_short(topology, k, None))
        else:
            vertex = _first_short(topology, k, types[0] == int(part))
        if vertex is not None:
            name = vertex if vertex_ids is None else vertex_ids[vertex]
            raise child_error(k, name, int(topology.in_degrees[vertex]), lines.get(k))


def _first_short(topology: Topology, k: int, among: Tensor | None) -> int | None:
    """The first vertex that has children, but not a k-th one."""
    degrees = (topology.on_host if among is None else topology).in_degrees
    is_short = (degrees > 0) & (degrees <= k)
    found = (is_short if among is None else is_short & among).nonzero()
    return int(found[0]) if found.shape[0] else None


def _make_body(
    function: VertexFunction,
    subsets: Sequence[str],
    full_name: Callable[[str, str], str],
    spec: Specs,
    device: torch.device,
) -> VertexBody:
    spaces = _spaces_of(function, subsets)

    def body_of(states: Mapping[str, StateSpec]) -> VertexBody:
        return VertexBody(function, states, full_name, spaces)

    return body_of(infer_states(function, body_of, spec, spaces, function.given_states, device))


def _spaces_of(function: VertexFunction, subsets: Sequence[str]) -> tuple[Space, ...]:
    return (*(subset(name[1:]) for name in subsets), *function.part_spaces())


def _known_name(specs: Mapping[str, Spec], kind: str, name: str) -> str:
    """As ``Feed.full_name``, among the features that a capture read."""
    return next((n for n in subset_names(kind, name) if n in specs), f"{kind}:{name}")
