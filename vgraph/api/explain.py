"""Explain: what a function became: what moved off the edges, what is fused, what is stored, at what cost.

Takes: a graph and functions, a vertex function, or a module and its arguments. Gives: an Explanation. Runs once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vgraph import config
from vgraph.api.explain_report import FunctionSteps, Hoisted, PhaseSteps, ProgramSteps, Step, Stored
from vgraph.api.explanation import Explanation
from vgraph.api.graph import Graph
from vgraph.api.messages.update_all import capture_update
from vgraph.api.vertex.call_features import At
from vgraph.api.vertex.function import VertexFunction, capture_vertex
from vgraph.arguments import PATH, checked
from vgraph.atomic_file import write_text
from vgraph.capture.capture import Bound, Run, watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.compiler import kernel_source, make_plan
from vgraph.errors import FunctionError
from vgraph.fusion.expressions import has_expression
from vgraph.ir.cost import Count, is_free, is_product, kernel_bytes, num_bytes, num_operations
from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.moves import AnyMove, Gather, SegmentReduce, Select, Spread
from vgraph.ir.printer import format_memory, format_program, format_schedule
from vgraph.ir.program import Op, Rows, RowSum, Value, needed_ops, op_name
from vgraph.ir.schedule import Phase, Schedule
from vgraph.ir.space import EDGE, SHARED, VERTEX, Space
from vgraph.ir.tdl.table import is_pointwise
from vgraph.native_part import load_native
from vgraph.runtime.compiled import CallContext, CompiledProgram, Plan
from vgraph.runtime.cpu.native import FLOATS
from vgraph.runtime.extent import Extent, whole_frontier
from vgraph.scheduler.parts import type_numbers
from vgraph.scheduler.policy import choose_policy, count_batches, lower_bound
from vgraph.user_line import user_line

_WORDS = {"source": "sources", "vertex": "vertices", "edge": "edges", "graph": "graphs", "shared": "no rows"}
_OFF = "kernels are off: every operator is torch's own, and stores what it gives (VGRAPH_KERNELS=0)"


@checked(source=PATH.or_none())
def explain(
    target: Graph | nn.Module, *args: Any, source: str | os.PathLike[str] | None = None, **features: Tensor | At
) -> Explanation:
    """What functions became: what was hoisted, fused and stored, with the user's lines, bytes and operations.

    Args:
        target: a graph, a VertexFunction, or any module, which is called.
        *args: after a graph a message and a reduce function; after a VertexFunction a graph; after a module its
            arguments.
        source: a file that is to hold the generated code, or a folder for one file a Program; None: it is not
            written.
        **features: the features of a VertexFunction; the keyword arguments of a module.

    Returns:
        An Explanation: print it, or read its fields. If a function cannot be captured, the reason and the line stand
        first.

    Raises:
        ArgumentError: ``source`` is no path.
        FunctionError: the target is nothing that runs functions, or lacks what it is called on; the module ran no
            function of vgraph's.

    Source: none; it reads the Programs, kernels and memory plans that the call itself uses.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> [stored.num_bytes for stored in function.programs[0].stored if stored.what == "output"]
        [48]
    """
    # a class is not written where it is called: what has that line is what vgraph does around its forward
    around = user_line() if isinstance(target, VertexFunction) else ""
    functions = _merged([_function(run, around) for run in _runs(target, args, features)])
    if not functions:
        raise FunctionError(f"{type(target).__name__} ran no function of vgraph's", cure="call one that does")
    files = () if source is None else tuple(_write(functions, Path(source)))
    return Explanation(functions, "" if config.kernels_enabled() else _OFF, files)


def _runs(target: Graph | nn.Module, args: tuple[Any, ...], features: Mapping[str, Tensor | At]) -> list[Run]:
    """The functions that ran, or would run, with their situations."""
    _check_call(target, args)
    name = getattr(args[0], "__name__", type(args[0]).__name__) if isinstance(target, Graph) and args else ""
    try:
        if isinstance(target, Graph):
            bound, call_context = capture_update(target, *args)
            return [(name, bound, call_context)]
        if isinstance(target, VertexFunction):
            bound, call_context = capture_vertex(target, args[0], features)
            return [(type(target).__name__, bound, call_context)]
    except CaptureError as error:
        how = "runs degree by degree, or as written" if name else "runs one vertex at a time"
        return [(name or type(target).__name__, error, how)]
    with watch_runs() as runs:
        target(*args, **features)
    return runs


def _check_call(target: object, args: tuple[object, ...]) -> None:
    """FunctionError: this is nothing that explain knows, or lacks what it is called on."""
    if not (isinstance(target, Graph) or callable(target)):
        fact = f"explain is given a {type(target).__name__}"
        cure = (
            "give a graph, a VertexFunction or another module, then what it is called with; print(plan) tells of a plan"
        )
        raise FunctionError(fact, cure=cure)
    if isinstance(target, Graph) and len(args) != 2:
        fact = f"explain is given a graph and {len(args)} functions"
        raise FunctionError(fact, cure="give a message and a reduce function")
    if isinstance(target, VertexFunction) and len(args) != 1:
        fact = f"explain is given a VertexFunction and {len(args)} arguments"
        raise FunctionError(fact, cure="give a graph, and features by name")


def _merged(functions: Sequence[FunctionSteps]) -> tuple[FunctionSteps, ...]:
    """Calls that ran alike, once."""
    made: dict[tuple[object, ...], list[FunctionSteps]] = {}
    for f in functions:
        made.setdefault((f.name, f.reason, f.line, f.hoisted, f.programs), []).append(f)
    return tuple(_counted(same) for same in made.values())


def _counted(same: list[FunctionSteps]) -> FunctionSteps:
    f = same[0]
    return replace(f, num_calls=len(same))


def _write(functions: Sequence[FunctionSteps], path: Path) -> list[Path]:
    texts = {f"{f.name.strip('<>')}_{p.name}": p.source for f in functions for p in f.programs}
    if path.suffix:
        write_text(path, "\n".join(texts.values()))
        return [path]
    path.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(path / f"{name}.cpp", text)
    return [path / f"{name}.cpp" for name in texts]


# ---------------------------------------------------------------- one function
def _function(run: Run, around: str) -> FunctionSteps:
    name, what, call_context = run
    if isinstance(what, CaptureError):
        return FunctionSteps(name, reason=f"{call_context}: {what.reason}", line=what.line)
    assert isinstance(call_context, CallContext)
    compiled = _compiled(what)
    own = frozenset(op.line for op in compiled["forward"].program.ops) - {around}
    plans = {title: make_plan(one, call_context) for title, one in compiled.items()}
    programs = tuple(_Reader(title, one, plans[title], call_context, own).program() for title, one in compiled.items())
    texts = [f"{title}\n{format_program(one.program, lines=True)}" for title, one in compiled.items()]
    plan = plans["forward"]
    details = "".join([*texts, format_schedule(plan.schedule), format_memory(plan.memory)])
    policy, batches, least = _batches(compiled["forward"], call_context)
    return FunctionSteps(
        name=name,
        num_calls=1,
        reason="",
        line="",
        hoisted=tuple(_hoisted(what, own)),
        programs=programs,
        details=details,
        policy=policy,
        batches=batches,
        least_batches=least,
        frontiers=_widths(plan.schedule) if batches else (),
        unwatchable=what.captured.unwatchable,
    )


def _widths(schedule: Schedule) -> tuple[int, ...]:
    return tuple(frontier.batch_size for frontier in schedule.frontiers)


def _batches(forward: CompiledProgram, call_context: CallContext) -> tuple[str, dict[str, int], int]:
    """The policy, how many batches each would make of the graph, and how few are possible."""
    if not any(phase.is_loop for phase in forward.phases):
        return "", {}, 0
    types = None if call_context.types is None else type_numbers(call_context.types)
    policy = choose_policy(forward.phases, call_context.policy)
    return policy, count_batches(call_context.topology, types), lower_bound(call_context.topology, types)


def _compiled(bound: Bound) -> dict[str, CompiledProgram]:
    captured = bound.captured
    for (derivation, _), pair in captured.pairs.items():
        if not derivation:
            return {"forward": pair.forward, "backward": pair.backward}
    return {"forward": captured.programs[()]}


class _Reader:
    """A compiled Program with the numbers of rows of one call."""

    def __init__(
        self, name: str, compiled: CompiledProgram, plan: Plan, call_context: CallContext, own: frozenset[str]
    ) -> None:
        self.name, self.compiled, self.plan, self.own = name, compiled, plan, own
        schedule = plan.schedule
        self.rows = Extent(schedule, whole_frontier(schedule.frontiers), None, call_context.subsets)
        self.count: Count = lambda space: _rows(self.rows, space)
        given = compiled.program.outputs
        self.kinds = {v.id: "saved for the backward" for v in given[compiled.num_outputs :] if v is not None}
        what = "gradient" if name == "backward" else "output"
        self.kinds.update((v.id, what) for v in given[: compiled.num_outputs] if v is not None)
        self.kernels = 0

    def program(self) -> ProgramSteps:
        phases, idle = list[PhaseSteps](), list[str]()
        for phase, code in zip(self.compiled.phases, self.compiled.codes, strict=True):
            steps = tuple(self.steps(phase, code.units, frozenset(code.stores)))  # which number the kernels
            if phase.is_loop and not self.count(VERTEX):
                idle.append(_whose(phase))
            else:
                phases.append(PhaseSteps(_how(phase), steps))
        held = {v.id for code in self.compiled.codes for u in code.units for v in (u.kernel.stores if u.kernel else ())}
        never = {
            v.id: v
            for code in self.compiled.codes
            for u in code.units
            if u.kernel
            for op in u.kernel.ops
            for v in op.results
            if v.space.kind == "edge" and v.id not in held
        }
        code = "\n".join(f"/*\n{code.source}*/" for code in self.compiled.codes)
        return ProgramSteps(
            self.name,
            tuple(phases),
            len(never),
            sum(num_bytes(v, self.count) for v in never.values()),
            f"{kernel_source(self.compiled)}\n{code}\n",
            self.plan.memory.num_bytes,
            tuple(idle),
        )

    def steps(self, phase: Phase, units: Sequence[Unit], kept: frozenset[int]) -> list[Step]:
        self.count = lambda space: _rows(self.rows, space, phase)
        units = units or [Unit(op=op) for op in phase.ops]
        found = [self.kernel(u.kernel, phase, kept) if u.kernel else self.operator(u.op, phase, kept) for u in units]
        return [step for step in found if step is not None]

    def kernel(self, spec: KernelSpec, phase: Phase, kept: frozenset[int]) -> Step:
        number, self.kernels = self.kernels, self.kernels + 1
        names = tuple(dict.fromkeys(_named(op) for op in spec.ops))
        edges = any(isinstance(op.target, SegmentReduce) or op.results[0].space == EDGE for op in spec.ops)
        over = _WORDS["source" if spec.is_source else "vertex"]
        over += f" and their {'out' if spec.is_source else 'in'}-edges" if edges else ""
        read, written = kernel_bytes(spec, self.count)
        return Step(
            kernel=number,
            over=over,
            operators=names,
            lines=self.lines(spec.ops),
            num_operations=sum(num_operations(op, self.count) for op in spec.ops),
            bytes_read=read,
            bytes_written=written,
            stored=self.stored(spec.stores, phase, kept),
        )

    def operator(self, op: Op | None, phase: Phase, kept: frozenset[int]) -> Step | None:
        if op is None or (is_free(op) and not (phase.is_loop and any(v.id in kept for v in op.results))):
            return None  # a view; what a loop keeps of one is copied
        read = sum(num_bytes(v, self.count) for v in {v.id: v for v in op.operands()}.values())
        written = sum(num_bytes(v, self.count) for v in op.results)
        over = op.results[0].space
        if over == SHARED:
            over = next((v.space for v in op.operands() if v.space != SHARED), over)
        return Step(
            kernel=None,
            over=_WORDS.get(over.kind, str(over)),
            operators=(_named(op),),
            lines=self.lines([op]),
            num_operations=num_operations(op, self.count),
            bytes_read=read,
            bytes_written=written,
            stored=self.stored(op.results, phase, kept),
            why=_why(op, phase, self.count) if config.kernels_enabled() else "",
        )

    def lines(self, ops: Sequence[Op]) -> tuple[str, ...]:
        """Those of the function; what autograd derived has the line of whoever asked."""
        return tuple(dict.fromkeys(op.line for op in ops if op.line in self.own and op.line))

    def stored(self, values: Sequence[Value], phase: Phase, kept: frozenset[int]) -> tuple[Stored, ...]:
        """In a loop over frontiers, what does not outlive one frontier is left out."""
        return tuple(
            Stored(
                self.kinds.get(v.id, "temporary"),
                _WORDS.get(v.space.kind, str(v.space)),
                None if v.space == SHARED else self.count(v.space),
                v.row_shape,
                str(v.dtype).removeprefix("torch."),
                num_bytes(v, self.count),
                v.line,
            )
            for v in values
            if not phase.is_loop or v.id in kept
        )


def _rows(extent: Extent, space: Space, phase: Phase | None = None) -> int:
    """``phase``: a loop may run on leaves alone, on all others alone, or on vertices of one type."""
    schedule = extent.schedule
    if phase is not None and (phase.part or phase.kind) and space.kind in ("vertex", "edge") and not space.key:
        mine = [
            schedule.frontiers[i]
            for i in schedule.numbers(phase.part)
            if not phase.kind or schedule.kinds[i] == phase.kind
        ]
        return sum(f.v1 - f.v0 if space.kind == "vertex" else f.e1 - f.e0 for f in mine)
    if space.key and space.key in schedule.parts:
        return extent.part(space.key).count(space.kind)
    return extent.count(space.kind, space.key)


def _how(phase: Phase) -> str:
    how = "frontier by frontier" if phase.is_loop else "once over all rows"
    how = "once, where the edges are many for some at a time" if phase.is_chunked else how
    how += f", {_whose(phase)} alone" if phase.part or phase.kind else ""
    how += ", last frontier first" if phase.is_reverse else ""
    return how + (", one vertex at a time (TDL does not describe an operator)" if phase.is_serial else "")


def _whose(phase: Phase) -> str:
    """The vertices that a loop runs over."""
    of_type = f" of type {phase.kind}" if phase.kind else ""
    return {"leaves": "leaves", "inner": "vertices with in-edges"}.get(phase.part, "vertices") + of_type


def _named(op: Op) -> str:
    return op_name(op.target)


def _why(op: Op, phase: Phase, count: Count) -> str:
    """Why an operator is not part of a kernel."""
    if phase.is_serial:
        return "TDL does not describe an operator of this function"
    if is_product(op):
        return f"a product of matrices{'' if phase.is_loop else _chosen(op, count)}"
    if isinstance(op.target, RowSum):
        return "one launch for all rows, what is pointwise before the sum computed inside"
    if isinstance(op.target, Gather):
        return "an operator of the library reads its rows"
    if isinstance(op.target, Select):
        return "picks the rows of one type"
    if isinstance(op.target, Spread):
        return "puts the rows of one type in their places"
    if isinstance(op.target, AnyMove):
        return "no kernel makes this move"
    if not any(v.row_dim is not None for v in (*op.operands(), *op.results)):
        return "no rows"
    if is_pointwise(op.target) and has_expression(op):
        return "its rows are too long or not of one shape"
    return "no expression for it with these types" if is_pointwise(op.target) else "not pointwise"


def _chosen(op: Op, count: Count) -> str:
    """Whose product it is, where that was measured; ``count``: how many rows there are."""
    left, right = list(op.operands())[-2:]
    native = load_native() if left.dtype in FLOATS and len(left.shape) == len(right.shape) == 2 else None
    if native is None or native.choose is None:
        return ""
    m, k, n = (d.times * count(d.space) if isinstance(d, Rows) else d for d in (*left.shape, right.shape[1]))
    told = native.choose.told(left.dtype, (m, k, n), of_rows=False)
    return told and f": {told}"


# ---------------------------------------------------------------- what moved off the edges
def _hoisted(bound: Bound, own: frozenset[str]) -> list[Hoisted]:
    """Ops of the function that ran on edges when it was recorded, and do not any more."""
    found = bound.redo((), None)
    before, after = found.as_written, found.tape.ops
    wanted = {v.id for v in found.values(found.levels[0].outputs) if v is not None}
    kept = {id(op) for op in needed_ops(after, wanted)}
    makers = {v.id: op for op in after for v in op.results}
    old = {id(op) for op in before}
    made: list[Hoisted] = []
    for op in needed_ops(before, wanted):
        if id(op) in kept or isinstance(op.target, Gather) or not _is_on_edges(op) or is_free(op):
            continue
        new = _cone(op.results[0], makers, lambda o: id(o) in old)
        computing = [o for o in new if not isinstance(o.target, Gather) and not is_free(o)]
        if computing:
            words = tuple(f"{_named(o)} over {_WORDS.get(o.results[0].space.kind, '')}" for o in computing)
            made.append(Hoisted(_named(op), words, op.line if op.line in own else ""))
    return made


def _is_on_edges(op: Op) -> bool:
    return any(v.space.kind == "edge" for v in (*op.operands(), *op.results))


def _cone(value: Value, makers: Mapping[int, Op], is_old: Callable[[Op], bool]) -> list[Op]:
    """The new ops that make a value, in order."""
    made, entered, stack = dict[int, Op](), set[int](), [makers.get(value.id)]
    while stack:
        op = stack.pop()
        if op is None or is_old(op) or id(op) in made:
            continue
        if id(op) in entered:  # and its operands have been made since
            made[id(op)] = op
            continue
        entered.add(id(op))
        stack += [op, *reversed([makers.get(operand.id) for operand in op.operands()])]
    return list(made.values())
