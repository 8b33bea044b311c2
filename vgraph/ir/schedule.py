"""Schedule: in which order rows are evaluated, and where they lie.

Takes: nothing (plain values). Gives: Frontier, RowOrder, Schedule. Runs once per topology.
Source: Cavs section 3.2 (batching policy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias
from weakref import ReferenceType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.hubs import Hubs, find_hubs
from vgraph.ir.program import Op
from vgraph.ir.topology import Topology, short_order
from vgraph.ir.upload import pack, send

LEAVES_PART, INNER_PART = "leaves", "inner"
_forms: dict[tuple[object, ...], int] = {}
# Where the rows of each key and their in-edges begin, and where the last end; in-degrees that rows share.
Bounds: TypeAlias = tuple[list[int], list[int], list[int | None]]

MANY = 1 << 20  # edges: what few of their readers ask for is sorted anew rather than kept
LOOK_AHEAD = 32  # elements behind a tensor of 32-bit rows that may be read, though they mean nothing
_PACKED = ("vertex_ids", "vertex_rows", "edge_ids", "src_rows", "in_ptr", "out_ptr", "out_edges", "out_dst")
MOST_SHORT = 2**31 - LOOK_AHEAD  # more edges than that have rows of 64 bits


class Frontier(NamedTuple):
    """Vertices [v0, v1) and their in-edges [e0, e1), as rows; ``degree`` if all have the same."""

    v0: int
    v1: int
    e0: int
    e1: int
    degree: int | None

    @property
    def batch_size(self) -> int:
        return self.v1 - self.v0


@dataclass(eq=False)
class RowOrder:
    """Where vertices and edges lie: row r holds vertex ``vertex_ids[r]``; None: the user's order.

    Edges lie in order of their destination's row, then of edge id, so that a vertex's in-edges
    and a frontier's in-edges are contiguous. ``src_rows``, ``dst_rows``: (edges,); ``in_ptr``,
    ``out_ptr``: (vertices + 1,); ``out_edges``: edge rows grouped by source row. Rows of edges, and of
    vertices by edge, are int32 with LOOK_AHEAD elements of room behind them, unless there are more than
    MOST_SHORT edges; pointers are int64. No tensor is made before it is asked for: ``find`` gives one by its name,
    None where rows lie in the user's order and where it is made of the others here. ``host``: the same on the CPU,
    where this lies on another device and came from there. ``is_read``: whether its numbers, and not only how many
    there are, were read on the CPU. ``addresses``: of what kernels read, where no tensor need be made of it;
    ``indices``: the tensors that were. A copy lies in memory of its own and has neither, nor ``moved``.
    """

    find: Callable[[str], Tensor | None]
    host: RowOrder | None = None
    is_read: bool = False
    addresses: tuple[int, ...] | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("addresses", "indices", "moved")}

    @cached_property
    def is_grouped(self) -> bool:
        """Whether rows of edges lie in the user's order."""
        return self.edge_ids is None

    @cached_property
    def indices(self) -> dict[str, Tensor]:
        """Index tensors by name, as kernels read them."""
        return {}

    @cached_property
    def moved(self) -> dict[tuple[object, ...], Any]:
        """What ``runtime/moved_rows.py`` keeps of rows of edges that are given again and again."""
        return {}

    def _have(self, name: str) -> Tensor:
        found = self.find(name)
        assert found is not None, f"a row order has no {name}"
        return found

    @cached_property
    def vertex_ids(self) -> Tensor | None:
        return self.find("vertex_ids")

    @cached_property
    def vertex_rows(self) -> Tensor | None:
        return self.find("vertex_rows")

    @cached_property
    def edge_ids(self) -> Tensor | None:
        """The edge of every edge row."""
        return self.find("edge_ids")

    @cached_property
    def src_rows(self) -> Tensor:
        return self._have("src_rows")

    @cached_property
    def in_ptr(self) -> Tensor:
        return self._have("in_ptr")

    @cached_property
    def out_ptr(self) -> Tensor:
        return self._have("out_ptr")

    def most(self, pointer: str) -> int:
        """No row has more edges: a power of two, so that many orders agree."""
        ptr = getattr(self.host or self, pointer).cpu()
        return 1 << (int((ptr[1:] - ptr[:-1]).max()) - 1).bit_length() if ptr.shape[0] > 1 and ptr[-1] else 0

    def pointer_on_host(self, name: str) -> Tensor:
        """``in_ptr`` or ``out_ptr`` on the CPU; waited for where it came from nowhere else."""
        self.is_read = True
        return getattr(self.host or self, name).cpu()

    @cached_property
    def hubs(self) -> Hubs | None:
        """Rows of very many in- or out-edges, of an order by which loops run; None: there are none."""
        pointers = {name: self.pointer_on_host(name) for name in ("in_ptr", "out_ptr") if getattr(self, name).numel()}
        found, device = find_hubs(pointers), self.in_ptr.device
        return found if found is None or device.type == "cpu" else found.at(pack(found.tensors, device)[1])

    def read_hubs(self) -> Hubs | None:
        """``hubs``, by whose number launches are made."""
        self.is_read |= self.hubs is not None
        return self.hubs

    @cached_property
    def edge_rows(self) -> Tensor | None:
        """The row of every edge in the user's order."""
        if self.edge_ids is None:
            return None
        rows = torch.empty_like(self.edge_ids)
        places = torch.arange(rows.shape[0], dtype=rows.dtype, device=rows.device)
        return rows.index_copy_(0, self.edge_ids.long(), places)

    @cached_property
    def dst_rows(self) -> Tensor:
        return self.make_dst_rows()

    @cached_property
    def out_edges(self) -> Tensor:
        found = self.find("out_edges")
        return self._sorted_by_source() if found is None else found

    @cached_property
    def out_dst(self) -> Tensor:
        """The destination row of each of ``out_edges``, which are not kept where they are many."""
        known = self.find("out_dst")
        if known is not None:
            return known
        is_kept = "out_edges" in vars(self) or self.src_rows.shape[0] < MANY
        dst_rows, edges = self.make_dst_rows(), self.out_edges if is_kept else self._sorted_by_source()
        if dst_rows.device.type != "cpu" or dst_rows.dtype != torch.int32:
            return dst_rows.index_select(0, edges)
        return torch.index_select(dst_rows, 0, edges, out=room_for_rows(edges.shape[0]))

    def _sorted_by_source(self) -> Tensor:
        if not self.out_ptr.shape[0]:  # not of a part
            return self.src_rows.new_zeros(0)
        return with_room(short_order(self.src_rows.cpu().numpy(), self.out_ptr.shape[0] - 1))

    def make_dst_rows(self) -> Tensor:
        """``dst_rows``, not kept."""
        found = self.find("dst_rows")
        if found is not None:
            return found
        counts = self.in_ptr[1:] - self.in_ptr[:-1]
        rows = torch.arange(counts.shape[0], dtype=self.src_rows.dtype, device=counts.device)
        return torch.repeat_interleave(rows, counts, output_size=self.src_rows.shape[0])


