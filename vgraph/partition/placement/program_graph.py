"""Program graph: a dense Program with costs as an OpGraph, and a placement of it as a ShardingPlan.

Takes: a Program, seconds of its ops. Gives: an OpGraph; a plan that the shared rewrite turns into one Program a
device. Runs once per model. Source: depth-first placement, the profiled dataflow graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from vgraph.ir.program import Input, Op, Program, Value, op_name
from vgraph.ir.sharding import At, Placement, Replicate, ShardingPlan, Strategy
from vgraph.ir.tdl.table import is_absent, is_view, reads_values
from vgraph.partition.placement.op_graph import Ints, OpGraph, OpGraphBuilder


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """The ops of ``graph`` are first the inputs ``placed`` (positions), then the ops of the Program."""

    program: Program
    graph: OpGraph
    placed: tuple[int, ...]

    @property
    def num_inputs(self) -> int:
        return len(self.placed)


def is_everywhere(given: Input) -> bool:
    """Numbers of the step itself (seed, learning rate): every device is given them."""
    return given.is_topological


def build_program_graph(
    program: Program,
    kinds: Sequence[str],
    seconds: Sequence[Sequence[float]],
    *,
    modules: Sequence[str] = (),
    together: Iterable[tuple[Value, Value]] = (),
) -> ProgramGraph:
    """``seconds[op][kind]``; ``modules`` names ops; ``together``: pairs of values made on one device."""
    draft, tensor_of, maker = OpGraphBuilder(tuple(kinds)), dict[int, int](), dict[int, int]()
    kept = {value.id for value in program.outputs if value is not None}
    placed = tuple(i for i, given in enumerate(program.inputs) if not is_everywhere(given))
    for position in placed:
        given = program.inputs[position]
        size = given.value.row_bytes
        maker[given.value.id] = op = draft.add_op(given.name, [0.0] * len(kinds), resident=size)
        tensor_of[given.value.id] = draft.add_tensor(op, size, held=True)
    names = name_ops(program, modules)
    for number, op in enumerate(program.ops):
        operands = op.operands() if reads_values(op) else ()
        reads = [tensor_of[value.id] for value in operands if value.id in tensor_of]
        vertex = draft.add_op(names[number], seconds[number], reads)
        root = reads[0] if reads and is_view(op.target) else None
        for value in op.results:
            maker[value.id] = vertex
            size = 0 if is_absent(value) else value.row_bytes
            tensor_of[value.id] = draft.add_tensor(vertex, size, root, kept=value.id in kept)
    for one, other in together:
        if maker[one.id] != maker[other.id]:
            draft.keep_together(maker[one.id], maker[other.id])
    return ProgramGraph(program, draft.build(), placed)


def name_ops(program: Program, modules: Sequence[str]) -> list[str]:
    """``module/operator``, numbered where it occurs again."""
    seen: Counter[str] = Counter()
    names: list[str] = []
    taken = {given.name for given in program.inputs}
    for number, op in enumerate(program.ops):
        module = modules[number] if modules else ""
        name = f"{module}/{op_name(op.target)}" if module else op_name(op.target)
        seen[name] += 1
        shown = name if seen[name] == 1 else f"{name}#{seen[name]}"
        names.append(shown if shown not in taken else f"op:{shown}")
    return names


def placement_plan(
    built: ProgramGraph, device_of: Ints, order: Sequence[int], num_devices: int
) -> tuple[Program, ShardingPlan]:
    """The Program with its ops in the schedule's order, and the plan that puts each on its device."""
    program, first = built.program, built.num_inputs
    devices: list[int] = device_of.tolist()
    positions = [op - first for op in order if op >= first]
    ordered = Program(program.name, program.inputs, tuple(program.ops[i] for i in positions), program.outputs)
    everywhere = {given.value.id for given in program.inputs if is_everywhere(given)}
    where: dict[int, tuple[Placement, ...]] = {value: (Replicate(),) for value in everywhere}
    for vertex, position in enumerate(built.placed):
        where[program.inputs[position].value.id] = (At(devices[vertex]),)
    strategies = tuple((_at(program.ops[i], devices[first + i], everywhere),) for i in positions)
    return ordered, ShardingPlan((num_devices,), strategies, where)


def _at(op: Op, device: int, everywhere: set[int]) -> Strategy:
    here = At(device)
    inputs = tuple(Replicate() if value.id in everywhere else here for value in op.operands())
    return Strategy("", 1, inputs, (here,) * len(op.results))


def split_gradients(program: Program) -> tuple[Program, list[int]]:
    """Each convolution's backward as two ops, for its input and for its weights: they need not run one after another.

    Gives also the position in ``program`` that each new op comes from.
    """
    new_id = count(1 + max((v.id for op in program.ops for v in (*op.results, *op.operands())), default=0))
    ops: list[Op] = []
    origin: list[int] = []
    for position, op in enumerate(program.ops):
        halves = _halves(op, new_id) if op_name(op.target) == "convolution_backward" else [op]
        ops += halves
        origin += [position] * len(halves)
    return Program(program.name, program.inputs, tuple(ops), program.outputs), origin


def _halves(op: Op, new_id: count[int]) -> list[Op]:
    mask = list(op.args[-1])
    if not (mask[0] and (mask[1] or mask[2])):
        return [op]
    halves: list[Op] = []
    for wanted in ([True, False, False], [False, mask[1], mask[2]]):
        results = tuple(
            value if is_wanted else Value(next(new_id), value.space, value.dtype, (0,), value.line)
            for value, is_wanted in zip(op.results, wanted, strict=True)
        )
        halves.append(replace(op, args=(*op.args[:-1], wanted), results=results))
    return halves
