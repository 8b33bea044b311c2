"""Vertex: what a vertex function sees, and the function as it is recorded.

Takes: a session on examples. Gives: what was gathered, scattered and pushed. Runs once per function.
Source: Cavs section 3.1 (gather, scatter, pull, push).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor, nn

from vgraph.api.messages.batches import definition
from vgraph.capture.body import Given
from vgraph.capture.record.tracer import CaptureError
from vgraph.capture.rows.row_mixing import SLOTS_REDUCE
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, lift, num_rows, plain, row_shape
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.errors import ChildIndexError, FunctionError, NameLookupError
from vgraph.ir.moves import Gather, Move, TakeSlot
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.user_line import recorded_line

Find = Callable[[str, str], str]  # the full name of a feature of some kind; NameLookupError: there is none


@dataclass(frozen=True)
class StateSpec:
    """Row shape and dtype of a state that vertices hand to their parents."""

    row_shape: tuple[int, ...]
    dtype: torch.dtype


class Vertex:
    """What ``forward`` of a ``vgraph.VertexFunction`` sees: one batch of vertices, one row each.

    Raises:
        FunctionError: a name is scattered or pushed twice, or not with one row a vertex.
        NameLookupError: a state is gathered that is never scattered, or a feature is pulled that is not there.
        ChildIndexError: ``gather(k)`` of a child that a vertex does not have, where no default is given.

    Source: Xu et al. 2018 (Cavs), section 3.1.

    Example:
        >>> import torch, vgraph
        >>> class Longest(vgraph.VertexFunction):
        ...     def forward(self, v):
        ...         length = v.pull("length") + v.gather()["length"].max()
        ...         v.scatter(length=length)
        ...         v.push(length=length)
        >>> chain = vgraph.graph(([0, 1], [1, 2]))
        >>> Longest()(chain, length=torch.tensor([1.0, 2.0, 4.0]))["length"]
        tensor([1., 3., 7.])
    """

    def __init__(self, session: Session, states: Mapping[str, StateSpec], find: Find) -> None:
        self.session, self.states, self.find = session, states, find
        self.gathered: dict[str, RowTensor] = {}
        self.scattered: dict[str, Tensor] = {}
        self.pushed: dict[str, Tensor] = {}
        self.gather_lines: dict[int, str] = {}
        self.state_lines: dict[str, str] = {}

    def gather(self, k: int | None = None, *, default: float | None = None) -> Mapping[str, Tensor]:
        """States of every child as slots (one row a child, in edge order), or of the k-th child alone.

        Args:
            k: which child, from 0 up in edge order; None: all of them.
            default: with ``k``, the number that stands for the state where a vertex has children, but fewer than k +
                1; None: that is an error.

        Returns:
            A mapping from the names of states to tensors: (children, ...), which are to be reduced (``.sum()``,
            ``.max()``), or with ``k`` (vertices, ...), zeros where a vertex has no children at all.

        Raises:
            ChildIndexError: ``k`` is no whole number from 0 up; or, when the graph is evaluated, a vertex has
                children but fewer than k + 1 and there is no default.
            NameLookupError: a state is read that is never scattered.
        """
        if k is not None:
            _check_index(k)
            if default is None:
                self.session.num_slots_needed.add(k)
                self.gather_lines.setdefault(k, recorded_line())
        return _Children(self, k, default)

    def pull(self, name: str) -> Tensor:
        """A feature of the vertices.

        Args:
            name: the feature's name, among those of the call, then of ``ndata``.

        Returns:
            (vertices, ...), one row a vertex.

        Raises:
            NameLookupError: there is no such feature.
        """
        return self._pull("vertex", name)

    def pull_edge(self, name: str) -> Tensor:
        """A feature of the edges from the children.

        Args:
            name: the feature's name, among those of the call, then of ``edata``.

        Returns:
            (children, ...), one row a slot, in the order of ``gather``.

        Raises:
            NameLookupError: there is no such feature.
        """
        return self._pull("edge", name)

    def pull_graph(self, name: str) -> Tensor:
        """A feature of the graphs of the batch; where it meets vertices, each vertex sees its graph's row.

        Args:
            name: the feature's name, among those of the call, then of ``gdata``.

        Returns:
            (graphs, ...), one row a graph.

        Raises:
            NameLookupError: there is no such feature.
        """
        return self._pull("graph", name)

    def _pull(self, kind: str, name: str) -> Tensor:
        try:
            full = self.find(kind, name)
        except NameLookupError:
            self.session.asked.absent.add(f"{kind}:{name}")
            raise
        return self.session.input(full)

    @property
    def in_degree(self) -> Tensor:
        """The number of children of every vertex, (vertices,) int64."""
        return as_rows(self.session.in_degree(), VERTEX, self.session)

    def scatter(self, **states: Tensor) -> None:
        """Hands states to the parents, which ``gather`` them.

        Args:
            **states: (vertices, ...) each, one row a vertex.

        Raises:
            FunctionError: a name is scattered twice, or a state has not one row a vertex.
        """
        self._give("scatter", self.scattered, states)

    def push(self, **outputs: Tensor) -> None:
        """Gives outputs of the call.

        Args:
            **outputs: (vertices, ...) each, one row a vertex.

        Raises:
            FunctionError: a name is pushed twice, or an output has not one row a vertex.
        """
        self._give("push", self.pushed, outputs)

    def _give(self, verb: str, into: dict[str, Tensor], tensors: Mapping[str, object]) -> None:
        for name, tensor in tensors.items():
            if name in into:
                raise FunctionError(
                    f"{verb}({name}=...) is called twice",
                    cure="give each name once",
                )
            into[name] = self._one_row_a_vertex(verb, name, tensor)

    def _one_row_a_vertex(self, verb: str, name: str, tensor: object) -> Tensor:
        if isinstance(tensor, RowTensor) and tensor.vg_space != EDGE:
            lifted = lift(tensor, VERTEX)
            if lifted.dim() and num_rows(lifted) == self.session.num_vertices:
                return lifted
        is_of_slots = isinstance(tensor, RowTensor) and tensor.vg_space == EDGE
        raise FunctionError(
            f"{verb}({name}=...) {'is made of slots and ' if is_of_slots else ''}does not have one row a vertex",
            cure=f"{SLOTS_REDUCE}; give a tensor made from pull, gather or in_degree",
        )

    def child_state(self, name: str) -> RowTensor:
        """The state of every child, which ``gather`` reads.

        Args:
            name: the name of the state.

        Returns:
            (children, ...), one row a slot.

        Raises:
            NameLookupError: the state is never scattered.
        """
        if name not in self.gathered:
            spec = self.states.get(name)
            if spec is None:
                _refuse_unscattered(name, self.states)
            self.state_lines[name] = recorded_line()
            self.gathered[name] = self.session.child(name, spec.row_shape, spec.dtype)
        return self.gathered[name]


def check_scattered(vertex: Vertex) -> None:
    """NameLookupError: a state that was gathered is not among those that were scattered."""
    for name in vertex.gathered:
        if name not in vertex.scattered:
            _refuse_unscattered(name, vertex.scattered, vertex.state_lines.get(name, ""))


def _refuse_unscattered(name: str, states: Iterable[str], line: str | None = None) -> NoReturn:
    raise NameLookupError(
        f"the state {name!r} is gathered but never scattered",
        cure=f"scatter it, v.scatter({name}=...), or gather one of {sorted(states)}",
        line=line,
    )


def _check_index(k: object) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ChildIndexError(
            f"gather({k!r}): there is no such child",
            cure="count children from 0: gather(0) is the first",
        )


class _Children(Mapping[str, Tensor]):
    def __init__(self, vertex: Vertex, k: int | None, default: float | None) -> None:
        self._vertex, self._k, self._default = vertex, k, default

    def __getitem__(self, name: str) -> Tensor:
        slots = self._vertex.child_state(name)
        return slots if self._k is None else self._kth(slots, self._k)

    def _kth(self, slots: RowTensor, k: int) -> Tensor:
        session = self._vertex.session
        row = move_rows(session, TakeSlot(k), plain(slots))
        if self._default is not None:
            degree = session.in_degree()
            short = (degree > 0) & (degree <= k)
            for _ in range(row.dim() - 1):
                short = short.unsqueeze(-1)
            row = torch.where(short, self._default, row)
        return as_rows(row, VERTEX, session)

    def __contains__(self, name: object) -> bool:
        return name in self._vertex.states  # a look, where reading would gather it

    def __iter__(self) -> Iterator[str]:
        return iter(self._vertex.states)

    def __len__(self) -> int:
        return len(self._vertex.states)


@dataclass(frozen=True)
class VertexFacts:
    """What calls need to know: the names of outputs, and where gather(k) stands."""

    names: tuple[str, ...]
    gather_lines: Mapping[int, str] = field(repr=False)


@contextmanager
def _unmixed(session: Session) -> Generator[None]:
    """Refuses what reduced all vertices to one number, unless it was for a branch, which is not captured."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        if session.mixed is None:
            raise
        raise session.mixed from error
    if session.mixed is not None:
        raise session.mixed


