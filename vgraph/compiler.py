"""The whole pipeline on one page: Program -> CompiledProgram.

A user's function was captured as a `Program` (api). From there on nothing knows the user, and each
line below is one stage; every stage reads what the ones before it made and none imports another.

    once a function    phases   what must go frontier by frontier, what runs once over all rows
                       kernels  groups of ops as one loop over vertices, edges and features
                       code     each phase as one straight function over kernels and torch operators
    once a topology    levels   when each vertex can be evaluated (children first)
                       order    rows renumbered so that every frontier is one contiguous slice
                       schedule the frontiers: vertex slice, edge slice, common in-degree
                       memory   a DynamicTensor in one arena for all that frontiers write
    every step         run      CompiledProgram(inputs, situation), inside one autograd.Function

Backward Programs, and theirs, come the same way: see passes/joint.py and runtime/autograd.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, ParamSpec
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph import config
from vgraph.background import Beginning, at_once, in_background
from vgraph.fusion.cpu.build import build_kernels
from vgraph.fusion.cpu.emit import emit_kernels
from vgraph.fusion.cpu.known_specs import find_known, remember
from vgraph.fusion.cuda.build import build_cubin
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.fusion.cuda.persistent_loop import emit_loop
from vgraph.fusion.grouping import PhaseGrouping, begin_grouping, group_ops
from vgraph.fusion.kernel_cache import warn
from vgraph.fusion.reduction import emit_reduction, emit_reduction_cuda
from vgraph.fusion.rows_ahead import join_rows_ahead
from vgraph.ir.cost import is_product
from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.loop_body import LoopOnDevice
from vgraph.ir.memory import Lifetime, MemoryPlan
from vgraph.ir.printer import log_stage
from vgraph.ir.program import Program, Reduction, RowSum
from vgraph.ir.reduction import DeviceShape
from vgraph.ir.schedule import MANY, MOST_SHORT, Leveled, Phase, Schedule
from vgraph.ir.topology import Topology
from vgraph.memory.liveness import in_turns, lifetimes
from vgraph.memory.plan import plan_memory
from vgraph.memory.row_order import build_row_order, group_edges
from vgraph.native_part import arenas, begin_native, empty, load_native
from vgraph.passes.join_once import join_once
from vgraph.passes.share_equal import share_equal
from vgraph.passes.share_sigmoids import share_sigmoids
from vgraph.passes.tidy import constants_on, on_device
from vgraph.passes.widen_products import widen_products
from vgraph.runtime.call_rows import CallContext, VertexTypes
from vgraph.runtime.compiled import CompiledProgram, Plan
from vgraph.runtime.cpu.frontier_loop import FrontierLoop
from vgraph.runtime.cpu.kernels import CpuKernel
from vgraph.runtime.cpu.loop_plan import ON_DEVICE, plan_body, plan_loop
from vgraph.runtime.cpu.native import Native
from vgraph.runtime.cuda import driver as cuda
from vgraph.runtime.cuda.frontier_loop import DeviceFrontiers
from vgraph.runtime.cuda.kernel import DeviceKernel
from vgraph.runtime.moved_rows import MovedRows
from vgraph.runtime.python_codegen import PhaseCode, Step, compile_phase, reads_whole, run_nothing
from vgraph.runtime.reductions.cuda import bind_device
from vgraph.runtime.reductions.reduction import Bind, CompiledReduction, bind_cpu
from vgraph.runtime.reductions.row_sums import runs_row_sums
from vgraph.runtime.user_rows import move_in_loops, values_in_loops
from vgraph.scheduler.all_slots import join_slots
from vgraph.scheduler.build import build_schedule
from vgraph.scheduler.chunks import split_edge_rows
from vgraph.scheduler.degrees import depends_on_degree, read_at_leaves, unread_in
from vgraph.scheduler.frontiers import Levels, leveled
from vgraph.scheduler.horizontal_fusion import join_products
from vgraph.scheduler.leaves import split_leaves
from vgraph.scheduler.once import copy_few, order_few
from vgraph.scheduler.one_type import divide_by_type, interleaved_loops
from vgraph.scheduler.parts import build_parts, kinds_of_frontiers, type_numbers
from vgraph.scheduler.phases import build_phases, products_apart
from vgraph.scheduler.policy import FRONTIER, ONCE, choose_policy, second_keys, vertex_keys
from vgraph.scheduler.views import store_views

P = ParamSpec("P")
_SMALL_GRAPH = 1 << 16  # vertices or edges up to which one thread sorts them in less time than others take to begin
_FEW_GRAPHS = 4  # small ones for which no compiler is waited for
_small_graphs = count()


@dataclass(frozen=True, eq=False)
class Begun(Beginning[CompiledProgram]):
    """A Program on whose kernels a compiler works.

    ``unread_at_leaves``: ids of inputs with rows of vertices that nothing reads at vertices without in-edges.
    ``lacks_kernels``: whether no compiler made the kernels that it is to have, so that torch's operators run.
    """

    unread_at_leaves: frozenset[int] = frozenset()
    lacks_kernels: Callable[[], bool] = bool


def begin_program(
    program: Program,
    *,
    num_outputs: int,
    in_rows: frozenset[int] = frozenset(),
    per_vertex: bool = False,
    fuse: bool = True,
    device: str = "cpu",
    zero_at_leaves: frozenset[int] = frozenset(),
    unread_at_leaves: frozenset[int] = frozenset(),
    inner_degree: int | None = None,
) -> Begun:
    """Once a function: a Program made ready to run on any topology.

    The first ``num_outputs`` outputs are the caller's, the others are saved for a backward Program; outputs of
    ``in_rows`` stay in row order. ``per_vertex``: an op that TDL does not describe sees one vertex at a time.
    ``fuse``: groups of ops may become compiled kernels, for the kind of ``device``. ``zero_at_leaves``: ids of inputs;
    ``unread_at_leaves``: of outputs. ``inner_degree``: how many in-edges all vertices but leaves have.
    """
    log_stage("program", program)
    again = partial(
        compile_program,
        num_outputs=num_outputs,
        in_rows=in_rows,
        per_vertex=per_vertex,
        fuse=fuse,
        zero_at_leaves=zero_at_leaves,
        unread_at_leaves=unread_at_leaves,
    )
    fuse = fuse and config.kernels_enabled() and device in TARGETS
    if fuse and device == "cpu":
        program = share_equal(share_sigmoids(widen_products(program) if config.native_enabled() else program))
    program = join_once(program) if fuse else program
    phases = _make_phases(program, per_vertex=per_vertex, fuse=fuse, device=device)
    if config.leaves_enabled():
        known = (inner_degree, unread_at_leaves, num_outputs, fuse and device == "cpu")
        phases, zero_at_leaves = split_leaves(program, phases, zero_at_leaves, *known)
    phases, begun = _divide(program, phases, device, num_outputs, inner_degree, per_vertex=per_vertex, fuse=fuse)
    reads_at_leaves = frozenset(read_at_leaves(phases))
    waits_for, codes, lacks_kernels = _compile_phases(program, phases, device if fuse else None, begun)
    make = partial(
        CompiledProgram,
        program=program,
        phases=phases,
        num_outputs=num_outputs,
        in_rows=in_rows,
        zero_at_leaves=zero_at_leaves,
        reads_at_leaves=reads_at_leaves,
        make_plan=make_plan,
        order_once=order_once,
        lease=arenas.lease,
        empty=empty,
        moved_rows=_moved_rows,
        device=device,
        inner_degree=inner_degree,
        varies=inner_degree is None and config.degrees_enabled() and depends_on_degree(program),
        make_for=lambda kind, degree: again(on_device(program, device, kind), device=kind, inner_degree=degree),
    )
    finish = partial(_finish, make, program, phases, codes, num_outputs, in_rows)
    return Begun(waits_for, finish, unread_in(program, reads_at_leaves), lacks_kernels)


def _finish(
    make: Callable[..., CompiledProgram],
    program: Program,
    phases: tuple[Phase, ...],
    codes: Callable[[], tuple[PhaseCode, ...]],
    num_outputs: int,
    in_rows: frozenset[int],
) -> CompiledProgram:
    """With the code of every phase, when that is there."""
    ready, user_rows = move_in_loops(program, phases, codes(), num_outputs, in_rows)
    stored, ranges = values_in_loops(phases, ready), interleaved_loops(phases)
    alive = _lifetimes(program, phases, ready, ranges)
    kept = {v.id: alive[v.id] for v in stored}
    return make(phase_ranges=ranges, codes=ready, user_rows=user_rows, stored=stored, lifetimes=kept)


def _waited(begin: Callable[P, Begun]) -> Callable[P, CompiledProgram]:
    return lambda *args, **options: begin(*args, **options).finish()


compile_program = _waited(begin_program)


def _divide(
    program: Program,
    phases: tuple[Phase, ...],
    device: str,
    num_outputs: int,
    inner_degree: int | None,
    *,
    per_vertex: bool,
    fuse: bool,
) -> tuple[tuple[Phase, ...], dict[int, PhaseGrouping]]:
    """Slots joined; loops by type; products in phases of their own, where nothing is saved; edges in chunks."""
    if fuse and device not in LOOPS and config.native_enabled():
        phases = join_slots(program, phases, inner_degree)
    phases = tuple(constants_on(phase, device) for phase in divide_by_type(program, phases))
    if len(program.outputs) == num_outputs and config.windows_enabled():
        phases = products_apart(phases)
    return (phases, {}) if per_vertex else _cut_edge_rows(program, phases, fuses=fuse)


def _lifetimes(
    program: Program, phases: Sequence[Phase], codes: Sequence[PhaseCode], phase_ranges: Sequence[range]
) -> dict[int, Lifetime]:
    """Of every value that is stored, from which turn to which it is there."""
    turns = [in_turns([phases[i] for i in phase_range]) for phase_range in phase_ranges]
    stores = [[i for index in phase_range for i in codes[index].stores] for phase_range in phase_ranges]
    return lifetimes(turns, stores, program.outputs)


def _make_phases(program: Program, *, per_vertex: bool, fuse: bool, device: str) -> tuple[Phase, ...]:
    outside = _read_outside(program)
    phases = build_phases(program, per_vertex=per_vertex, eager=config.is_eager(), lazy=config.is_lazy())
    if fuse and config.joins_products():  # where a launch costs much, for some more arithmetic, too
        phases = join_products(phases, outside, more_work=device in LOOPS)
    return store_views(phases, outside) if fuse else phases


def zeros_at_leaves(
    program: Program, *, per_vertex: bool = False, fuse: bool = True, device: str = "cpu"
) -> frozenset[int]:
    """Ids of the values that are zero at vertices without in-edges."""
    if not config.leaves_enabled() or not program.carries:
        return frozenset()
    fuse = fuse and config.kernels_enabled() and device in TARGETS
    return split_leaves(program, _make_phases(program, per_vertex=per_vertex, fuse=fuse, device=device))[1]


def _compile_phases(
    program: Program, phases: tuple[Phase, ...], device: str | None, begun: Mapping[int, PhaseGrouping]
) -> tuple[Sequence[Future[Any]], Callable[[], tuple[PhaseCode, ...]], Callable[[], bool]]:
    """Kernels on their way, what waits for them to make each phase's code, and whether there are none after all.

    A phase keeps what other phases, the caller or a Carry will read.
    ``device``: that of compiled kernels; None: torch's operators alone. ``begun``: groupings by ids of their phases.
    """
    wanted, names = _wanted(program, phases), _names(program)
    asked = () if device is None else zip(phases, wanted, strict=True)
    units = [group_ops(phase, needed, names, begun.get(id(phase))) for phase, needed in asked]
    if device == "cpu":
        units = [join_rows_ahead(*given) for given in zip(phases, units, wanted, strict=True)]
    loops = {} if device is None else _fuse_loops(phases, units, wanted, device)
    groups = [() if i in loops else unit for i, unit in enumerate(units)]
    begin = in_background if device == "cpu" else at_once  # a GPU's context belongs to the thread
    fused = None if device is None else begin(_fuse, groups, device)
    serves_meanwhile = not config.waits_for_kernels() and device == "cpu"
    native = [begin_native()] if serves_meanwhile and any(map(_runs_native, phases)) else []

    def finish() -> tuple[PhaseCode, ...]:
        steps, codes = fused and fused.result(), list[PhaseCode]()
        for index, phase in enumerate(phases):
            if steps is not None and index in loops:
                codes.append(_loop_code(loops[index], units[index]))
            else:
                given = None if steps is None else steps[index]
                codes.append(_compile_phase(phase, wanted[index], f"phase{index}", given, device))
            log_stage("program", codes[-1].source)
        return tuple(codes)

    are_asked = any(unit.kernel is not None for group in groups for unit in group)
    lacks_kernels = lambda: are_asked and fused is not None and fused.result() is None  # noqa: E731
    return [] if fused is None else [fused, *native], finish, lacks_kernels


def _cut_edge_rows(
    program: Program, phases: tuple[Phase, ...], *, fuses: bool
) -> tuple[tuple[Phase, ...], dict[int, PhaseGrouping]]:
    """Where rows of edges would be stored, they are made for some of the edges at a time.

    Gives the groupings of the other phases, too, by ids of these: none hands rows of edges over, whole or in chunks.
    """
    wanted, names = _wanted(program, phases), _names(program)
    cut, begun = list[Phase](), dict[int, PhaseGrouping]()
    for phase, needed in zip(phases, wanted, strict=True):
        grouping = begin_grouping(phase, needed, names) if fuses else None
        if grouping is None or grouping.stores_edge_rows:
            cut += split_edge_rows(phase)
        else:
            cut.append(phase)
            begun[id(phase)] = grouping
    return tuple(cut), begun


def _names(program: Program) -> dict[int, str]:
    return {item.value.id: item.name for item in program.inputs}


def _wanted(program: Program, phases: Sequence[Phase]) -> list[set[int]]:
    """Of every phase what other phases, the caller or a Carry will read."""
    outside = _read_outside(program)
    reads = [_reads(phase) for phase in phases]
    return [outside.union(*reads[:i], *reads[i + 1 :]) for i in range(len(phases))]


def _read_outside(program: Program) -> set[int]:
    """What the caller or a Carry reads."""
    return {v.id for v in program.outputs if v is not None} | {c.source.id for c in program.carries}


def _reads(phase: Phase) -> set[int]:
    """What a phase reads of others, or of rows that it computed earlier."""
    made = {v.id for op in phase.ops for v in op.results}
    return {v.id for op in phase.ops for v in op.operands() if v.id not in made or reads_whole(op.target)}


def _compile_phase(
    phase: Phase, wanted: set[int], name: str, steps: list[Step] | None, device: str | None
) -> PhaseCode:
    on_cpu = steps is not None and device == "cpu"
    native = load_native() if on_cpu and _runs_native(phase) else None
    loop = None if native is None or steps is None else plan_loop(phase, steps, wanted, native)
    if loop is not None:
        return _loop_code(loop, [unit for unit, _ in steps or ()])
    stand_in = runs_row_sums(compile_reduction, native and native.stand_in)
    code = compile_phase(phase, wanted, name, steps, stand_in, native and native.of_rows)
    return replace(code, units=tuple(unit for unit, _ in steps or ()))


def _runs_native(phase: Phase) -> bool:
    """Whether the part that all functions share has something of a phase to run."""
    return phase.is_loop or any(is_product(op) for op in phase.ops)


def _loop_code(loop: FrontierLoop | DeviceFrontiers, units: Sequence[Unit]) -> PhaseCode:
    """A loop that has no code in Python beside it."""
    body = loop.body
    return PhaseCode(str(loop), run_nothing, body.outside, tuple(sorted(body.kept)), loop, tuple(units))


_moved_rows = MovedRows(empty, lambda: load_native() if config.kernels_enabled() else None)


def _fuse_loops(
    phases: Sequence[Phase], units: Sequence[Sequence[Unit]], wanted: Sequence[set[int]], device: str
) -> dict[int, DeviceFrontiers]:
    """Loops over frontiers that a device runs by functions of their own, by the number of their phase."""
    if device not in LOOPS or not config.native_enabled():
        return {}
    bodies = {i: plan_body(phase, units[i], wanted[i], ON_DEVICE) for i, phase in enumerate(phases) if phase.is_loop}
    found = {i: emit_loop(body, f"loop{i}") for i, body in bodies.items() if body is not None}
    emitted = {i: given for i, given in found.items() if given is not None}
    made = LOOPS[device](list(emitted.values())) if emitted else None
    return {} if made is None else dict(zip(emitted, made, strict=True))


def _fuse(units: Sequence[Sequence[Unit]], device: str) -> list[list[Step]] | None:
    """Each phase's ops as library calls and compiled kernels; None where those cannot be had."""
    specs = [unit.kernel for group in units for unit in group if unit.kernel is not None]
    alone = () in units or any(unit.op and isinstance(unit.op.target, RowSum) for group in units for unit in group)
    runners = TARGETS[device](specs) if specs else () if alone else None
    if runners is None:
        return None
    made = {id(spec): runner for spec, runner in zip(specs, runners, strict=True)}
    return [[(unit, made.get(id(unit.kernel))) for unit in group] for group in units]