@dataclass(frozen=True, eq=False)
class Leveled:
    """The level of every vertex, (vertices,); the rows by level and their frontiers, where they were found with it."""

    levels: NDArray[np.int32]
    order: RowOrder | None = None
    bounds: Bounds | None = None

    @property
    def leaf_ids(self) -> NDArray[np.int64]:
        """The vertices of level 0, in order."""
        if self.order is None or self.bounds is None or not len(self.levels):
            return np.flatnonzero(self.levels == 0)
        count, ids = self.bounds[0][1], self.order.vertex_ids
        return np.arange(count) if ids is None else ids[:count].numpy()


def with_room(rows: NDArray[np.integer]) -> Tensor:
    """Rows of 32 bits where they suffice, with room behind them for kernels that look ahead."""
    if len(rows) >= MOST_SHORT:
        return torch.from_numpy(rows)
    made = room_for_rows(len(rows))
    made.numpy()[:] = rows
    return made


def room_for_rows(count: int) -> Tensor:
    """Room for so many rows of 32 bits, with zeros behind them."""
    made = np.empty(count + LOOK_AHEAD, np.int32)
    made[count:] = 0
    return torch.from_numpy(made)[:count]


@dataclass(frozen=True, eq=False)
class Part:
    """The vertices of one type and their in-edges, in the row order of all.

    ``vertex_rows``, ``edge_rows``: where they lie among all rows. ``order`` and ``frontiers`` count
    rows of the part alone, one frontier for each of the schedule's.
    """

    order: RowOrder
    frontiers: tuple[Frontier, ...]
    vertex_rows: Tensor
    edge_rows: Tensor


