"""The partitioner: seconds of the search, quality of its plans, bytes, memory, simulated steps.

Sections: state (weights, gradients, history of the 21 models of the Tofu paper), search (capture and search seconds for
8 workers), growth (with layers and with workers, and a plot), quality (against the exact optimum on random graphs),
bytes (communication and memory beside other ways to divide), figures (simulated samples a second of all 21 models).

usage: partition.py [--only SECTION ...] [--models NAME ...] [--graphs 200] [--exact]
       [--json FILE] [--plot FILE] [--smoke]
--exact counts bytes of the generated programs instead of the books' (minutes for the large models).
Simulated seconds come from a described machine (eight K80); they are no measurement.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from models import BENCHMARK, PUBLISHED_GIB, build
from models.cost_graphs import random_graph
from models.lstm import StackedLSTM
from models.resnet import WideResNet
from models.transformer import Llama
from tqdm import tqdm

from vgraph.api.step import capture_step
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition import comparison
from vgraph.partition.account import account
from vgraph.partition.critical import critical_dp, solve
from vgraph.partition.fit import search_best
from vgraph.partition.footprint import whole_footprint
from vgraph.partition.machines import MACHINES
from vgraph.partition.optimum import optimum
from vgraph.partition.rewrite import rewrite
from vgraph.partition.search import factorised, search
from vgraph.partition.simulate import compute_seconds, sensitivity, simulate

GIB = 2**30
PAPER = MACHINES["paper"]
BATCHES = {"rnn-4-8k": 512, "rnn-10-8k": 128, "wresnet-152-10": 8, "llama-8b": 8}
PUBLISHED_SEARCH = {"wresnet-152-10": 8.3, "rnn-10-8k": 66.6}
# Samples a second of the thesis' table 3.3: (Tofu, operator placement)
PUBLISHED_SAMPLES = {"rnn-6-4k": (210, 107), "rnn-8-4k": (154, 95), "rnn-10-4k": (122, 59)}


def batch_of(name: str) -> int:
    if name in BATCHES:
        return BATCHES[name]
    if name.startswith("rnn"):
        return {"4k": 512, "6k": 256, "8k": 128}[name.rsplit("-", 1)[1]]
    return {"4": 64, "6": 32, "8": 16, "10": 8}.get(name.rsplit("-", 1)[1], 8) if name.startswith("wresnet") else 8


def sgd(parameters: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def captured(model: torch.nn.Module, inputs: tuple[Any, ...]) -> TrainingStep:
    return capture_step(model, inputs, sgd)


def small(name: str, layers: int = 2) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    with torch.device("meta"):
        if name == "rnn":
            return StackedLSTM(layers, 64), (torch.zeros(3, 32, 64), torch.zeros(3, 32, 64))
        if name == "llama":
            ids = torch.zeros(4, 64, dtype=torch.long)
            return Llama(512, 128, 8, 4, 256, layers), (ids, ids)
        images, labels = torch.zeros(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
        return WideResNet(50, 1, 8, (1, layers, 1, 1)), (images, labels)


def step_of(name: str, smoke: bool, batch: int | None = None) -> TrainingStep:
    return captured(*(small(name) if smoke else build(name, batch or batch_of(name))))


def table(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(head, "")) for head in heads] for row in rows]
    widths = [max(len(c) for c in column) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- sections
def section_state(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name in BENCHMARK[:: len(BENCHMARK) - 1] if options.smoke else BENCHMARK:
        gib = 12 * sum(p.numel() for p in build(name)[0].parameters()) / GIB
        rows.append({"model": name, "GiB": gib, "published": PUBLISHED_GIB[name], "off": gib / PUBLISHED_GIB[name] - 1})
    return rows


def section_search(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name in tqdm(options.models or (["rnn"] if options.smoke else list(SEARCHED)), disable=None):
        began = time.perf_counter()
        step = step_of(name, options.smoke)
        capture = time.perf_counter() - began
        cpu = time.process_time()
        found = search(step, (2, 2, 2))
        cpu = time.process_time() - cpu
        again = min(search(step, (2, 2, 2)).seconds for _ in range(1 if options.smoke else 2))
        chop = search(step, (8,)).seconds
        rows.append({
            "model": name, "ops": len(step.ops), "capture s": capture, "search s": found.seconds, "again s": again,
            "cpu s": cpu, "one step of 8 s": chop, "published s": PUBLISHED_SEARCH.get(name, ""),
        })  # fmt: skip
    return rows


SEARCHED = ("wresnet-152-10", "rnn-10-8k", "llama-8b")


def section_growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for layers in (2, 4) if options.smoke else (4, 8, 16, 32):
        step = captured(*small("llama", layers))
        rows.append({"what": "layers", "count": layers, "ops": len(step.ops), "search s": search(step, (2, 2)).seconds})
    step = captured(*(small("rnn") if options.smoke else build("rnn-10-8k", 1024)))
    for workers in (2, 4) if options.smoke else (2, 8, 32, 128, 1024):
        found = search(step, factorised(workers))
        rows.append({"what": "workers", "count": workers, "ops": len(step.ops), "search s": found.seconds})
    if options.plot:
        _plot_growth(rows, options.plot)
    return rows


def _plot_growth(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    for place, what in zip(axes, ("layers", "workers"), strict=True):
        points = [(row["count"], row["search s"]) for row in rows if row["what"] == what]
        place.plot(*zip(*points, strict=True), marker="o")
        place.set(
            xlabel=what, ylabel="search, seconds", xscale="log" if what == "workers" else "linear", ylim=(0, None)
        )
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def section_quality(options: argparse.Namespace) -> list[dict[str, Any]]:
    count = 5 if options.smoke else options.graphs
    equal = paths = 0
    worst = 1.0
    for seed in tqdm(range(count), disable=None):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(4, 41)))
        least, ours = graph.cost(optimum(graph)), graph.cost(solve(graph))
        by_paths = graph.cost(critical_dp(graph))
        equal += abs(ours - least) <= 1e-6 * max(least, 1)
        paths += abs(by_paths - least) <= 1e-6 * max(least, 1)
        worst = max(worst, by_paths / least if least else 1.0)
    return [{
        "random graphs": count, "equal to the optimum": equal / count, "CriticalDP equal": paths / count,
        "CriticalDP at worst": worst,
    }]  # fmt: skip


Maker = Callable[[TrainingStep], ShardingPlan]
METHODS: dict[str, Maker] = {
    "tofu": lambda step: search_best(step, 8).plan,
    "tofu, recursion": lambda step: search(step, (2, 2, 2)).plan,
    "equal chop": lambda step: comparison.equal_chop(step, (2, 2, 2)).plan,
    "icml18": lambda step: comparison.icml18(step, (2, 2, 2)).plan,
    "icml18 + reduction": lambda step: comparison.icml18(step, (2, 2, 2), reduces=True).plan,
    "CriticalDP": lambda step: comparison.by_paths(step, (2, 2, 2)).plan,
    "spartan": lambda step: comparison.spartan(step, (2, 2, 2)).plan,
    "all rows, greedy": lambda step: comparison.all_row(step, (2, 2, 2)).plan,
    "all rows, random": lambda step: comparison.all_row(step, (2, 2, 2), random.Random(0)).plan,
    "data parallel": lambda step: comparison.data_parallel(step, (2, 2, 2)),
    "operator placement": lambda step: comparison.operator_placement(step, 8),
}


def section_bytes(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    names = options.models or (["rnn"] if options.smoke else ["rnn-4-8k", "rnn-10-8k", "wresnet-152-10"])
    for name in names:
        step = step_of(name, options.smoke)
        whole, batch = whole_footprint(step).total, 32 if options.smoke else batch_of(name)
        for method, make in tqdm(METHODS.items(), desc=name, disable=None):
            book = account(step, make(step))
            found = simulate(book, PAPER)
            moved = rewrite(step.program, book.plan).communicated_bytes if options.exact else book.total_bytes
            rows.append({
                "model": name, "method": method, "GB a step": moved / 1e9,
                "of 1/8 of the whole": 8 * found.memory.total / whole,
                "simulated samples/s": batch / found.seconds if found.fits else "out of memory",
                "without the limit": batch / found.seconds, "waiting": found.communication_share,
            })  # fmt: skip
    return rows


def section_figures(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    names = options.models or (["rnn"] if options.smoke else list(BENCHMARK))
    for name in tqdm(names, disable=None):
        batch = 32 if options.smoke else batch_of(name)
        step = step_of(name, options.smoke)
        book = account(step, search_best(step, 8).plan)
        placed = account(step, comparison.operator_placement(step, 8))
        published = PUBLISHED_SAMPLES.get(name, ("", ""))
        alone = sum(compute_seconds(op, (), (), PAPER) for op in step.ops)
        row: dict[str, Any] = {"model": name, "batch": batch, "ideal": 8 * batch / alone}
        row["small batch"] = _small_batch(name, step, batch, options.smoke)
        row["swapping"] = 8 * batch / max(alone, _swapped(step) / (PAPER.host_bandwidth / 8))
        for method, each, known in (("operator placement", placed, published[1]), ("tofu", book, published[0])):
            found = simulate(each, PAPER)
            row[method] = batch / found.seconds if found.fits else "out of memory"
            row[f"{method}, published"] = known
        row["tofu, least and most"] = _range(batch, sensitivity(book, PAPER))
        rows.append(row)
    return rows


def _range(batch: int, seconds: Any) -> str:
    return f"{batch / max(seconds.values()):.4g} to {batch / min(seconds.values()):.4g}"


def _swapped(step: TrainingStep) -> float:
    """Bytes over the host's link: what does not fit goes out and comes back once."""
    return 2 * max(whole_footprint(step).total - PAPER.memory, 0)


