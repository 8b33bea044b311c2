"""Op graph: what placement knows of a Program, as arrays: seconds of every op, bytes of every tensor.

Takes: names, seconds, tensors and who reads them. Gives: an OpGraph in an order that respects dataflow. Runs once per
model. Source: depth-first placement, the profiled dataflow graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from vgraph.errors import CycleError, GraphError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OpGraph:
    """Ops in an order that respects dataflow, and the tensors that flow between them.

    ``costs`` is (kinds of devices, ops) in seconds; infinite where an op cannot run. A tensor is made by
    ``tensor_op``; a copy of it moves ``tensor_bytes``. ``tensor_root`` is the tensor whose memory it shares
    (itself, unless a view), ``tensor_kept`` says that it outlives the step, ``tensor_held`` that ``resident`` counts
    it already. ``edge_op`` reads ``edge_tensor``.
    ``resident`` are bytes that an op holds for the whole step (parameters). Ops of one ``group`` (not -1) go
    to one device.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    costs: Floats
    tensor_op: Ints
    tensor_bytes: Floats
    tensor_root: Ints
    tensor_kept: Bools
    tensor_held: Bools
    edge_tensor: Ints
    edge_op: Ints
    resident: Floats
    group: Ints

    @property
    def num_ops(self) -> int:
        return len(self.names)

    @property
    def num_edges(self) -> int:
        """Pairs of an op and a tensor that it reads."""
        return len(self.edge_op)

    @cached_property
    def mean_costs(self) -> Floats:
        """Seconds of each op, the mean over the kinds that can run it."""
        finite = np.isfinite(self.costs)
        total = np.where(finite, self.costs, 0.0).sum(0)
        return total / np.maximum(finite.sum(0), 1)

    @cached_property
    def op_bytes(self) -> Floats:
        """Bytes that each op allocates for its results; a view allocates none."""
        is_own = (self.tensor_root == np.arange(len(self.tensor_op))) & ~self.tensor_held
        own = np.where(is_own, self.tensor_bytes, 0.0)
        return np.bincount(self.tensor_op, own, self.num_ops).astype(np.float64)

    @cached_property
    def op_edges(self) -> tuple[Ints, Ints, Floats]:
        """Source op, destination op and bytes of every edge; an op that reads two tensors of one has two."""
        return self.tensor_op[self.edge_tensor], self.edge_op, self.tensor_bytes[self.edge_tensor]

    @cached_property
    def successors(self) -> list[list[tuple[int, float]]]:
        """For each op who reads its results, and how many bytes."""
        return _adjacency(self.num_ops, *self.op_edges)

    @cached_property
    def predecessors(self) -> list[list[tuple[int, float]]]:
        """For each op whose results it reads, and how many bytes."""
        source, target, size = self.op_edges
        return _adjacency(self.num_ops, target, source, size)

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The ops of each group that must stay together."""
        found: dict[int, list[int]] = {}
        for op, group in enumerate(self.group.tolist()):
            if group >= 0:
                found.setdefault(group, []).append(op)
        return found


def _adjacency(num_ops: int, owner: Ints, other: Ints, size: Floats) -> list[list[tuple[int, float]]]:
    lists: list[list[tuple[int, float]]] = [[] for _ in range(num_ops)]
    for a, b, bytes_ in zip(owner.tolist(), other.tolist(), size.tolist(), strict=True):
        lists[a].append((b, bytes_))
    return lists


@dataclass
class OpGraphBuilder:
    """Collects ops and tensors in any order; ``build`` checks and sorts them.

    >>> draft = OpGraphBuilder(("cpu",))
    >>> x = draft.add_op("x", [0.0])
    >>> y = draft.add_op("y", [2e-3], reads=[draft.add_tensor(x, 4096)])
    >>> draft.build().names
    ('x', 'y')
    """

    kinds: tuple[str, ...]
    names: list[str] = field(default_factory=list[str])
    costs: list[Sequence[float]] = field(default_factory=list[Sequence[float]])
    resident: list[float] = field(default_factory=list[float])
    tensors: list[tuple[int, float, int, bool, bool]] = field(default_factory=list[tuple[int, float, int, bool, bool]])
    edges: dict[tuple[int, int], None] = field(default_factory=dict[tuple[int, int], None])
    colocated: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add_op(self, name: str, seconds: Sequence[float], reads: Iterable[int] = (), resident: float = 0.0) -> int:
        """An op that takes ``seconds`` on each kind of device and reads tensors; gives its number."""
        self.names.append(name)
        self.costs.append(seconds)
        self.resident.append(resident)
        op = len(self.names) - 1
        for tensor in reads:
            self.add_read(op, tensor)
        return op

    def add_tensor(
        self, op: int, num_bytes: float, root: int | None = None, kept: bool = False, held: bool = False
    ) -> int:
        """A result of ``op``; gives its number. ``root``: the tensor that it is a view of."""
        self.tensors.append((op, float(num_bytes), len(self.tensors) if root is None else root, kept, held))
        return len(self.tensors) - 1

    def add_read(self, op: int, tensor: int) -> None:
        """``op`` reads ``tensor``; twice is once."""
        self.edges[tensor, op] = None

    def keep_together(self, op: int, other: int) -> None:
        """Both ops go to one device."""
        self.colocated.append((op, other))

    def build(self) -> OpGraph:
        """The graph, sorted.

        Raises:
            CycleError: ops that wait for one another.
            GraphError: a name twice, seconds that are negative or infinite everywhere.
        """
        self._check()
        makers = [tensor[0] for tensor in self.tensors]
        order = sort_ops(self.names, [(makers[t], op) for t, op in self.edges])
        place = {op: i for i, op in enumerate(order)}
        tensors, edges = np.array(makers, dtype=np.int64), np.array(list(self.edges), dtype=np.int64).reshape(-1, 2)
        moved = np.array([place[i] for i in range(len(order))], dtype=np.int64)
        roots = np.array([t[2] for t in self.tensors], dtype=np.int64)
        return OpGraph(
            names=tuple(self.names[i] for i in order),
            kinds=self.kinds,
            costs=np.array([self.costs[i] for i in order], dtype=np.float64).reshape(len(order), len(self.kinds)).T,
            tensor_op=moved[tensors] if len(tensors) else tensors,
            tensor_bytes=np.array([t[1] for t in self.tensors], dtype=np.float64),
            tensor_root=_follow(roots),
            tensor_kept=np.array([t[3] for t in self.tensors], dtype=np.bool_),
            tensor_held=np.array([t[4] for t in self.tensors], dtype=np.bool_),
            edge_tensor=edges[:, 0],
            edge_op=moved[edges[:, 1]] if len(edges) else edges[:, 1],
            resident=np.array([self.resident[i] for i in order], dtype=np.float64),
            group=_groups(len(order), [(place[a], place[b]) for a, b in self.colocated]),
        )

    def _check(self) -> None:
        if len(set(self.names)) != len(self.names):
            seen: set[str] = set()
            twice = next(name for name in self.names if name in seen or seen.add(name))
            raise GraphError(f"two operators are called {twice!r}", cure="give every operator its own name")
        for name, seconds in zip(self.names, self.costs, strict=True):
            if len(seconds) != len(self.kinds) or not min(seconds) >= 0 or min(seconds) == float("inf"):
                raise GraphError(
                    f"operator {name!r} takes {list(seconds)} seconds on {list(self.kinds)}",
                    cure="give one number from 0 a kind of device; infinite where it cannot run, but not everywhere",
                )


def _follow(roots: Ints) -> Ints:
    """The first tensor of every chain of views."""
    while len(roots) and not np.array_equal(roots, further := roots[roots]):
        roots = further
    return roots


def sort_ops(names: Sequence[str], edges: Sequence[tuple[int, int]]) -> list[int]:
    """An order that respects the edges and else keeps the given one as far as it goes.

    Raises:
        CycleError: there is none; names the ops of a cycle.
    """
    after: list[list[int]] = [[] for _ in names]
    missing = [0] * len(names)
    for a, b in edges:
        after[a].append(b)
        missing[b] += 1
    if all(a < b for a, b in edges):
        return list(range(len(names)))
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        op = ready.pop()
        order.append(op)
        for other in reversed(after[op]):
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(order) < len(names):
        cycle = _find_cycle({i for i, count in enumerate(missing) if count}, edges)
        shown = " -> ".join(names[i] for i in [*cycle[:8], *([cycle[0]] if len(cycle) <= 8 else [])])
        more = "" if len(cycle) <= 8 else f" ... {len(cycle)} operators"
        raise CycleError(
            f"operators wait for one another: {shown}{more}", cycle=cycle, cure="remove an edge of the cycle"
        )
    return order


def _find_cycle(left: set[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """Every op that is left waits for another one that is: following that must come round."""
    waits: Mapping[int, int] = {b: a for a, b in edges if a in left and b in left}
    op, trail = next(iter(waits)), dict[int, int]()
    while op not in trail:
        trail[op] = len(trail)
        op = waits[op]
    return list(trail)[trail[op] :][::-1]


def root_of(parent: list[int], op: int) -> int:
    """What stands for the set that an op is in; the way there becomes shorter."""
    while parent[op] != op:
        parent[op] = op = parent[parent[op]]
    return op


def _groups(num_ops: int, pairs: Iterable[tuple[int, int]]) -> Ints:
    """Connected components of the pairs, numbered; -1 for ops in none."""
    parent = list(range(num_ops))
    find = partial(root_of, parent)
    touched: set[int] = set()
    for a, b in pairs:
        touched |= {a, b}
        parent[max(find(a), find(b))] = min(find(a), find(b))
    numbers: dict[int, int] = {}
    return np.array(
        [numbers.setdefault(find(op), len(numbers)) if op in touched else -1 for op in range(num_ops)], dtype=np.int64
    )
