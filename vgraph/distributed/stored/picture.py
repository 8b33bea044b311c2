"""Picture: what a partition cuts, which rows parts read of one another, and how equal parts are.

Takes: a partitioned graph. Gives: a PNG or SVG. Runs when somebody asks for it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from vgraph.atomic_file import atomic_file
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph
from vgraph.errors import FunctionError

KINDS = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """FunctionError: such a picture cannot be drawn; asked before what takes long."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FunctionError("a picture needs matplotlib", cure="pip install 'vgraph[plot]'")
    if path.suffix not in KINDS:
        raise FunctionError(f"{path.name} is no picture", cure=f"name a file that ends in one of {', '.join(KINDS)}")


def draw_partition(stored: PartitionedGraph, path: Path) -> None:
    """Cut edges of all, halo rows of each pair of parts, and what each part has over the mean."""
    check_picture(path)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(figsize=(12, 4), layout="constrained")
    cut, halo, balance = figure.subplots(1, 3, width_ratios=(1, 2, 2.5))
    manifest = stored.manifest
    cut.bar(["within parts", "cut"], [manifest.num_edges - manifest.cut, manifest.cut], color=("C0", "C1"))
    cut.set(title=f"{manifest.cut / max(1, manifest.num_edges):.1%} of edges cut", ylabel="edges")
    pairs = sum(stored.halo_rows(ntype).numpy() for ntype in stored.ntypes)
    drawn = halo.imshow(pairs, cmap="Blues", interpolation="nearest")
    halo.set(title=f"{manifest.halo_rows} halo rows", xlabel="rows of part", ylabel="read by part")
    figure.colorbar(drawn, ax=halo)
    for word, column in manifest.loads.items():
        loads = np.array(column)
        balance.plot(loads / max(loads.mean(), 1e-9), drawstyle="steps-mid", label=word)
    balance.axhline(1.0, color="black", linewidth=0.5)
    balance.set(title="what a part has, over the mean", xlabel="part", ylim=(0, None))
    balance.legend()
    figure.suptitle(f"{manifest.num_nodes} nodes in {stored.num_parts} parts by {manifest.method}")
    with atomic_file(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix[1:])
