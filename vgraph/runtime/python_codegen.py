"""Interpreter: a phase as a straight-line Python function over torch operators.

Takes: a Phase and what others need of it. Gives: its source and a callable. Runs once per function.
The generated text is what VGRAPH_LOG=program prints: one line an op, one variable a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.ir.kernel import Unit
from vgraph.ir.loop_body import LoopBody
from vgraph.ir.moves import (
    AnyMove,
    Gather,
    InnerRows,
    LeafRows,
    PutSlot,
    Random,
    SegmentReduce,
    Select,
    Spread,
    TakeSlot,
)
from vgraph.ir.program import Noun, Op, Routine, Rows, Target, Value, op_name
from vgraph.ir.schedule import Phase, Schedule
from vgraph.ir.tdl.table import READ_AS_DENSE
from vgraph.runtime.arena_rows import ArenaRows

Step = tuple[Unit, object]  # a unit, and what runs it if it is a kernel
StandIn = Callable[[Op], Callable[..., Tensor] | None]  # what runs an op in the library's place, if it gives anything
SLICED = ("vertex", "edge")  # kinds of spaces of which a frontier sees a slice


def reads_whole(target: Target) -> bool:
    """Moves whose operand is indexed absolutely, over all rows."""
    if isinstance(target, Gather):
        return target.end != "dst"
    return isinstance(target, SegmentReduce) and target.end != "dst"


class Loop(Protocol):
    """Runs all frontiers of a phase's part of a schedule, in its direction; ``body``: what one frontier does."""

    @property
    def body(self) -> LoopBody: ...

    def run(self, env: Mapping[int, Tensor], arena: ArenaRows, schedule: Schedule) -> None: ...


Run = Callable[[dict[int, Tensor], Mapping[int, Tensor], Sequence[object]], None]


def run_nothing(env: Mapping[int, Tensor], arena: Mapping[int, Tensor], extents: Sequence[object]) -> None:
    """Stands for code in Python beside a loop, of which there is none."""
    raise AssertionError("a phase with a loop of its own runs as that alone")


@dataclass(frozen=True, eq=False)
class PhaseCode:
    """``run(env, arena, extents)``: reads values by id from env, stores into arena (loops) or env.

    ``loop``: what runs all frontiers as native code in the place of ``run``, if anything does.
    ``units``: the library ops and kernels that it is made of; without kernels, none.
    """

    source: str
    run: Run
    reads: tuple[int, ...]
    stores: tuple[int, ...]
    loop: Loop | None = None
    units: tuple[Unit, ...] = ()


def compile_phase(
    phase: Phase,
    wanted: Iterable[int],
    name: str,
    steps: Sequence[Step] | None = None,
    stand_in: StandIn | None = None,
    of_rows: Callable[..., Tensor] | None = None,
) -> PhaseCode:
    """``wanted``: ids of the values that later phases, the caller or a Carry need of this one.

    ``steps``: library ops, and kernels with what runs them; without, every op is the library's.
    ``stand_in``: what runs an op in the library's place, if it gives anything. ``of_rows``: ``mm(a, b[ids])`` of a and
    (b, ids), in the place of a gather and a product.
    """
    plain: list[Step] = [(Unit(op=op), None) for op in phase.ops]
    writer = _Writer(phase, set(wanted), plain if steps is None else steps, stand_in, of_rows)
    source = writer.loop(name) if phase.is_loop else writer.once(name)
    space: dict[str, Any] = dict(writer.constants)
    exec(compile(source, f"<vgraph {name}>", "exec"), space)
    return PhaseCode(source, space[name], tuple(writer.outside), tuple(writer.stored))


