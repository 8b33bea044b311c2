"""The picture of an Explanation: phases, kernels, what each stores, and the widths of frontiers, as SVG.

Takes: reports of functions. Gives: the text of an SVG file. Runs once. No library is needed to draw or to show it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from vgraph.api.explain_report import FunctionSteps, PhaseSteps, ProgramSteps, Step
from vgraph.api.explain_words import bytes_text, shown_line

WIDTH, GAP, LINE, LETTER = 520, 24, 16, 6.7  # of a column, between columns, of a line of text, of a letter; pixels
LETTERS = int((WIDTH - 40) / LETTER)
COLOURS = {
    "kernel": ("#dbeafe", "#2563eb"),  # fill, border
    "operator": ("#f1f5f9", "#64748b"),
    "loop": ("#fef9c3", "#ca8a04"),
    "once": ("none", "#cbd5e1"),
    "stored": ("#fecaca", "#dc2626"),
    "frontier": ("#bbf7d0", "#16a34a"),
}


@dataclass
class _Column:
    """Elements below each other; ``y`` is where the next one begins."""

    x: float
    y: float
    elements: list[str] = field(default_factory=list[str])

    def text(self, words: str, *, indent: float = 0, is_bold: bool = False, title: str = "") -> None:
        weight = ' font-weight="bold"' if is_bold else ""
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.y += LINE
        place = f'x="{self.x + indent:.1f}" y="{self.y - 4:.1f}"'
        self.elements.append(f"<text {place}{weight}>{tip}{escape(words)}</text>")

    def box(self, kind: str, top: float, indent: float, width: float, *, title: str = "") -> str:
        """A rectangle from ``top`` to where the column now ends."""
        fill, border = COLOURS[kind]
        tip = f"<title>{escape(title)}</title>" if title else ""
        place = f'x="{self.x + indent:.1f}" y="{top:.1f}" width="{width:.1f}" height="{self.y - top:.1f}"'
        return f'<rect {place} rx="4" fill={quoteattr(fill)} stroke={quoteattr(border)}>{tip}</rect>'


def picture(functions: Sequence[FunctionSteps], note: str = "") -> str:
    """All functions below each other: forward at the left, backward at the right.

    Args:
        functions: reports of functions, as ``Explanation.functions`` has them.
        note: what holds for all of them; "": nothing does.

    Returns:
        The text of an SVG file.
    """
    y, width, elements = 8.0, 2 * WIDTH + 3 * GAP, list[str]()
    for function in functions:
        head = _Column(GAP, y)
        head.text(_headline(function), is_bold=True)
        _frontiers(head, function.frontiers, width - 2 * GAP)
        columns = [_Column(GAP + place * (WIDTH + GAP), head.y + 6) for place in range(len(function.programs))]
        for column, program in zip(columns, function.programs, strict=True):
            _program(column, program)
        elements += [part for column in (head, *columns) for part in column.elements]
        y = max(column.y for column in (head, *columns)) + GAP
    if note:
        last = _Column(GAP, y)
        last.text(note)
        elements, y = [*elements, *last.elements], last.y + 8
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y:.0f}" font-size="11"'
    style = 'font-family="ui-monospace, Menlo, Consolas, monospace"'
    return "\n".join([f"{opening} {style}>", '<rect width="100%" height="100%" fill="white"/>', *elements, "</svg>\n"])


def _headline(function: FunctionSteps) -> str:
    calls = f", {function.num_calls} calls" if function.num_calls > 1 else ""
    how = f"not captured, {function.reason}" if function.reason else "captured"
    return f"{function.name}{calls}: {how}"


def _frontiers(column: _Column, widths: Sequence[int], room: float) -> None:
    """A bar a frontier, as high as it has vertices."""
    if not widths:
        return
    column.text(f"{len(widths)} frontiers, {sum(widths)} vertices, {max(widths)} in the widest; children first")
    top, high, each = column.y + 4, 60.0, min(24.0, room / len(widths))
    column.y = top + high
    for number, count in enumerate(widths):
        bar = _Column(column.x, column.y)
        title = f"frontier {number}: {count} vertices"
        tall = max(1.0, high * count / max(widths))
        column.elements.append(bar.box("frontier", column.y - tall, number * each, max(each - 1, 0.2), title=title))
    column.y += 4


def _program(column: _Column, program: ProgramSteps) -> None:
    stored = sum(s.num_bytes for s in program.stored)
    column.text(f"{program.name}: {bytes_text(program.num_bytes)} read and written", is_bold=True)
    largest = max((s.num_bytes for s in program.stored), default=0)
    for phase in program.phases:
        _phase(column, phase, largest)
    never = f"; {bytes_text(program.bytes_on_edges)} on edges never" if program.num_on_edges else ""
    column.text(f"stored: {bytes_text(stored)}{never}")


def _phase(column: _Column, phase: PhaseSteps, largest: int) -> None:
    top = column.y + 4
    inner = _Column(column.x, top)
    inner.text(phase.how, indent=8)
    for step in phase.steps:
        _step(inner, step, largest)
    inner.y += 6
    kind = "once" if phase.how.startswith("once") else "loop"
    column.y = inner.y
    column.elements += [column.box(kind, top, 0, WIDTH), *inner.elements]
    column.y += 4


def _step(column: _Column, step: Step, largest: int) -> None:
    """A box with the operators; below it a bar for each tensor stored, as long as it has bytes."""
    kind = "operator" if step.kernel is None else "kernel"
    top = column.y + 4
    inner = _Column(column.x, top)
    for line in _words(step):
        inner.text(line, indent=16)
    inner.y += 3
    column.y = inner.y
    lines = "\n".join(shown_line(line) for line in dict.fromkeys(step.lines) if line)
    column.elements += [column.box(kind, top, 8, WIDTH - 16, title=lines), *inner.elements]
    for stored in step.stored:
        row = " x ".join(str(n) for n in (stored.rows, *stored.row_shape) if n is not None)
        top = column.y + 2
        column.text(f"{stored.what}: {stored.space} {row} {stored.dtype}, {bytes_text(stored.num_bytes)}", indent=24)
        long = max(2.0, (WIDTH - 48) * stored.num_bytes / max(largest, 1))
        column.elements.insert(
            -1, column.box("stored", top, 20, long, title=shown_line(stored.line) if stored.line else "")
        )


def _words(step: Step) -> Iterator[str]:
    if step.kernel is None:
        why = f" [{step.why}]" if step.why else ""
        yield from textwrap.wrap(f"{step.operators[0]} over {step.over}{why}", LETTERS)
    else:
        operators = ", ".join(step.operators)
        yield from textwrap.wrap(f"kernel {step.kernel} over {step.over}: {operators}", LETTERS)
    for line in dict.fromkeys(line for line in step.lines if line):
        yield textwrap.shorten(shown_line(line), LETTERS, placeholder=" ...")