def _small_batch(name: str, step: TrainingStep, batch: int, smoke: bool) -> Any:
    """The largest batch that one device holds, eight times as fast as one device is."""
    whole = whole_footprint(step)
    room = PAPER.memory - whole.state
    size = batch
    while size and size * whole.activations / batch > room:
        size //= 2
    if not size:
        return "out of memory"
    smaller = step if size == batch or smoke else step_of(name, smoke, size)
    return 8 * size / sum(compute_seconds(op, (), (), PAPER) for op in smaller.ops)


SECTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], list[dict[str, Any]]]]] = {
    "state": ("Weights, gradients and history of one step (GiB)", section_state),
    "search": ("Search for 8 workers (seconds)", section_search),
    "growth": ("Growth of the search", section_growth),
    "quality": ("Plans of random graphs at 2 workers against scipy.optimize.milp", section_quality),
    "bytes": ("Bytes and memory for 8 workers; seconds are simulated", section_bytes),
    "figures": ("Simulated samples a second on eight K80", section_figures),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    add("--models", nargs="+", metavar="NAME")
    add("--graphs", type=int, default=200)
    add("--exact", action="store_true")
    add("--json", type=Path)
    add("--plot", type=Path)
    add("--smoke", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in options.only:
        title, section = SECTIONS[name]
        rows = section(options)
        table(title, rows)
        results[name] = rows
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
