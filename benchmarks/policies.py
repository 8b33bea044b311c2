"""Batching policy against serial evaluation, and what scheduling costs.

Trains one step of a Tree-LSTM on batches of trees under both policies, alternating, and prints the
losses, the ratio of times and the share of a step that goes into batch, schedule and plan. Before that, how
many batches each policy makes where vertices have types, beside the least that any could make: tokens and
phrases of the trees, and the gates of circuits by how many of their wires are inverted.

usage: policies.py [--data SST_FOLDER] [--circuits FILE.aig ...] [--batch-size 64] [--hidden 150] [--steps 5]
                   [--json FILE] [--smoke]
Without --data the trees are those of Python's own standard library.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import vgraph
from vgraph import compiler
from vgraph.api.vertex import function as vertex_function
from vgraph.data import load_aiger, load_sst, load_syntax
from vgraph.runtime import compiled
from vgraph.scheduler.policy import count_batches, lower_bound


class TreeLSTM(vgraph.VertexFunction):
    """Child-sum Tree-LSTM (Tai et al. 2015, equations 2 to 8)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.U = nn.Linear(hidden, 3 * hidden, bias=False)
        self.Uf = nn.Linear(hidden, hidden, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        i, o, u = (v.pull("iou") + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(v.pull("f") + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Model(nn.Module):
    """Tokens to classes at the root."""

    def __init__(self, num_tokens: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_tokens + 1, hidden)
        self.iou, self.f = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.tree, self.out = TreeLSTM(hidden), nn.Linear(hidden, num_classes)

    def forward(self, g: vgraph.Graph, tokens: torch.Tensor, roots: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        return self.out(self.tree(g, iou=self.iou(x), f=self.f(x))["h"][roots])


def load_trees(folder: str | None):
    """Samples, the name of their token feature, numbers of tokens and classes, and a title."""
    if folder:
        data = load_sst(Path(folder)).train
        return data, "word", data.num_tokens, data.num_classes, "SST"
    data = load_syntax().train
    return data, "token", data.num_tokens, data.num_classes, "standard library's trees"


def step(model: Model, samples: list, feature: str, planning: Planning) -> tuple[float, float, float]:
    """Loss, seconds of the whole step, and seconds of batching, scheduling and planning alone."""
    start, planning.seconds = time.perf_counter(), 0.0
    g = vgraph.batch([sample.graph for sample in samples])
    batched = time.perf_counter() - start
    offsets = torch.cumsum(torch.tensor([0, *g.batch_num_nodes().tolist()[:-1]]), 0)
    roots = offsets + torch.tensor([sample.root for sample in samples])
    labels = torch.tensor([sample.label for sample in samples])
    tokens = g.ndata[feature] + 1  # -1 where a vertex has no token
    loss = F.cross_entropy(model(g, tokens, roots), labels)
    model.zero_grad()
    loss.backward()
    whole = time.perf_counter() - start
    return loss.item(), whole, batched + planning.seconds


class Planning:
    """Seconds spent in levels, row order, schedule, memory plan and extents, forward and backward."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._time(vertex_function, "levels")
        self._time(compiler, "_make_plan")
        self._time(compiler, "plan_memory")  # made when it is asked for
        self._time(compiled.CallRows, "_make_extents")

    def _time(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args)
            finally:
                self.seconds += time.perf_counter() - start

        setattr(owner, name, timed)


def count_of(name: str, graph: vgraph.Graph, types: torch.Tensor) -> dict[str, int | str]:
    """Batches by policy, and the least there can be."""
    topology, numbers = graph.topology, types.numpy()
    row = {**count_batches(topology, numbers), "least possible": lower_bound(topology, numbers)}
    print(f"{name:36s} " + ", ".join(f"{policy} {count}" for policy, count in row.items()), flush=True)
    return {"graph": name, **row}


def count_all(trees: list, circuits: list[Path]) -> list[dict[str, int | str]]:
    g = vgraph.batch([sample.graph for sample in trees])
    rows = [count_of(f"batches for {len(trees)} trees", g, (g.in_degrees() > 0).long())]
    random = [[int(n) for n in torch.randint(0, 200, (2,))] for _ in range(400)]
    dag = vgraph.graph(([min(p) for p in random], [max(p) + 1 for p in random]), num_nodes=201)
    rows.append(count_of("... a random DAG, 4 types", dag, torch.arange(201) % 4))
    for path in circuits:
        loaded = load_aiger(path)
        inverted = torch.as_tensor(loaded.aig.inverted).long()
        wires = torch.zeros(loaded.graph.num_nodes(), dtype=torch.int64)
        wires.index_add_(0, torch.as_tensor(loaded.aig.dst), inverted)
        types = torch.where(loaded.graph.in_degrees() > 0, wires + 1, 0)
        rows.append(count_of(f"... {path.stem}, 4 types", loaded.graph, types))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--circuits", type=Path, nargs="*", default=[])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=150)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.batch_size, options.hidden, options.steps = 8, 16, 2
    data, feature, num_tokens, num_classes, title = load_trees(options.data)
    torch.manual_seed(0)
    batches = count_all([data[i] for i in range(options.batch_size)], options.circuits)
    model, planning = Model(num_tokens, num_classes, options.hidden), Planning()
    first, rows = [], []
    for number in range(2 * options.steps + 1):
        start = (number % options.steps) * options.batch_size
        samples = [data[i % len(data)] for i in range(start, start + options.batch_size)]
        row = {}
        for policy in ("frontier", "serial"):
            model.tree.policy = policy
            row[policy] = step(model, samples, feature, planning)
        if number:  # the very first step records the function
            (first if number < options.steps else rows).append(row)
    report(first, rows, title, options, batches)


def report(
    first: list[dict], rows: list[dict], title: str, options: argparse.Namespace, batches: list[dict[str, int | str]]
) -> None:
    """Prints the table and writes JSON; ``first`` are steps on graphs not seen before."""
    ratios = sorted(row["serial"][1] / row["frontier"][1] for row in rows)
    difference = max(abs(row["serial"][0] - row["frontier"][0]) for row in rows)
    result = {
        "data": title,
        "batch_size": options.batch_size,
        "hidden": options.hidden,
        "serial over frontier, time": ratios[len(ratios) // 2],
        "largest difference of losses": difference,
        "batch, schedule, plan: share of step": share(rows),
        "the same on graphs not seen before": share(first),
        "frontier step, ms": sorted(row["frontier"][1] for row in rows)[len(rows) // 2] * 1e3,
    }
    result |= {"batches": batches}
    for name, value in result.items():
        if name == "batches":
            continue
        print(f"{name:36s} {value:.3g}" if isinstance(value, float) else f"{name:36s} {value}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))


def share(rows: list[dict]) -> float:
    """The median part of a step that goes into batch, schedule and plan."""
    shares = sorted(row["frontier"][2] / row["frontier"][1] for row in rows)
    return shares[len(shares) // 2]


if __name__ == "__main__":
    main()
