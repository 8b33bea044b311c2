"""What a training call made, as text: one text for each thing that a later change must not change."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence

import torch

from tests.golden_prints.pipeline import KINDS, Made, Target
from vgraph.fusion.reduction import UNIT, emit_reduction, emit_reduction_cuda
from vgraph.ir.kernel import DeviceLoop, Entry, HubLoop, Unit
from vgraph.ir.loop_body import HubKernel, LoopBody, LoopOnDevice, Product, Section
from vgraph.ir.printer import format_memory, format_program, format_schedule
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.reduction import DeviceShape
from vgraph.ir.schedule import Phase, RowOrder, Schedule
from vgraph.runtime.compiled import CompiledProgram
from vgraph.runtime.cpu.frontier_loop import FrontierLoop
from vgraph.runtime.python_codegen import PhaseCode

MANY = 1 << 20
_INDEX_TENSORS = re.compile(r"(?:  const int\d+_t\* \S* ?\w+ = \(const int\d+_t\*\)[^;]*; \(void\)\w+;\n){4,}")
_OWN_TENSORS = re.compile(r"(?: +(?:const )?\w+\* \S* ?[lop]\d+ = \((?:const )?\w+\*\)\w[^;]*;\n){2,}")
_ARGUMENTS = re.compile(r"(?<=\()int64_t w_[^)]*?w_edge_ids")


def prints(made: Sequence[Made]) -> dict[str, str]:
    """By name of a file."""
    return {
        "program": _joined((m.title, format_program(m.plain.program)) for m in made),
        "schedule": _joined((m.title, _schedule(m.targets["cpu"].plan.schedule)) for m in made),
        "memory": _joined((f"{m.title}, {kind}", _memory(t)) for m in made for kind, t in m.targets.items()),
        **{kind: _briefly(_joined((m.title, _texts(m.targets[kind])) for m in made if m.is_paired)) for kind in KINDS},
        "python": _joined((f"{m.title}, {way}", text) for m in made for way, text in _phases_by_way(m)),
    }


def _joined(parts: Iterator[tuple[str, str]]) -> str:
    """Each text under its title; one that was there before is named alone."""
    known: dict[str, str] = {}
    lines: list[str] = []
    for title, text in parts:
        before = known.setdefault(text, title)
        lines.append(f"==== {title}\n{text}" if before == title else f"==== {title}: as {before}\n")
    return "\n".join(lines)


def _briefly(text: str) -> str:
    """Declarations that all kernels have in common are printed in full where they come first."""
    known: set[str] = set()

    def shown(found: re.Match[str]) -> str:
        if found[0] not in known:
            known.add(found[0])
            return found[0]
        if not found[0].endswith("\n"):
            return "/* as above */"
        names = re.findall(r"(\w+) = ", found[0])
        return f"  // {names[0]} to {names[-1]} as above\n"

    for pattern in (_INDEX_TENSORS, _OWN_TENSORS, _ARGUMENTS):
        text = pattern.sub(shown, text)
    return text


# ---------------------------------------------------------------- once a topology
def _schedule(schedule: Schedule) -> str:
    lines = [format_schedule(schedule, MANY).rstrip("\n"), *_order(schedule.order)]
    if schedule.kinds:
        lines.append(f"  kinds {' '.join(schedule.kinds)}")
    for name, part in schedule.parts.items():
        lines += [f"  part {name}: vertices {_numbers(part.vertex_rows)}, edges {_numbers(part.edge_rows)}"]
        lines += [f"    {line.strip()}" for line in _order(part.order)]
        lines += [f"    vertices {f.v0}:{f.v1} edges {f.e0}:{f.e1} degree {f.degree}" for f in part.frontiers]
    return "\n".join(lines) + "\n"


def _order(order: RowOrder) -> list[str]:
    """Where vertices and edges lie."""
    tensors = {
        "vertices of rows": order.vertex_ids, "rows of vertices": order.vertex_rows, "edges of rows": order.edge_ids,
        "sources": order.src_rows, "destinations": order.dst_rows, "in-edges begin": order.in_ptr,
        "out-edges begin": order.out_ptr, "out-edges": order.out_edges,
    }  # fmt: skip
    return [f"  {name}: {_numbers(rows)}" for name, rows in tensors.items()]


def _numbers(rows: torch.Tensor | None) -> str:
    return "as given" if rows is None else f"[{' '.join(map(str, rows.tolist()))}]"


def _memory(target: Target) -> str:
    plan = target.plan.memory
    ids = " ".join(f"v{i}@{plan.offsets[i]}" for i in sorted(plan.offsets))
    return f"{format_memory(plan)}  {ids}".rstrip() + "\n"


# ---------------------------------------------------------------- kernels
def _texts(target: Target) -> str:
    texts = target.texts
    lines = [line for loops in texts.launches for i, loop in enumerate(loops) for line in _launch(f"kernel{i}", loop)]
    parts = ["\n".join([*lines, *texts.kernels])] if texts.kernels else []
    parts += ["\n".join([*_device_loop(loop), text]) for text, loop in texts.loops]
    for reduction in texts.reductions:  # with rows that lie one after the other
        kinds = (UNIT,) * len(reduction.element.operands)
        on_device = target.compiled.device == "cuda"
        shape = DeviceShape(kinds, num_kept=1, num_reduced=1, columns=True, lanes=1, team=32)
        parts.append(emit_reduction_cuda(reduction, shape) if on_device else emit_reduction(reduction, kinds))
    return "\n".join(parts) if parts else "no kernels\n"


def _entry(entry: Entry) -> str:
    return f"{entry.name} by teams of {entry.team} in blocks of {entry.threads}"


def _launch(name: str, loop: DeviceLoop) -> Iterator[str]:
    yield f"// {name}: {_entry(loop.narrow)}, up to {loop.most_narrow} edges of {loop.pointer or 'nothing'}"
    yield f"//   scratch {loop.team_bytes} bytes a team, {loop.pieces} pieces, {loop.num_tiles} tiles"
    if loop.wide is not None:
        yield f"//   wide: {_entry(loop.wide)}"
    yield from (f"//   tile: {_entry(entry)}" for entry in loop.tiles)
    yield from _hubs(loop.hubs) if loop.hubs is not None else ()


def _hubs(loop: HubLoop) -> Iterator[str]:
    yield f"//   hubs: {loop.row_bytes} bytes a row, {loop.chunk_bytes} a chunk"
    for step in loop.steps:
        yield f"//     {_entry(step.entry)}, {'chunks' if step.takes_chunks else 'rows'} of {step.pointer}"


def _device_loop(loop: LoopOnDevice) -> Iterator[str]:
    yield from (f"// {line}" for line in _body(loop.body))
    for step in loop.steps:
        if isinstance(step, Product):
            yield f"// product {_op(step.op)}"
        else:
            yield from _section(step)
    if loop.walk is not None:
        roots = _values(loop.walk.roots)
        yield f"// walk: {_entry(loop.walk.entry)}, {loop.walk.room_bytes} bytes of room, roots {roots}"


def _section(section: Section) -> Iterator[str]:
    yield f"// section: {_entry(section.narrow)}, up to {section.most_narrow} edges, roots {_values(section.roots)}"
    if section.wide is not None:
        yield f"//   wide: {_entry(section.wide)}"
    if section.pointers:
        yield f"//   edges of {' '.join(section.pointers)}"
    for hub in section.hubs:
        if isinstance(hub, HubKernel):
            yield from _hubs(hub.loop)
        else:
            yield f"//   copies: {_entry(hub.step.entry)}"


# ---------------------------------------------------------------- phases
def _phases_by_way(made: Made) -> Iterator[tuple[str, str]]:
    """The phases of a Program on torch's operators, and for each kind of device; those that agree once."""
    known: dict[str, str] = {}
    yield "operators", _phases("operators", made.plain, known)
    for kind, target in made.targets.items():
        yield kind, _phases(kind, target.compiled, known)


