"""Probe: how Dynamo reads a user's function, and what it finds instead: one operator.

Takes: a call inside ``torch.compile``. Gives: a call of the operator with every tensor as an argument. Runs once per
compiled graph. Dynamo runs the user's Python (its guards are the guards); each torch function on rows is noted
(tape.py), nothing of it is left in the graph. See ADR 0012.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vgraph.api.messages.batches import Columns, EdgeBatch, NodeBatch, OfEdges, OfNodes
from vgraph.api.messages.propagate import Frames
from vgraph.api.torch_compile import tape
from vgraph.api.torch_compile.tape import ColumnFields
from vgraph.api.vertex.function import VertexFunction
from vgraph.capture.guards.functorch_checks import refuse_transforms
from vgraph.compiled_calls import compiled_calls
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.topology import Topology
from vgraph.runtime.custom_op import call
from vgraph.user_line import PACKAGE, folder_of, is_user_file

Given = ParamSpec("Given")
Made = TypeVar("Made")
_TORCH, _STANDARD = folder_of(torch.__file__), folder_of(contextlib.__file__)


def _is_piece() -> bool:
    """Whether Dynamo reads what vgraph itself calls, or this runs uncompiled: the user's function broke a call apart.

    Its pieces would run in turns with the user's own code, on rows that stand for nothing.
    """
    frame = inspect.currentframe()
    while frame is not None and not frame.f_code.co_filename.endswith("convert_frame.py"):
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _STANDARD)):
        frame = frame.f_back
    name = "" if frame is None else frame.f_code.co_filename
    return not name or (name.startswith(PACKAGE) and not is_user_file(name, layers=True))


def _constant(function: Callable[Given, Made]) -> Callable[Given, Made]:
    return torch.compiler.assume_constant_result(function)


_begin_update, _begin_vertex = _constant(tape.begin_update), _constant(tape.begin_vertex)
_finish_update, _finish_vertex = _constant(tape.finish_update), _constant(tape.finish_vertex)
_note, _writes, _broke_apart = _constant(tape.note), _constant(tape.writes), _constant(_is_piece)


@torch.compiler.disable(reason="what vgraph makes no operator of, as layers of PyG, runs outside the graph")
def outside(function: Callable[Given, Made], *args: Given.args, **named: Given.kwargs) -> Made:
    """Leaves the compiled graph: what cannot become an operator runs as it does uncompiled."""
    return function(*args, **named)


@torch.compiler.disable(reason="torch.export does not reach into functions on graphs; torch.compile does")
def refused_export() -> None:
    """Where Dynamo reads a program for ``torch.export(strict=True)``, which may not leave the graph."""
    refuse_transforms()


compiled_calls.outside = outside  # Dynamo is loaded by now, and what leads here need not be compiled for each class


class Refused(Exception):
    """The function cannot become an operator; the call runs outside the compiled graph."""


class _Noted:
    """A run of the user's function: its number, and the tensors that it reached.

    ``moves``: a number that Dynamo saw change becomes a tensor rather than a constant.
    """

    def __init__(self, number: int, moves: bool) -> None:
        self.number, self.moves = number, moves
        self.inputs: dict[str, Tensor] = {}
        self.lifted: list[Tensor] = []

    def note(self, action: Callable[..., object] | str, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        fresh: list[ColumnFields] = []
        given = tuple([self._leaf(arg, fresh) for arg in args])
        named = tuple([(name, self._leaf(arg, fresh)) for name, arg in kwargs.items()])
        return self._made(_note(self.number, action, given, named, tuple(fresh)))

    def column(self, action: str, name: str, tensor: Tensor) -> Probe:
        """A feature as the function sees it; ``tensor`` is what the operator will be given."""
        self.inputs[name] = tensor
        return self._made(_note(self.number, action, (("const", name),), (), (describe(name, tensor),)))

    def ids(self, name: str, space: str, idtype: torch.dtype) -> Probe:
        """The ids of rows in the graph's dtype, as users know them; kernels read them in 64 bits."""
        found = self.note("ids", (name, space), {})
        return found if idtype == torch.int64 else found.to(idtype)

    def _leaf(self, arg: object, fresh: list[ColumnFields]) -> tuple[str, object]:
        if isinstance(arg, Probe):
            return ("probe", arg.place)
        if isinstance(arg, Tensor):
            return ("lifted", self._lift(arg, fresh))
        if isinstance(arg, torch.Size):
            return ("const", tuple(arg))
        if isinstance(arg, tuple):
            return ("tuple", tuple([self._leaf(item, fresh) for item in arg]))
        if isinstance(arg, list):
            return ("list", tuple([self._leaf(item, fresh) for item in arg]))
        if isinstance(arg, (int, float)):
            if self.moves and not _is_static(arg):
                dtype = torch.float64 if isinstance(arg, float) else torch.int64
                return ("lifted", self._lift(torch.scalar_tensor(arg, dtype=dtype), fresh))
            return ("const", _static(arg))
        return ("const", arg)

    def _lift(self, tensor: Tensor, fresh: list[ColumnFields]) -> int:
        for place, known in enumerate(self.lifted):
            if known is tensor:
                return place
        place = len(self.lifted)
        self.lifted.append(tensor)
        self.inputs[f"shared:{place}"] = tensor
        fresh.append((f"shared:{place}", _sizes(tensor, 0), tensor.dtype, tensor.requires_grad))
        return place

    def _made(self, found: Any) -> Any:
        kind = found[0]
        if kind == "refused":
            raise Refused(found[1])
        if kind == "probe":
            rows = torch.empty(found[2], dtype=found[3]).as_subclass(Probe)
            rows.place, rows.noted = found[1], self
            return rows
        if kind == "items":
            items = [self._made(item) for item in found[1]]
            return _Extremum(*items) if found[2] else tuple(items)
        return torch.Size(found[1]) if isinstance(found[1], tuple) else found[1]