def _for_cpu(specs: Sequence[KernelSpec]) -> Sequence[object] | None:
    built = None if "kernels" in config.log_topics() else find_known(specs)  # who asks for the text is given it
    if built is None:
        source = emit_kernels(specs)
        log_stage("kernels", source)
        built = build_kernels(source, len(specs))
        if built is not None:
            remember(specs, source)
    if built is None:
        return None
    return [CpuKernel(made, spec, empty, _moved_rows.by_source) for made, spec in zip(built, specs, strict=True)]


def _load_cubin(source: str, names: Sequence[str]) -> Mapping[str, cuda.Launch] | None:
    log_stage("kernels", source)
    return cuda.load(partial(build_cubin, source), names)


def _for_cuda(specs: Sequence[KernelSpec]) -> Sequence[object] | None:
    lacking = cuda.missing()
    if lacking is not None:
        warn(f"Programs on a GPU run on torch's operators: {lacking}")
        return None
    source, loops = emit_cuda(specs)
    functions = _load_cubin(source, [entry.name for loop in loops for entry in loop.entries])
    both = zip(specs, loops, strict=True)
    return None if functions is None else [DeviceKernel(spec, loop, functions) for spec, loop in both]


# What makes kernels run on a kind of device; None: they cannot be had.
TARGETS: dict[str, Callable[[Sequence[KernelSpec]], Sequence[object] | None]] = {"cpu": _for_cpu, "cuda": _for_cuda}


