"""FrontierLoop: a phase's loop over frontiers as instructions for native code.

Takes: the units of a phase, tensors of all rows. Gives: rows written in place; tempo: once a function; every step.
Source: Cavs section 3.2; what lives within one batch of vertices stays in the cache (scratch of a thread).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.loop_body import LoopBody, Spot
from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import EDGE, SHARED, Op, Value
from vgraph.ir.schedule import Phase, RowOrder, Schedule
from vgraph.ir.tdl import op_name
from vgraph.runtime.cpu import CpuKernel, index_tensors, pool_address
from vgraph.runtime.native import Native, call, table

KERNEL, GEMM, COPY, TAKE, PUT, GATHER = range(6)  # as in frontiers.h
CHUNK_BYTES = 1 << 19  # what a chunk of vertices touches should stay in the second cache
MOST_ROWS = 1024
FEW_CHUNKS = 4  # for which it costs more to look than to have room for all edges
CALLS = 2048  # frontiers a call: between calls Ctrl-C is heard
ALIGNMENT = 64

# What stands before the loads of a kernel: v0, v1, pool, index tensors (1), ids that loops never need.
ARGUMENTS, FIRST_INDEX, NUM_INDICES = (0, 0, 0, 1, 1, 1, 1, 1, 0, 0), 3, 5

Steps = Sequence[tuple[Unit, Any]]


@dataclass(frozen=True, eq=False)
class Window:
    """Some neighbouring frontiers, by where their rows begin and end; ``given``: values of those rows, without gaps."""

    bounds: NDArray[np.int64]
    given: Mapping[int, Tensor]

    @property
    def places(self) -> dict[int, int]:
        """Where their first rows would lie if all rows lay there."""
        first = int(self.bounds[0])
        return {i: t.data_ptr() - first * t.stride(0) * t.element_size() for i, t in self.given.items()}


@dataclass(eq=False)
class FrontierLoop:
    """A LoopBody on the CPU; ``steps``: its units, and what runs those that are kernels.

    What only a chunk of vertices needs lies in scratch.
    """

    body: LoopBody
    steps: Steps
    native: Native

    def refuse(self, env: Any, arena: Any, extents: Any) -> None:
        """There is no code in Python beside it."""
        raise AssertionError("a phase with a native loop runs as that alone")

    def __str__(self) -> str:
        steps = [f"  {u.op.target}" if u.op is not None else "  kernel" for u, _ in self.steps]
        return "\n".join([f"native loop, {len(self.body.temporary)} values in scratch", *steps]) + "\n"

    @cached_property
    def template(self) -> Template:
        """The instructions without addresses."""
        return _Writer(self).template()

    def run(
        self, env: Mapping[int, Tensor], arena: Mapping[int, Tensor], schedule: Schedule,
        windows: Iterable[Window] | None = None,
    ) -> None:  # fmt: skip
        """All frontiers of the phase's part of the schedule, in its direction; by windows, if any are given."""
        first, stop = range_of(self.body.phase, schedule)
        if first == stop:
            return
        order, slots = schedule.order, torch.get_num_threads()
        chunk = max(1, min(MOST_ROWS, CHUNK_BYTES // max(self.body.row_bytes, 1)))
        offsets, scratch_bytes = self._lay_scratch(chunk, _most_edges(schedule, order, chunk))
        given = self._given(env, arena)
        packed = [self.native.pack(given[value.id]) for value in self.template.packed]
        scratch = self.native.empty((slots * scratch_bytes + ALIGNMENT,), torch.uint8)
        aligned = -(-scratch.data_ptr() // ALIGNMENT) * ALIGNMENT
        busy, pool = np.zeros(slots, np.int32), pool_address() if slots > 1 else 0
        fixed = [self.template.num_words, order.in_ptr.data_ptr(), aligned, scratch_bytes, chunk]
        fixed += [busy.ctypes.data, slots, pool, *self.body.flops]
        places = {i: tensor.data_ptr() for i, tensor in given.items()}
        if windows is None:
            self._walk(self.template.bind(places, packed, order, offsets), fixed, first, stop, bounds_of(schedule))
            return
        for window in windows:
            code = self.template.bind({**places, **window.places}, packed, order, offsets)
            self._walk(code, fixed, 0, len(window.bounds) - 1, window.bounds)
            del window  # the next one takes its memory

    def _walk(
        self, code: NDArray[np.int64], fixed: Sequence[int], first: int, stop: int, bounds: NDArray[np.int64]
    ) -> None:
        step = 1 if stop > first else -1
        for at in range(first, stop, step * CALLS):
            until = min(stop, at + CALLS) if step > 0 else max(stop, at - CALLS)
            call(self.native.frontiers, [code.ctypes.data, *fixed, at, until, bounds.ctypes.data])

    def _given(self, env: Mapping[int, Tensor], arena: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """What lies outside of scratch, without gaps; the matrices of products may lie as they do."""
        template, found = self.template, dict[int, Tensor]()
        for value in (*template.roots, *template.packed):
            tensor = arena[value.id] if value.id in self.body.kept else env[value.id]
            found[value.id] = tensor if value.id in template.loose else tensor.contiguous()
        return found

    def _lay_scratch(self, num_vertices: int, num_edges: int) -> tuple[dict[int, int], int]:
        """Offsets of the temporary values in the scratch of a thread; its bytes."""
        offsets, end = dict[int, int](), 0
        for value, row_bytes, is_edge in self.template.temporary:
            offsets[value.id] = end
            end += -(-(num_edges if is_edge else num_vertices) * row_bytes // ALIGNMENT) * ALIGNMENT
        return offsets, max(end, ALIGNMENT)


# ---------------------------------------------------------------- once a function
@dataclass(eq=False)
class Template:
    """Instructions, then the arguments of kernels; ``*_at``: the words that a step adds its addresses to.

    ``roots`` and ``temporary``: values at whose beginnings ``root_at`` and ``scratch_at`` count, by index.
    ``loose``: ids of matrices that are packed and not otherwise read.
    """

    words: NDArray[np.int64]
    num_words: int
    roots: tuple[Value, ...]
    temporary: tuple[tuple[Value, int, bool], ...]
    packed: tuple[Value, ...]
    loose: frozenset[int]
    root_at: tuple[NDArray[np.int64], NDArray[np.int64]]  # places in words, indices of roots
    scratch_at: tuple[NDArray[np.int64], NDArray[np.int64]]
    packed_at: NDArray[np.int64]
    order_at: tuple[NDArray[np.int64], NDArray[np.int64]]  # places, which of the order's index tensors
    self_at: NDArray[np.int64]  # addresses of the words themselves

    @cached_property
    def _bases_at(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words that a step adds to, and the place of what it adds among: itself, roots, scratch, order, packed."""
        found, count = [(self.self_at, np.zeros_like(self.self_at))], 1
        for (places, which), size in (
            (self.root_at, len(self.roots)), (self.scratch_at, len(self.temporary)), (self.order_at, NUM_INDICES),
        ):  # fmt: skip
            found.append((places, which + count))
            count += size
        found.append((self.packed_at, np.arange(len(self.packed_at)) + count))
        return np.concatenate([places for places, _ in found]), np.concatenate([which for _, which in found])

    def bind(
        self, given: Mapping[int, int], packed: Sequence[Tensor], order: RowOrder, offsets: Mapping[int, int]
    ) -> NDArray[np.int64]:
        """The instructions of one step; ``given``: addresses of the first rows of roots."""
        words, (places, which) = self.words.copy(), self._bases_at
        bases = [words.ctypes.data, *(given[v.id] for v in self.roots)]
        bases += [offsets[v.id] for v, _, _ in self.temporary]
        bases += [t.data_ptr() for t in (*index_tensors(order), *packed)]
        words[places] += table(bases)[which]
        return words


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
        for unit, runner in self.loop.steps:
            if unit.kernel is not None:
                self.instruction(lambda spec=unit.kernel, runner=runner: self.kernel(spec, runner))
            elif unit.op is not None:
                self.op(unit.op)
        num_words, self_at = len(self.words), list[int]()
        for at, given in self.arguments:
            self.words[at] = 8 * len(self.words)
            self_at.append(at)
            self.write_arguments(given)
        roots = tuple(self.roots.values())
        loose = {v.id for v in self.packed} - set(self.roots)
        temporary = tuple((v, v.row_bytes, v.space == EDGE) for v in self.loop.body.temporary)
        return Template(
            table(self.words), num_words, roots, temporary, tuple(self.packed), frozenset(loose), _pairs(self.root_at),
            _pairs(self.scratch_at), table(self.packed_at), _pairs(self.order_at), table(self_at),
        )  # fmt: skip

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
        self.words += [KERNEL, _address(runner.function), 0, start + len(values), len(temporary)]
        at = len(self.words) - 3
        self.arguments.append((at, [*ARGUMENTS, *(0 if v in temporary else v for v in values)]))
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
        """Base, bytes from row to row, and kind, as in frontiers.h; a shared value repeats its one row."""
        at = self.place_of(value)
        kind, step = int(at.root.space == EDGE), 0 if at.root.space == SHARED else at.root.row_bytes
        if at.root.id in self.slots:
            self.scratch_at.append((len(self.words), self.slots[at.root.id]))
            self.words += [at.offset + more, step, kind + 2]
        else:
            self.root(at.root, at.offset + more)
            self.words += [step, kind]

    def root(self, value: Value, offset: int) -> None:
        self.roots[value.id] = value
        self.root_at.append((len(self.words), list(self.roots).index(value.id)))
        self.words.append(offset)


def _pairs(found: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return table([a for a, _ in found]), table([b for _, b in found])


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def range_of(phase: Phase, schedule: Schedule) -> tuple[int, int]:
    """The frontiers of a phase: the first, and one past the last in its direction."""
    numbers = schedule.numbers(phase.part)
    return (numbers.stop - 1, numbers.start - 1) if phase.is_reverse else (numbers.start, numbers.stop)


def bounds_of(schedule: Schedule) -> NDArray[np.int64]:
    """Where every frontier's rows begin, and where the last one's end."""
    return schedule.topology.keep(("v_ptr", schedule.policy), lambda: table([0, *(f.v1 for f in schedule.frontiers)]))


def _most_edges(schedule: Schedule, order: RowOrder, chunk: int) -> int:
    """No more in-edges have so many neighbouring vertices; of few chunks: all of them."""
    if order.in_ptr.shape[0] <= FEW_CHUNKS * chunk:
        return order.src_rows.shape[0]

    def make() -> int:
        ptr = order.in_ptr.numpy()
        return int((ptr[chunk:] - ptr[:-chunk]).max())

    return schedule.topology.keep(("most edges", schedule.policy, chunk), make)