@dataclass(eq=False)
class Schedule:
    """The frontiers of a topology under one policy, in order of evaluation, and the row order.

    A topology keeps its schedules, so that a schedule holds its topology but weakly (``of``): index tensors of a
    graph that is gone would else wait for the garbage collector. ``buffer``: in which all index tensors lie, where
    they came in one copy.
    """

    of: ReferenceType[Topology]
    policy: str
    order: RowOrder
    frontiers: tuple[Frontier, ...]
    parts: Mapping[str, Part] = field(default_factory=dict[str, Part])
    kinds: tuple[str, ...] = ()  # with parts: the type of every frontier's vertices
    buffer: Tensor | None = None

    @property
    def topology(self) -> Topology:
        """Whose frontiers they are; whoever runs them has it."""
        topology = self.of()
        assert topology is not None, "a topology lives as long as its schedules are used"
        return topology

    @cached_property
    def v_ptr(self) -> Tensor:
        """Where every frontier begins, and where the last one ends, beside the other index tensors; int64."""
        return send(torch.tensor([0, *(f.v1 for f in self.frontiers)], device="cpu"), self.order.in_ptr.device)

    def on(self, device: torch.device) -> Schedule:
        """The same for a topology on another device: all index tensors in one copy that nobody waits for."""
        if device.type == "cpu":
            return self
        return self._packed(device, self.order)

    def _packed(self, device: torch.device, host: RowOrder | None) -> Schedule:
        tensors, hubs = self._tensors, self._hubs
        buffer, found = pack([*tensors.values(), *(hubs.tensors if hubs else ())], device)
        here = dict(zip(tensors, found, strict=False))
        made = replace(self, order=RowOrder(here.get, host), buffer=buffer)
        made.v_ptr = here["v_ptr"]
        if len(self.frontiers) > 1:
            made.order.hubs = hubs and hubs.at(found[len(tensors) :])
        return made

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """All index tensors but those of hubs, by name."""
        known = {"v_ptr": self.v_ptr} | {name: getattr(self.order, name) for name in _PACKED}
        return {name: tensor for name, tensor in known.items() if tensor is not None}

    @property
    def _hubs(self) -> Hubs | None:
        return self.order.hubs if len(self.frontiers) > 1 else None

    # ------------------------------------------------------------ recordings
    @cached_property
    def form(self) -> int:
        """A number that schedules share where all that is sized by rows has the same sizes."""
        t = self.topology
        kinds = tuple((name, tensor.dtype) for name, tensor in self._tensors.items())
        sizes = None if self._hubs is None else tuple(len(tensor) for tensor in self._hubs.tensors)
        words = (self.policy, t.num_src, t.num_dst, t.num_edges, t.graph_sizes, kinds, sizes, self.frontiers)
        words = (*words, *map(self.order.most, ("in_ptr", "out_ptr")))
        return _forms.setdefault(words, len(_forms))

    def twin(self) -> Schedule:
        """The same in memory of its own, from which nothing was derived yet; see ``refill`` and ``is_read``."""
        return self._packed(self.order.src_rows.device, self.order.host or self.order)

    @property
    def is_read(self) -> bool:
        """Whether a twin's numbers, and not only how many there are, were read on the CPU."""
        return self.order.is_read

    def refill(self, other: Schedule) -> None:
        """The numbers of another schedule of the same form."""
        if self.buffer is not None and other.buffer is not None:
            self.buffer.copy_(other.buffer)
            return
        theirs = other._tensors
        for name, tensor in self._tensors.items():
            tensor.copy_(theirs[name])
        if self._hubs is not None and other._hubs is not None:
            for mine, its in zip(self._hubs.tensors, other._hubs.tensors, strict=True):
                mine.copy_(its)

    @property
    def num_leaf_frontiers(self) -> int:
        """Frontiers whose vertices have no in-edges; they come first."""
        return next((i for i, f in enumerate(self.frontiers) if f.degree != 0), len(self.frontiers))

    @property
    def num_leaves(self) -> int:
        """Rows of vertices without in-edges; they come first where rows follow frontiers."""
        return self.frontiers[number - 1].v1 if (number := self.num_leaf_frontiers) else 0

    def frontier_ranges(self, part: str) -> list[tuple[str, FrontierRange]]:
        """The frontiers of a phase's part as runs of one type of vertices each."""
        numbers, kinds = self.numbers(part), self.kinds
        runs = [(kind, list(run)) for kind, run in groupby(numbers, key=kinds.__getitem__)]
        whole = {f.name: getattr(self, f.name) for f in fields(Schedule)}
        return [(kind, FrontierRange(**whole, only=range(run[0], run[-1] + 1))) for kind, run in runs]

    @cached_property
    def inner_degree(self) -> int | None:
        """The in-degree of all vertices that have any, if there is only one."""
        found = {f.degree for f in self.frontiers[self.num_leaf_frontiers :]}
        return found.pop() if len(found) == 1 else None

    def numbers(self, part: str) -> range:
        """The frontiers of a phase's part."""
        first, last = 0, len(self.frontiers)
        if part == LEAVES_PART:
            last = self.num_leaf_frontiers
        elif part == INNER_PART:
            first = self.num_leaf_frontiers
        return range(first, last)


@dataclass(eq=False)
class FrontierRange(Schedule):
    """A schedule of which loops run some neighbouring frontiers alone."""

    only: range = range(0)

    def numbers(self, part: str) -> range:
        return self.only


@dataclass(frozen=True, eq=False)
class Phase:
    """Ops that run together: once over all rows, or frontier by frontier.

    ``is_reverse``: walks the frontiers from the last to the first; ``is_serial``: an op of it is
    not described by TDL, so it runs on one vertex at a time. ``part``: of a loop, only the frontiers
    without in-edges (LEAVES_PART), only the others (INNER_PART), or all (""). ``kind``: of a loop, only the
    frontiers of vertices of this type; the loops of the other types stand beside it and take turns with it.
    ``is_chunked``: it may run on some vertices with their in-edges at a time; what it makes of sources or of
    all rows is then added up.
    """

    ops: tuple[Op, ...]
    is_loop: bool
    is_reverse: bool = False
    is_serial: bool = False
    part: str = ""
    kind: str = ""
    is_chunked: bool = False