def _loops_for_cuda(loops: Sequence[tuple[str, LoopOnDevice]]) -> Sequence[DeviceFrontiers] | None:
    if cuda.missing() is not None:  # kernels beside the loops say so
        return None
    source = "\n".join(['#include "prelude.cuh"', *(text for text, _ in loops)])
    functions = _load_cubin(source, [name for _, loop in loops for name in loop.names])
    return None if functions is None else [DeviceFrontiers(loop, functions, cuda.limits) for _, loop in loops]


# What runs loops over frontiers on a kind of device; None: they run in Python, kernel by kernel.
LOOPS: dict[str, Callable[[Sequence[tuple[str, LoopOnDevice]]], Sequence[DeviceFrontiers] | None]] = {
    "cuda": _loops_for_cuda
}


def kernel_source(compiled: CompiledProgram) -> str:
    """The C++ of a Program's kernels, in the order in which they run; nothing where there are none."""
    specs = [unit.kernel for code in compiled.codes for unit in code.units if unit.kernel is not None]
    return emit_kernels(specs) if specs else ""


def compile_reduction(reduction: Reduction) -> CompiledReduction:
    """Once a function: a Reduction made ready to run on tensors of any layout."""
    return CompiledReduction(reduction, REDUCTIONS)


def _build_reduction(reduction: Reduction, kinds: tuple[str, ...]) -> Any:
    source = emit_reduction(reduction, kinds)
    log_stage("kernels", source)
    built = build_kernels(source, 1)
    return None if built is None else built[0]


