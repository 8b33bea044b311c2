"""Graphs, features and parameters, the same for every side; nothing but numpy and torch.

A Workload names what is computed (``kind``), on which graph, how wide. Every side draws the same
numbers from it, so that their losses agree to rounding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Workload:
    """``sizes``: widths from input to output; ``heads``: of the inner layers; the last has one."""

    kind: str
    nodes: int
    edges: int
    sizes: tuple[int, ...]
    heads: int = 1
    law: str = "power"  # of degrees: "power" (Zipf-like at either end) or "even" (Erdos-Renyi)
    width: int = 64  # of the functions' features
    folder: str = ""  # where the edges lie as src.npy and dst.npy, and what else is loaded
    options: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def draw_edges(nodes: int, edges: int, law: str) -> tuple[np.ndarray, np.ndarray]:
    """(src, dst), int64; under the power law the r-th of the shuffled vertices weighs r ** (-1 / 1.2)."""
    draw = np.random.default_rng(0)
    if law == "even":
        src, dst = (draw.integers(0, nodes, edges) for _ in range(2))
        return src, dst
    share = np.cumsum(np.arange(1, nodes + 1) ** (-1 / 1.2))
    shuffled = draw.permutation(nodes)
    ends = []
    for _ in range(2):
        end = np.empty(edges, np.int64)
        for low in range(0, edges, 1 << 24):
            part = slice(low, min(low + (1 << 24), edges))
            found = np.searchsorted(share, draw.random(part.stop - low) * share[-1])
            end[part] = shuffled[np.minimum(found, nodes - 1)]
        ends.append(end)
    return ends[0], ends[1]


def write_graph(workload: Workload, folder: Path) -> None:
    for name, end in zip(("src", "dst"), draw_edges(workload.nodes, workload.edges, workload.law), strict=True):
        np.save(folder / f"{name}.npy", end.astype(workload.options.get("ids", "int64"), copy=False))


class NotExpressible(Exception):
    """A peer has no words for a workload; why."""


class Data:
    """The numbers of a workload; each is drawn when it is first asked for."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.num_nodes = workload, workload.nodes
        files = (f"{workload.folder}/{name}.npy" for name in ("src", "dst"))
        self.src, self.dst = (torch.from_numpy(np.load(file, mmap_mode="c")) for file in files)

    @property
    def num_edges(self) -> int:
        return len(self.src)

    def draw(self, seed: int, *shape: int, scale: float = 1.0) -> Tensor:
        numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
        return torch.from_numpy(numbers).mul_(scale)

    @cached_property
    def x(self) -> Tensor:
        given = Path(self.workload.folder) / "x.npy"
        return torch.from_numpy(np.load(given)) if given.exists() else self.draw(1, self.num_nodes, self.sizes[0])

    @cached_property
    def y(self) -> Tensor:
        given = Path(self.workload.folder) / "y.npy"
        drawn = np.random.default_rng(2).integers(0, self.sizes[-1], self.num_nodes)
        return torch.from_numpy(np.load(given) if given.exists() else drawn)

    @cached_property
    def edge_feat(self) -> Tensor:
        return self.draw(3, self.num_edges, self.workload.options.get("edge_width", 1))

    @cached_property
    def edge_weight(self) -> Tensor:
        return torch.from_numpy(np.random.default_rng(4).random((self.num_edges, 1), np.float32))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.workload.sizes

    def vertex_inputs(self) -> dict[str, Tensor]:
        """h, a and b of the functions, with gradient."""
        names = enumerate("hab")
        return {name: self.draw(10 + i, self.num_nodes, self.workload.width).requires_grad_() for i, name in names}

    def matrix(self, seed: int, rows: int, columns: int) -> Tensor:
        """Glorot's width."""
        return self.draw(seed, rows, columns, scale=(2 / (rows + columns)) ** 0.5)

    @cached_property
    def norm(self) -> Tensor:
        """One number an edge: 1 over the roots of the degrees at its ends."""
        degrees = [torch.bincount(end, minlength=self.num_nodes).clamp(min=1).float() for end in (self.src, self.dst)]
        return degrees[0][self.src].rsqrt() * degrees[1][self.dst].rsqrt()

    def layers(self) -> list[dict[str, Tensor]]:
        """Values of the parameters of every layer of the model, by name."""
        kind, heads, found = self.workload.kind, self.workload.heads, []
        sizes, count = self.sizes, len(self.sizes) - 1
        for i in range(count):
            h = heads if i < count - 1 and kind != "gcn" else 1
            rows, columns, seed = sizes[i], sizes[i + 1], 100 * (i + 1)
            layer = {name: self.matrix(seed + j, columns, rows) for j, name in enumerate(PARAMETERS[kind])}
            vectors = {n: self.draw(seed + 50 + j, 1, h, columns // h) for j, n in enumerate(VECTORS.get(kind, ()))}
            found.append(layer | vectors)
        return found

    def layer_sizes(self) -> list[tuple[int, int, int]]:
        """(input width, width of a head, heads) of every layer; heads are concatenated between layers."""
        sizes, last = self.sizes, len(self.sizes) - 2
        heads = [self.workload.heads if i < last else 1 for i in range(last + 1)]
        return [(sizes[i], sizes[i + 1] // heads[i], heads[i]) for i in range(last + 1)]


PARAMETERS = {"gcn": ("W",), "gat": ("W",), "gatv2": ("Ws", "Wd"), "dot": ("Q", "K", "V")}
VECTORS = {"gat": ("al", "ar"), "gatv2": ("at",)}
