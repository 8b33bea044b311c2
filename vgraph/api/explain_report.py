"""Explanation: what became of functions, as values that print.

Takes: nothing (plain values). Gives: text. Runs once.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Stored:
    """A tensor that is written to memory, in an ``Explanation``.

    Attributes:
        what: "output", "gradient", "saved for the backward" or "temporary".
        space: what its rows are: sources, vertices, edges, graphs, or no rows.
        rows: how many rows; None: a tensor without rows.
        row_shape: the shape of a row.
        dtype: the dtype's name.
        num_bytes: the bytes of all rows.
        line: ``file:line`` of the user's program; "": none.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> [(stored.rows, stored.row_shape) for stored in function.programs[0].stored if stored.what == "output"]
        [(3, (4,))]
    """

    what: str  # output, gradient, saved for the backward, or temporary
    space: str
    rows: int | None  # None: a tensor without rows
    row_shape: tuple[int, ...]
    dtype: str
    num_bytes: int
    line: str = ""


@dataclass(frozen=True)
class Hoisted:
    """An operator that the function runs on edges, and what runs instead, in an ``Explanation``.

    Attributes:
        operator: the operator on edges.
        instead: the operators on vertices that take its place.
        line: ``file:line`` of the user's program; "": none.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> from vgraph.api.explain_report import Hoisted
        >>> Hoisted("mm over edges", ("mm over sources",)).instead
        ('mm over sources',)
    """

    operator: str
    instead: tuple[str, ...]
    line: str = ""


@dataclass(frozen=True)
class Step:
    """One kernel, or one operator of the library, in an ``Explanation``.

    Attributes:
        kernel: the number of the kernel; None: an operator of the library.
        over: what its rows are.
        operators: the operators that it runs.
        lines: ``file:line`` of the user's program for them.
        num_operations: floating-point operations in one call.
        bytes_read: bytes that it reads.
        bytes_written: bytes that it writes.
        stored: the tensors that it writes.
        why: what keeps an operator out of a kernel; "": nothing does.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> len(function.programs[0].steps) > 0
        True
    """

    kernel: int | None
    over: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    num_operations: int
    bytes_read: int
    bytes_written: int
    stored: tuple[Stored, ...]
    why: str = ""


@dataclass(frozen=True)
class PhaseSteps:
    """Steps that run once over all rows, or frontier by frontier, in an ``Explanation``.

    Attributes:
        how: which of the two, in words.
        steps: the steps, in order.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> from vgraph.api.explain_report import PhaseSteps
        >>> PhaseSteps("once over all rows", ()).how
        'once over all rows'
    """

    how: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class ProgramSteps:
    """A forward or a backward: its phases, its cost in one step, and what it never stores, in an ``Explanation``.

    Attributes:
        name: "forward" or "backward".
        phases: the phases, in order.
        num_on_edges: how many values on edges no memory holds.
        bytes_on_edges: the bytes that they would take.
        source: the C++ of its kernels, and the code around them.
        arena_bytes: the bytes of what frontiers leave.

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> function.programs[0].name, function.programs[0].num_bytes > 0
        ('forward', True)
    """

    name: str
    phases: tuple[PhaseSteps, ...]
    num_on_edges: int = 0  # values on edges that no memory holds
    bytes_on_edges: int = 0
    source: str = ""  # C++ of its kernels, and the code around them
    arena_bytes: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all phases, in order."""
        return tuple(step for phase in self.phases for step in phase.steps)

    @property
    def stored(self) -> tuple[Stored, ...]:
        """All that is written to memory."""
        return tuple(stored for step in self.steps for stored in step.stored)

    @property
    def num_operations(self) -> int:
        """The floating-point operations of one call."""
        return sum(step.num_operations for step in self.steps)

    @property
    def num_bytes(self) -> int:
        """Bytes read and written, each kernel's and operator's own."""
        return sum(step.bytes_read + step.bytes_written for step in self.steps)


@dataclass(frozen=True)
class FunctionSteps:
    """One function as it runs, in an ``Explanation``.

    Attributes:
        name: the function's name.
        num_calls: how many calls ran alike.
        reason: how it runs and why, if it was not captured; else "".
        line: ``file:line`` of what was not captured; else "".
        hoisted: operators that moved from edges to vertices.
        programs: its forward, and its backward where there is one.
        details: Programs, schedule and memory plan as text.
        policy: the policy of a loop over frontiers; "": there is none.
        batches: how many batches each policy makes of this graph.
        least_batches: how many any policy must make.
        unwatchable: what it reads that no guard can watch, so that its Python runs at every call; else "".

    Source: none (a part of ``vgraph.explain``).

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> (function,) = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s")).functions
        >>> function.num_calls, function.reason
        (1, '')
    """

    name: str
    num_calls: int = 1
    reason: str = ""
    line: str = ""
    hoisted: tuple[Hoisted, ...] = ()
    programs: tuple[ProgramSteps, ...] = ()
    details: str = ""  # Programs, schedule and memory plan
    policy: str = ""  # of a loop over frontiers
    batches: Mapping[str, int] = field(default_factory=dict[str, int])  # that each policy makes of this graph
    least_batches: int = 0  # that any policy could make
    unwatchable: str = ""