def _load_reduction(reduction: Reduction, shape: DeviceShape) -> Mapping[str, cuda.Launch] | None:
    lacking = cuda.missing()
    if lacking is not None:
        warn(f"reductions on a GPU run on torch's operators: {lacking}")
        return None
    return _load_cubin(emit_reduction_cuda(reduction, shape), ["kernel0", "kernel1"])


# What binds a Reduction to a layout, by kind of device.
REDUCTIONS: dict[str, Bind] = {
    "cpu": partial(bind_cpu, build=_build_reduction),
    "cuda": partial(bind_device, load=_load_reduction),
}


_Plans = WeakKeyDictionary[CompiledProgram, Plan]  # a Program that is forgotten takes its plans along


def make_plan(compiled: CompiledProgram, call_context: CallContext) -> Plan:
    """Once a topology: when each row is evaluated, and where everything lies; kept with the topology."""
    types = None if call_context.types is None else (id(call_context.types[0]), call_context.types[1])
    plans = call_context.topology.keep(("plans", call_context.policy, types), _Plans)
    plan = plans.get(compiled)
    if plan is None:
        plan = plans[compiled] = _make_plan(compiled, call_context)
    return plan


def _make_plan(compiled: CompiledProgram, call_context: CallContext) -> Plan:
    policy = choose_policy(compiled.phases, call_context.policy)
    schedule = _make_schedule(call_context.topology, policy, call_context.types)
    log_stage("schedule", schedule)
    stored, alive, stacks = compiled.stored, compiled.lifetimes, compiled.stacks

    def memory() -> MemoryPlan:
        found = plan_memory(stored, alive, schedule, stacks)
        log_stage("memory", found)
        return found

    return Plan(schedule, memory)


