"""Draws the pictures of the documentation into this folder: python docs/pictures/make.py

Each function gives the drawing of the file that bears its name. tests/test_pictures.py compares the files with them.
"""

from __future__ import annotations

from pathlib import Path

from drawing import BORDERS, INK, PALE, Drawing, Point
from plans import plan_gpt, plan_unet, plan_wresnet

Tree = tuple[list[tuple[Point, str, int]], list[tuple[int, int]]]  # (place, word, level) of vertices; (child, parent)


def frontiers() -> Drawing:
    """Three trees of a batch, and beside them their vertices frontier by frontier."""
    drawing = Drawing(840, 270)
    drawing.words((205, 22), "a batch: three trees, each with a shape of its own", size=14)
    found: list[list[str]] = [[], [], [], []]
    for number, (vertices, edges) in enumerate(_trees()):
        for child, parent in edges:
            drawing.arrow(vertices[child][0], vertices[parent][0])
        for i, (at, word, level) in enumerate(vertices):
            name = f"{'abc'[number]}{i}"
            drawing.vertex(at, name, level)
            found[level].append(name)
            drawing.words((at[0], at[1] + 28), word, size=11, colour=INK)
    drawing.line([(425, 40), (425, 250)])
    drawing.words((635, 22), "what runs: four frontiers, each in one go", size=14)
    for level, names in enumerate(found):
        y = 62 + 54 * level
        drawing.words((445, y + 4), f"frontier {level + 1}", anchor="start", size=12, colour=BORDERS[level])
        for i, name in enumerate(names):
            drawing.vertex((530 + 31 * i, y), name, level)
        if level:
            drawing.arrow((468, y - 46), (468, y - 10), gap=2)
    return drawing


def _trees() -> list[Tree]:
    low, step = 205.0, 50.0
    left: Tree = (
        [((30, low), "the", 0), ((70, low), "cat", 0), ((110, low), "sat", 0), ((50, low - step), "", 1)],
        [(0, 3), (1, 3), (3, 4), (2, 4)],
    )
    left[0].append(((80, low - 2 * step), "", 2))
    middle: Tree = (
        [((165, low), "birds", 0), ((215, low), "fly", 0), ((190, low - step), "", 1)],
        [(0, 2), (1, 2)],
    )
    right: Tree = (
        [((265, low), "we", 0), ((305, low), "saw", 0), ((345, low), "it", 0), ((390, low), "rain", 0)],
        [(2, 4), (3, 4), (1, 5), (4, 5), (0, 6), (5, 6)],
    )
    right[0].extend([((368, low - step), "", 1), ((337, low - 2 * step), "", 2), ((302, low - 3 * step), "", 3)])
    return [left, middle, right]


def fused_message() -> Drawing:
    """What message passing stores with an operator for each line, and what a kernel stores."""
    drawing = Drawing(840, 300)
    drawing.words((210, 22), "an operator for each line", size=14)
    drawing.words((640, 22), "vgraph: one kernel", size=14)
    drawing.line([(430, 40), (430, 285)])
    _table(drawing, (20, 60), 4, "x", 0)
    _table(drawing, (150, 60), 11, "x[src]", 3)
    _table(drawing, (285, 60), 11, "messages", 3)
    _table(drawing, (355, 212), 4, "out", 0)
    for start, end in (((85, 85), (148, 85)), ((215, 105), (283, 105)), ((320, 194), (353, 232))):
        drawing.arrow(start, end, gap=2, colour=INK)
    drawing.words((180, 262), "red: a row an edge, written, read and kept", size=12, colour=BORDERS[3])
    drawing.words((180, 280), "5 million edges of 64 numbers: 1.28 GB each", size=12, colour=BORDERS[3])
    _table(drawing, (455, 60), 4, "x", 0)
    drawing.box((555, 56), (188, 94), colour=2)
    for i, text in enumerate(("for each vertex:", "for each in-edge:", "sum += message(x[src])")):
        drawing.words((563 + 12 * i, 82 + 24 * i), text, anchor="start", size=12)
    _table(drawing, (765, 60), 4, "out", 0)
    drawing.arrow((522, 85), (553, 85), gap=2, colour=INK)
    drawing.arrow((745, 85), (763, 85), gap=2, colour=INK)
    drawing.words((640, 210), "the message is a few numbers in registers", size=12)
    drawing.words((640, 230), "the backward computes it again where it reads it,", size=12)
    drawing.words((640, 250), "in one loop over out-edges", size=12)
    return drawing


def _table(drawing: Drawing, corner: Point, rows: int, title: str, colour: int) -> None:
    for i in range(rows):
        drawing.box((corner[0], corner[1] + 12 * i), (64, 12), colour=colour)
    drawing.words((corner[0] + 32, corner[1] - 8), title, size=11)


def phases() -> Drawing:
    """What of a vertex function runs once and what runs frontier by frontier."""
    drawing = Drawing(840, 180)
    columns = (
        (15, 190, 0, "once, before", ("W x of all vertices:", "one product")),
        (235, 370, 2, "frontier by frontier", ("sums over children, U h, gates:", "a product and a kernel a frontier")),
        (635, 190, 1, "once, after", ("outputs;", "gradients of parameters")),
    )
    for x, width, colour, title, lines in columns:
        drawing.words((x + width / 2, 28), title, size=14, colour=BORDERS[colour])
        drawing.box((x, 42), (width, 100), colour=colour)
        for i, line in enumerate(lines):
            drawing.words((x + width / 2, 66 + 18 * i), line, size=12)
    for i in range(4):
        drawing.box((262 + 84 * i, 100), (62, 26), f"{(7, 3, 2, 1)[i]} rows", colour=4)
        if i:
            drawing.arrow((240 + 84 * i, 113), (262 + 84 * i, 113), gap=1, colour=INK)
    drawing.arrow((205, 92), (235, 92), gap=2, colour=INK)
    drawing.arrow((605, 92), (635, 92), gap=2, colour=INK)
    drawing.words((420, 166), "the backward is the same picture, from the last frontier to the first", size=12)
    return drawing


