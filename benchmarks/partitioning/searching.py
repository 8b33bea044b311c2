"""The search itself: sizes of the models, seconds, growth, and how good its plans are beside exact ones."""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from models import BENCHMARK, PUBLISHED_GIB, build
from models.cost_graphs import random_graph
from tqdm import tqdm

from vgraph.errors import ModelError
from vgraph.partition.search.critical import solve, solve_by_paths
from vgraph.partition.search.fit import search_best
from vgraph.partition.search.options import Options
from vgraph.partition.search.search import factorised, search

from .optimum import optimum
from .plain_dp import plain_dp, search_apart
from .workloads import GIB, PUBLISHED_PLAIN, PUBLISHED_SEARCH, SEARCHED, captured, small, step_of

Rows = list[dict[str, Any]]


def section_state(options: argparse.Namespace) -> Rows:
    rows = []
    for name in BENCHMARK[:: len(BENCHMARK) - 1] if options.smoke else BENCHMARK:
        gib = 12 * sum(p.numel() for p in build(name)[0].parameters()) / GIB
        rows.append({"model": name, "GiB": gib, "published": PUBLISHED_GIB[name], "off": gib / PUBLISHED_GIB[name] - 1})
    return rows


def section_search(options: argparse.Namespace) -> Rows:
    """``whole s``: both factorisations, the books of both plans, copies within memory: what parallelize waits for."""
    rows = []
    for name in tqdm(options.models or (["rnn"] if options.smoke else list(SEARCHED)), disable=None):
        began = time.perf_counter()
        step_of.cache_clear()  # it is to be captured now
        step = step_of(name, options.smoke)
        capture = time.perf_counter() - began
        again = 1 if options.smoke else 3
        recursion = [search(step, (2, 2, 2)).seconds for _ in range(again)]
        rows.append({
            "model": name, "ops": len(step.ops), "capture s": capture, "recursion s": min(recursion),
            "first time s": recursion[0], "one step of 8 s": min(search(step, (8,)).seconds for _ in range(again)),
            "whole s": min(search_best(step, 8).seconds for _ in range(again)),
            "published s": PUBLISHED_SEARCH.get(name, ""), "published without recursion": PUBLISHED_PLAIN.get(name, ""),
        })  # fmt: skip
    return rows


def section_growth(options: argparse.Namespace) -> Rows:
    rows = []
    for layers in (1, 2) if options.smoke else (4, 8, 16, 32):
        step = captured(*small("llama", layers))
        rows.append({"what": "layers", "count": layers, "ops": len(step.ops), "search s": search(step, (2, 2)).seconds})
    step = step_of("rnn", smoke=True) if options.smoke else captured(*build("rnn-10-8k", 1024))
    for workers in (2, 4) if options.smoke else (2, 8, 32, 128, 1024):
        found = search(step, factorised(workers))
        rows.append({"what": "workers", "count": workers, "ops": len(step.ops), "search s": found.seconds})
    return rows


def section_quality(options: argparse.Namespace) -> Rows:
    count = 5 if options.smoke else options.graphs
    equal = paths = 0
    worst = 1.0
    for seed in tqdm(range(count), disable=None):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(4, 41)))
        least, ours = graph.cost(optimum(graph)), graph.cost(solve(graph))
        by_paths = graph.cost(solve_by_paths(graph, 0))
        equal += abs(ours - least) <= 1e-6 * max(least, 1)
        paths += abs(by_paths - least) <= 1e-6 * max(least, 1)
        worst = max(worst, by_paths / least if least else 1.0)
    return [{
        "random graphs": count, "equal to the optimum": equal / count, "CriticalDP equal": paths / count,
        "CriticalDP at worst": worst,
    }]  # fmt: skip


class Layers(torch.nn.Module):
    """A multi-layer perceptron without biases."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().mean()


def reduced(smoke: bool) -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Models small enough for a search of all steps at once."""
    rows = (1, 2) if smoke else (1, 2, 3, 4, 6, 8)
    found = {f"mlp-{n}": (Layers((512,) * (n + 1)), (torch.zeros(64, 512),)) for n in rows}
    if not smoke:
        wide = [(64, (512, 2048, 512)), (2048, (256, 512, 1024)), (16, (2048, 512, 2048, 512)), (512, (64, 4096, 64))]
        for batch, widths in wide:
            name = f"mlp {batch}: {'-'.join(map(str, widths))}"
            found[name] = (Layers(widths), (torch.zeros(batch, widths[0]),))
        found |= {f"lstm-{n}": small("rnn", n) for n in (1, 2)}
    return found


def section_gap(options: argparse.Namespace) -> Rows:
    """The recursion beside dynamic programming over all steps at once, which is exact in the same costs.

    With sums kept as terms for 4 workers; for 8 without, and nothing small held by all: else no table suffices.
    """
    rows = []
    for name, (model, inputs) in tqdm(reduced(options.smoke).items(), disable=None):
        step = captured(model, inputs)
        for axes in ((2, 2), (2, 2, 2)):
            lean = len(axes) > 2

            def restrict(found: Options, lean: bool = lean) -> Options:
                return replace(found, small=0, keeps_terms=False) if lean else found

            ours = search_apart(step, axes, restrict)
            row: dict[str, Any] = {
                "model": name, "ops": len(step.ops), "workers": 2 ** len(axes), "recursion bytes": sum(ours.step_bytes),
                "recursion s": ours.seconds,
            }  # fmt: skip
            try:
                exact = plain_dp(step, axes, restrict)
                row |= {
                    "exhaustive bytes": sum(exact.step_bytes), "exhaustive s": exact.seconds,
                    "gap": sum(ours.step_bytes) / max(sum(exact.step_bytes), 1e-9) - 1,
                }  # fmt: skip
            except (ModelError, MemoryError):
                row["exhaustive s"] = "table too large"
            rows.append(row)
    return rows
