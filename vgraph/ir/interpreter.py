"""Interpreter: a phase as a straight-line Python function over torch operators.

Takes: a Phase and what others need of it. Gives: its source and a callable; tempo: once a function.
The generated text is what VGRAPH_LOG=program prints: one line an op, one variable a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vgraph.ir.moves import Gather, PutSlot, Random, SegmentReduce, TakeSlot
from vgraph.ir.program import EDGE, VERTEX, Op, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.tdl import op_name

SLICED = (VERTEX, EDGE)


def reads_whole(target: Any) -> bool:
    """Moves whose operand is indexed absolutely, over all rows."""
    if isinstance(target, Gather):
        return target.end != "dst"
    return isinstance(target, SegmentReduce) and target.end != "dst"


@dataclass(eq=False)
class PhaseCode:
    """``run(env, arena, extents)``: reads values by id from env, stores into arena (loops) or env."""

    source: str
    run: Callable[[dict[int, Any], dict[int, Any], Sequence[Any]], None]
    reads: tuple[int, ...]
    stores: tuple[int, ...]


def compile_phase(phase: Phase, wanted: Iterable[int], name: str) -> PhaseCode:
    """``wanted``: ids of the values that later phases, the caller or a Carry need of this one."""
    writer = _Writer(phase, set(wanted))
    source = writer.loop(name) if phase.is_loop else writer.once(name)
    space = dict(writer.constants)
    exec(compile(source, f"<vgraph {name}>", "exec"), space)
    return PhaseCode(source, space[name], tuple(writer.outside), tuple(writer.stored))


@dataclass(eq=False)
class _Writer:
    phase: Phase
    wanted: set[int]
    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    outside: dict[int, Value] = field(default_factory=dict[int, Value])
    stored: list[int] = field(default_factory=list[int])
    wholes: set[int] = field(default_factory=set[int])
    slices: dict[int, Value] = field(default_factory=dict[int, Value])

    def __post_init__(self) -> None:
        made = {v.id for op in self.phase.ops for v in op.results}
        for op in self.phase.ops:
            whole = reads_whole(op.target)
            for value in op.operands():
                self._note_operand(value, value.id in made, whole)
        self.stored = sorted(made & self.wanted)

    def _note_operand(self, value: Value, is_made_here: bool, whole: bool) -> None:
        if not is_made_here:
            self.outside[value.id] = value
        if not self.phase.is_loop:
            return
        if whole or value.space not in SLICED:
            self.wholes.add(value.id)
            if is_made_here:
                self.wanted.add(value.id)
        elif not is_made_here:
            self.slices[value.id] = value

    # ------------------------------------------------------------ the two forms
    def once(self, name: str) -> str:
        lines = [f"def {name}(env, arena, extents):", "    x = extents[0]"]
        lines += [f"    v{i} = env[{i}]" for i in self.outside]
        last = self._last_uses()
        for index, op in enumerate(self.phase.ops):
            lines.append(f"    {self.statement(op)}")
            lines += [f"    env[{v.id}] = v{v.id}" for v in op.results if v.id in self.wanted]
            dead = [i for i in last.get(index, ()) if i not in self.outside]
            if dead:
                lines.append(f"    del {', '.join(f'v{i}' for i in dead)}")
        return "\n".join(lines) + "\n"

    def _last_uses(self) -> dict[int, list[int]]:
        last: dict[int, int] = {}
        for index, op in enumerate(self.phase.ops):
            for value in (*op.operands(), *op.results):
                last[value.id] = index
        by_index: dict[int, list[int]] = {}
        for value_id, index in last.items():
            by_index.setdefault(index, []).append(value_id)
        return by_index

    def loop(self, name: str) -> str:
        lines = [f"def {name}(env, arena, extents):"]
        stored = set(self.stored)
        whole_names = sorted(self.wholes)
        for i in whole_names:
            lines.append(f"    w{i} = {'arena' if i in stored else 'env'}[{i}]")
        lines += [f"    s{i} = env[{i}]" for i in self.slices if i not in self.wholes]
        lines += [f"    a{i} = arena[{i}]" for i in self.stored]
        lines.append("    for x in extents:")
        for i, value in self.slices.items():
            source = f"w{i}" if i in self.wholes else f"s{i}"
            lines.append(f"        v{i} = {self.sliced(source, value)}")
        for op in self.phase.ops:
            lines.append(f"        {self.statement(op)}")
            for value in op.results:
                if value.id in stored:
                    lines.append(f"        {self.sliced(f'a{value.id}', value)}.copy_(v{value.id})")
        return "\n".join(lines) + "\n"

    def sliced(self, name: str, value: Value) -> str:
        """The rows of this frontier, along whichever dim counts them."""
        dim = value.row_dim
        assert dim is not None
        rows = value.shape[dim]
        assert isinstance(rows, Rows)
        letter = "v" if value.space == VERTEX else "e"
        times = f"*{rows.times}" if rows.times != 1 else ""
        if dim == 0:
            return f"{name}[x.{letter}0{times}:x.{letter}1{times}]"
        start, count = f"x.{letter}0{times}", f"(x.{letter}1-x.{letter}0){times}"
        return f"{name}.narrow({dim}, {start}, {count})"

    # ------------------------------------------------------------ one op
    def statement(self, op: Op) -> str:
        results = ", ".join(f"v{v.id}" for v in op.results)
        if op.returns_sequence and len(op.results) == 1:
            results += ","
        return f"{results} = {self.call(op)}"

    def call(self, op: Op) -> str:
        target = op.target
        if isinstance(target, (Gather, SegmentReduce, TakeSlot, PutSlot)):
            return self.move(op)
        if isinstance(target, Random):
            return self.random(op)
        name = op_name(target)
        if name in ("view", "_unsafe_view"):  # strides of stored values may differ from those seen
            return f"{self.constant(torch.reshape, 'reshape')}({self.text(op.args[0])}, {self.text(op.results[0].shape)})"
        function = self.constant(fast_callable(op), name)
        given = [self.text(arg) for arg in op.args]
        given += [f"{key}={self.text(value)}" for key, value in op.kwargs.items()]
        return f"{function}({', '.join(given)})"

    def move(self, op: Op) -> str:
        (value,) = op.operands()
        prefix = "w" if self.phase.is_loop and reads_whole(op.target) else "v"
        return f"x.{move_method(op.target)}{prefix}{value.id})"

    def random(self, op: Op) -> str:
        shape, dtype, extra = op.args
        space = op.results[0].space
        seed, rest = self.text(op.kwargs["seed"]), self.text(extra)
        target: Random = op.target
        return (
            f"x.random({target.distribution!r}, {target.number}, {seed}, {space.kind!r}, "
            f"{self.text(tuple(shape))}, {self.text(dtype)}, {rest})"
        )

    def text(self, leaf: Any) -> str:
        """An argument as Python text; anything without a literal becomes a named constant."""
        if isinstance(leaf, Value):
            if self.phase.is_loop and leaf.space not in SLICED and leaf.id in self.wholes:
                return f"w{leaf.id}"
            return f"v{leaf.id}"
        if isinstance(leaf, Rows):
            times = f"*{leaf.times}" if leaf.times != 1 else ""
            return f"x.count({leaf.space.kind!r}, {leaf.space.key!r}){times}"
        if isinstance(leaf, tuple):
            items = [self.text(item) for item in leaf]  # pyright: ignore[reportUnknownVariableType]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(leaf, list):
            return f"[{', '.join(self.text(item) for item in leaf)}]"  # pyright: ignore[reportUnknownVariableType]
        if (
            leaf is None
            or isinstance(leaf, (bool, int, str))
            or (isinstance(leaf, float) and leaf - leaf == 0)
        ):
            return repr(leaf)
        return self.constant(leaf, "constant")

    def constant(self, thing: Any, hint: str) -> str:
        for name, known in self.constants.items():
            if known is thing:
                return name
        name = f"{hint.strip('_')}_{len(self.constants)}"
        self.constants[name] = thing
        return name


def move_method(move: Any) -> str:
    """The method of an Extent that runs a Move, up to its operand."""
    if isinstance(move, Gather):
        return (
            f"gather_{move.end}("
            if move.end in ("src", "dst", "graph")
            else f"gather_subset({move.end!r}, "
        )
    if isinstance(move, SegmentReduce):
        if move.end in ("dst", "src", "graph"):
            return f"reduce_{move.end}({move.reduction!r}, "
        return f"reduce_subset({move.end!r}, "
    return f"{'take' if isinstance(move, TakeSlot) else 'put'}_slot({move.k}, "


_FAST = {
    "mm": torch.mm, "addmm": torch.addmm, "bmm": torch.bmm, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "relu": torch.relu, "exp": torch.exp, "cat": torch.cat, "t": torch.t,
}  # fmt: skip


def fast_callable(op: Op) -> Callable[..., Any]:
    """The binding of an operator with the least cost a call."""
    name = op_name(op.target)
    if name in _FAST and not op.kwargs:
        return _FAST[name]
    if name in ("add", "sub", "mul", "div") and not op.kwargs and len(op.args) == 2:
        return getattr(torch, name)
    return op.target
