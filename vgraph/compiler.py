"""The whole pipeline on one page: Program -> CompiledProgram.

A user's function was captured as a `Program` (api). From there on nothing knows the user, and each
line below is one stage; every stage reads what the ones before it made and none imports another.

    once a function    phases   what must go frontier by frontier, what runs once over all rows
                       code     each phase as one straight function over torch operators
    once a topology    levels   when each vertex can be evaluated (children first)
                       order    rows renumbered so that every frontier is one contiguous slice
                       schedule the frontiers: vertex slice, edge slice, common in-degree
                       memory   a DynamicTensor in one arena for all that frontiers write
    every step         run      CompiledProgram(inputs, situation), inside one autograd.Function

Backward Programs, and theirs, come the same way: see ir/joint.py and runtime/autograd.py.
"""

from __future__ import annotations

from vgraph import config
from vgraph.ir.interpreter import PhaseCode, compile_phase
from vgraph.ir.printer import log_stage
from vgraph.ir.program import Program, Value
from vgraph.ir.schedule import Phase, Schedule
from vgraph.ir.topology import Topology
from vgraph.memory.arena import ArenaPool
from vgraph.memory.liveness import lifetimes
from vgraph.memory.plan import plan_memory
from vgraph.memory.row_order import build_row_order
from vgraph.runtime.compiled import CompiledProgram, Plan
from vgraph.scheduler.build import build_schedule, evaluation_keys
from vgraph.scheduler.phases import build_phases
from vgraph.scheduler.policy import choose_policy

_arenas = ArenaPool()


def compile_program(
    program: Program,
    *,
    num_outputs: int,
    in_rows: frozenset[int] = frozenset(),
    per_vertex: bool = False,
) -> CompiledProgram:
    """Once a function: a Program made ready to run on any topology.

    The first ``num_outputs`` outputs are the caller's, the others are saved for a backward Program;
    outputs of ``in_rows`` stay in row order. ``per_vertex``: an op that TDL does not describe sees
    one vertex at a time.
    """
    log_stage("program", program)
    phases = build_phases(program, per_vertex=per_vertex)
    codes = _compile_phases(program, phases)
    stored = _values_in_loops(phases, codes)
    alive = lifetimes(phases, [code.stores for code in codes], program.outputs)
    return CompiledProgram(
        program, phases, codes, num_outputs, in_rows, stored, {v.id: alive[v.id] for v in stored},
        make_plan, _arenas.lease,
    )  # fmt: skip


def _compile_phases(program: Program, phases: tuple[Phase, ...]) -> tuple[PhaseCode, ...]:
    """Code for each phase, which keeps what other phases, the caller or a Carry will read."""
    outside = {v.id for v in program.outputs if v is not None} | {
        c.source.id for c in program.carries
    }
    operands = [{v.id for op in phase.ops for v in op.operands()} for phase in phases]
    codes: list[PhaseCode] = []
    for index, phase in enumerate(phases):
        wanted = outside.union(*operands[:index], *operands[index + 1 :])
        codes.append(compile_phase(phase, wanted, f"phase{index}"))
        if "program" in config.log_topics():
            log_stage("program", codes[-1].source)
    return tuple(codes)


def make_plan(compiled: CompiledProgram, topology: Topology, policy: str) -> Plan:
    """Once a topology: when each row is evaluated, and where everything lies; kept with the topology."""
    return topology.keep(("plan", compiled, policy), lambda: _make_plan(compiled, topology, policy))


def _make_plan(compiled: CompiledProgram, topology: Topology, policy: str) -> Plan:
    chosen = choose_policy(compiled.phases, policy)
    schedule = topology.keep(("schedule", chosen), lambda: _make_schedule(topology, chosen))
    log_stage("schedule", schedule)
    memory = plan_memory(compiled.stored, compiled.lifetimes, schedule)
    log_stage("memory", memory)
    return Plan(schedule, memory)


def _make_schedule(topology: Topology, policy: str) -> Schedule:
    keys = evaluation_keys(topology, policy)
    return build_schedule(topology, policy, build_row_order(topology, keys))


def _values_in_loops(phases: tuple[Phase, ...], codes: tuple[PhaseCode, ...]) -> tuple[Value, ...]:
    """What frontiers write, slice by slice; everything else is an ordinary tensor."""
    return tuple(
        value
        for phase, code in zip(phases, codes, strict=True) if phase.is_loop
        for op in phase.ops for value in op.results if value.id in code.stores
    )  # fmt: skip
