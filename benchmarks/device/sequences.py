"""Vertex functions on a device: Tree-LSTM over trees of sentences, LSTM over sentences, GRU over a deep circuit.

torch's LSTM is cuDNN's on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import tree_lstm
from recursion.circuits import GateGRU, braid
from recursion.sequences import ChainLSTM, chain, lengths, squares
from sides.steps import Step
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import vgraph
from device.row import Results, Row

AIMS = {256: 50_000.0, 1024: 150_000.0}


def rows(device: str, *, is_small: bool) -> Iterator[Row]:
    """Trees of SST's shape, batches of 256 to 4096; sentences, hidden 256."""
    hidden = 8 if is_small else 150
    for batch in (3,) if is_small else (256, 1024, 4096):
        aims = {"trees a second": AIMS[batch]} if batch in AIMS else {}
        sides = {name: tree_side(name, batch, hidden, device) for name in ("vgraph", "level loop by hand")}
        sides |= switched(sides["vgraph"])
        check = with_switches(tree_check(min(batch, 16), hidden))
        yield Row(f"tree-lstm-{batch}", sides, check, 1 << 10, aims, trees=batch)
    for batch in (2,) if is_small else (64, 256):
        width = 8 if is_small else 256
        sides = {name: sequence_side(name, batch, width, device) for name in ("vgraph", "torch LSTM")}
        yield Row(f"var-lstm-{batch}", sides, sequence_check(min(batch, 8), width), 1 << 10)

    length, width = (4, 8) if is_small else (2000, 64)
    own = circuit_side(length, width, device)
    check = with_switches(circuit_check)
    yield Row(f"circuit-{length}", {"vgraph": own, **switched(own)}, check, 1 << 10)


# ---------------------------------------------------------------- switches (ADR 0019)
SWITCHES = {"one launch": "VGRAPH_WALK", "two streams": "VGRAPH_STREAMS", "CUDA graphs": "VGRAPH_GRAPHS"}


def switched(make: Callable[[], Step]) -> dict[str, Callable[[], Step]]:
    """The same side with each switch on."""
    return {name: lambda variable=variable: under(variable, make()) for name, variable in SWITCHES.items()}


def under(variable: str, step: Step) -> Step:
    def run() -> Results:
        os.environ[variable] = "1"
        try:
            return step()
        finally:
            del os.environ[variable]

    return run


def with_switches(check: Callable[[str], Results]) -> Callable[[str], Results]:
    """What the function gives alone, then under each switch; calls are recorded from the second on."""

    def run(device: str) -> Results:
        found = check(device)
        for variable in SWITCHES.values():
            found += under(variable, lambda: check(device))()
        return found

    return run


# ---------------------------------------------------------------- a deep and narrow circuit
def circuit_side(length: int, hidden: int, device: str) -> Callable[[], Step]:
    def make() -> Step:
        torch.manual_seed(0)
        g, model = braid(length), GateGRU(hidden)
        x = torch.randn(g.num_nodes(), hidden).to(device)
        model.to(device)
        there = g.to(device)
        return gradients(model, lambda: model(there, x=x)["h"])

    return make


def circuit_check(device: str) -> Results:
    """Three steps: the second call of a form is recorded, the third repeats it."""
    step = circuit_side(4, 8, device)()
    return [grad for _ in range(3) for grad in step()]


# ---------------------------------------------------------------- trees
def trees_on(batch: int, hidden: int, device: str) -> tree_lstm.Task:
    task = tree_lstm.Task(tree_lstm.make_trees(batch), hidden)
    task.modules.to(device)
    task.optimizer = torch.optim.Adagrad(task.modules.parameters(), lr=0.05)  # its sums lie where the parameters do
    task.words, task.labels = ([ids.to(device) for ids in kept] for kept in (task.words, task.labels))
    return task


def tree_side(name: str, batch: int, hidden: int, device: str) -> Callable[[], Step]:
    def make() -> Step:
        task = trees_on(batch, hidden, device)

        def step() -> Results:
            task.optimizer.zero_grad()
            loss = by_vgraph(task, device) if name == "vgraph" else by_levels(task, batch, device)
            loss.backward()
            task.optimizer.step()
            return [loss.detach()]

        return step

    return make


def by_vgraph(task: tree_lstm.Task, device: str) -> Tensor:
    """A new batch every step, sent to the device as a whole; where words are is known before."""
    batch = vgraph.batch(task.graphs)
    leaves = (batch.ndata["word"] >= 0).nonzero().squeeze(1)
    words = batch.ndata["word"][leaves].to(device)
    there = batch.to(device)
    h = task.cell(there, x=vgraph.at(task.embed(words), leaves))["h"]
    return task.loss(h, there.ndata["label"])


def by_levels(task: tree_lstm.Task, batch: int, device: str) -> Tensor:
    with torch.device(device):
        return tree_lstm.by_hand_step(task, range(batch))


def tree_check(batch: int, hidden: int) -> Callable[[str], Results]:
    def check(device: str) -> Results:
        step = tree_side("vgraph", batch, hidden, device)()
        return [loss for _ in range(3) for loss in step()]

    return check


# ---------------------------------------------------------------- sequences
def sequence_side(name: str, batch: int, width: int, device: str) -> Callable[[], Step]:
    def make() -> Step:
        torch.manual_seed(0)
        sizes = [int(n) for n in lengths(batch)]
        words = [torch.randn(n, width) for n in sizes]
        cell = nn.LSTMCell(width, width)
        module: Any = cell if name == "vgraph" else nn.LSTM(width, width)
        if module is not cell:
            module.load_state_dict({f"{key}_l0": value for key, value in cell.state_dict().items()})
        module.to(device)
        if name == "vgraph":
            graphs, own, given = [chain(n) for n in sizes], ChainLSTM(module), torch.cat(words).to(device)
            return gradients(module, lambda: own(vgraph.batch(graphs).to(device), x=given)["h"])
        packed = pack_sequence(words, enforce_sorted=False).to(device)
        return gradients(module, lambda: module(packed)[0].data)

    return make


def gradients(module: nn.Module, run: Callable[[], Tensor]) -> Step:
    """Forward and backward of the sum of squares."""
    kept = list(module.parameters())

    def step() -> Results:
        return list(torch.autograd.grad(squares(run()), kept))

    return step


def sequence_check(batch: int, width: int) -> Callable[[str], Results]:
    return lambda device: sequence_side("vgraph", batch, width, device)()()
