"""ByType: one vertex function for each type of vertices, in one graph.

Takes: functions by type. Gives: one row a vertex, of whatever type. Runs at every call.
Source: Cavs section 3.2 (a batch holds vertices of one function); types are parts of a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vgraph.api.vertex.call_features import Features
from vgraph.api.vertex.function import VertexFunction
from vgraph.api.vertex.hooks import refuse_hooks
from vgraph.api.vertex.type_parts import PartVertex, joined, spaces_of_parts
from vgraph.api.vertex.vertex import Vertex
from vgraph.arguments import NAME
from vgraph.errors import DTypeError, FeatureError, FunctionError, NameLookupError
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.space import Space


class ByType(VertexFunction):
    """A vertex function for each type of vertices; states flow between types.

    Every function sees only its own vertices, in batches of its own. What one type pushes or
    scatters and another does not is zero for the other.

    Args:
        functions: a dict from types, whole numbers as in the feature ``key``, to VertexFunctions.
        key: the vertex feature, (nodes,) of whole numbers, that says each vertex's type.
        **options: ``states``, ``direction`` and ``policy``, as of ``vgraph.VertexFunction``; the policy may also be
            "type-aware".

    Raises:
        NameLookupError: the feature is missing, or holds a type without a function.
        FunctionError: a function is no VertexFunction, has hooks, or another direction.
        DTypeError: the types are not whole numbers (vertices,).
        FeatureError: there is not one type a vertex.

    Source: Xu et al. 2018 (Cavs), section 3.2 (a batch holds vertices of one function).

    Example:
        >>> import torch, vgraph
        >>> class Leaf(vgraph.VertexFunction):
        ...     def forward(self, v):
        ...         v.scatter(s=v.pull("x"))
        ...         v.push(s=v.pull("x"))
        >>> class Product(vgraph.VertexFunction):
        ...     def forward(self, v):
        ...         s = v.gather()["s"].prod()
        ...         v.scatter(s=s)
        ...         v.push(s=s)
        >>> tree = vgraph.graph(([0, 1], [2, 2]))
        >>> tree.ndata["type"] = torch.tensor([0, 0, 1])
        >>> model = vgraph.ByType({0: Leaf(), 1: Product()}, key="type")
        >>> model(tree, x=torch.tensor([[2.0], [3.0], [0.0]]))["s"].squeeze(1)
        tensor([2., 3., 6.])
    """

    has_operator = False  # which function a vertex runs is looked up outside a compiled graph

    def __init__(self, functions: Mapping[int, VertexFunction], key: str = "type", **options: Any) -> None:
        super().__init__(**options)
        _check_functions(functions, self.direction)
        NAME.check("ByType", "key", key)
        self.functions = nn.ModuleDict({str(int(kind)): function for kind, function in functions.items()})
        self.key = key
        of_parts = {name: shape for f in functions.values() for name, shape in f.given_states.items()}
        self.given_states = of_parts | self.given_states

    def vertex_types(self, graph: GraphData, given: Features) -> tuple[Tensor, tuple[int, ...]]:
        """The type of every vertex, checked, and the types there are functions for.

        Args:
            graph: the graph of the call.
            given: the features of the call by name, which go before the graph's own.

        Returns:
            Types, int64 (vertices,) on the graph's device, and the known types in the order of the functions.

        Raises:
            NameLookupError: the feature is missing, or holds a type without a function.
            DTypeError: types are not whole numbers (vertices,).
            FeatureError: there is not one type a vertex.
            FunctionError: a function has hooks.
        """
        types = given.get(self.key, graph.ndata.get(self.key))
        known = tuple(int(kind) for kind in self.functions)
        for kind, function in zip(known, self.functions.values(), strict=True):
            refuse_hooks(function, f"{type(function).__name__} of type {kind}")
        if not isinstance(types, Tensor):
            raise NameLookupError(
                f"there is no vertex feature {self.key!r} to tell types by",
                cure=f"set g.ndata[{self.key!r}], whole numbers of {sorted(known)}",
            )
        if types.is_floating_point() or types.is_complex() or types.dim() != 1:
            raise DTypeError(
                f"types are {types.dtype} of shape {tuple(types.shape)}",
                cure="give one whole number a vertex",
            )
        if types.shape[0] != graph.num_nodes():
            raise FeatureError(
                f"there are {types.shape[0]} types for {graph.num_nodes()} vertices",
                cure="give one whole number a vertex",
            )
        types = _settled(types, graph)
        graph.topology.keep(("types checked", known, id(types)), lambda: (_check_known(types, known), types))
        return types, known

    def parts(self, graph: GraphData, given: Features) -> tuple[Sequence[VertexFunction], Sequence[int]]:
        """The functions there are, and which of them every vertex runs.

        Args:
            graph: the graph of the call.
            given: the features of the call by name, which go before the graph's own.

        Returns:
            The functions, and the place of its function in them for every vertex.

        Raises:
            NameLookupError: the feature is missing, or holds a type without a function.
            DTypeError: types are not whole numbers (vertices,).
            FeatureError: there is not one type a vertex.
        """
        types, known = self.vertex_types(graph, given)
        functions = [f for f in self.functions.values() if isinstance(f, VertexFunction)]
        return functions, [known.index(kind) for kind in types.tolist()]

    def part_spaces(self) -> tuple[Space, ...]:
        """The spaces of vertices and edges of each type.

        Returns:
            Two spaces a type, in the order of the functions.
        """
        return spaces_of_parts(self.functions)

    def forward(self, v: Vertex) -> None:
        """Runs every function on its own vertices and puts the rows together.

        Args:
            v: one batch of vertices, of all types.
        """
        seen: list[tuple[str, Vertex]] = []
        for key, function in self.functions.items():
            part = PartVertex(v, key)
            function.forward(part)
            seen.append((key, part))
        v.scatter(**joined(v, {key: part.scattered for key, part in seen}))
        v.push(**joined(v, {key: part.pushed for key, part in seen}))


_CURE = "ByType({0: Word(), 1: Phrase()}, direction=...): a VertexFunction for each whole number, one direction"


def _check_functions(functions: object, direction: str) -> None:
    if not isinstance(functions, Mapping):
        raise FunctionError(f"ByType is given a {type(functions).__name__}", cure=_CURE)
    if not functions:
        raise FunctionError("ByType is given no functions", cure=_CURE)
    for kind, function in functions.items():
        fact = _misfit(kind, function, direction)
        if fact:
            raise FunctionError(fact, cure=_CURE)


def _misfit(kind: object, function: object, direction: str) -> str:
    if not hasattr(kind, "__index__"):
        return f"{kind!r} is no type"
    if not isinstance(function, VertexFunction) or isinstance(function, ByType):
        return f"the function of type {kind} is a {type(function).__name__}"
    if function.direction not in (direction, "forward"):
        return f"the function of type {kind} has the direction {function.direction!r}, ByType {direction!r}"
    return ""


def _settled(types: Tensor, graph: GraphData) -> Tensor:
    """Types as they are now: schedules are kept with this tensor, which nobody writes to; one for all equal ones."""
    on_host = types.device.type == "cpu" or types.is_inference()
    now = types.cpu().long().numpy().tobytes() if on_host else (id(types), types._version)
    key = ("types", types.device, now)
    return graph.topology.keep(key, lambda: (types.detach().to(torch.int64, copy=True), types))[0]


def _check_known(types: Tensor, known: tuple[int, ...]) -> None:
    unknown = sorted(set(torch.unique(types).tolist()) - set(known))
    if unknown:
        raise NameLookupError(
            f"vertices are of type {unknown[0]}, which has no function",
            cure=f"add it to ByType; there are functions for {sorted(known)}",
        )