class _Extremum(NamedTuple):
    """What torch's functions of two results return."""

    values: Tensor
    indices: Tensor


class Probe(Tensor):
    """Stands for rows while Dynamo reads a function; every torch function on it is noted."""

    place: int
    noted: _Noted

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        return _noted_of((args, tuple(named.values()))).note(func, args, named)


def _noted_of(tree: Iterable[object]) -> Any:
    for item in tree:
        if isinstance(item, Probe):
            return item.noted
        if isinstance(item, (tuple, list)):
            found = _noted_of(item)
            if found is not None:
                return found
    return None


def describe(name: str, tensor: Tensor) -> ColumnFields:
    """A feature as constants; see ``tape.Column``."""
    return (name, _sizes(tensor, 1), tensor.dtype, tensor.requires_grad)


def _sizes(tensor: Tensor, first: int) -> tuple[int, ...]:
    """The sizes of a row: other ones are another function."""
    return tuple([int(_static(size)) for size in tensor.shape[first:]])


def _is_static(number: float) -> bool:
    """Whether it is no symbol of torch's; its module loads a computer algebra system, and is loaded by then."""
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return has_static_value(number)


def _static(number: float) -> float:
    """The number as a constant; a symbol that is known to have one value is still a symbol."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar

    return guard_scalar(number)


def _twice(run: Callable[[int, bool], Made]) -> tuple[Made, Made] | None:
    """A function noted on both sizes of examples; None where it is refused."""
    if _broke_apart():
        return None
    for moves in (True, False):
        try:
            with _Watched():
                return run(0, moves), run(1, moves)
        except Refused:
            continue
    return None


class _Watched(TorchFunctionMode):
    """Refuses a function that writes into a tensor of the user's: it is read several times, and runs once."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        if ("out" in named or _writes(func)) and not (args and isinstance(args[0], Probe)):
            raise Refused("it writes into a tensor that has no rows")
        return func(*args, **named)


