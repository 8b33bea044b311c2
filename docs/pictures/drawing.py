"""A picture of circles, boxes, arrows and words, as SVG that any browser shows.

Takes: what to draw, in pixels. Gives: the text of a file. Needs no library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Point = tuple[float, float]

INK, PALE = "#334155", "#94a3b8"
FILLS = ("#bfdbfe", "#bbf7d0", "#fde68a", "#fecaca", "#e2e8f0")  # blue, green, yellow, red, grey
BORDERS = ("#2563eb", "#16a34a", "#ca8a04", "#dc2626", "#64748b")
RADIUS = 13.0


@dataclass
class Drawing:
    """Elements in the order in which they are drawn, on white."""

    width: int
    height: int
    elements: list[str] = field(default_factory=list[str])

    def words(self, at: Point, text: str, *, size: int = 13, anchor: str = "middle", colour: str = INK) -> None:
        place = f'x="{at[0]:g}" y="{at[1]:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
        self.elements.append(f"<text {place}>{escape(text)}</text>")

    def vertex(self, at: Point, text: str = "", colour: int = 4, radius: float = RADIUS) -> None:
        look = f'fill="{FILLS[colour]}" stroke="{BORDERS[colour]}" stroke-width="1.5"'
        self.elements.append(f'<circle cx="{at[0]:g}" cy="{at[1]:g}" r="{radius:g}" {look}/>')
        if text:
            self.words((at[0], at[1] + 4), text, size=11)

    def box(self, corner: Point, size: Point, text: str = "", colour: int = 4) -> None:
        look = f'rx="4" fill="{FILLS[colour]}" stroke="{BORDERS[colour]}" stroke-width="1.5"'
        place = f'x="{corner[0]:g}" y="{corner[1]:g}" width="{size[0]:g}" height="{size[1]:g}"'
        self.elements.append(f"<rect {place} {look}/>")
        if text:
            self.words((corner[0] + size[0] / 2, corner[1] + size[1] / 2 + 4), text, size=12)

    def arrow(
        self, start: Point, end: Point, *, gap: float = RADIUS + 2, bend: float = 0.0, colour: str = PALE
    ) -> None:
        """From ``start`` to ``end``, ``gap`` short of both; ``bend`` pushes the middle to the left of its way."""
        (x, y), (u, v) = start, end
        long = ((u - x) ** 2 + (v - y) ** 2) ** 0.5
        ahead = ((u - x) / long, (v - y) / long)
        middle = ((x + u) / 2 + bend * ahead[1], (y + v) / 2 - bend * ahead[0])
        a, b = _towards(start, middle, gap), _towards(end, middle, gap)
        path = f"M{a[0]:.1f} {a[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {b[0]:.1f} {b[1]:.1f}"
        self.elements.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" {_head(colour)}/>')

    def line(self, points: Sequence[Point], *, colour: str = PALE, width: float = 1.5) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.elements.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def svg(self) -> str:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        font = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'
        heads = "".join(_marker(colour) for colour in (INK, PALE, *BORDERS) if _head(colour) in " ".join(self.elements))
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f"<defs>{heads}</defs>",
            '<rect width="100%" height="100%" fill="white"/>',
            *self.elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _towards(start: Point, end: Point, distance: float) -> Point:
    long = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    part = distance / long
    return start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])


def _head(colour: str) -> str:
    return f'marker-end="url(#to-{colour[1:]})"'


def _marker(colour: str) -> str:
    shape = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"'
    return f'<marker id="to-{colour[1:]}" {shape}><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
