"""CompiledProgram: phases as code, run on a plan.

Takes: tensors in the user's order. Gives: tensors in the user's order. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress, count

import torch
from torch import Tensor

from vgraph import config
from vgraph.ir.loop_body import in_user_order
from vgraph.ir.memory import Lifetime, MemoryPlan, Stacks
from vgraph.ir.program import Input, Program, Rows, Value
from vgraph.ir.schedule import FrontierRange, Phase, Schedule
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.ir.tdl.table import may_share
from vgraph.ir.topology import Topology
from vgraph.runtime.arena_rows import ArenaRows, CallValues, Form, forms_of
from vgraph.runtime.call_rows import CallContext, CallRows, has_order
from vgraph.runtime.chunks import MOST_BYTES, Chunk, ChunkedCode, chunked_code, chunks_of
from vgraph.runtime.cpu.frontier_loop import FrontierLoop
from vgraph.runtime.cpu.kernels import Empty
from vgraph.runtime.cuda import driver as cuda
from vgraph.runtime.cuda.cuda_graphs import CudaGraphs
from vgraph.runtime.cuda.side_stream import SideStream
from vgraph.runtime.in_memory import as_recorded, in_memory
from vgraph.runtime.moved_rows import MovedRows, are_many
from vgraph.runtime.outcome import Lease, Outcome
from vgraph.runtime.python_codegen import PhaseCode
from vgraph.runtime.ready import Outputs, Ready, ReadyForm
from vgraph.runtime.user_rows import UserRows
from vgraph.runtime.windows import Ahead, Windows, choose_windows, find_ahead

_ONCE = Phase((), is_loop=False)
READY, _MOST_READY = "ready", 64  # under which they are kept with a topology, and how many
_numbers = count()
_NO_ARENA: Mapping[int, Tensor] = {}
MOST_DEGREES = 4  # in-degrees for which there is code of their own


@dataclass(frozen=True, eq=False)
class Plan:
    """What is known of one Program on one topology before any feature is seen; memory when it is asked for."""

    schedule: Schedule
    plan_memory: Callable[[], MemoryPlan]

    @cached_property
    def memory(self) -> MemoryPlan:
        return self.plan_memory()


@dataclass(eq=False)
class CompiledProgram:
    """A Program ready to run on any topology.

    The first ``num_outputs`` outputs are given in the user's order (those of ``in_rows`` as rows
    lie), in memory of their own; the rest as they were stored, valid while the lease is held.
    """

    program: Program
    phases: tuple[Phase, ...]
    phase_ranges: Sequence[range]  # phases that run one after the other; several of one range take turns
    codes: tuple[PhaseCode, ...]
    user_rows: UserRows  # what those move from and to the user's order
    num_outputs: int
    in_rows: frozenset[int]
    stored: tuple[Value, ...]  # what loops write, slice by slice
    lifetimes: Mapping[int, Lifetime]
    zero_at_leaves: frozenset[int]  # ids of values
    reads_at_leaves: frozenset[int]
    make_plan: Callable[[CompiledProgram, CallContext], Plan]
    order_once: Callable[[Topology], Schedule]  # the schedule of what runs once, which is no matter of the Program
    lease: Callable[[int, torch.device], Lease]
    empty: Empty
    moved_rows: MovedRows
    device: str  # the kind of device that its kernels run on
    inner_degree: int | None  # the only one of vertices that are no leaves, on all topologies that it runs on
    varies: bool  # there may be better code for those
    make_for: Callable[[str, int | None], CompiledProgram]
    number: int = field(default_factory=lambda: next(_numbers), init=False)  # of this process alone

    @cached_property
    def _others(self) -> dict[tuple[str, int | None], CompiledProgram]:
        return {}

    def on(self, device: str, inner_degree: int | None = None) -> CompiledProgram:
        """The same with kernels for another kind of device, or with torch's operators where that has none.

        ``inner_degree``: for topologies where all vertices but leaves have this many in-edges.
        """
        key = (device, inner_degree)
        if key not in self._others:
            self._others[key] = self.make_for(*key)
        return self._others[key]

    @cached_property
    def stacks(self) -> Stacks:
        """What plans of memory on many topologies have in common."""
        return {}

    @cached_property
    def _forms(self) -> Mapping[int, Form]:
        return forms_of(self.stored)

    @cached_property
    def has_kernels(self) -> bool:
        return any(code.units for code in self.codes)

    @cached_property
    def _calls_no_library(self) -> bool:
        """Whether kernels are all that runs, which autocast does not reach."""
        return all(code.units and all(unit.op is None for unit in code.units) for code in self.codes)

    def __call__(self, inputs: Mapping[str, Tensor], call_context: CallContext) -> Outcome:
        """Runs every phase; ``inputs`` by name, those that the topology gives left out."""
        known = call_context.topology.kept.get(READY)
        ready = None if known is None else known.get((self.number, call_context.policy))
        is_whole = not call_context.subsets and call_context.types is None
        if is_whole and (self._calls_no_library or not torch.is_autocast_enabled("cpu")):
            if ready is None and self._needs_no_plan(call_context):
                ready = self._keep_ready(self.order_once(call_context.topology), call_context.policy)
            if ready is not None:
                return self._run_ready(ready, inputs, call_context)
        device = call_context.topology.device
        with cuda.on(device), as_recorded(device.type):
            return self._call({name: in_memory(tensor) for name, tensor in inputs.items()}, call_context)

    def _call(self, inputs: Mapping[str, Tensor], call_context: CallContext) -> Outcome:
        device = call_context.topology.device
        if device.type != self.device:
            return self.on(device.type, self.inner_degree)(inputs, call_context)
        plan = self.make_plan(self, call_context)
        if self.varies and call_context.types is None:
            degree = plan.schedule.inner_degree
            if degree is not None and degree <= MOST_DEGREES:
                return self.on(self.device, degree)(inputs, call_context)
        record = cuda.recorder(self.device)
        if record is not None and self._can_be_recorded(call_context, plan.schedule):

            def evaluate(given: Mapping[str, Tensor], schedule: Schedule) -> Outcome:
                return self._evaluate(given, call_context, Plan(schedule, lambda: plan.memory))

            outcome = self._cuda_graphs.call(record, inputs, plan.schedule, evaluate)
            if outcome is not None:
                return outcome
        return self._evaluate(inputs, call_context, plan)

    @cached_property
    def _cuda_graphs(self) -> CudaGraphs:
        return CudaGraphs()

    @staticmethod
    def _can_be_recorded(call_context: CallContext, schedule: Schedule) -> bool:
        """Not what draws random numbers, knows vertices by type or some by id, or runs once, perhaps in chunks."""
        plain = not call_context.subsets and call_context.types is None and call_context.seed is None
        return plain and schedule.policy != "once" and not call_context.topology.original_ids

    def _evaluate(self, inputs: Mapping[str, Tensor], call_context: CallContext, plan: Plan) -> Outcome:
        device = call_context.topology.device
        rows = CallRows(plan.schedule, call_context, self.moved_rows)
        if self._has_no_loop and plan.schedule.policy == "once":
            return self._run_once(inputs, rows)
        env, kept = self._brought_in(inputs, rows, self._inputs_by_order)
        self._in_user_order(env, inputs, plan.schedule)
        lease = self.lease(plan.memory.num_bytes, device) if plan.memory.num_bytes else None
        buffer = lease.buffer[: plan.memory.num_bytes] if lease else torch.empty(0, dtype=torch.uint8, device="cpu")
        arena = ArenaRows(self._forms, plan.memory, buffer)
        env = CallValues(env, arena)
        windows = choose_windows(self._ahead, plan.schedule)
        side_stream = cuda.two_streams(device) if len(self.phase_ranges) > 1 else None
        for number, (phase_range, last_read) in enumerate(zip(self.phase_ranges, self._last_reads, strict=True)):
            with self._stream_of(number, env, arena, side_stream):
                self._run_phases(phase_range, env, arena, rows, windows)
            if side_stream is not None:
                env.update((i, arena[i]) for index in phase_range for i in self.codes[index].stores if i in arena)
            for i in last_read - kept:  # what the caller gave is compared with what it gets
                env.pop(i, None)
        if side_stream is not None:
            side_stream.finish(env[v.id] for v in self.program.outputs if v is not None)
        return self._outcome(env, rows, lease)

    @staticmethod
    def _brought_in(
        inputs: Mapping[str, Tensor], rows: CallRows, read: tuple[list[tuple[int, str]], list[Input]]
    ) -> tuple[dict[int, Tensor], set[int]]:
        """Inputs by id, as rows lie; and the ids of those that are the caller's own tensors."""
        as_given, others = read
        env = {value_id: inputs[name] for value_id, name in as_given}
        kept = set(env)
        for item in others:
            env[item.value.id] = tensor = rows.bring_in(item, inputs)
            if tensor is inputs.get(item.name):
                kept.add(item.value.id)
        return env, kept

    @cached_property
    def _has_no_loop(self) -> bool:
        """So that there is no arena and no window, and phases run one after the other; a GPU may have two streams."""
        return self.device == "cpu" and not any(phase.is_loop or phase.kind for phase in self.phases)

    @cached_property
    def _inputs_of_once(self) -> tuple[list[tuple[int, str]], list[Input]]:
        """As ``_inputs_by_order``, where vertices lie in the user's order."""
        as_given, others = self._inputs_by_order
        is_moved = [item.is_topological or item.value.space == EDGE for item in others]
        of_vertices = [(i.value.id, i.name) for i, moved in zip(others, is_moved, strict=True) if not moved]
        return [*as_given, *of_vertices], list(compress(others, is_moved))

    @cached_property
    def _has_one_way(self) -> bool:
        """Whether nothing of a topology decides how it runs, but whether edges lie in order."""
        return self._has_no_loop and not self.varies and not any(phase.is_chunked for phase in self.phases)

    def _needs_no_plan(self, call_context: CallContext) -> bool:
        on_cpu = call_context.topology.device.type == "cpu"
        return on_cpu and call_context.policy == "once" and self._has_one_way

    def _run_ready(self, ready: Ready, inputs: Mapping[str, Tensor], call_context: CallContext) -> Outcome:
        env: dict[int, Tensor] = {}
        if ready.form.others:
            rows = self._rows_on(call_context)
            env = {item.value.id: rows.bring_in(item, inputs) for item in ready.form.others}
        return ready.run(inputs, env) or self._outcome(env, self._rows_on(call_context), None)

    def _rows_on(self, call_context: CallContext) -> CallRows:
        schedule = (
            self.order_once(call_context.topology)
            if self._needs_no_plan(call_context)
            else self.make_plan(self, call_context).schedule
        )
        return CallRows(schedule, call_context, self.moved_rows)

    def _keep_ready(self, schedule: Schedule, policy: str) -> Ready:
        """What calls on this topology have in common."""
        known = schedule.topology.keep(READY, dict[tuple[int, str], Ready])
        if len(known) >= _MOST_READY:
            known.clear()  # functions come and go, the graph stays
        is_grouped = schedule.order.is_grouped
        form = self._forms_of_once.get(is_grouped)
        if form is None:
            form = self._forms_of_once[is_grouped] = self._make_form(is_grouped)
        order, outputs = schedule.order, form.outputs
        moves = order if form.moved and (not is_grouped or are_many(schedule.topology.num_edges)) else None
        edge_rows = order.edge_rows if outputs is not None and outputs.moved else None
        ready = known[self.number, policy] = Ready(form, moves, edge_rows, CallRows.of_all(schedule))
        return ready

    @cached_property
    def _forms_of_once(self) -> dict[bool, ReadyForm]:
        return {}

    def _make_form(self, is_grouped: bool) -> ReadyForm:
        """``is_grouped``: whether rows of edges lie in the user's order."""
        as_given, others = self._inputs_of_once
        of_rows = [(item.value.id, item.name) for item in others if not item.is_topological]
        own = [*as_given, *of_rows] if is_grouped else as_given
        kept = {value_id for value_id, _ in own}  # what the caller gave is compared with what it gets
        turns = [
            (self.codes[phase_range[0]].run, tuple(last_read - kept))
            for phase_range, last_read in zip(self.phase_ranges, self._last_reads, strict=True)
        ]
        topological = [item for item in others if item.is_topological]
        outputs = self._outputs_as_they_lie(is_grouped)
        return ReadyForm(as_given, of_rows, topological, turns, outputs, self.moved_rows)

    def _outputs_as_they_lie(self, is_grouped: bool) -> Outputs | None:
        """Where results are, if none but whole rows of edges must be moved, or copied to memory of its own."""
        values = self.program.outputs
        given, saved = values[: self.num_outputs], values[self.num_outputs :]
        shared, moved = dict[int, int](), set[int]()
        for i, value in enumerate(given):
            if value is None:
                continue
            if i not in self.in_rows and not is_grouped and value.space == EDGE:
                if value.row_dim != 0 or value.shape[0] != Rows(EDGE):
                    return None
                moved.add(i)
            elif not (self._is_apart[i] or self._sharers[i]):
                return None
            else:
                shared.update(dict.fromkeys(self._sharers[i], i))
        return Outputs(
            tuple([None if v is None else v.id for v in given]),
            tuple([v.id for v in saved if v is not None]),
            shared,
            frozenset(moved),
        )

    def _run_once(self, inputs: Mapping[str, Tensor], rows: CallRows) -> Outcome:
        call_context = rows.call_context
        first = [phase_range[0] for phase_range in self.phase_ranges]
        in_chunks = any(self.phases[i].is_chunked and self._chunks_of(i, rows.schedule) for i in first)
        if not (in_chunks or call_context.subsets or call_context.types is not None):
            ready = self._keep_ready(rows.schedule, call_context.policy)
            return self._run_ready(ready, inputs, call_context)
        env, kept = self._brought_in(inputs, rows, self._inputs_of_once)
        extents = rows.extents(_ONCE)
        for phase_range, last_read in zip(self.phase_ranges, self._last_reads, strict=True):
            index = phase_range[0]
            if not (self.phases[index].is_chunked and self._run_in_chunks(index, env, rows.schedule)):
                self.codes[index].run(env, _NO_ARENA, extents)
            for i in last_read - kept:
                env.pop(i, None)
        return self._outcome(env, rows, None)

    def _in_user_order(self, env: dict[int, Tensor], inputs: Mapping[str, Tensor], schedule: Schedule) -> None:
        """What loops move themselves: inputs as they are given, and room for outputs."""
        for item in self.user_rows.ins:
            env[in_user_order(item.value.id)] = inputs[item.name].contiguous()
        for value in self.user_rows.outs:
            env[in_user_order(value.id)] = self.empty((schedule.topology.num_dst, *value.row_shape), value.dtype)

    def _run_phases(
        self, phase_range: range, env: dict[int, Tensor], arena: ArenaRows, rows: CallRows, windows: Windows | None
    ) -> None:
        first, whole = self.phases[phase_range[0]], partial(rows.extents, _ONCE)
        if first.kind:
            self._interleave(phase_range, env, arena, rows)
        elif windows is not None and phase_range[0] in windows.ahead:
            windows.begin(phase_range[0], env, whole())
        elif (loop := self.codes[phase_range[0]].loop) is not None:
            parts = None if windows is None else windows.of_loop(phase_range[0], first, whole())
            if parts is not None and isinstance(loop, FrontierLoop):
                loop.run(env, arena, rows.schedule, parts)
            else:
                loop.run(env, arena, rows.schedule)
        elif not (first.is_chunked and self._run_in_chunks(phase_range[0], env, rows.schedule)):
            self.codes[phase_range[0]].run(env, arena, rows.extents(first))

    def _stream_of(
        self,
        number: int,
        env: Mapping[int, Tensor],
        arena: Mapping[int, Tensor],
        side_stream: SideStream | None,
    ) -> AbstractContextManager[None]:
        """Where a turn's work goes, if there are two streams."""
        if side_stream is None:
            return nullcontext()
        reads, makes = self._traffic[number]
        is_loop = self.phases[self.phase_ranges[number][0]].is_loop
        return side_stream.phase(is_loop=is_loop, reads=reads, makes=makes, env=env, arena=set(arena))

    @cached_property
    def _ahead(self) -> dict[int, Ahead]:
        given = {v.id for v in self.program.outputs if v is not None} | {c.source.id for c in self.program.carries}
        saves = len(self.program.outputs) > self.num_outputs
        return {} if saves or not config.windows_enabled() else find_ahead(self.phases, self.codes, given)

    @cached_property
    def _traffic(self) -> list[tuple[set[int], set[int]]]:
        """For every turn: ids of what it reads, and of what it makes."""
        found: list[tuple[set[int], set[int]]] = []
        for phase_range in self.phase_ranges:
            reads = {i for index in phase_range for i in self.codes[index].reads}
            found.append((reads, {v.id for index in phase_range for op in self.phases[index].ops for v in op.results}))
        return found

    def _run_in_chunks(self, index: int, env: dict[int, Tensor], schedule: Schedule) -> bool:
        """Whether there are edges enough for more than one chunk, which have run then.

        Not where loops follow or went before: those read and make rows of all edges anyway.
        """
        chunks, topology = self._chunks_of(index, schedule), schedule.topology

        def count(space: Space) -> int:
            return topology.num_dst if space == VERTEX else topology.num_edges

        if chunks is None:
            return False
        self._chunked[index].run(env, chunks, self.empty, count)
        return True

    def _chunks_of(self, index: int, schedule: Schedule) -> list[Chunk] | None:
        """Those in which a phase runs; None: it has all edges at once."""
        if schedule.policy != "once":
            return None

        def schedule_of(part: Topology) -> Schedule:
            return self.make_plan(self, CallContext(part, schedule.policy, {})).schedule

        return chunks_of(schedule, max(1, MOST_BYTES // max(self._chunked[index].row_bytes, 1)), schedule_of)

    @cached_property
    def _chunked(self) -> dict[int, ChunkedCode]:
        pairs = enumerate(zip(self.phases, self.codes, strict=True))
        return {index: chunked_code(phase, code) for index, (phase, code) in pairs if phase.is_chunked}

    @cached_property
    def _last_reads(self) -> list[set[int]]:
        """For every turn: ids of what nothing reads after it."""
        seen, found = {v.id for v in self.program.outputs if v is not None}, list[set[int]]()
        for phase_range in reversed(self.phase_ranges):
            found.append({i for index in phase_range for i in self.codes[index].reads} - seen)
            seen |= found[-1]
        return found[::-1]

    def _interleave(self, phase_range: range, env: dict[int, Tensor], arena: ArenaRows, rows: CallRows) -> None:
        """Loops of one type of vertices each, as frontiers of their types follow one another."""
        first = self.phases[phase_range[0]]
        codes = {self.phases[index].kind: self.codes[index] for index in phase_range}
        in_python = any(code.loop is None for code in codes.values())
        extents = rows.extents(replace(first, is_reverse=False)) if in_python else []
        schedule = rows.schedule
        start = schedule.numbers(first.part).start
        key = ("stretches", schedule, first.part)
        frontier_ranges = schedule.topology.keep(key, lambda: schedule.frontier_ranges(first.part))
        for kind, frontier_range in frontier_ranges[::-1] if first.is_reverse else frontier_ranges:
            code = codes.get(kind)
            if code is None:  # vertices of this type do nothing
                self._leave_zeros(phase_range, arena, frontier_range)
            elif code.loop is not None:
                code.loop.run(env, arena, frontier_range)
            else:
                mine = extents[frontier_range.only.start - start : frontier_range.only.stop - start]
                code.run(env, arena, mine[::-1] if first.is_reverse else mine)

    def _leave_zeros(self, phase_range: range, arena: ArenaRows, frontier_range: FrontierRange) -> None:
        first, last = (frontier_range.frontiers[i] for i in (frontier_range.only[0], frontier_range.only[-1]))
        for value in self.stored:
            if value.row_dim == 0 and any(value.id in self.codes[index].stores for index in phase_range):
                is_edge = value.space.kind == "edge"
                rows = slice(first.e0, last.e1) if is_edge else slice(first.v0, last.v1)
                arena[value.id][rows].zero_()

    @cached_property
    def _read_inputs(self) -> tuple[Input, ...]:
        """Kernels compute for themselves what they can tell from the topology."""
        read = {i for code in self.codes for i in code.reads} | {v.id for v in self.program.outputs if v is not None}
        moved = {item.value.id for item in self.user_rows.ins}
        inputs = [item for item in self.program.inputs if item.value.id not in moved]
        return tuple(item for item in inputs if item.value.id in read or not item.is_topological)

    @cached_property
    def _inputs_by_order(self) -> tuple[list[tuple[int, str]], list[Input]]:
        """Those that are read as they are given, as id and name, and the others."""
        is_given = [not item.is_topological and not has_order(item) for item in self._read_inputs]
        as_given = [(item.value.id, item.name) for item in compress(self._read_inputs, is_given)]
        return as_given, [item for item, given in zip(self._read_inputs, is_given, strict=True) if not given]

    @cached_property
    def _roots(self) -> list[int | None]:
        """Of each output, what it is or is a view of, if that has memory of its own, whatever the topology."""
        once = [op for phase in self.phases if not phase.is_loop for op in phase.ops]
        kernels = [unit.kernel for code in self.codes for unit in code.units if unit.kernel is not None]
        written = {v.id for kernel in kernels for v in kernel.stores}  # to room of its own, whatever the op
        shares = [(v.id, op.args[0]) for op in once if may_share(op) for v in op.results if v.id not in written]
        bases = {value_id: operand.id for value_id, operand in shares if isinstance(operand, Value)}
        fresh = {v.id for op in once for v in op.results}.difference(value_id for value_id, _ in shares)
        roots = [None if v is None else _root(v.id, bases) for v in self.program.outputs]
        return [root if root in fresh else None for root in roots]

    @cached_property
    def _is_apart(self) -> tuple[bool, ...]:
        """Of each output, whether it lies in memory that nothing else has."""
        return tuple(root is not None and self._roots.count(root) == 1 for root in self._roots[: self.num_outputs])

    @cached_property
    def _sharers(self) -> tuple[list[int], ...]:
        """Of each output, the saved values that may lie in its memory, which no other output has."""
        given, saved = self._roots[: self.num_outputs], self._roots[self.num_outputs :]
        if self.program.carries:  # states are outputs, too
            return tuple([] for _ in given)
        alone = [root is not None and given.count(root) == 1 for root in given]
        places = enumerate(given)
        return tuple([j for j, other in enumerate(saved) if alone[i] and other == root] for i, root in places)

    def _outcome(self, env: Mapping[int, Tensor], rows: CallRows, lease: Lease | None) -> Outcome:
        values = self.program.outputs
        saved = [env[v.id] for v in values[self.num_outputs :] if v is not None]
        taken: set[int] | None = None  # memory that a result must not lie in
        given, shared = list[Tensor | None](), dict[int, int]()
        for i, value in enumerate(values[: self.num_outputs]):
            if value is None:
                given.append(None)
                continue
            moved = env.get(in_user_order(value.id))
            if moved is not None:
                given.append(moved)
                continue
            tensor = rows.bring_out(value, env[value.id], permute=i not in self.in_rows)
            if tensor.is_sparse:  # the gradient of an embedding, whose rows may lie in the arena
                given.append(tensor.clone())
                continue
            is_moved = tensor is not env[value.id]  # into another order
            if not is_moved and tensor.is_contiguous():
                shared.update(dict.fromkeys(self._sharers[i], i))
            is_apart = self._is_apart[i] or is_moved or i in shared.values()
            if not (is_apart and tensor.is_contiguous()):
                taken = self._memory_in_use(env, saved, lease, given) if taken is None else taken
                if _memory(tensor) in taken or not tensor.is_contiguous():
                    tensor = rows.copied(tensor)  # memory of its own: the caller may write to it
            if taken is not None:
                taken.add(_memory(tensor))
            given.append(tensor)
        return Outcome(given, saved, lease, shared)

    def _memory_in_use(
        self, env: Mapping[int, Tensor], saved: Sequence[Tensor], lease: Lease | None, given: Sequence[Tensor | None]
    ) -> set[int]:
        read = [env[i.value.id] for i in self._read_inputs if i.value.id in env]
        leased = [] if lease is None else [lease.buffer]
        return set(map(_memory, (*read, *saved, *leased, *(t for t in given if t is not None))))


def _root(value_id: int, bases: Mapping[int, int]) -> int:
    """The value that this one is a view of."""
    while value_id in bases:
        value_id = bases[value_id]
    return value_id


def _memory(tensor: Tensor) -> int:
    is_sparse = tensor.layout != torch.strided  # which holds its elements in other tensors
    return id(tensor) if is_sparse else tensor.untyped_storage().data_ptr()