NotedRun = tuple[_Noted, dict[str, Probe]]  # and what it gave


# ---------------------------------------------------------------- functions of edges and nodes
def updated(topology: Topology, frames: Frames, message: OfEdges, reduce: OfNodes) -> dict[str, Tensor] | None:
    """What ``propagate`` gives, by the operator; None where the functions cannot become one."""
    idtype = topology.idtype
    both = _twice(lambda which, moves: _noted_update(which, moves, frames, message, reduce, idtype))
    return None if both is None else _called(topology, both, is_partial=not getattr(reduce, "is_total", False))


def edges_evaluated(topology: Topology, frames: Frames, function: OfEdges) -> dict[str, Tensor] | None:
    """What ``evaluate_edges`` gives, by the operator; None where the function cannot become one."""
    idtype = topology.idtype
    both = _twice(lambda which, moves: _noted_edges(which, moves, frames, function, idtype))
    return None if both is None else _called(topology, both, is_partial=False)


def _noted_update(
    which: int, moves: bool, frames: Frames, message: OfEdges, reduce: OfNodes, idtype: torch.dtype
) -> NotedRun:
    number, num_vertices, num_edges = _begin_update(which, True)
    noted = _Noted(number, moves)
    messages = _messages(noted, frames, message, num_edges, idtype)
    noted.note("checked", (), {})
    nodes = NodeBatch(
        _columns(noted, "at_vertex", "dst", frames["dst"]),
        Columns("message", lambda: tuple(messages), lambda name: noted.note("mailbox", (messages[name],), {})),
        lambda: noted.ids("$vertex_ids", "dst", idtype),
        num_vertices,
    )
    given = _checked(reduce(nodes), num_vertices)
    noted.note("checked", (), {})
    return noted, given


def _noted_edges(which: int, moves: bool, frames: Frames, function: OfEdges, idtype: torch.dtype) -> NotedRun:
    number, _, num_edges = _begin_update(which, False)
    noted = _Noted(number, moves)
    given = _messages(noted, frames, function, num_edges, idtype)
    noted.note("checked", (), {})
    return noted, given


def _messages(
    noted: _Noted, frames: Frames, function: OfEdges, num_edges: int, idtype: torch.dtype
) -> dict[str, Probe]:
    def ids(end: str) -> Tensor:
        return noted.ids(f"${end}_ids", "edge", idtype)

    edges = EdgeBatch(
        _columns(noted, "column", "src", frames["src"]),
        _columns(noted, "column", "dst", frames["dst"]),
        _columns(noted, "column", "edge", frames["edge"]),
        lambda: (ids("src"), ids("dst"), ids("edge")),
        num_edges,
    )
    given = _checked(function(edges), num_edges)
    if edges.data.written:
        raise Refused("it sets features of edges")
    return given


def _columns(noted: _Noted, action: str, kind: str, frame: Mapping[str, Tensor]) -> Columns:
    return Columns("feature", lambda: tuple(frame), lambda name: noted.column(action, f"{kind}:{name}", frame[name]))


def _checked(given: object, rows: int) -> dict[str, Probe]:
    """Outside the compiled graph the error says what is wrong."""
    if not isinstance(given, dict):
        raise Refused("no dict")
    for tensor in given.values():
        if not isinstance(tensor, Probe) or tensor.dim() == 0 or tensor.shape[0] != rows:
            raise Refused("not one row each")
    return given


def _called(topology: Topology, both: tuple[NotedRun, NotedRun], *, is_partial: bool) -> dict[str, Tensor] | None:
    (one, given), (two, _) = both
    outputs = tuple([rows.place for rows in given.values()])
    found = _finish_update((one.number, two.number), "update", outputs, is_partial)
    if isinstance(found, str):
        return None
    key, names, draws = found
    return dict(zip(given, _run(topology, key, names, draws, one.inputs)))  # noqa: B905 (of vertex functions, states follow)