def levels(topology: Topology) -> Levels:
    """The level of every vertex, children first; kept with the topology."""
    return _leveled(topology).levels


def leaf_ids(topology: Topology) -> NDArray[np.int64]:
    """The vertices without in-edges, in order."""
    return _leveled(topology).leaf_ids


def _leveled(topology: Topology) -> Leveled:
    native = load_native() if config.kernels_enabled() else None
    return leveled(topology, native and native.levels)


def level_schedule(topology: Topology) -> Schedule:
    """The frontiers of a topology, children first; kept with it."""
    return _make_schedule(topology, FRONTIER, None)


def is_ordered(topology: Topology) -> bool:
    """Whether edges lie in the order in which kernels visit them all at once."""
    return ("schedule", ONCE) in topology.kept


def order_once(topology: Topology) -> Schedule:
    """The schedule of what runs once over all rows; kept with the topology."""
    schedule = _make_schedule(topology, ONCE, None)
    log_stage("schedule", schedule)
    return schedule


def _make_schedule(topology: Topology, policy: str, types: VertexTypes | None) -> Schedule:
    """Shared by all Programs on this topology; with types no frontier holds two, and each has rows of its own."""
    key = None if types is None else (id(types[0]), types[1])  # kept with the tensor, so that its id stays its own

    def build() -> tuple[Schedule, VertexTypes | None]:
        if policy == ONCE and types is None:
            return _order_all(topology), types
        native = load_native() if policy != ONCE and config.kernels_enabled() else None
        walk = native and native.levels
        keys = vertex_keys(topology, policy, None if types is None else type_numbers(types), walk)
        second = second_keys(topology, policy, keys, walk) if types is None else None
        found = None if keys is None or second is not None else leveled(topology, walk)
        if found is not None and found.levels is keys and found.order is not None and found.bounds is not None:
            order, known = found.order, found.bounds
            schedule = build_schedule(topology, policy, keys, order, lambda *_: known)
        else:
            order = build_row_order(topology, keys, second, native and native.order_rows)
            schedule = build_schedule(topology, policy, keys, order, native and native.bounds)
        schedule = schedule.on(topology.device)
        if types is None:
            return schedule, types
        kinds = () if keys is None else kinds_of_frontiers(schedule, types[0])
        name = policy if keys is None else f"{policy}, types {key}"
        return replace(schedule, policy=name, parts=build_parts(schedule, *types), kinds=kinds), types

    return topology.keep(("schedule", policy) if key is None else ("schedule", policy, key), build)[0]


