"""What a plan looks like: its layers in words, and the tiles of every tensor in the colours of their workers.

Takes: an Account. Gives: text, a picture. Runs once per plan.
Source: Tofu's thesis, figure 3.11 (tiles of weights and activations).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vgraph.atomic_file import atomic_file
from vgraph.ir.program import Value, op_name
from vgraph.ir.sharding import Placement, Region, ShardingPlan, shard_region
from vgraph.ir.step import BACKWARD, FORWARD
from vgraph.partition.accounting.account import Account, Placements
from vgraph.partition.accounting.footprint import Footprint
from vgraph.partition.search.fit import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.patches import Rectangle
    from matplotlib.typing import ColorType

HEAVY = frozenset("mm bmm addmm baddbmm convolution convolution_backward embedding embedding_dense_backward".split())
MOST_TILES = 60


@dataclass(frozen=True)
class Layer:
    """A module's line: how its products are divided in each step, and what it fetches."""

    name: str
    forward: str
    backward: str
    bytes_moved: float


def layers_of(book: Account) -> list[Layer]:
    """Modules in the order of the step; time steps of one module count together."""
    moved: dict[str, float] = {}
    cuts: dict[tuple[str, str], dict[str, None]] = {}
    rows = zip(book.step.ops, book.step.notes, book.plan.strategies, book.fetched, book.kept, strict=True)
    for op, note, strategies, fetched, kept in rows:
        name = note.module or ("update" if note.phase not in (FORWARD, BACKWARD) else "(model)")
        moved[name] = moved.get(name, 0.0) + sum(fetched) + sum(kept)
        if op_name(op.target) in HEAVY:
            shown = f"{op_name(op.target)} {'.'.join(s.index or 'all' for s in strategies)}"
            cuts.setdefault((name, note.phase), {})[shown] = None
    return [
        Layer(name, ", ".join(cuts.get((name, FORWARD), ())), ", ".join(cuts.get((name, BACKWARD), ())), total)
        for name, total in moved.items()
    ]


def replicated(book: Account) -> list[str]:
    """Parameters, and ops on large tensors, that some step could not divide."""
    found = [
        f"{n} {shown(book.homes[v.id])}" for n, v in book.step.parameters.items() if "R" in shown(book.homes[v.id])
    ]
    undivided: dict[str, int] = {}
    for op, strategies in zip(book.step.ops, book.plan.strategies, strict=True):
        if op.results and strategies and all(s.index == "" for s in strategies) and op.results[0].row_bytes > 2**20:
            undivided[op_name(op.target)] = undivided.get(op_name(op.target), 0) + 1
    return found + [f"{count} x {name}: every worker computes all" for name, count in undivided.items()]


def shown(placements: Placements) -> str:
    return ".".join(map(str, placements)) or "whole"


def describe(
    book: Account, whole: Footprint, worker: Footprint, seconds: float, moved: tuple[int, int]
) -> Iterator[str]:
    """The lines that ``plan.print()`` prints; ``moved``: bytes of its programs, and those overlapped."""
    axes = " x ".join(map(str, book.plan.axes)) or "1"
    yield f"{book.plan.num_workers} workers ({axes}), {len(book.step.ops)} ops, found in {seconds:.2f} s"
    steps = ", ".join(_size(amount) for amount in book.step_bytes)
    yield f"communication: {_size(moved[0])} a step of training (by step of the recursion: {steps})"
    if moved[0]:
        yield f"under way while workers compute: {_size(moved[1])}, {moved[1] / moved[0]:.0%} of that"
    count = book.plan.num_workers
    yield (
        f"memory a worker: {_size(worker.total)} = {_parts(worker)}; {count * worker.total / max(whole.total, 1):.2f} "
        f"of 1/{count} of the whole {_size(whole.total)}"
    )
    over = [
        f"{_size(extra)} {name}" for name, extra in worker.excess(whole, count).items() if extra > 0.005 * worker.total
    ]
    if count > 1 and over:
        yield f"beyond 1/{count} of the whole: {', '.join(over)}"
    if book.plan.fetched_again:
        yield f"{len(book.plan.fetched_again)} copies are let go after forward and fetched again, to save memory"
    width = max((len(layer.name) for layer in layers_of(book)), default=0)
    yield f"{'module':{width}s}  {'moved':>10s}  forward | backward (the index that each step splits)"
    for layer in layers_of(book):
        if layer.bytes_moved or layer.forward or layer.backward:
            yield f"{layer.name:{width}s}  {_size(layer.bytes_moved):>10s}  {layer.forward} | {layer.backward}"
    for line in replicated(book):
        yield f"replicated: {line}"