class VertexBody:
    """A vertex function with its states, as derive.py runs it."""

    mailbox: bool | int = False
    per_vertex = True

    def __init__(
        self,
        module: nn.Module,
        states: Mapping[str, StateSpec],
        find: Find,
        spaces: tuple[Space, ...],
    ) -> None:
        self.name = type(module).__name__
        self.module, self.states, self.find, self.spaces = module, states, find, spaces
        self._facts = VertexFacts((), {})
        self.seen: dict[str, StateSpec] = {}

    def facts(self) -> VertexFacts:
        return self._facts

    def _check_given(self, returned: object) -> None:
        line = definition(self.module.forward)
        leaves = list(returned.values()) if isinstance(returned, Mapping) else returned
        if any(isinstance(t, Tensor) for t in (leaves if isinstance(leaves, (tuple, list)) else [leaves])):
            raise FunctionError(
                f"{self.name}.forward returns a tensor, which nobody sees",
                cure="give it to the caller, v.push(h=rows), and to the parents, v.scatter(h=rows)",
                line=line,
            )

    def evaluate(self, session: Session, vertex: Vertex) -> Vertex:
        """Runs the function on a batch of vertices, and notes what it gave."""
        with _unmixed(session):
            self._check_given(self.module.forward(vertex))
        self.seen = {name: StateSpec(row_shape(t), t.dtype) for name, t in vertex.scattered.items()}
        check_scattered(vertex)
        return vertex

    def run(self, session: Session) -> Given:
        vertex = self.evaluate(session, Vertex(session, self.states, self.find))
        self._facts = VertexFacts(tuple(vertex.pushed), vertex.gather_lines)
        outputs = [plain(t) for t in vertex.pushed.values()]
        carries: list[tuple[int, Tensor, Move]] = []
        for name in vertex.gathered:
            carries.append((len(outputs), session.leaf(f"child:{name}"), Gather("src")))
            outputs.append(plain(vertex.scattered[name]))
        return Given(outputs, carries, len(vertex.pushed))
