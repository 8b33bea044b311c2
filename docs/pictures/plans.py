"""Pictures of plans: a line a layer, with the tiles of its weight and its result, bytes moved and bytes held.

What is drawn was kept by ``python benchmarks/partition.py --only layers --json benchmarks/results/partition.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from drawing import BORDERS, FILLS, INK, Drawing, Point

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "partition.json"
STEP, SIDE, TOP = 27, 21, 74
NAME, CUT, WEIGHT, RESULT, MOVED, HELD = 14, 172, 322, 392, 440, 640  # where columns begin
WIDE = 118  # of the longest bar
OF_IMAGES = {"n": "images", "o": "filters", "c": "channels", "y0": "rows of pixels", "k": "inputs"}
OF_WORDS = {"n": "outputs", "k": "inputs", "b": "heads", "f": "features", "m": "words"}


def plan_wresnet() -> Drawing:
    """A wide ResNet: first images are divided, then channels and filters."""
    title = "ResNet-50 of six times the width, one block a stage, 8 images of 224 x 224, on four workers"
    return _drawn("wresnet", title, OF_IMAGES)


def plan_gpt() -> Drawing:
    """A GPT of two blocks: columns, heads, rows."""
    return _drawn("gpt", "GPT of two blocks, width 1,536, 16 heads, 2 x 1,024 words, on four workers", OF_WORDS)


def plan_unet() -> Drawing:
    """A U-Net: images and filters on the way down, space on the way up."""
    return _drawn("unet", "U-Net of three levels, 2 images of 512 x 512, on four workers", OF_IMAGES)


def _drawn(model: str, title: str, words: dict[str, str]) -> Drawing:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["layers"]
    layers: list[dict[str, Any]] = next(row["layers"] for row in kept if row["model"] == model)
    drawing = Drawing(840, TOP + STEP * len(layers) + 44)
    drawing.words((NAME, 20), title, anchor="start", size=14)
    _heads(drawing)
    scales = [WIDE / max(sum(layer[what]) for layer in layers) for what in ("moved", "held")]
    for number, layer in enumerate(layers):
        y = TOP + STEP * number
        if number % 2:
            drawing.elements.append(f'<rect x="6" y="{y - 3}" width="828" height="{STEP}" fill="#f8fafc"/>')
        drawing.words((NAME, y + 15), layer["layer"], anchor="start", size=11)
        drawing.words((CUT, y + 15), _cut(layer["cuts"], words), anchor="start", size=11)
        for x, what in ((WEIGHT, "weight"), (RESULT, "result")):
            if layer[what]:
                _tiles(drawing, (x, y), layer[what])
        _bar(drawing, (MOVED, y), layer["moved"], scales[0], (0, 2))
        _bar(drawing, (HELD, y), layer["held"], scales[1], (4, 1))
    _legend(drawing, TOP + STEP * len(layers) + 18)
    return drawing


def _heads(drawing: Drawing) -> None:
    heads = ((NAME, "layer"), (CUT, "each step cuts"), (WEIGHT - 6, "weight"), (RESULT - 6, "result"))
    for x, head in heads:
        drawing.words((x, 50), head, anchor="start", size=12, colour=BORDERS[4])
    for x, head, parts in (
        (MOVED, "bytes moved", (("forward", 0), ("backward", 2))),
        (HELD, "a worker holds", (("weights", 4), ("results", 1))),
    ):
        drawing.words((x, 44), head, anchor="start", size=12, colour=BORDERS[4])
        for i, (part, colour) in enumerate(parts):
            drawing.box((x + 74 * i, 52), (10, 10), colour=colour)
            drawing.words((x + 14 + 74 * i, 61), part, anchor="start", size=11)


def _cut(cuts: str, words: dict[str, str]) -> str:
    """The index that each step cuts, in words; one word where all cut the same."""
    steps = [words.get(index, index) for index in cuts.split(", ", maxsplit=1)[0].split(".")]
    return steps[0] if len(set(steps)) == 1 else ", ".join(steps)


def _tiles(drawing: Drawing, corner: Point, tensor: dict[str, Any]) -> None:
    """Each worker's part of a square in its colour; grey: parts that several workers have."""
    owners = Counter(tensor["tiles"])
    for worker, tile in enumerate(tensor["tiles"]):
        colour = worker if owners[tile] == 1 else 4
        for box in filter(None, tile.split("; ")):
            left, top, width, height = (SIDE * float(number) for number in box.split())
            place = f'x="{corner[0] + left:g}" y="{corner[1] + top:g}" width="{width:g}" height="{height:g}"'
            look = f'fill="{FILLS[colour]}" stroke="{BORDERS[colour]}" stroke-width="0.8"'
            drawing.elements.append(f"<rect {place} {look}/>")
    if "Psum" in tensor["homes"]:
        drawing.words((corner[0] + SIDE + 9, corner[1] + 16), "+", size=13, colour=INK)


def _bar(drawing: Drawing, corner: Point, amounts: list[float], scale: float, colours: tuple[int, int]) -> None:
    x = corner[0]
    for amount, colour in zip(amounts, colours, strict=True):
        width = round(amount * scale, 1)
        if width >= 0.5:
            look = f'fill="{FILLS[colour]}" stroke="{BORDERS[colour]}" stroke-width="0.8"'
            drawing.elements.append(f'<rect x="{x:g}" y="{corner[1] + 3}" width="{width:g}" height="15" {look}/>')
            x += width
    total = sum(amounts) / 1e6
    shown = f"{total:,.0f} MB" if total >= 10 or total < 0.05 else f"{total:.1f} MB"
    drawing.words((x + 5, corner[1] + 15), shown, anchor="start", size=11)


def _legend(drawing: Drawing, y: float) -> None:
    for worker in range(4):
        drawing.box((NAME + 78 * worker, y - 9), (10, 10), colour=worker)
        drawing.words((NAME + 14 + 78 * worker, y), f"worker {worker}", anchor="start", size=11)
    drawing.box((330, y - 9), (10, 10), colour=4)
    drawing.words((344, y), "on several workers", anchor="start", size=11)
    drawing.words((462, y), "+ terms of a sum", anchor="start", size=11)
    drawing.words((572, y), "weights: with gradient and momentum", anchor="start", size=11)
    drawing.words((572, y + 17), "results: what the backward reads", anchor="start", size=11)