def describe_named(rows: Sequence[Row], whole: Footprint, count: int) -> Iterator[str]:
    """A line for each plan that has a name, by the books, with all copies kept."""
    for row in rows:
        share = count * row.need / max(whole.total, 1)
        yield f"{row.name} would move {_size(row.moved)}, a worker hold {_size(row.need)}, {share:.2f} of 1/{count}"


def _parts(worker: Footprint) -> str:
    sizes = vars(worker)
    return " + ".join(f"{_size(amount)} {name}" for name, amount in sizes.items() if amount)


def _size(amount: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= scale:
            return f"{amount / scale:.2f} {unit}"
    return f"{amount:.0f} B"


# ---------------------------------------------------------------- tiles
def save_tiles(book: Account, path: str | Path) -> None:
    """Draws weights and the results of products, up to sixty of them, layer by layer."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot as plt  # noqa: PLC0415

    tensors = _tensors(book)
    columns = min(6, max(len(tensors), 1))
    rows = -(-len(tensors) // columns)
    size = (2.2 * columns, 2.3 * rows + 0.6)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    colours = matplotlib.colormaps["tab20" if book.plan.num_workers > 10 else "tab10"]
    for axes, entry in itertools.zip_longest(grid.flat, tensors):
        axes.set_axis_off()
        if entry is not None:
            _draw(axes, entry, book.plan, colours)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours(w % colours.N)) for w in range(book.plan.num_workers)]
    names = [f"worker {w}" for w in range(book.plan.num_workers)]
    figure.legend(handles, names, loc="outside lower center", ncols=min(8, book.plan.num_workers), fontsize=7)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=110, format=Path(path).suffix[1:] or None)
    plt.close(figure)


def _tensors(book: Account) -> list[tuple[str, Value, Placements]]:
    found = [(name, v, book.homes[v.id]) for name, v in book.step.parameters.items() if len(v.shape) > 1]
    seen: set[tuple[str, object]] = set()
    for op, note in zip(book.step.ops, book.step.notes, strict=True):
        value = op.results[0] if op.results else None
        key = (note.module, value.shape if value else None)
        if value is not None and note.phase == FORWARD and op_name(op.target) in HEAVY and key not in seen:
            seen.add(key)
            found.append((f"{note.module or 'model'}: out", value, book.homes[value.id]))
    stride = -(-len(found) // MOST_TILES)
    return found[::stride]


def _draw(axes: Axes, entry: tuple[str, Value, Placements], plan: ShardingPlan, colours: Colormap) -> None:
    """The two dims that are cut most, or the first two; a worker's tile is where its region lies."""
    name, value, homes = entry
    shape = value.row_shape
    cut = [getattr(p, "dim", None) for p in homes]
    dims = sorted(range(len(shape)), key=lambda d: (-cut.count(d), d))[:2]
    down, across = (min(dims), max(dims)) if len(dims) == 2 else (0, None)
    axes.set(xlim=(0, 1), ylim=(1, 0))
    for worker in range(plan.num_workers):
        region = shard_region(shape, homes, plan.axes, plan.digits(worker))
        for box in _boxes(region, shape, down, across) if region is not None else ():
            axes.add_patch(_rectangle(box, colours(worker % colours.N), 1 / _sharers(homes, plan.axes)))
    labels = " x ".join(map(str, shape))
    axes.set_title(f"{_shortened(name)}\n{labels}  {shown(homes)}", fontsize=6)


def _boxes(region: Region, shape: Sequence[int], down: int, across: int | None) -> Iterator[tuple[float, ...]]:
    rows = [(a / shape[down], b / shape[down]) for a, b in region[down].runs]
    columns = [(0.0, 1.0)]
    if across is not None:
        columns = [(a / shape[across], b / shape[across]) for a, b in region[across].runs]
    yield from ((left, top, right - left, bottom - top) for top, bottom in rows for left, right in columns)


def _sharers(homes: Sequence[Placement], axes: Sequence[int]) -> int:
    shared = 1
    for placement, ways in zip(homes, axes, strict=True):
        shared *= ways if not hasattr(placement, "dim") else 1
    return shared


def _rectangle(box: tuple[float, ...], colour: ColorType, alpha: float) -> Rectangle:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    left, top, width, height = box
    return Rectangle((left, top), width, height, facecolor=colour, edgecolor="white", linewidth=0.3, alpha=alpha)


def _shortened(name: str) -> str:
    return name if len(name) < 30 else f"{name[:12]}...{name[-14:]}"
