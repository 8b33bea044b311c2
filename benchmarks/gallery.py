"""Programs of examples/ beside the same as a loop over vertices (forces: with a row of memory for every edge).

A training step of each: forward, backward, SGD. Both sides have the same parameters, their losses are compared, and
they take turns; figures are the best of several rounds.

usage: gallery.py [--rows NAME ...] [--rounds 5] [--threads N] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from plain import loops
from recursion.workload import Workload, take_turns, training
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph

LOOP, BY_HAND = "a loop over vertices", "a row for every edge"


def example(name: str) -> ModuleType:
    """A file of examples/ as a module."""
    path = Path(__file__).resolve().parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"examples_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def beside(name: str, model: nn.Module, plain: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Workload:
    """Steps of both; the loss of ``plain``, which has the same parameters, has to be the same number."""
    found, wanted = (loss(one).detach() for one in (model, plain))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    sides = {
        "vgraph": training(model.parameters(), lambda: loss(model)),
        LOOP if name != "forces" else BY_HAND: training(plain.parameters(), lambda: loss(plain)),
    }
    return Workload(name, sides)


def lattice(smoke: bool) -> Workload:
    of = example("lattice")
    words = [["is", "an", "instance"], ["get", "the", "result"], ["file", "name"], ["read", "one", "line"]]
    known = {word: i for i, word in enumerate(sorted({word for name in words for word in name}))}
    g = vgraph.batch([of.lattice(words[i % 4], known) for i in range(4 if smoke else 64)])
    model = of.Segmenter(26 + len(known), 8 if smoke else 64)
    plain = copy.deepcopy(model)
    plain.there, plain.back = loops.Arcs(plain.there), loops.Arcs(plain.back)
    return beside("lattice", model, plain, lambda m: F.binary_cross_entropy_with_logits(m(g), g.ndata["ends"]))


def junction_trees(smoke: bool) -> Workload:
    of = example("junction_trees")
    draw = random.Random(0)
    g = vgraph.batch([of.sample(draw, draw.randint(2, 7)) for _ in range(4 if smoke else 64)])
    model = of.Marginals(8 if smoke else 64, "both")
    plain = copy.deepcopy(model)
    plain.inward, plain.outward = loops.Inward(plain.inward), loops.Outward(plain.outward)
    return beside("junction_trees", model, plain, lambda m: F.binary_cross_entropy_with_logits(m(g), g.ndata["true"]))


def dag_vae(smoke: bool) -> Workload:
    of = example("dag_vae")
    size = 8 if smoke else 64
    kinds, reads = of.draw(4 if smoke else 64)
    g = vgraph.batch([of.graph(*one) for one in zip(kinds, reads, strict=True)])
    model = of.DagVae(size, size // 2)
    plain = copy.deepcopy(model)
    plain.encoder, plain.decoder = loops.AlongWires(plain.encoder), loops.AlongWires(plain.decoder)

    def loss(one: nn.Module) -> Tensor:
        torch.manual_seed(0)  # the noise of codes
        return one.loss(g, kinds, reads)

    return beside("dag_vae", model, plain, loss)


def circuits(smoke: bool) -> Workload:
    of = example("circuits")
    g = vgraph.batch([of.made_here(width) for width in ((2, 3) if smoke else (8, 16, 32))])
    model = of.Estimator(8 if smoke else 48)
    plain = copy.deepcopy(model)
    kinds = plain.cells.functions
    plain.cells = loops.Gates(kinds[str(of.GATE)], kinds[str(of.INPUT)])
    return beside("circuits", model, plain, lambda m: (m(g) - g.ndata["truth"]).abs().mean())


def forces(smoke: bool) -> Workload:
    of = example("forces")
    g, z, r = of.clusters(4 if smoke else 32)
    wanted = of.force_of(of.morse, g, z, r).detach()
    model = of.Energy(2)
    plain = copy.deepcopy(model)

    def loss(one: nn.Module) -> Tensor:
        def energy(*given: Tensor) -> Tensor:
            return one(*given) if one is model else loops.energy(one, of.CENTRES, *given)

        return F.mse_loss(of.force_of(energy, g, z, r), wanted)

    return beside("forces", model, plain, loss)


ROWS = {make.__name__: make for make in (lattice, junction_trees, dag_vae, circuits, forces)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, dict[str, float]] = {}
    for name in options.rows:
        torch.manual_seed(0)
        found = take_turns(ROWS[name](options.smoke), 0 if options.smoke else options.rounds)
        results[name] = found
        (ours, seconds), (other, theirs) = found.items()
        print(f"{name:15s} {ours} {1e3 * seconds:6.1f} ms; {other} {theirs / seconds:.1f} times as long", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