def _order_all(topology: Topology) -> Schedule:
    """All rows at once, in the user's order of vertices."""
    sorter = _sorter_of_edges(topology.device, topology.num_src, topology.num_dst, topology.num_edges)
    if sorter is not None:
        return order_few(topology, sorter.order_edges)
    grouper = _grouper_of_edges(topology)
    order = build_row_order(topology, None) if grouper is None else group_edges(topology, grouper.group)
    return build_schedule(topology, ONCE, None, order).on(topology.device)


def checked_topology(ids: Tensor, num_src: int, num_dst: int, *, forward: bool) -> Topology | None:
    """Edges ``ids[0] -> ids[1]``, (2, edges) of int64, copied, in order and checked, if they are few and on the CPU.

    ``forward``: whether they lead from the first row to the second. None: they are not, or an id is that of no vertex.
    """
    sorter = _sorter_of_edges(ids.device, num_src, num_dst, ids.shape[1])
    found = None if sorter is None else copy_few(ids, num_src, num_dst, sorter.order_edges, forward=forward)
    if found is not None:
        found[0].kept["schedule", ONCE] = found[1], None
    return found and found[0]


def _sorter_of_edges(device: torch.device, *sizes: int) -> Native | None:
    """Native code for a small graph; the first ones do not wait for a compiler."""
    if device.type != "cpu" or max(sizes) > _SMALL_GRAPH or not config.kernels_enabled():
        return None
    return load_native() if next(_small_graphs) >= _FEW_GRAPHS else None


def _grouper_of_edges(topology: Topology) -> Native | None:
    """Native code for so many edges that their order must not take more memory than it has itself."""
    is_many = MANY <= topology.num_edges < MOST_SHORT
    if topology.device.type != "cpu" or not is_many or not config.kernels_enabled():
        return None
    return load_native()