def lattice() -> Drawing:
    """A text without spaces, its letters, and the words that could stand in it."""
    drawing = Drawing(640, 190)
    text = "theresult"
    at: list[Point] = [(40 + 62 * i, 110) for i in range(len(text) + 1)]
    for i, letter in enumerate(text):
        drawing.arrow(at[i], at[i + 1])
        drawing.words(((at[i][0] + at[i + 1][0]) / 2, 132), letter, size=13)
    for first, last, bend, colour in ((0, 3, 62, 1), (0, 5, 128, 3), (3, 9, 150, 1), (1, 3, -70, 3), (4, 6, -70, 3)):
        drawing.arrow(at[first], at[last], bend=bend, colour=BORDERS[colour])
        middle = (at[first][0] + at[last][0]) / 2
        y = 106 - bend / 2 + (-4 if bend > 0 else 18)
        drawing.words((middle, y), text[first:last], size=12, colour=BORDERS[colour])
    for i, place in enumerate(at):
        drawing.vertex(place, str(i), 0, radius=11)
    return drawing


def dag_vae() -> Drawing:
    """A graph of layers, read into a code, and written again from it."""
    drawing = Drawing(720, 170)
    names = ("in", "conv", "pool", "conv", "out")
    edges = ((0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (0, 2, 45), (1, 4, -60))
    for left, colour in ((35, 0), (455, 1)):
        at: list[Point] = [(left + 57 * i, 85) for i in range(5)]
        for first, last, bend in edges:
            drawing.arrow(at[first], at[last], gap=21, bend=bend)
        for place, name in zip(at, names, strict=True):
            drawing.vertex(place, name, colour, radius=19)
    drawing.box((325, 68), (66, 34), "code z", colour=2)
    drawing.arrow((284, 85), (324, 85), gap=1, colour=INK)
    drawing.arrow((392, 85), (434, 85), gap=1, colour=INK)
    drawing.words((150, 155), "encoder: a layer from those it reads")
    drawing.words((570, 155), "decoder: the next layer from those there")
    return drawing


def junction_trees() -> Drawing:
    """Cliques of three variables in a tree; messages towards the root, and back."""
    drawing = Drawing(640, 210)
    at: list[Point] = [(320, 40), (190, 105), (450, 105), (110, 170), (270, 170), (530, 170)]
    names = ("a b c", "a b d", "b c e", "a d f", "b d g", "c e h")
    for child, parent in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 2)):
        drawing.arrow(at[child], at[parent], gap=33, bend=12, colour=BORDERS[0])
        drawing.arrow(at[parent], at[child], gap=33, bend=12, colour=BORDERS[1])
    for place, name in zip(at, names, strict=True):
        drawing.box((place[0] - 29, place[1] - 14), (58, 28), name, colour=4)
    drawing.words((20, 40), "inward: from the leaves to the root", anchor="start", size=12, colour=BORDERS[0])
    drawing.words((20, 60), "outward: what all others have said", anchor="start", size=12, colour=BORDERS[1])
    return drawing


def circuits() -> Drawing:
    """A half adder of AND gates; a red wire is inverted."""
    drawing = Drawing(520, 190)
    at: dict[str, Point] = {
        "a": (50, 55),
        "b": (50, 135),
        "and": (170, 55),
        "nor": (170, 135),
        "sum": (300, 95),
    }
    wires = (("a", "and", 0), ("b", "and", 0), ("a", "nor", 1), ("b", "nor", 1), ("and", "sum", 1), ("nor", "sum", 1))
    for first, last, inverted in wires:
        drawing.arrow(at[first], at[last], gap=20, colour=BORDERS[3] if inverted else PALE)
    for name, place in at.items():
        drawing.vertex(place, name if len(name) == 1 else "and", 0 if len(name) == 1 else 1, radius=18)
    drawing.words((345, 100), "0.5: how often it is true", anchor="start", size=12)
    drawing.words((170, 26), "carry, 0.25", size=12)
    note = "a wire in red is inverted: a feature of the edge"
    drawing.words((20, 180), note, anchor="start", size=12, colour=BORDERS[3])
    return drawing


def forces() -> Drawing:
    """Atoms, the distances between them, and the force on each: the slope of an energy."""
    drawing = Drawing(520, 190)
    at: list[Point] = [(90, 60), (200, 45), (150, 135), (270, 125)]
    push: list[Point] = [(-42, -22), (20, -32), (-36, 30), (52, 22)]
    for i, first in enumerate(at):
        for last in at[i + 1 :]:
            drawing.line([first, last])
    for i, (place, way) in enumerate(zip(at, push, strict=True)):
        drawing.arrow(place, (place[0] + way[0], place[1] + way[1]), gap=1, colour=BORDERS[3])
        drawing.vertex(place, "HO"[i % 2], i % 2)
    drawing.words((330, 70), "energy: from all distances", anchor="start", size=12)
    drawing.words((330, 95), "force: minus its slope", anchor="start", size=12, colour=BORDERS[3])
    drawing.words((330, 120), "the loss: on forces", anchor="start", size=12)
    return drawing


PICTURES = (
    *(frontiers, fused_message, phases, lattice, dag_vae, junction_trees, circuits, forces),
    *(plan_wresnet, plan_gpt, plan_unet),
)


def main() -> None:
    """Writes all of them."""
    for draw in PICTURES:
        Path(__file__).with_name(f"{draw.__name__}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