def _run(
    topology: Topology, key: str, names: Sequence[str], draws: bool, inputs: Mapping[str, Tensor]
) -> Sequence[Tensor]:
    seed = torch.ops.aten.random(torch.empty((), dtype=torch.int64, device="cpu")) if draws else None
    tensors = [inputs[name] for name in names]
    return call(key, topology.handle, topology.num_dst, topology.num_edges, seed, tensors)


# ---------------------------------------------------------------- vertex functions
class _Vertex:
    """``v`` as Dynamo sees it; see ``vertex.Vertex``."""

    def __init__(self, noted: _Noted, states: tuple[str, ...], find: Callable[[str, str], Tensor]) -> None:
        self.noted, self.states, self.find = noted, states, find

    def gather(self, k: int | None = None, *, default: float | None = None) -> Mapping[str, Probe]:
        return _Children(self.noted, self.states, k, default)

    def _pulled(self, kind: str, name: str) -> Probe:
        return self.noted.column("at_vertex", f"{kind}:{name}", self.find(kind, name))

    def pull(self, name: str) -> Probe:
        return self._pulled("vertex", name)

    def pull_edge(self, name: str) -> Probe:
        return self._pulled("edge", name)

    def pull_graph(self, name: str) -> Probe:
        return self._pulled("graph", name)

    @property
    def in_degree(self) -> Probe:
        return self.noted.note("on_vertex", ("in_degree",), {})

    def scatter(self, **states: object) -> None:
        self.noted.note("on_vertex", ("scatter",), states)

    def push(self, **outputs: object) -> None:
        self.noted.note("on_vertex", ("push",), outputs)


class _Children(Mapping[str, Probe]):
    def __init__(self, noted: _Noted, states: tuple[str, ...], k: int | None, default: float | None) -> None:
        self.noted, self.states, self.k, self.default = noted, states, k, default

    def __getitem__(self, name: str) -> Probe:
        return self.noted.note("gathered", (name, self.k, self.default), {})

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)


def vertices_evaluated(function: VertexFunction, graph: GraphData, given: dict[str, Any]) -> dict[str, Tensor] | None:
    """What a call of a VertexFunction gives, by the operator; None where it cannot become one."""
    if not function.has_operator or any(not isinstance(value, Tensor) for value in given.values()):
        return None
    both = _twice(lambda which, moves: _noted_vertex(which, moves, function, graph, given))
    if both is None:
        return None
    first, second = both
    found = _finish_vertex((first.number, second.number), function.policy, function.direction != "forward")
    if isinstance(found, str):
        return None
    key, names, draws, outputs = found
    made = _run(graph.topology, key, names, draws, first.inputs)
    return dict(zip(outputs, made))  # noqa: B905 (states follow)


def _noted_vertex(
    which: int, moves: bool, function: VertexFunction, graph: GraphData, given: Mapping[str, Tensor]
) -> _Noted:
    frames = {"vertex": graph.ndata, "edge": graph.edata, "graph": graph.gdata}
    counts = {"vertex": graph.num_nodes(), "edge": graph.num_edges(), "graph": graph.gdata.num_rows}
    columns: list[ColumnFields] = []
    for kind, frame in frames.items():
        known = {**frame.columns, **given}
        columns.extend([describe(f"{kind}:{name}", tensor) for name, tensor in known.items() if tensor.dim()])
    begun = _begin_vertex(which, function, tuple(columns))
    if isinstance(begun, str):
        raise Refused(begun)

    def find(kind: str, name: str) -> Tensor:
        tensor = given[name] if name in given else frames[kind].columns.get(name)
        if tensor is None or tensor.dim() == 0 or tensor.shape[0] != counts[kind]:
            raise Refused(name)
        return tensor

    noted = _Noted(begun[0], moves)
    function.forward(_Vertex(noted, begun[1], find))  # pyright: ignore[reportArgumentType]
    return noted
