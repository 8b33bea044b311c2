"""Vertex functions on a device: Tree-LSTM over trees of sentences, the LSTM over sentences of many lengths.

torch's LSTM is cuDNN's on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import tree_lstm
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
        check = tree_check(min(batch, 16), hidden)
        yield Row(f"tree-lstm-{batch}", sides, check, 1 << 10, aims, trees=batch)
    for batch in (2,) if is_small else (64, 256):
        width = 8 if is_small else 256
        sides = {name: sequence_side(name, batch, width, device) for name in ("vgraph", "torch LSTM")}
        yield Row(f"var-lstm-{batch}", sides, sequence_check(min(batch, 8), width), 1 << 10)


# ---------------------------------------------------------------- trees
def trees_on(batch: int, hidden: int, device: str) -> tree_lstm.Task:
    task = tree_lstm.Task(tree_lstm.make_trees(batch), hidden)
    task.modules.to(device)
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
    """A new batch every step, sent to the device as a whole."""
    return tree_lstm.loss_of(task, vgraph.batch(task.graphs).to(device))


def by_levels(task: tree_lstm.Task, batch: int, device: str) -> Tensor:
    task.words, task.labels = ([ids.to(device) for ids in kept] for kept in (task.words, task.labels))
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
