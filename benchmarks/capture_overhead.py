"""What a repeated call of a vertex function costs before any vertex is evaluated.

Prints microseconds a call: guards alone, which look at everything that the function read (aim: under 10); all that it
takes to find what was captured, levels of the graph and features included, by guards or by running the function's
Python (aim: under 150); and the whole call on one vertex.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import vgraph
from vgraph.api.vertex.call_features import Feed
from vgraph.api.vertex.function import capture_vertex
from vgraph.capture.features import Features
from vgraph.capture.record.modes import current_modes

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


def guards_of(model: vgraph.VertexFunction, graph: vgraph.Graph, x: torch.Tensor) -> Callable[[], object] | None:
    """What looks at modes, features and everything that the function read; None where its Python runs instead."""
    captured = capture_vertex(model, graph, {"x": x})[0].captured
    if captured.unwatchable:
        return None
    feed = Feed(graph, graph.topology, {"x": x})
    features = Features(feed.find, feed.spec, x.device)
    assert captured.matches(current_modes(x.device), (model.forward,), features) is not None
    return lambda: captured.matches(current_modes(x.device), (model.forward,), features)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few calls only")
    repeats = 10 if parser.parse_args().smoke else 5000
    torch.set_num_threads(1)
    graph = vgraph.graph(([], []), num_nodes=1)
    x = torch.ones(1, WIDTH)
    print(f"{'function':<14}{'guards':>10}{'to find it':>14}{'whole call':>14}   (microseconds)")
    for model in (TreeLSTM(), Scaled(2.0), ReadsAnArray()):
        with torch.no_grad():
            model(graph, x=x)
            guards = guards_of(model, graph, x)
            alone = f"{microseconds(guards, repeats):.1f}" if guards else "none"
            lookup = microseconds(lambda m=model: capture_vertex(m, graph, {"x": x}), repeats)
            whole = microseconds(lambda m=model: m(graph, x=x), max(repeats // 10, 1))
        print(f"{type(model).__name__:<14}{alone:>10}{lookup:>14.1f}{whole:>14.1f}")


if __name__ == "__main__":
    main()
