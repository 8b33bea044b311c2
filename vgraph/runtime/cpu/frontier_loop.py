"""FrontierLoop: a phase's loop over frontiers as instructions for native code.

Takes: the units of a phase, tensors of all rows. Gives: rows written in place. Runs once per function. Every step.
Source: Cavs section 3.2; what lives within one batch of vertices stays in the cache (scratch of a thread).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.loop_body import LoopBody, Spot, in_user_order
from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.schedule import LEAVES_PART, Phase, Schedule
from vgraph.ir.space import EDGE, SHARED
from vgraph.runtime.arena_rows import ArenaRows
from vgraph.runtime.cpu.kernels import CpuKernel, first_line, index_addresses, no_memory, pool_address
from vgraph.runtime.cpu.loop_template import Template
from vgraph.runtime.cpu.native import Native, address_of, call, table

KERNEL, GEMM, COPY, TAKE, PUT, GATHER, USER = range(7)  # as in frontiers.h
CHUNK_BYTES = 1 << 19  # what a chunk of vertices touches should stay in the second cache
MOST_ROWS = 1024
MOST_SLOTS = 512  # threads, as in frontiers.h
CALLS = 2048  # frontiers a call: between calls Ctrl-C is heard
ALIGNMENT = 64

# What stands before the loads of a kernel: v0, v1, pool, index tensors (1), ids that loops never need.
ARGUMENTS, FIRST_INDEX = (0, 0, 0, 1, 1, 1, 1, 1, 0, 0), 3
VERTEX_IDS = 5  # behind the index tensors of kernels

Steps = Sequence[tuple[Unit, object]]


@dataclass(frozen=True, eq=False)
class Window:
    """Some neighbouring frontiers, by where their rows begin and end; ``given``: values of those rows, without gaps."""

    bounds: NDArray[np.int64]
    given: Mapping[int, Tensor]

    @property
    def places(self) -> dict[int, int]:
        """Where their first rows would lie if all rows lay there.

        Bytes of a row are those of its numbers: what torch calls the stride of a single row may be any.
        """
        first = int(self.bounds[0])
        return {i: t.data_ptr() - first * t.shape[1:].numel() * t.element_size() for i, t in self.given.items()}


@dataclass(eq=False)
class FrontierLoop:
    """A LoopBody on the CPU; ``steps``: its units, and what runs those that are kernels.

    What only a chunk of vertices needs lies in scratch.
    """

    body: LoopBody
    steps: Steps
    native: Native
    _layout: Layout | None = None

    def __str__(self) -> str:
        steps = [f"  {u.op.target}" if u.op is not None else "  kernel" for u, _ in self.steps]
        return "\n".join([f"native loop, {len(self.body.temporary)} values in scratch", *steps]) + "\n"

    @cached_property
    def template(self) -> Template:
        """The instructions without addresses."""
        return _Writer(self).template()

    @cached_property
    def chunk(self) -> int:
        """Vertices at most that a thread evaluates at once.

        Every chunk reads all matrices: one that touches less than they take up would wait for them most of the time.
        """
        matrices = sum(math.prod(value.row_shape) * value.dtype.itemsize for value in self.template.packed)
        return max(1, min(MOST_ROWS, max(CHUNK_BYTES, matrices // 2) // max(self.body.row_bytes, 1)))

    def run(
        self,
        env: Mapping[int, Tensor],
        arena: ArenaRows,
        schedule: Schedule,
        windows: Iterable[Window] | None = None,
    ) -> None:
        """All frontiers of the phase's part of the schedule, in its direction; by windows, if any are given."""
        first, stop = range_of(self.body.phase, schedule)
        if first == stop:
            return
        index, template, slots = (
            index_addresses(schedule.order),
            self.template,
            min(torch.get_num_threads(), MOST_SLOTS),
        )
        lay = self._lay(_most_edges(self.body.phase, schedule, self.chunk))
        held, addresses = self._given(env, arena)
        size = lay.scratch + slots * lay.scratch_bytes + ALIGNMENT
        # What makes a window takes the room that threads keep.
        room = self.native.room(size) if windows is None else self.native.empty((size,), torch.uint8)
        start = -(-room.data_ptr() // ALIGNMENT) * ALIGNMENT
        if template.packed:
            self.native.pack(held[: len(lay.packed)], [start + place for place in lay.packed])
        bases = [start, *addresses, *lay.offsets]
        bases += [*index, *(start + place for place in lay.packed)]
        fixed = [start, template.num_words, index[0], start + lay.scratch, lay.scratch_bytes, self.chunk]
        fixed += [slots, pool_address() if slots > 1 else 0, *self.body.flops]
        if windows is None:
            self._walk(bases, fixed, first, stop, bounds_of(schedule))
            return
        numbers = {value.id: i for i, value in enumerate(template.roots, start=1)}
        for window in windows:
            for value_id, place in window.places.items():
                if value_id in numbers:
                    bases[numbers[value_id]] = place
            self._walk(bases, fixed, 0, len(window.bounds) - 1, window.bounds)
            del window  # the next one takes its memory

    def _walk(
        self, bases: Sequence[int], fixed: Sequence[int], first: int, stop: int, bounds: NDArray[np.int64]
    ) -> None:
        call(self.native.bind, [*self.template.patches, *bases])
        step, v_ptr = 1 if stop > first else -1, bounds.ctypes.data
        for at in range(first, stop, step * CALLS):
            until = min(stop, at + CALLS) if step > 0 else max(stop, at - CALLS)
            if not call(self.native.frontiers, [*fixed, at, until, v_ptr]):
                specs = (unit.kernel for unit, _ in self.steps if unit.kernel is not None)
                raise no_memory("a kernel", first_line(op for spec in specs for op in spec.ops))

    def _given(self, env: Mapping[int, Tensor], arena: ArenaRows) -> tuple[list[Tensor], list[int]]:
        """Matrices that are packed, as they lie; and what must outlive the call; addresses of roots, without gaps."""
        kept = [arena[i] if is_kept else env[i] for i, is_kept in self.template.packed_from]
        addresses = list[int]()
        for value_id, is_kept in self.template.roots_from:
            if is_kept:
                addresses.append(arena.address(value_id))
                continue
            tensor = env[value_id]
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                kept.append(tensor)
            addresses.append(tensor.data_ptr())
        return kept, addresses

    def _lay(self, num_edges: int) -> Layout:
        """Where all of a call's own memory lies; ``num_edges``: of a chunk."""
        known = self._layout  # read once: another thread may put that of a call of other size in its place
        if known is not None and known.num_edges == num_edges:
            return known
        template, at, packed = self.template, _aligned(8 * self.template.words.size), list[int]()
        for value in template.packed:
            packed.append(at)
            k, n = value.row_shape
            at += _aligned(k * self.native.packed_bytes_of(n, value.dtype.itemsize))
        offsets, end = list[int](), _aligned(8 * template.most_arguments)
        for _, row_bytes, is_edge in template.temporary:
            offsets.append(end)
            end += _aligned((num_edges if is_edge else self.chunk) * row_bytes)
        made = self._layout = Layout(num_edges, packed, at, offsets, max(end, ALIGNMENT))
        return made


class Layout(NamedTuple):
    """Of a call's own memory: instructions, packed matrices at ``packed``, from ``scratch`` on each thread's scratch.

    ``offsets``: of temporary values in the scratch of a thread, behind the arguments of its kernel; it has room for
    ``num_edges``.
    """

    num_edges: int
    packed: list[int]
    scratch: int
    offsets: list[int]
    scratch_bytes: int


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


# ---------------------------------------------------------------- once a function
@dataclass(eq=False)
class _Writer:
    """Writes words, and notes where addresses belong."""

    loop: FrontierLoop
    words: list[int] = field(default_factory=list[int])
    roots: dict[int, Value] = field(default_factory=dict[int, Value])
    packed: list[Value] = field(default_factory=list[Value])
    root_at: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scratch_at: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    order_at: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    packed_at: list[int] = field(default_factory=list[int])
    arguments: list[tuple[int, list[Value | int]]] = field(default_factory=list[tuple[int, list["Value | int"]]])

    def __post_init__(self) -> None:
        self.slots = {v.id: i for i, v in enumerate(self.loop.body.temporary)}

    def template(self) -> Template:
        for value in self.loop.body.ins:
            self.in_user_order(value, is_out=False)
        for unit, runner in self.loop.steps:
            if unit.kernel is not None:
                assert isinstance(runner, CpuKernel)
                self.instruction(lambda spec=unit.kernel, runner=runner: self.kernel(spec, runner))
            elif unit.op is not None:
                self.op(unit.op)
        for value in self.loop.body.outs:
            self.in_user_order(value, is_out=True)
        num_words, self_at = len(self.words), list[int]()
        for at, given in self.arguments:
            self.words[at] = 8 * len(self.words)
            self_at.append(at)
            self.write_arguments(given)
        roots = tuple(self.roots.values())
        temporary = tuple((v, v.row_bytes, v.space == EDGE) for v in self.loop.body.temporary)
        return Template(
            words=table(self.words),
            num_words=num_words,
            roots=roots,
            temporary=temporary,
            packed=tuple(self.packed),
            kept=self.loop.body.kept,
            root_at=_pairs(self.root_at),
            scratch_at=_pairs(self.scratch_at),
            packed_at=table(self.packed_at),
            order_at=_pairs(self.order_at),
            self_at=table(self_at),
            most_arguments=max((len(given) for _, given in self.arguments), default=0),
        )

    def instruction(self, write: Callable[[], None]) -> None:
        """A first word of kind and length, then what ``write`` writes."""
        start = len(self.words)
        write()
        self.words[start] |= (len(self.words) - start) << 8

    # ------------------------------------------------------------ instructions
    def op(self, op: Op) -> None:
        name, result = op_name(op.target), op.results[0]
        edges = int(result.space == EDGE)
        if name in ("mm", "addmm"):
            self.instruction(lambda: self.product(op))
        elif name == "cat":
            offset = 0
            for value in op.args[0]:
                self.copy([COPY, edges, value.row_bytes], value, result, offset)
                offset += value.row_bytes
        elif name == "expand":
            self.copy([COPY, edges, result.row_bytes], op.args[0], result)
        elif isinstance(op.target, Gather) and op.target.end in ("src", "dst"):
            head = len(self.words) + 3
            self.copy([GATHER, int(op.target.end == "src"), result.row_bytes, 0], op.args[0], result)
            self.order_at.append((head, 1))
        elif isinstance(op.target, (TakeSlot, PutSlot)):
            kind = TAKE if isinstance(op.target, TakeSlot) else PUT
            self.copy([kind, op.target.k, result.row_bytes], op.args[0], result)

    def copy(self, head: list[int], source: Value, result: Value, offset: int = 0) -> None:
        def write() -> None:
            self.words.extend(head)
            self.place(source)
            self.place(result, offset)

        self.instruction(write)

    def in_user_order(self, value: Value, *, is_out: bool) -> None:
        head = len(self.words) + 3
        other = replace(value, id=in_user_order(value.id))
        self.copy([USER, int(is_out), value.row_bytes, 0], value, other)
        self.order_at.append((head, VERTEX_IDS))

    def product(self, op: Op) -> None:
        *bias, left, right = op.args
        result, (k, n) = op.results[0], right.shape
        self.words += [GEMM, int(result.space == EDGE), n, k]
        self.packed_at.append(len(self.words))
        self.packed.append(right)
        self.words.append(0)
        if bias:
            self.root(bias[0], 0)
        else:
            self.words.append(0)
        self.words += [0, result.dtype.itemsize]
        self.place(left)
        self.place(result)

    def kernel(self, spec: KernelSpec, runner: CpuKernel) -> None:
        values = (*spec.loads, *spec.stores)
        start, temporary = len(ARGUMENTS), [v for v in values if self.place_of(v).root.id in self.slots]
        apart = [0] * runner.num_more_words  # in a frontier rows stay where they are
        self.words += [KERNEL, address_of(runner.function), 0, start + len(values) + len(apart), len(temporary)]
        at = len(self.words) - 3
        self.arguments.append((at, [*ARGUMENTS, *(0 if v in temporary else v for v in values), *apart]))
        for number, value in enumerate(values, start=start):
            if value in temporary:
                self.words.append(number)
                self.place(value)

    def write_arguments(self, given: Sequence[Value | int]) -> None:
        for number, value in enumerate(given):
            if isinstance(value, Value):
                self.root(self.place_of(value).root, self.place_of(value).offset)
            else:
                if value:
                    self.order_at.append((len(self.words), number - FIRST_INDEX))
                self.words.append(0)

    # ------------------------------------------------------------ where values lie
    def place_of(self, value: Value) -> Spot:
        return self.loop.body.place(value)

    def place(self, value: Value, more: int = 0) -> None:
        """Base, bytes from row to row, kind, and bytes of a row of the root, as in frontiers.h.

        A shared value repeats its one row. Rows of edges may lie in rows of vertices, and the other way round.
        """
        at = self.place_of(value)
        kind, row_bytes = int(at.root.space == EDGE), 0 if at.root.space == SHARED else at.root.row_bytes
        is_across = row_bytes > 0 and (value.space == EDGE) != (at.root.space == EDGE)
        step = value.row_bytes if is_across else row_bytes
        if at.root.id in self.slots:
            self.scratch_at.append((len(self.words), self.slots[at.root.id]))
            self.words += [at.offset + more, step, kind + 2, row_bytes]
        else:
            self.root(at.root, at.offset + more)
            self.words += [step, kind, row_bytes]

    def root(self, value: Value, offset: int) -> None:
        self.roots[value.id] = value
        self.root_at.append((len(self.words), list(self.roots).index(value.id)))
        self.words.append(offset)


def _pairs(found: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return table([a for a, _ in found]), table([b for _, b in found])


def range_of(phase: Phase, schedule: Schedule) -> tuple[int, int]:
    """The frontiers of a phase: the first, and one past the last in its direction."""
    numbers = schedule.numbers(phase.part)
    return (numbers.stop - 1, numbers.start - 1) if phase.is_reverse else (numbers.start, numbers.stop)


def bounds_of(schedule: Schedule) -> NDArray[np.int64]:
    """Where every frontier's rows begin, and where the last one's end."""
    return schedule.topology.keep(("v_ptr", schedule.policy), lambda: table([0, *(f.v1 for f in schedule.frontiers)]))


def _most_edges(phase: Phase, schedule: Schedule, chunk: int) -> int:
    """No more in-edges have so many neighbouring vertices; where the in-degree is known, what it gives."""
    if phase.part == LEAVES_PART:
        return 0
    degree, order = schedule.inner_degree, schedule.order
    if degree is not None:
        return min(degree * chunk, order.src_rows.shape[0])

    def make() -> int:
        ptr = order.in_ptr.numpy()
        return int((ptr[chunk:] - ptr[:-chunk]).max()) if len(ptr) > chunk else int(ptr[-1])

    return schedule.topology.keep(("most edges", schedule.policy, chunk), make)
