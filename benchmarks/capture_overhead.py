"""What a repeated call of a vertex function costs before any vertex is evaluated.

Prints microseconds a call: to find what was captured by guards (aim: under 10) or by running the function's Python
(under 150), and the whole call on one vertex beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import vgraph
from vgraph.api.vertex_function import capture_vertex

WIDTH = 8


class TreeLSTM(vgraph.VertexFunction):
    """Four Linears: seven parameters and their modules are looked at in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.Wf, self.Uf = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class ReadsAnArray(TreeLSTM):
    """The same on features that a NumPy array scales, which no guard can watch: its Python runs at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = np.ones(WIDTH, dtype=np.float32)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x") * torch.from_numpy(self.scale)
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Scaled(vgraph.VertexFunction):
    """No module: a closure and a number."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, v: vgraph.Vertex) -> None:
        s = v.pull("x") * self.scale + v.gather()["s"].sum()
        v.scatter(s=s)
        v.push(s=s)


def microseconds(function: Callable[[], object], repeats: int) -> float:
    """The least mean of five runs."""
    means: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            function()
        means.append((time.perf_counter() - start) / repeats * 1e6)
    return min(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few calls only")
    repeats = 10 if parser.parse_args().smoke else 5000
    torch.set_num_threads(1)
    graph = vgraph.graph(([], []), num_nodes=1)
    x = torch.ones(1, WIDTH)
    print(f"{'function':<14}{'to find it':>20}{'whole call':>14}   (microseconds)")
    for model in (TreeLSTM(), Scaled(2.0), ReadsAnArray()):
        with torch.no_grad():
            model(graph, x=x)
            lookup = microseconds(lambda m=model: capture_vertex(m, graph, {"x": x}), repeats)
            whole = microseconds(lambda m=model: m(graph, x=x), max(repeats // 10, 1))
        print(f"{type(model).__name__:<14}{lookup:>20.1f}{whole:>14.1f}")


if __name__ == "__main__":
    main()