@dataclass(frozen=True)
class Explanation:
    """What ``vgraph.explain`` found out of functions on a graph; prints as text.

    Attributes:
        functions: one report for each function that ran, with ``reason`` where it was not captured, ``hoisted``,
            ``programs`` and their costs.
        note: what holds for all of them, such as that kernels are off; else empty.
        files: where generated code was written.

    Source: none; it shows the Programs, kernels and memory plans that the call itself uses.

    Example:
        >>> import torch, vgraph, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> explanation = vgraph.explain(g, fn.copy_u("h", "m"), fn.sum("m", "s"))
        >>> len(explanation.functions), explanation.functions[0].reason
        (1, '')
    """

    functions: tuple[FunctionSteps, ...]
    note: str = ""
    files: tuple[Path, ...] = field(default=())

    @property
    def details(self) -> str:
        """The Programs with the user's lines, the schedule and the memory plan of every function."""
        return "\n".join(f.details for f in self.functions if f.details)

    def __str__(self) -> str:
        lines = [line for f in self.functions for line in (*_function(f), "")]
        lines += [self.note] if self.note else []
        lines += [f"source written to {path}" for path in self.files]
        return "\n".join(lines).rstrip("\n")


# ---------------------------------------------------------------- text
def _function(function: FunctionSteps) -> Iterator[str]:
    calls = f", {function.num_calls} calls" if function.num_calls > 1 else ""
    if function.reason:
        yield f"{function.name}{calls}: not captured, {function.reason}"
        if function.line:
            yield f"  at {_shown(function.line)}"
        return
    parts = [f"{p.name} {_counted(p)}" for p in function.programs]
    yield f"{function.name}{calls}: captured; {'; '.join(parts)}"
    if function.unwatchable:
        yield f"  its Python runs at every call: {function.unwatchable}"
    if function.hoisted:
        yield "  hoisted: written on edges, runs over vertices"
    for item in function.hoisted:
        yield f"    {item.operator} -> {', '.join(item.instead)}{_at((item.line,))}"
    if function.batches:
        others = ", ".join(f"{name} {n}" for name, n in function.batches.items() if name != function.policy)
        mine = _plural(function.batches[function.policy], "batch", "batches")
        yield f"  policy {function.policy}: {mine} ({others}); no policy makes fewer than {function.least_batches}"
    for program in function.programs:
        yield from _program(program)


def _counted(program: ProgramSteps) -> str:
    kernels = sum(step.kernel is not None for step in program.steps)
    operators = len(program.steps) - kernels
    return f"{_plural(kernels, 'kernel')}, {_plural(operators, 'operator')}"


def _program(program: ProgramSteps) -> Iterator[str]:
    cost = f"{_readable(program.num_operations, 'operations')}, {_bytes(program.num_bytes)} read and written"
    yield f"  {program.name}: {cost}"
    for phase in program.phases:
        if len(program.phases) > 1 or not phase.how.startswith("once"):
            yield f"    {phase.how}"
        before: tuple[str, ...] = ()
        for step in phase.steps:
            yield from _step(step, before)
            before = step.lines
    stored = f"    stored: {_bytes(sum(s.num_bytes for s in program.stored))}"
    if program.num_on_edges:
        values = _plural(program.num_on_edges, "value")
        stored += f"; {values} on edges never, which would take {_bytes(program.bytes_on_edges)}"
    yield stored
    if program.arena_bytes:
        yield f"    arena of what frontiers leave: {_bytes(program.arena_bytes)}, used again by the next call"


def _step(step: Step, before: tuple[str, ...]) -> Iterator[str]:
    """``before``: the lines of the step before, which are not shown again."""
    shown = "" if step.lines == before else _at(step.lines)
    if step.kernel is None:
        why = f" [{step.why}]" if step.why else ""
        yield f"    operator {step.operators[0]} over {step.over}{why}{shown}"
    else:
        yield f"    kernel {step.kernel} over {step.over}: {', '.join(step.operators)}{shown}"
    for s in step.stored:
        row = " x ".join(str(n) for n in (s.rows, *s.row_shape) if n is not None)
        yield f"      stores {s.what}: {s.space} {row} {s.dtype} = {_bytes(s.num_bytes)}"


def _at(lines: tuple[str, ...]) -> str:
    shown = [_shown(line) for line in dict.fromkeys(lines) if line]
    return "".join(f"\n        {text}" for text in shown)


def _shown(line: str) -> str:
    """``file:line`` with the text there."""
    path, _, number = line.rpartition(":")
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return f"{Path(path).name}:{number}  {text}".rstrip()


def _plural(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}"


def _bytes(count: int) -> str:
    return _readable(count, "bytes", ("kB", "MB", "GB", "TB"))


def _readable(count: float, unit: str, larger: tuple[str, ...] = ("thousand", "million", "billion")) -> str:
    """A number for people.

    >>> _bytes(12), _bytes(3_400_000), _readable(4200, "operations")
    ('12 bytes', '3.4 MB', '4.2 thousand operations')
    """
    suffix = "" if unit == "bytes" else f" {unit}"
    if count < 1000:
        return f"{count} {unit}"
    for word in larger:
        count /= 1000
        if count < 999.5 or word == larger[-1]:
            return f"{count:.3g} {word}{suffix}"
    return ""