@dataclass(eq=False)
class _Writer:
    phase: Phase
    wanted: set[int]
    steps: Sequence[Step]
    stand_in: StandIn | None = None
    of_rows: Callable[..., Tensor] | None = None
    constants: dict[str, object] = field(default_factory=dict[str, object])
    outside: dict[int, Value] = field(default_factory=dict[int, Value])
    stored: list[int] = field(default_factory=list[int])
    wholes: set[int] = field(default_factory=set[int])
    slices: dict[int, Value] = field(default_factory=dict[int, Value])
    part_names: dict[str, str] = field(default_factory=dict[str, str])
    sums: list[Value] = field(default_factory=list[Value])  # over rows, in a loop: added up frontier by frontier

    def __post_init__(self) -> None:
        self.library = [unit.op for unit, _ in self.steps if unit.op is not None]
        self.kernels = [unit.kernel for unit, _ in self.steps if unit.kernel is not None]
        made = {v.id for op in self.library for v in op.results}
        made |= {v.id for kernel in self.kernels for v in kernel.stores}
        for kernel in self.kernels:
            for value in kernel.loads:
                self._note_operand(value, value.id in made, whole=True)
            self.wanted |= {v.id for v in kernel.stores} if self.phase.is_loop else set()
        for op in self.library:
            whole = reads_whole(op.target)
            for value in op.operands():
                self._note_operand(value, value.id in made, whole)
        if self.phase.is_loop:
            self.sums = [op.results[0] for op in self.library if _is_sum(op) and op.results[0].id in self.wanted]
        self.stored = sorted(made & self.wanted - {v.id for v in self.sums})
        self.read = {v.id for op in self.library for v in op.operands()}
        gathers = [] if self.phase.is_loop or self.of_rows is None else self.library
        self.unread_rows = {op.results[0].id for op in gathers if op.target == Gather("src") and self._multiplies(op)}

    def _multiplies(self, gather: Op) -> bool:
        """Whether rows at tails of edges are nothing but right factors."""
        rows = gather.results[0]
        users = [op for op in self.library if any(v.id == rows.id for v in op.operands())]
        in_kernels = {v.id for kernel in self.kernels for v in kernel.loads}
        plain = rows.row_dim == 0 and len(rows.shape) == 2 and rows.id not in self.wanted | in_kernels
        return plain and all(op_name(o.target) == "mm" and not o.kwargs and o.args[0].id != rows.id for o in users)

    def _note_operand(self, value: Value, is_made_here: bool, whole: bool) -> None:
        if not is_made_here:
            self.outside[value.id] = value
        if not self.phase.is_loop:
            return
        if whole or value.space.kind not in SLICED:
            self.wholes.add(value.id)
            if is_made_here:
                self.wanted.add(value.id)
        elif not is_made_here:
            self.slices[value.id] = value

    # ------------------------------------------------------------ the two forms
    def once(self, name: str) -> str:
        lines = [f"def {name}(env, arena, extents):", "    x = extents[0]"]
        lines += [f"    {line}" for line in self.parts()]
        lines += [f"    v{i} = env[{i}]" for i in self.outside]
        last = self._last_uses()
        for index, (unit, runner) in enumerate(self.steps):
            results = unit.op.results if unit.op is not None else unit.kernel.stores if unit.kernel else ()
            lines.append(f"    {self.statement(unit.op) if unit.op is not None else self.launch(unit, runner)}")
            lines += [f"    env[{v.id}] = v{v.id}" for v in results if v.id in self.wanted]
            dead = [i for i in last.get(index, ()) if i not in self.outside]
            if dead:
                lines.append(f"    del {', '.join(f'v{i}' for i in dead)}")
        return "\n".join(lines) + "\n"

    def launch(self, unit: Unit, runner: object) -> str:
        """A kernel over all rows."""
        assert unit.kernel is not None
        results = "".join(f"v{v.id}, " for v in unit.kernel.stores)
        loads = "".join(f", v{v.id}" for v in unit.kernel.loads)
        return f"{results}= {self.constant(runner, 'kernel')}.run(x{loads})"

    def _last_uses(self) -> dict[int, list[int]]:
        last: dict[int, int] = {}
        for index, (unit, _) in enumerate(self.steps):
            if unit.op is not None:
                values = (*unit.op.operands(), *unit.op.results)
            else:
                assert unit.kernel is not None
                values = (*unit.kernel.loads, *unit.kernel.stores)
            for value in values:
                last[value.id] = index
        by_index: dict[int, list[int]] = {}
        for value_id, index in last.items():
            by_index.setdefault(index, []).append(value_id)
        return by_index

    def loop(self, name: str) -> str:
        lines = [f"def {name}(env, arena, extents):"]
        stored = set(self.stored)
        for i in sorted(self.wholes):
            lines.append(f"    w{i} = {'arena' if i in stored else 'env'}[{i}]")
        lines += [f"    s{i} = env[{i}]" for i in self.slices if i not in self.wholes]
        lines += [f"    a{i} = arena[{i}]" for i in self.stored]
        lines += [f"    t{v.id} = env.get({v.id})" for v in self.sums]
        if self.kernels:
            lines += (
                ["    order = extents[0].order if extents else None"]
                if self.sums
                else ["    if not extents: return", "    order = extents[0].order"]
            )
        lines += [f"    {line}" for line in self.bindings()]
        lines.append("    for x in extents:")
        lines += [f"        {line}" for line in self.parts()]
        lines += [f"        {line}" for line in self.frontier(stored) or ["pass"]]  # a loop may be all views
        return self.with_sums(lines)

    def frontier(self, stored: set[int]) -> list[str]:
        """What a loop does in every frontier."""
        lines: list[str] = []
        for i, value in self.slices.items():
            if i in self.read:
                source = f"w{i}" if i in self.wholes else f"s{i}"
                lines.append(f"v{i} = {self.sliced(source, value)}")
        for number, (unit, _) in enumerate(self.steps):
            if unit.op is not None:
                lines += self.stored_statements(unit.op, stored)
            elif unit.kernel is not None:
                lines.append(f"c{number}(x.v0, x.v1)")
                lines += [f"v{v.id} = {self.sliced(f'a{v.id}', v)}" for v in unit.kernel.stores if v.id in self.read]
        return lines

    def with_sums(self, lines: list[str]) -> str:
        """What is summed over rows: zero where there are no frontiers."""
        for v in self.sums:
            lines.append(f"        t{v.id} = v{v.id} if t{v.id} is None else t{v.id} + v{v.id}")
        for v in self.sums:
            zeros = (
                f"{self.constant(torch.zeros, 'zeros')}({tuple(v.shape)!r}, dtype={self.constant(v.dtype, 'dtype')})"
            )
            lines.append(f"    env[{v.id}] = {zeros} if t{v.id} is None else t{v.id}")
        return "\n".join(lines) + "\n"

    def bindings(self) -> list[str]:
        """Kernels bound to the tensors of all rows, before the loop begins."""
        lines: list[str] = []
        known = " if extents else None" if self.sums else ""
        for number, (unit, runner) in enumerate(self.steps):
            if unit.kernel is not None:
                loads = ", ".join(f"w{v.id}" for v in unit.kernel.loads)
                stores = ", ".join(f"a{v.id}" for v in unit.kernel.stores)
                lines.append(f"c{number} = {self.constant(runner, 'kernel')}.bind(order, [{loads}], [{stores}]){known}")
        return lines

    def parts(self) -> list[str]:
        """The extents of the types of vertices that ops of this phase speak of."""
        spaces = {v.space for op in self.library for v in (*op.operands(), *op.results)}
        keys = sorted({space.key for space in spaces if space.kind in SLICED and space.key})
        return [f"{self.extent(key)} = x.part({key!r})" for key in keys]

    def extent(self, key: str) -> str:
        """The variable that holds the extent of one type, or of all vertices."""
        if not key:
            return "x"
        if key not in self.part_names:
            self.part_names[key] = f"x{len(self.part_names)}"
        return self.part_names[key]

    def stored_statements(self, op: Op, stored: set[int]) -> list[str]:
        """An op of a loop; what must be kept is written to its place, at once where torch can."""
        keeps = [value for value in op.results if value.id in stored]
        direct = _OUT.get(op_name(op.target))
        if len(keeps) == 1 == len(op.results) and direct and not op.kwargs and keeps[0].row_dim == 0:
            name, place = f"v{keeps[0].id}", self.sliced(f"a{keeps[0].id}", keeps[0])
            return [f"{name} = {place}", f"{self.call(op)[:-1]}, {direct}={name})"]
        copies = [f"{self.sliced(f'a{v.id}', v)}.copy_(v{v.id})" for v in keeps]
        return [self.statement(op), *copies]

    def sliced(self, name: str, value: Value) -> str:
        """The rows of this frontier, along whichever dim counts them."""
        dim = value.row_dim
        assert dim is not None
        rows = value.shape[dim]
        assert isinstance(rows, Rows)
        x, letter = self.extent(value.space.key), value.space.kind[0]
        times = f"*{rows.times}" if rows.times != 1 else ""
        first, last = f"{x}.{letter}0", f"{x}.{letter}1"
        if dim == 0:
            return f"{name}[{first}{times}:{last}{times}]"
        return f"{name}.narrow({dim}, {first}{times}, ({last}-{first}){times})"

    # ------------------------------------------------------------ one op
    def statement(self, op: Op) -> str:
        results = ", ".join(f"v{v.id}" for v in op.results)
        if op.returns_sequence and len(op.results) == 1:
            results += ","
        return f"{results} = {self.call(op)}"

    def call(self, op: Op) -> str:
        target = op.target
        if isinstance(target, AnyMove):
            return self.move(op, target)
        if isinstance(target, Random):
            return self.random(op, target)
        name = op_name(target)
        if name == "mm" and op.args[1].id in self.unread_rows:
            return f"{self.constant(self.of_rows, 'mm_of_rows')}({self.text(op.args[0])}, {self.text(op.args[1])})"
        if name in ("view", "_unsafe_view"):  # strides of stored values may differ from those seen
            return (
                f"{self.constant(torch.reshape, 'reshape')}({self.text(op.args[0])}, {self.text(op.results[0].shape)})"
            )
        other = self.stand_in(op) if self.stand_in is not None else None
        function = self.constant(other or fast_callable(op), name)
        given = [self.operand(name, arg, op) for arg in op.args]
        given += [f"{key}={self.text(value)}" for key, value in op.kwargs.items()]
        called = f"{function}({', '.join(given)})"
        return f"{called} if {given[0]}.numel() else {self.zeros(op, given[0])}" if name in _NOT_OF_NOTHING else called

    def zeros(self, op: Op, operand: str) -> str:
        """What an operator gives for no rows: results without rows, and sums over none."""
        zeros = f"{operand}.new_zeros"
        texts = [f"{zeros}({self.text(v.shape)}, dtype={self.constant(v.dtype, 'dtype')})" for v in op.results]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    def operand(self, name: str, arg: object, op: Op) -> str:
        """An argument as the operator takes it, where that is not as it lies."""
        text = self.text(arg)
        if name in READ_AS_DENSE and isinstance(arg, Value):
            return f"{text}.contiguous()"
        if name in _OF_ONE_SHAPE and isinstance(arg, Value) and arg.shape != op.results[0].shape:
            return f"{text}.expand({self.text(op.results[0].shape)})"
        return text

    def move(self, op: Op, move: AnyMove) -> str:
        (value,) = op.operands()
        if op.results[0].id in self.unread_rows:
            return f"(v{value.id}, x.src_rows)"
        prefix = "w" if self.phase.is_loop and reads_whole(move) else "v"
        x = "x" if isinstance(move, (Select, Spread)) else self.extent(move.part)
        return f"{x}.{move_method(move)}{prefix}{value.id})"

    def random(self, op: Op, target: Random) -> str:
        shape, dtype, extra = op.args
        space = op.results[0].space
        seed, rest = self.text(op.kwargs["seed"]), self.text(extra)
        x = self.extent(space.key if space.kind in SLICED else "")
        return (
            f"{x}.random({target.distribution!r}, {target.number}, {seed}, {space.kind!r}, "
            f"{self.text(tuple(shape))}, {self.text(dtype)}, {rest})"
        )

    def text(self, leaf: object) -> str:
        """An argument as Python text; anything without a literal becomes a named constant."""
        if isinstance(leaf, Value):
            if self.phase.is_loop and leaf.space.kind not in SLICED and leaf.id in self.wholes:
                return f"w{leaf.id}"
            return f"v{leaf.id}"
        if isinstance(leaf, Rows):
            times = f"*{leaf.times}" if leaf.times != 1 else ""
            if leaf.space.kind in SLICED:
                return f"{self.extent(leaf.space.key)}.count({leaf.space.kind!r}){times}"
            return f"x.count({leaf.space.kind!r}, {leaf.space.key!r}){times}"
        if isinstance(leaf, tuple):
            items = [self.text(item) for item in leaf]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(leaf, list):
            return f"[{', '.join(self.text(item) for item in leaf)}]"
        if leaf is None or isinstance(leaf, (bool, int, str)) or (isinstance(leaf, float) and leaf - leaf == 0):
            return repr(leaf)
        return self.constant(leaf, "constant")

    def constant(self, thing: object, hint: str) -> str:
        for name, known in self.constants.items():
            if known is thing:
                return name
        name = f"{hint.strip('_')}_{len(self.constants)}"
        self.constants[name] = thing
        return name


