"""Explanation: what became of functions, as text and as a picture.

Takes: reports of functions. Gives: text, SVG. Runs once.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vgraph.api.explain_picture import picture
from vgraph.api.explain_report import FunctionSteps, ProgramSteps, Step, Stored
from vgraph.api.explain_words import bytes_text, plural, readable, shown_line
from vgraph.atomic_file import write_text
from vgraph.errors import FunctionError


@dataclass(frozen=True)
class Explanation:
    """What ``vgraph.explain`` found out of functions on a graph; prints as text, and is a picture in a notebook.

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

    def svg(self) -> str:
        """The picture: phases, kernels, what each stores, and the widths of frontiers.

        Returns:
            The text of an SVG file; lines of the program and numbers show where the pointer rests.
        """
        return picture(self.functions, self.note)

    def save(self, path: str | Path) -> None:
        """Writes the picture to a file, as a whole or not at all.

        Args:
            path: a file whose name ends in ``.svg``; one that is there is replaced.

        Raises:
            FunctionError: the name ends in something else.
        """
        if Path(path).suffix != ".svg":
            raise FunctionError(f"the picture is SVG, and the file is called {Path(path).name}", cure="end it in .svg")
        write_text(Path(path), self.svg())

    def show(self) -> None:
        """Shows the picture in a notebook, wherever in a cell this stands; elsewhere prints the text."""
        notebook = sys.modules.get("IPython")  # a notebook has loaded it
        shell = notebook and notebook.get_ipython()
        if shell is None:
            print(self)
        else:
            sys.modules["IPython.display"].display(self)

    def _repr_svg_(self) -> str:
        return self.svg()

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
            yield f"  at {shown_line(function.line)}"
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
        mine = plural(function.batches[function.policy], "batch", "batches")
        yield f"  policy {function.policy}: {mine} ({others}); no policy makes fewer than {function.least_batches}"
    for program in function.programs:
        yield from _program(program)


def _counted(program: ProgramSteps) -> str:
    kernels = sum(step.kernel is not None for step in program.steps)
    operators = len(program.steps) - kernels
    return f"{plural(kernels, 'kernel')}, {plural(operators, 'operator')}"


def _program(program: ProgramSteps) -> Iterator[str]:
    cost = f"{readable(program.num_operations, 'operations')}, {bytes_text(program.num_bytes)} read and written"
    yield f"  {program.name}: {cost}"
    how = "once over all rows" if len(program.phases) == 1 and not program.idle else ""
    before: tuple[str, ...] = ()
    for phase in program.phases:
        if phase.steps and phase.how != how:
            how, before = phase.how, ()
            yield f"    {how}"
        for step in phase.steps:
            yield from _step(step, before)
            before = step.lines
    if program.idle:
        yield f"    loops without a vertex in this graph: over {', over '.join(program.idle)}"
    stored = f"    stored: {bytes_text(sum(s.num_bytes for s in program.stored))}"
    if program.num_on_edges:
        values = plural(program.num_on_edges, "value")
        stored += f"; {values} on edges never, which would take {bytes_text(program.bytes_on_edges)}"
    yield stored
    if program.arena_bytes:
        yield f"    arena of what frontiers leave: {bytes_text(program.arena_bytes)}, used again by the next call"


def _step(step: Step, before: tuple[str, ...]) -> Iterator[str]:
    """``before``: the lines of the step before, which are not shown again."""
    shown = "" if step.lines == before else _at(step.lines)
    if step.kernel is None:
        why = f" [{step.why}]" if step.why else ""
        yield f"    operator {step.operators[0]} over {step.over}{why}{shown}"
    else:
        yield f"    kernel {step.kernel} over {step.over}: {', '.join(step.operators)}{shown}"
    for line, times in Counter(map(_stored, step.stored)).items():
        yield f"      stores {line}{f', and {times - 1} more of the same' if times > 1 else ''}"


def _stored(s: Stored) -> str:
    row = " x ".join(str(n) for n in (s.rows, *s.row_shape) if n is not None)
    return f"{s.what}: {s.space} {row} {s.dtype} = {bytes_text(s.num_bytes)}"


def _at(lines: tuple[str, ...]) -> str:
    shown = [shown_line(line) for line in dict.fromkeys(lines) if line]
    return "".join(f"\n        {text}" for text in shown)
