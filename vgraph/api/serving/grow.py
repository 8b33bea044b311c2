"""Grow: a vertex function on graphs that are made vertex by vertex; states of old vertices are kept.

Takes: a vertex function, new vertices with their in-edges and features. Gives: what the function pushes for those.
Runs at every step, on the new vertices alone: one run of the function's Program for each frontier of them.
Source: Cavs section 3.2 (a batch is a set of vertices that are ready), where the graph is not known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.new_frontiers import (
    NewFrontier,
    NewVertices,
    check_new,
    graphs_of,
    new_frontiers,
    rows_in_order,
)
from vgraph.api.serving.requests import dense
from vgraph.api.serving.step_function import FrontierFeed, Rows, StepFunction, rows_of
from vgraph.api.vertex.call_features import At, Feed
from vgraph.api.vertex.function import VertexFunction, check_call
from vgraph.api.vertex.hooks import refuse_hooks
from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.capture.guards.functorch_checks import refuse_transforms
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.graphs.batching import batch
from vgraph.graphs.edge_formats import check_device, read_edges
from vgraph.graphs.frame import as_ids
from vgraph.ir.topology import Topology


@checked(num_graphs=POSITIVE)
def grow(
    function: VertexFunction,
    *,
    num_graphs: int = 1,
    device: torch.device | str | None = None,
    **graph_features: Tensor,
) -> GrowingGraph:
    """Begins graphs without vertices, which grow: each step evaluates the vertices that it adds, and those alone.

    For decoders of trees and DAGs, whose next vertex depends on the states of those that are there. What the steps
    give is what a call on the whole graph gives, gradients as well.

    Args:
        function: a VertexFunction, but no ``ByType``. With ``direction="reverse"`` a new vertex is given with its
            out-edges, as a tree is from its root down.
        num_graphs: how many graphs grow side by side, from 1 up; ``graph_ids`` of a step says to which a new vertex
            belongs.
        device: where states are; None: where the function's first parameter is, or the CPU.
        **graph_features: (num_graphs, ...) each, one row a graph, which ``Vertex.pull_graph`` reads at every step.

    Returns:
        A GrowingGraph without vertices.

    Raises:
        ArgumentError: ``num_graphs`` is no whole number from 1 up.
        FunctionError: this is no vertex function, or one with types of vertices or with hooks.
        FeatureError: a feature has not one row for each graph.
        DeviceError: there is no such device.

    Source: Zhang et al. 2019 (D-VAE), section 3.3, whose decoder evaluates a node as soon as its edges are known.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import ChildSumTreeLSTM
        >>> growing = vgraph.grow(ChildSumTreeLSTM(3, 4))
        >>> leaves = growing.add_nodes(2, x=torch.ones(2, 3))
        >>> root = growing.add_nodes(1, ([0, 1], [2, 2]), x=torch.ones(1, 3))
        >>> root["h"].shape, growing.num_nodes
        (torch.Size([1, 4]), 3)
    """
    _check_function(function)
    _check_graphs(num_graphs, graph_features)
    parameter = next(function.parameters(), None)
    if device is not None:
        check_device(device)
    place = torch.device(device or ("cpu" if parameter is None else parameter.device))
    return GrowingGraph(function, num_graphs, place, graph_features)


def _check_function(function: object) -> None:
    if not isinstance(function, VertexFunction):
        fact = f"grow is given a {type(function).__name__}, which is no vertex function"
        raise FunctionError(fact, cure="give a vgraph.VertexFunction, made")
    check_call(function, Graph())
    refuse_hooks(function, type(function).__name__)
    if function.part_spaces():
        fact = f"{type(function).__name__} has several types of vertices, which do not grow"
        raise FunctionError(fact, cure="give one function that pulls the type, such as an embedding of it")


def _check_graphs(num_graphs: int, graph_features: Mapping[str, object]) -> None:
    for name, rows in graph_features.items():
        if not isinstance(rows, Tensor) or rows.shape[:1] != (num_graphs,):
            shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            fact = f"the graph feature {name!r} has shape {shape} for {num_graphs} graphs"
            raise FeatureError(fact, cure="give one row for every graph")


class GrowingGraph:
    """Graphs that grow, with the states of all their vertices; made by ``vgraph.grow``.

    Vertices are numbered 0, 1, 2 ... as they are added, those of all graphs in one row of numbers. A step that raises
    has changed nothing. Gradients flow through all steps, unless a step runs under ``torch.no_grad()`` or
    ``detach()`` cuts them.

    Raises:
        ArgumentError, GraphError, CycleError, FeatureError, DTypeError, NameLookupError: see ``add_nodes``.

    Source: Cavs section 3.2 (a batch is a set of vertices that are ready); Zhang et al. 2019 (D-VAE), section 3.3.

    Example:
        >>> import torch, vgraph
        >>> class Longest(vgraph.VertexFunction):
        ...     def forward(self, v):
        ...         length = v.pull("length") + v.gather()["length"].max()
        ...         v.scatter(length=length)
        ...         v.push(length=length)
        >>> growing = vgraph.grow(Longest())
        >>> for vertex in range(3):
        ...     edges = ([vertex - 1], [vertex]) if vertex else None
        ...     pushed = growing.add_nodes(1, edges, length=torch.tensor([1.0]))
        >>> pushed["length"], growing.states()["length"]
        (tensor([3.]), tensor([1., 2., 3.]))
    """

    def __init__(
        self, function: VertexFunction, num_graphs: int, device: torch.device, graph_features: Mapping[str, Tensor]
    ) -> None:
        self.function, self.num_graphs, self.device = function, num_graphs, device
        self._graph_features = dict(graph_features)
        self._step: StepFunction | None = None
        self._states: dict[str, list[Tensor]] = {}  # a row for each vertex: taking some costs nothing of the others
        self._graph_ids: list[int] = []
        self._edges: list[tuple[Tensor, Tensor]] = []

    def __repr__(self) -> str:
        states = {name: tuple(rows[0].shape) for name, rows in self._states.items() if rows}
        counts = f"num_graphs={self.num_graphs}, num_nodes={self.num_nodes}, num_edges={self.num_edges}"
        return f"GrowingGraph({type(self.function).__name__}, {counts}, states={states})"

    @property
    def num_nodes(self) -> int:
        """How many vertices there are: the id of the next one."""
        return len(self._graph_ids)

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return sum(src.shape[0] for src, _ in self._edges)

    @property
    def graph_ids(self) -> Tensor:
        """The graph of every vertex, (num_nodes,) int64."""
        return torch.tensor(self._graph_ids, dtype=torch.int64, device=self.device)

    @checked(num=COUNT)
    def add_nodes(
        self, num: int, edges: object = None, /, *, graph_ids: object = None, **features: Tensor | At
    ) -> dict[str, Tensor]:
        """Adds vertices together with all their in-edges, and evaluates them.

        Args:
            num: how many vertices; their ids are ``num_nodes``, ``num_nodes + 1`` ...
            edges: ``(src, dst)``, as ``vgraph.graph`` takes them: from any vertex, old or new, to the new ones (the
                other way where the function's direction is "reverse"); None: they have none. ``gather(k)`` counts
                a vertex's edges in this order.
            graph_ids: (num,) the graph of each new vertex; None: there is one graph, or one vertex for each graph.
            **features: (num, ...) for ``pull``, (edges, ...) for ``pull_edge``; those that the function reads, in every
                step of one width and dtype.

        Returns:
            What the function pushes, (num, ...) each: one row for each of the new vertices.

        Raises:
            ArgumentError: ``num`` is no whole number from 0 up.
            GraphError: an edge begins at no vertex, does not end at a new one, or joins two graphs; a graph is
                missing.
            CycleError: new vertices are each other's children.
            FeatureError: a feature has the wrong number of rows, device, or another width than in earlier steps.
            DTypeError: a feature has another dtype than in earlier steps, or ids are not whole numbers.
            NameLookupError: a feature is missing.
        """
        made = self._evaluate(num, edges, graph_ids, features)
        ids = range(made.new.num_old, made.new.num_old + made.new.count)
        for name, rows in made.states.items():
            self._states.setdefault(name, []).extend(rows[id] for id in ids)
        self._graph_ids.extend(made.new.graph_ids.tolist())
        self._edges.append(made.ends)
        return made.pushed

    @checked(num=COUNT)
    def propose(
        self, num: int, edges: object = None, /, *, graph_ids: object = None, **features: Tensor | At
    ) -> dict[str, Tensor]:
        """What ``add_nodes`` would give; nothing is added. A decoder may look before it decides on an edge.

        Args:
            num: how many vertices, as in ``add_nodes``.
            edges: their in-edges, as in ``add_nodes``.
            graph_ids: (num,) the graph of each of them, as in ``add_nodes``.
            **features: their features and their edges', as in ``add_nodes``.

        Returns:
            What the function pushes, (num, ...) each.

        Raises:
            ArgumentError, GraphError, CycleError, FeatureError, DTypeError, NameLookupError: as in ``add_nodes``.
        """
        return self._evaluate(num, edges, graph_ids, features).pushed

    def states(self, ids: object = None) -> dict[str, Tensor]:
        """What vertices scattered.

        Args:
            ids: (k,) of which vertices; None: of all, which takes longer the more there are.

        Returns:
            (k, ...) for each state, by name; none before the first step.

        Raises:
            GraphError: there is no such vertex.
            DTypeError: ids are not whole numbers.
        """
        wanted = list(range(self.num_nodes)) if ids is None else as_ids(ids, "ids").tolist()
        if not all(0 <= id < self.num_nodes for id in wanted):
            fact = f"states({wanted}) asks for a vertex that is not among {self.num_nodes}"
            raise GraphError(fact, cure="give whole numbers from 0 to num_nodes - 1")
        return {name: rows_of([rows[id] for id in wanted], rows[0]) for name, rows in self._states.items() if rows}

    def detach(self) -> None:
        """Cuts gradients here: later steps see the states that there are as constants."""
        self._states = {name: [row.detach() for row in rows] for name, rows in self._states.items()}

    def copy(self) -> GrowingGraph:
        """Graphs that have grown so far together, and grow apart from now on; no row is copied.

        Returns:
            A GrowingGraph with the same vertices, edges and states.
        """
        made = GrowingGraph(self.function, self.num_graphs, self.device, self._graph_features)
        made._step, made._graph_ids, made._edges = self._step, list(self._graph_ids), list(self._edges)
        made._states = {name: list(rows) for name, rows in self._states.items()}
        return made

    def to_graph(self) -> Graph:
        """The graphs as they are now: a batch of ``num_graphs``, in which the vertices of each stand together.

        Returns:
            A Graph; ``ndata["_ID"]`` and ``edata["_ID"]`` are the ids that vertices and edges have here.
        """
        nothing = torch.empty(0, dtype=torch.int64, device="cpu")
        ends = [torch.cat([nothing, *(pair[side] for pair in self._edges)]) for side in (0, 1)]
        graph_ids = torch.tensor(self._graph_ids, dtype=torch.int64, device="cpu")
        of_edges, place = graph_ids[ends[0]], torch.empty_like(graph_ids)
        graphs: list[Graph] = []
        for number in range(self.num_graphs):
            vertices, edges = ((ids == number).nonzero().squeeze(1) for ids in (graph_ids, of_edges))
            place[vertices] = torch.arange(vertices.shape[0], device="cpu")
            count = vertices.shape[0]
            one = Graph(Topology(place[ends[0][edges]], place[ends[1][edges]], count, count))
            one.ndata["_ID"], one.edata["_ID"] = vertices, edges
            graphs.append(one)
        return batch(graphs).to(self.device)

    # ------------------------------------------------------------ one step
    def _evaluate(self, num: int, edges: object, graph_ids: object, features: Mapping[str, Tensor | At]) -> _Evaluated:
        refuse_transforms()
        check_call(self.function, Graph())
        refuse_hooks(self.function, type(self.function).__name__)
        made = self._new(num, edges, graph_ids)
        feed = self._feed(made.new, features)
        step = self._step or StepFunction(self.function, feed)
        step.check(feed)
        parts: list[Rows] = []
        for frontier in made.frontiers:
            rows = FrontierFeed(feed, frontier, made.new.num_old, lambda name, id: self._state(made, name, id))
            pushed, scattered = step.run(rows)
            parts.append(pushed)
            made.keep(frontier, scattered)
        made.pushed = {name: rows_in_order([part[name] for part in parts], made.frontiers) for name in parts[0]}
        self._step = step
        return made

    def _new(self, num: int, edges: object, graph_ids: object) -> _Evaluated:
        src, dst = (ids.cpu().long().clone() for ids in read_edges(([], []) if edges is None else edges))
        children, parents = (src, dst) if self.function.direction == "forward" else (dst, src)
        of_graphs = graphs_of(graph_ids, num, self.num_graphs)
        new = NewVertices(self.num_nodes, of_graphs, children.numpy(), parents.numpy())
        check_new(new, self._graph_ids, self.function.direction)
        return _Evaluated(new, (src, dst), list(new_frontiers(new, self.num_graphs, self.device)))

    def _feed(self, new: NewVertices, features: Mapping[str, Tensor | At]) -> Feed:
        """The features of a step and of the graphs, one row for each of its vertices, edges or graphs."""
        twice = sorted(features.keys() & self._graph_features.keys())
        if twice:
            fact = f"the feature {twice[0]!r} was given to grow, for graphs, and is given to a step"
            raise FeatureError(fact, cure="give it another name")
        ids = torch.zeros(len(new.children), dtype=torch.int64, device=self.device)  # there are so many edges
        counts = Topology(ids, ids, new.count, new.count, (0,) * self.num_graphs)
        given = {name: dense(value, counts) for name, value in features.items()}
        return Feed(Graph(), counts, {**self._graph_features, **given})

    def _state(self, made: _Evaluated, name: str, vertex: int) -> Tensor:
        return self._states[name][vertex] if vertex < made.new.num_old else made.states[name][vertex]


@dataclass(eq=False)
class _Evaluated:
    """A step that was evaluated and not yet added; ``states``: a row for each new vertex, by id."""

    new: NewVertices
    ends: tuple[Tensor, Tensor]
    frontiers: list[NewFrontier]
    pushed: Rows = field(default_factory=Rows)
    states: dict[str, dict[int, Tensor]] = field(default_factory=dict[str, dict[int, Tensor]])

    def keep(self, frontier: NewFrontier, scattered: Rows) -> None:
        ids = (frontier.vertices + self.new.num_old).tolist()
        for name, rows in scattered.items():
            self.states.setdefault(name, {}).update(zip(ids, rows.unbind(0), strict=True))