def _phases(way: str, compiled: CompiledProgram, known: dict[str, str]) -> str:
    turns = " ".join(f"{turn.start}:{turn.stop}" for turn in compiled.phase_ranges)
    lines = [f"phases in turns {turns}; in-degree {compiled.inner_degree}; in-degrees matter: {compiled.varies}"]
    zero, read = (" ".join(map(str, sorted(ids))) for ids in (compiled.zero_at_leaves, compiled.reads_at_leaves))
    lines.append(f"zero at leaves: {zero or 'nothing'}; read at leaves: {read or 'nothing'}")
    for number, (phase, code) in enumerate(zip(compiled.phases, compiled.codes, strict=True)):
        title, text = f"-- phase {number}: {_how(phase)}", "\n".join(_phase(code))
        before = known.setdefault(text, f"phase {number}, {way}")
        lines += ["", title, text] if before == f"phase {number}, {way}" else ["", f"{title}: as {before}"]
    return "\n".join(lines) + "\n"


def _how(phase: Phase) -> str:
    words = ["frontier by frontier" if phase.is_loop else "once"]
    words += [name for name in ("reverse", "serial", "chunked") if getattr(phase, f"is_{name}")]
    words += [f"{name} {value}" for name, value in (("part", phase.part), ("kind", phase.kind)) if value]
    return ", ".join(words)