def _is_sum(op: Op) -> bool:
    """Rows go in, none come out."""
    rows = any(v.row_dim is not None for v in op.operands())
    return rows and len(op.results) == 1 and op.results[0].row_dim is None


def move_method(move: AnyMove) -> str:
    """The method of an Extent that runs a Move, up to its operand."""
    match move:
        case Gather(end):
            return f"gather_{end}(" if end in ("src", "dst", "graph") else f"gather_subset({end!r}, "
        case SegmentReduce(end, reduction):
            return f"reduce_{end}({reduction!r}, " if end in ("dst", "src", "graph") else f"reduce_subset({end!r}, "
        case Select(kind, part):
            return f"select({kind!r}, {part!r}, "
        case Spread(kind, part):
            return f"spread({kind!r}, {part!r}, "
        case LeafRows():
            return f"leaf_rows({move.is_loose}, "
        case InnerRows():
            return "inner_rows("
        case TakeSlot(k):
            return f"take_slot({k}, "
        case PutSlot(k):
            return f"put_slot({k}, "


_FAST = {
    "mm": torch.mm, "addmm": torch.addmm, "bmm": torch.bmm, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "relu": torch.relu, "exp": torch.exp, "cat": torch.cat, "t": torch.t,
    "sigmoid_backward": torch.ops.aten.sigmoid_backward, "tanh_backward": torch.ops.aten.tanh_backward,
}  # fmt: skip


# On a first operand without elements the first of these divides by zero, which ends the process, and the second gives
# another shape where rows are channels, as they are in derivatives. torch's own autograd does not call them so.
_NOT_OF_NOTHING = frozenset({"native_batch_norm_backward", "convolution"})
_OF_ONE_SHAPE = frozenset({"gelu_backward"})  # oneDNN's takes no gradient that all rows share
_OUT_WORDS = "mm addmm bmm sigmoid tanh exp cat add sub mul div".split()
_OUT: dict[str, str] = {  # operators that can write to a given place: the keyword for it
    **dict.fromkeys(_OUT_WORDS, "out"),
    "sigmoid_backward": "grad_input",
    "tanh_backward": "grad_input",
}


def fast_callable(op: Op) -> Callable[..., object]:
    """The binding of an operator with the least cost a call."""
    target, name = op.target, op_name(op.target)
    if isinstance(target, Routine):
        return target.run
    assert not isinstance(target, Noun), f"{target} is not called"
    if name in _FAST and not op.kwargs:
        return _FAST[name]
    if name in ("add", "sub", "mul", "div") and not op.kwargs and len(op.args) == 2:
        return getattr(torch, name)
    return target
