"""Programs of examples/ beside the same by other means: loops over vertices, levels by hand, a row for every edge.

A training step of each: forward, backward, SGD. Both sides have the same parameters, their losses are compared, and
they take turns; figures are the best of several rounds. ``--lines`` counts lines of plumbing on both sides
(``plain/plumbing.py``).

usage: gallery.py [--rows NAME ...] [--rounds 5] [--threads N] [--cpu-time] [--json FILE] [--lines] [--show] [--smoke]
"""

from __future__ import annotations

import argparse
import copy
import email
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from plain import levels, loops, messages, plumbing
from recursion.workload import Workload, take_turns, training
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.data import load_syntax

LOOP, BY_HAND, LEVELS = "a loop over vertices", "a row for every edge", "levels by hand"


def example(name: str) -> ModuleType:
    """A file of examples/ as a module."""
    path = Path(__file__).resolve().parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"examples_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def beside(
    name: str, model: nn.Module, plain: nn.Module, loss: Callable[[nn.Module], Tensor], how: str = LOOP
) -> Workload:
    """Steps of both; the loss of ``plain``, which has the same parameters, has to be the same number."""
    found, wanted = (loss(one).detach() for one in (model, plain))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    sides = {
        "vgraph": training(model.parameters(), lambda: loss(model)),
        how: training(plain.parameters(), lambda: loss(plain)),
    }
    return Workload(name, sides)


def sick(smoke: bool) -> Workload:
    of = example("sick")
    pairs = of.made_here(5 if smoke else 25).train
    left, right, similarity = vgraph.collate(list(pairs))
    model = of.Relatedness(len(pairs.tokens), 8 if smoke else 64)
    plain = copy.deepcopy(model)
    plain.cell = loops.ChildSum(plain.cell)
    return beside("sick", model, plain, lambda m: m.loss(m(left, right), similarity))


def edge_attention(smoke: bool) -> Workload:
    of = example("edge_attention")
    g, kind, way, answer = of.points(40 if smoke else 2000)
    model = of.Listener(8 if smoke else 32)
    plain = copy.deepcopy(model)

    def loss(one: nn.Module) -> Tensor:
        if one is model:
            return F.cross_entropy(one(g, kind, way), answer)
        return F.cross_entropy(one.out(messages.attend(one.attention, g, one.kinds(kind), way)), answer)

    return beside("edge_attention", model, plain, loss, BY_HAND)


def link_prediction(smoke: bool) -> Workload:
    """Pairs without an edge are drawn by each side's own means, so losses are compared on the same pairs before."""
    of = example("link_prediction")
    whole = of.communities(*((3, 10) if smoke else (60, 50)))
    (g, known, others), x = of.divided(whole, 0.5), whole.ndata["feat"]
    model = of.Encoder(x.shape[1], 8 if smoke else 32, 8 if smoke else 16)
    plain = copy.deepcopy(model)
    drawn = (others[0][: len(known[0])], others[1][: len(known[0])])
    code = model(g, x)
    ours = [of.scores(code, pairs) for pairs in (known, drawn)]
    expected = sum(F.binary_cross_entropy_with_logits(s, torch.full_like(s, 1.0 - i)) for i, s in enumerate(ours)) / 2
    torch.testing.assert_close(messages.loss_of_links(plain, g, x, known, drawn), expected, rtol=1e-3, atol=1e-5)
    count = len(known[0])
    sides = {
        "vgraph": training(model.parameters(), lambda: of.loss_of(model, g, x, known)),
        BY_HAND: training(
            plain.parameters(), lambda: messages.loss_of_links(plain, g, x, known, messages.unjoined(g, count))
        ),
    }
    return Workload("link_prediction", sides)


def tree_lstm_ddp(smoke: bool) -> Workload:
    """One process's share of a batch, which each side makes of its samples in the step."""
    of = example("tree_lstm_ddp")
    train = load_syntax(folder=Path(email.__file__).parent, num_classes=3).train
    samples = of.samples_of(train, 8 if smoke else 64)
    model = of.Namer(8 if smoke else 128, train.num_tokens, train.num_classes).eval()
    plain = levels.ByLevels(copy.deepcopy(model)).eval()

    def loss(one: nn.Module) -> Tensor:
        if one is model:
            trees, label = vgraph.collate(samples)
            return F.cross_entropy(one(trees), label)
        token, rows, roots, label = levels.collate(samples)
        return F.cross_entropy(one(token, rows, roots), label)

    return beside("tree_lstm_ddp", model, plain, loss, LEVELS)


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
    parts = vgraph.unbatch(g)
    ids = messages.joined([torch.stack(part.edges()) for part in parts], [part.num_nodes() for part in parts])

    def loss(one: nn.Module) -> Tensor:
        def energy(g: vgraph.Graph, z: Tensor, r: Tensor) -> Tensor:
            return one(g, z, r) if one is model else messages.energy(one, of.CENTRES, ids, z, r)

        return F.mse_loss(of.force_of(energy, g, z, r), wanted)

    return beside("forces", model, plain, loss, BY_HAND)


ROWS = {
    make.__name__: make
    for make in (
        sick, edge_attention, link_prediction, dag_vae, lattice, junction_trees, circuits, forces, tree_lstm_ddp
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true", help="the process's, for a machine that is shared")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--lines", action="store_true", help="count lines of plumbing, and run nothing")
    parser.add_argument("--show", action="store_true", help="with --lines: print the lines")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.lines or options.smoke:
        plumbing.report(show=options.show)
    if options.lines:
        return
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    results: dict[str, dict[str, float]] = {}
    for name in options.rows:
        torch.manual_seed(0)
        found = take_turns(ROWS[name](options.smoke), 0 if options.smoke else options.rounds, clock)
        results[name] = found
        (ours, seconds), (other, theirs) = found.items()
        print(f"{name:15s} {ours} {1e3 * seconds:6.1f} ms; {other} {theirs / seconds:.1f} times as long", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
