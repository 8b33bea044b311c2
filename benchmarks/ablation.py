"""What each idea of the recursive engine is worth: Cavs' figure 10 on a Tree-LSTM training step.

Ideas are added one after the other, each in a process of its own that has the others switched off by their
variables: base (frontiers, torch's operators, everything within the loop), +fusion (kernels), +lazy (what
feeds no frontier once after them), +eager (what no frontier feeds once before), +leaf (vertices without
children apart), +native loop, +own products, +streaming (the next batch prepared by a thread). Batches differ
from step to step, and a step includes batching and scheduling. The table has milliseconds a step.

usage: ablation.py [--ideas NAME ...] [--batches 1 4 16 64 256] [--hidden 64 128 256 512 1024] [--at-batch 64]
                   [--at-hidden 64] [--rounds 3] [--threads N] [--json FILE] [--plot FILE] [--smoke]
A JSON file that exists is added to, so that ideas can be measured in several runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from recursion.ablation import IDEAS, Point, ablate

Found = dict[str, dict[str, float]]  # idea to point ("batch x hidden") to seconds a step


def name_of(point: Point) -> str:
    return f"{point[0]} x {point[1]}"


def show(found: Found, points: list[Point]) -> None:
    width = max(map(len, found))
    print(f"{'batch x hidden':{width}s}" + "".join(f"{name_of(p):>11s}" for p in points))
    for idea, row in found.items():
        shown = (f"{1e3 * row[name]:11.2f}" if name in row else f"{'':11s}" for name in map(name_of, points))
        print(f"{idea:{width}s}" + "".join(shown))
    last = list(found.values())[-1]
    if "base" in found and all(name_of(p) in row for p in points for row in (found["base"], last)):
        print(
            f"{'base / last':{width}s}" + "".join(f"{found['base'][n] / last[n]:11.2f}" for n in map(name_of, points))
        )


def draw(path: Path, found: Found, sweeps: dict[str, list[Point]]) -> None:
    """How many times as fast as the base each idea makes a step, one panel a sweep."""
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an optional dependency)

    figure, panels = plt.subplots(1, len(sweeps), figsize=(5 * len(sweeps), 3.4), squeeze=False)
    for axes, (title, points) in zip(panels[0], sweeps.items(), strict=True):
        for number, (idea, row) in enumerate(found.items()):
            heights = [found["base"][name_of(p)] / row[name_of(p)] for p in points]
            places = [at + 0.85 * number / len(found) for at in range(len(points))]
            axes.bar(places, heights, 0.85 / len(found), label=idea)
        labels = [str(p[0] if "batch" in title.split(",")[0] else p[1]) for p in points]
        axes.set_xticks([at + 0.4 for at in range(len(points))], labels)
        axes.set(xlabel=title, ylabel="times as fast as base")
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ideas", nargs="+", choices=list(IDEAS), default=list(IDEAS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--at-batch", type=int, default=64)
    parser.add_argument("--at-hidden", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.ideas, options.rounds = ["base", "+leaf", "+streaming"], 0
        options.batches, options.hidden, options.at_batch, options.at_hidden = [1, 2], [8], 2, 8
    sweeps = {
        f"batch size, hidden {options.at_hidden}": [(b, options.at_hidden) for b in options.batches],
        f"hidden size, batch {options.at_batch}": [(options.at_batch, h) for h in options.hidden],
    }
    points = list(dict.fromkeys(point for sweep in sweeps.values() for point in sweep))
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for idea in options.ideas:
        seconds = ablate(idea, points, options.rounds, options.threads)
        kept[idea] = kept.get(idea, {}) | dict(zip(map(name_of, points), seconds, strict=True))
    found: Found = {idea: kept[idea] for idea in IDEAS if idea in kept}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    show(found, points)
    if options.plot:
        draw(options.plot, found, sweeps)


if __name__ == "__main__":
    main()
