"""Printer: every stage's value as text that a person reads and a golden test compares.

Takes: Program, Schedule, MemoryPlan. Gives: text. Runs when asked (VGRAPH_LOG, explain, tests).
"""

from __future__ import annotations

import logging

from vgraph import config
from vgraph.ir.memory import MemoryPlan
from vgraph.ir.program import Carry, Op, Program, Rows, Value, op_name
from vgraph.ir.schedule import Schedule

logger = logging.getLogger("vgraph")


def format_program(program: Program, *, lines: bool = False) -> str:
    """One line a value: ``%3: edge f32[64] = mm(%1, %2)``; ``lines`` adds the user's source lines."""
    names = _Names(program)
    text = [f"program {program.name}"]
    text += [f"  {names.typed(i.value)} = input {i.name}" for i in program.inputs]
    text += [f"  {names.typed(c.target)} = carry {c.move} of {names.of(c.source)}" for c in program.carries]
    for op in program.ops:
        where = f"  # {op.line}" if lines and op.line else ""
        text.append(f"  {', '.join(names.typed(v) for v in op.results)} = {names.call(op)}{where}")
    outputs = ", ".join("-" if v is None else names.of(v) for v in program.outputs)
    return "\n".join([*text, f"  return {outputs}"]) + "\n"


class _Names:
    """Values numbered in order of appearance, so that the text does not depend on a recording."""

    def __init__(self, program: Program) -> None:
        self.numbers: dict[int, int] = {}
        carried: list[Carry] = list(program.carries)
        for value in [i.value for i in program.inputs] + [c.target for c in carried]:
            self.numbers[value.id] = len(self.numbers)
        for op in program.ops:
            for value in op.results:
                self.numbers[value.id] = len(self.numbers)

    def of(self, value: Value) -> str:
        return f"%{self.numbers[value.id]}"

    def typed(self, value: Value) -> str:
        dtype = str(value.dtype).removeprefix("torch.").replace("float", "f").replace("int", "i")
        dims = ", ".join(str(d) for d in value.shape if not _is_plain_row(value, d))
        return f"{self.of(value)}: {value.space} {dtype}[{dims}]"

    def call(self, op: Op) -> str:
        parts = [self.leaf(arg) for arg in op.args]
        parts += [f"{key}={self.leaf(value)}" for key, value in op.kwargs.items()]
        return f"{op_name(op.target)}({', '.join(parts)})"

    def leaf(self, leaf: object) -> str:
        if isinstance(leaf, Value):
            return self.of(leaf)
        if isinstance(leaf, Rows):
            return str(leaf)
        if isinstance(leaf, (tuple, list)):
            return f"[{', '.join(self.leaf(item) for item in leaf)}]"
        return repr(leaf)


def _is_plain_row(value: Value, dim: object) -> bool:
    return isinstance(dim, Rows) and dim.times == 1 and value.row_dim == 0


def format_schedule(schedule: Schedule, most: int = 20) -> str:
    """Policy, number of frontiers, and the slices of the first ones."""
    sizes = [f.batch_size for f in schedule.frontiers]
    name = schedule.policy.partition(",")[0] + (" by type" if schedule.kinds else "")
    text = [f"schedule {name}: {sum(sizes)} vertices, {schedule.topology.num_edges} edges, {len(sizes)} frontiers"]
    for number, f in enumerate(schedule.frontiers[:most]):
        degree = "mixed" if f.degree is None else f.degree
        text.append(f"  {number}: vertices {f.v0}:{f.v1} edges {f.e0}:{f.e1} degree {degree}")
    if len(sizes) > most:
        text.append(f"  ... {len(sizes) - most} more")
    return "\n".join(text) + "\n"


def format_memory(plan: MemoryPlan) -> str:
    """Bytes of the arena, and offset, rows, row shape and lifetime of every DynamicTensor."""
    text = [f"memory {plan.num_bytes} bytes"]
    for value_id, t in sorted(plan.tensors.items(), key=lambda item: (item[1].offset, item[0])):
        life = plan.lifetimes[value_id]
        dtype = str(t.dtype).removeprefix("torch.")
        text.append(
            f"  {t.offset:>10}: {t.batch_size} rows of {dtype}{list(t.row_shape)}, phases {life.first}-{life.last}"
        )
    return "\n".join(text) + "\n"


def log_stage(topic: str, value: object) -> None:
    """Prints a stage's value if ``VGRAPH_LOG`` names its topic."""
    if topic not in config.log_topics():
        return
    if isinstance(value, Program):
        value = format_program(value, lines=True)
    elif isinstance(value, Schedule):
        value = format_schedule(value)
    elif isinstance(value, MemoryPlan):
        value = format_memory(value)
    logger.warning("%s", value)