def _phase(code: PhaseCode) -> Iterator[str]:
    """The Python of a phase, or the instructions of its loop, and what its kernels compute."""
    yield f"reads {' '.join(map(str, code.reads)) or 'nothing'}; stores {' '.join(map(str, code.stores)) or 'nothing'}"
    for unit in code.units:
        if unit.kernel is not None:
            yield from _unit(unit)
    if isinstance(code.loop, FrontierLoop):
        yield from _body(code.loop.body)
        yield from _instructions(code.loop)
    elif code.loop is None:
        yield code.source.rstrip("\n")
    else:
        yield "a loop of the device"


def _unit(unit: Unit) -> Iterator[str]:
    if unit.op is not None:
        yield f"  {_op(unit.op)}"
    if unit.kernel is not None:
        spec = unit.kernel
        yield f"  kernel of {spec.own or 'rows'}: {_values(spec.loads)} -> {_values(spec.stores)}"
        yield from (f"    {_op(op)}" for op in spec.ops)


def _op(op: Op) -> str:
    name = getattr(op.target, "__name__", "") if inspect.isfunction(op.target) else op_name(op.target)
    return f"{_values(op.results)} = {name} {_values(tuple(op.operands()))}".rstrip()


def _values(values: Sequence[Value]) -> str:
    return " ".join(f"v{value.id}" for value in values)


def _body(body: LoopBody) -> Iterator[str]:
    """Where the values of a loop lie."""
    yield f"keeps {' '.join(f'v{i}' for i in sorted(body.kept))}; in scratch {_values(body.temporary)}".rstrip()
    yield f"moves in {_values(body.ins) or 'nothing'}, out {_values(body.outs) or 'nothing'}"
    spots = " ".join(f"v{i}=v{s.root.id}+{s.offset}" for i, s in sorted(body.places.items()) if s.root.id != i)
    yield f"{body.flops[0]} and {body.flops[1]} operations, {body.row_bytes} bytes a row; views {spots or 'none'}"
    for unit in body.units:
        yield from _unit(unit) if unit.op is not None else ("  kernel",)


def _instructions(loop: FrontierLoop) -> Iterator[str]:
    """Words of native code, an instruction a line, then the arguments of kernels; none of them is an address yet."""
    template = loop.template
    words = template.words.tolist()
    yield f"native loop; roots {_values(template.roots)}; packed {_values(template.packed)}".rstrip()
    at = 0
    while at < template.num_words:
        length = words[at] >> 8
        yield f"  {words[at] & 255}: {' '.join(map(str, words[at + 1 : at + length]))}"
        at += length
    yield f"  arguments {' '.join(map(str, words[at:]))}".rstrip()
    for name in ("root_at", "scratch_at", "order_at"):
        places, which = getattr(template, name)
        yield f"  {name} {' '.join(f'{a}:{b}' for a, b in zip(places.tolist(), which.tolist(), strict=True))}".rstrip()
    yield f"  packed_at {' '.join(map(str, template.packed_at.tolist()))}".rstrip()
