"""DeviceFrontiers: a loop over frontiers on a GPU, launch by launch or in one.

Takes: tensors of all rows, a Schedule. Gives: rows written in place. Runs at every step.
Source: Cavs section 3.2; a walk is one launch whose blocks keep the matrices and wait for one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vgraph import config
from vgraph.ir import hubs as hub_rows
from vgraph.ir.hubs import Hubs
from vgraph.ir.loop_body import HubKernel, LoopBody, LoopOnDevice, Product, Section, Walk
from vgraph.ir.program import Value
from vgraph.ir.schedule import Frontier, Schedule
from vgraph.ir.space import EDGE, SHARED
from vgraph.ir.upload import send
from vgraph.runtime.cpu.frontier_loop import range_of
from vgraph.runtime.cpu.kernels import index_tensors
from vgraph.runtime.cuda.driver import Launch
from vgraph.runtime.cuda.kernel import aligned, launch_hubs, place_of, run_hubs

logger = logging.getLogger("vgraph")
_ALIGNMENT = 64  # bytes of a value that one frontier alone needs
_MOST_BLOCKS = 1 << 20
ROWS_OF_GROUP = 16  # of a frontier, that are worth a group of blocks of their own
Limits = Callable[[torch.device], tuple[int, int]]  # blocks that are resident together, bytes of a block's own memory


@dataclass(frozen=True)
class Share:
    """How a walk is divided: ``groups`` share out rows, ``slices`` columns; ``room``: bytes a block, and where."""

    groups: int
    slices: int
    room: int
    places: tuple[tuple[int, int], ...]  # of every product: bytes ahead of its matrix, columns a slice
    scratch: int


def share_out(walk: Walk, mean_rows: float, blocks: int, most_room: int) -> Share | None:
    """As few slices as let the matrices fit into a block's own memory; None: they never do."""
    for slices in range(1, blocks + 1):
        places, end = list[tuple[int, int]](), 0
        for product in walk.products:
            k, n = (int(size) for size in product.right.shape if isinstance(size, int))
            columns = -(-n // slices)
            places.append((end, columns))
            end += -(-k * columns * product.right.dtype.itemsize // 16) * 16
        if end + walk.room_bytes <= most_room:
            groups = min(max(1, round(mean_rows / ROWS_OF_GROUP)), blocks // slices)
            return Share(groups, slices, end + walk.room_bytes, tuple(places), end)
    return None


@dataclass(eq=False)
class DeviceFrontiers:
    """All frontiers in one launch where that is asked for and the matrices fit."""

    loop: LoopOnDevice
    functions: Mapping[str, Launch]
    limits: Limits

    @property
    def body(self) -> LoopBody:
        return self.loop.body

    def __str__(self) -> str:
        sections = sum(isinstance(step, Section) for step in self.loop.steps)
        products = len(self.loop.steps) - sections
        return (
            f"loop on a GPU: one launch for all frontiers, or {sections} kernels and {products} products a frontier\n"
        )

    def run(self, env: Mapping[int, Tensor], arena: Mapping[int, Tensor], schedule: Schedule) -> None:
        """All frontiers of the phase's part of the schedule, in its direction."""
        first, stop = range_of(self.body.phase, schedule)
        if first == stop:
            return
        call = _Call(self, env, arena, schedule, first, stop)
        if not (config.walks() and abs(stop - first) > 1 and not self._has_hubs(call) and self._walk(call)):
            self._step(call)

    def _has_hubs(self, call: _Call) -> bool:
        """Whether a row has so many edges that several teams must share it, which those of a walk do not."""
        low, high = call.rows
        sections = [step for step in self.loop.steps if isinstance(step, Section)]
        found = call.hubs is not None and any(call.hubs.between(low, high, s.pointers) for s in sections)
        if found:
            logger.info("a loop over frontiers is launched frontier by frontier: a vertex has very many edges")
        return found

    # ------------------------------------------------------------ all in one launch
    def _walk(self, call: _Call) -> bool:
        walk, device = self.loop.walk, call.device
        mean = call.num_rows / abs(call.stop - call.first)
        share = None if walk is None else share_out(walk, mean, *self.limits(device))
        if walk is None or share is None:
            logger.info("a loop over frontiers is launched frontier by frontier: its matrices do not fit a block")
            return False
        arrived = torch.zeros(1, dtype=torch.int32, device=device)
        step = 1 if call.stop > call.first else -1
        words = [call.v_ptr.data_ptr(), call.first, call.stop, step, share.slices, arrived.data_ptr(), share.scratch]
        for product, (at, columns) in zip(walk.products, share.places, strict=True):
            matrix = call.tensor(product.right)
            words += [at, columns, matrix.data_ptr(), *matrix.stride()]
        words += call.words(walk.roots)
        grid = (share.groups * share.slices, 1, 1)
        self.functions[walk.entry.name](grid, (walk.entry.threads, 1, 1), words, share.room, grid[0] > 1)
        return True

    # ------------------------------------------------------------ launch by launch
    def _step(self, call: _Call) -> None:
        frontiers = call.schedule.frontiers
        is_wide = call.num_edges / max(call.num_rows, 1)
        launches: list[Any] = []
        for step in self.loop.steps:
            if isinstance(step, Section):
                entry = step.wide if step.wide is not None and is_wide > step.most_narrow else step.narrow
                launches.append((step, entry, call.words(step.roots)))
            else:
                launches.append(step)
        for number in range(call.first, call.stop, 1 if call.stop > call.first else -1):
            f = frontiers[number]
            if f.v0 == f.v1:
                continue
            for step in launches:
                if isinstance(step, Product):
                    call.multiply(step, (f.e0, f.e1) if step.is_on_edges else (f.v0, f.v1))
                    continue
                section, entry, words = step
                hubs = call.hubs and call.hubs.between(f.v0, f.v1, section.pointers)
                if hubs:
                    self._run_hubs(call, section, f, hubs, words)
                    if len(hubs) == f.v1 - f.v0:
                        continue
                teams = entry.threads // entry.team
                grid = (min(-(-(f.v1 - f.v0) // teams), _MOST_BLOCKS), 1, 1)
                head = [f.v0, f.v1 - f.v0, f.e0, hub_rows.MOST_EDGES if hubs else 0]
                self.functions[entry.name](grid, (entry.threads, 1, 1), [*head, *words])

    def _run_hubs(self, call: _Call, section: Section, f: Frontier, found: range, words: list[int]) -> None:
        """A frontier's rows of very many edges, piece by piece; ``words``: of the section."""
        hubs = call.hubs
        assert hubs is not None
        for piece in section.hubs:
            if isinstance(piece, HubKernel):
                values = (*piece.spec.loads, *piece.spec.stores)
                given = [*call.index_words, *(call.address(value, f) for value in values)]
                run_hubs(piece.loop, self.functions, hubs, found, given)
                continue
            chunks = hubs.chunks[piece.step.pointer]
            first, stop = chunks.ends[found.start], chunks.ends[found.stop]
            head = [f.v0, stop - first, f.e0, hubs.rows.data_ptr(), place_of(chunks.hubs, first)]
            head += [place_of(chunks.starts, first), hub_rows.CHUNK]
            launch_hubs(piece.step, self.functions, stop - first, [*head, *words])


@dataclass(eq=False)
class _Call:
    """One run: where everything lies."""

    owner: DeviceFrontiers
    env: Mapping[int, Tensor]
    arena: Mapping[int, Tensor]
    schedule: Schedule
    first: int
    stop: int

    def __post_init__(self) -> None:
        self.device = self.schedule.order.src_rows.device
        self.given = dict[int, Tensor]()
        self.temporary = {v.id for v in self.owner.body.temporary}

    @cached_property
    def hubs(self) -> Hubs | None:
        """Rows of very many edges, if a section has a way of its own for them."""
        steps = self.owner.loop.steps
        has_way = any(isinstance(step, Section) and step.hubs for step in steps)
        return self.schedule.order.read_hubs() if has_way else None

    @property
    def rows(self) -> tuple[int, int]:
        """All rows of the loop."""
        low, high = min(self.first, self.stop + 1), max(self.first + 1, self.stop)
        return self.schedule.frontiers[low].v0, self.schedule.frontiers[high - 1].v1

    @cached_property
    def v_ptr(self) -> Tensor:
        return self.schedule.v_ptr

    @cached_property
    def _ends(self) -> tuple[int, int, int, int]:
        """All rows and edges, and the most of one frontier."""
        low, high = min(self.first, self.stop + 1), max(self.first + 1, self.stop)
        found = self.schedule.frontiers[low:high]
        rows, edges = [f.v1 - f.v0 for f in found], [f.e1 - f.e0 for f in found]
        return sum(rows), sum(edges), max(rows), max(edges)

    @property
    def num_rows(self) -> int:
        return self._ends[0]

    @property
    def num_edges(self) -> int:
        return self._ends[1]

    def tensor(self, value: Value) -> Tensor:
        """Rows of all vertices or edges; those that one frontier alone needs, of one frontier."""
        if value.id not in self.given:
            self.given[value.id] = self._room(value) if value.id in self.temporary else self._found(value)
        return self.given[value.id]

    def _found(self, value: Value) -> Tensor:
        tensor = self.arena[value.id] if value.id in self.owner.body.kept else self.env[value.id]
        return tensor if tensor.dim() else send(tensor, self.device)  # single numbers may lie on the CPU

    def _room(self, value: Value) -> Tensor:
        count = self._ends[3 if value.space == EDGE else 2]
        return torch.empty((count, *value.row_shape), dtype=value.dtype, device=self.device)

    def words(self, roots: Sequence[Value]) -> list[int]:
        """The addresses of the index tensors, then of rows."""
        for value in roots:
            self.given[value.id] = aligned(self.tensor(value))
        return [*self.index_words, *(self.given[v.id].data_ptr() for v in roots)]

    @cached_property
    def index_words(self) -> list[int]:
        return [*(t.data_ptr() for t in index_tensors(self.schedule.order)), 0, 0]

    def address(self, value: Value, f: Frontier) -> int:
        """Where row 0 of a value lies, or would lie, seen from a frontier; after ``words`` of its root."""
        spot = self.owner.body.place(value)
        start = self.given[spot.root.id].data_ptr() + spot.offset
        if spot.root.id not in self.temporary or spot.root.space == SHARED:
            return start
        return start - (f.e0 if spot.root.space == EDGE else f.v0) * spot.root.row_bytes

    def multiply(self, product: Product, rows: tuple[int, int]) -> None:
        left, out = self._rows(product.left, rows), self._rows(product.result, rows)
        right = self.tensor(product.right)
        if product.bias is None:
            torch.mm(left, right, out=out)
        else:
            torch.addmm(self.tensor(product.bias), left, right, out=out)

    def _rows(self, value: Value, rows: tuple[int, int]) -> Tensor:
        spot = self.owner.body.place(value)
        whole = self.tensor(spot.root)
        if spot.root.space == SHARED:
            return whole
        if spot.root.id in self.temporary:
            rows = (0, rows[1] - rows[0])
        part = whole[rows[0] : rows[1]]
        if spot.root is value:
            return part
        start = spot.offset // value.dtype.itemsize
        return part.flatten(1)[:, start : start + value.row_bytes // value.dtype.itemsize]
