"""Sequences: the LSTM over sentences of many lengths, and over one length."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence

import vgraph
from recursion.ablation import switches
from recursion.workload import INDUCTOR, Step, Workload, compiled, training

# One vertex at a time: what batching alone is worth, and what an engine does that has nothing else either.
ALONE, CAVS_SERIAL = "serial policy, all else on", "serial policy, all else off (Cavs' serial)"
BASE = {name: value for name, value in switches("base").items() if name != "VGRAPH_STREAMING"}


class ChainLSTM(vgraph.VertexFunction):
    """torch's LSTM cell on a chain; the parameters are those of ``nn.LSTMCell``."""

    def __init__(self, cell: nn.LSTMCell) -> None:
        super().__init__(states={"h": cell.hidden_size, "c": cell.hidden_size})
        self.cell = cell

    def forward(self, v: vgraph.Vertex) -> None:
        cell, before = self.cell, v.gather(0, default=0.0)
        own = nn.functional.linear(v.pull("x"), cell.weight_ih, cell.bias_ih)
        i, f, g, o = (own + nn.functional.linear(before["h"], cell.weight_hh, cell.bias_hh)).chunk(4, -1)
        c = torch.sigmoid(f) * before["c"] + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class _BaseChain(ChainLSTM):
    """Of a class of its own: what is captured of one class is shared."""


def _under(switches: dict[str, str], step: Step) -> Step:
    def run() -> object:
        with patch.dict(os.environ, switches):
            return step()

    return run


def chain(length: int) -> vgraph.Graph:
    return vgraph.graph((range(length - 1), range(1, length)), num_nodes=length)


def lengths(count: int) -> np.ndarray:
    """Those of sentences: 3 to 83, 22 on average."""
    draw = np.random.default_rng(0)
    return np.clip(np.round(draw.gamma(4.0, 5.5, count)), 3, 83).astype(int)


def squares(out: Tensor) -> Tensor:
    return (out * out).sum()


def has_onednn_bf16() -> bool:
    """Whether torch hands an LSTM in bfloat16 to oneDNN on this processor."""
    return torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def in_bf16(lstm: nn.LSTM) -> nn.LSTM:
    return copy.deepcopy(lstm).bfloat16()


def variable_lengths(batch: int, hidden: int, backend: str = INDUCTOR) -> Workload:
    torch.manual_seed(0)
    sizes = lengths(batch)
    rows = [torch.randn(int(n), hidden) for n in sizes]
    cell, lstm = nn.LSTMCell(hidden, hidden), nn.LSTM(hidden, hidden)
    with torch.no_grad():
        for name, value in cell.named_parameters():
            getattr(lstm, f"{name}_l0").copy_(value)
    graphs, own = [chain(int(n)) for n in sizes], ChainLSTM(cell)
    order = np.argsort(-sizes)
    longest, padded = sizes[order], pad_sequence([rows[i] for i in order])
    packed = pack_sequence(rows, enforce_sorted=False)
    quick = compiled(cell, backend, dynamic=True)
    half, wide = in_bf16(lstm), padded.bfloat16()
    is_word = (torch.arange(int(longest[0])).unsqueeze(1) < torch.from_numpy(longest.copy())).unsqueeze(2)

    def by_vgraph() -> Tensor:
        return squares(own(vgraph.batch(graphs), x=torch.cat(rows))["h"])

    def by_cell(cell: Callable[..., tuple[Tensor, Tensor]] = cell) -> Tensor:
        h = c = torch.zeros(batch, hidden)
        total = torch.zeros(())
        for t in range(longest[0]):
            k = int((longest > t).sum())
            h, c = cell(padded[t, :k], (h[:k], c[:k]))
            total = total + squares(h)
        return total

    def by_padded() -> Tensor:
        return squares(half(wide)[0] * is_word)

    sides = {
        "vgraph": training(cell.parameters(), by_vgraph),
        "torch packed LSTM": training(lstm.parameters(), lambda: squares(lstm(packed)[0].data)),
        "LSTMCell loop": training(cell.parameters(), by_cell),
        "LSTMCell loop, torch.compile": training(cell.parameters(), lambda: by_cell(quick)),
    }
    if has_onednn_bf16():
        sides["oneDNN LSTM in bf16, padded"] = training(half.parameters(), by_padded)
    tokens = int(sizes.sum())
    flops = 2 * 4 * hidden * hidden * (tokens * 3 + tokens * 2)  # no gradient of x
    return Workload(f"Var-LSTM hidden {hidden} batch {batch}", sides, flops, int(sizes.max()))


def fixed_length(
    batch: int, hidden: int, steps: int = 64, *, serial: bool = False, backend: str = INDUCTOR
) -> Workload:
    torch.manual_seed(0)
    cell, lstm = nn.LSTMCell(hidden, hidden), nn.LSTM(hidden, hidden)
    with torch.no_grad():
        for name, value in cell.named_parameters():
            getattr(lstm, f"{name}_l0").copy_(value)
    graphs, own = [chain(steps)] * batch, ChainLSTM(cell)
    x = torch.randn(batch, steps, hidden)
    flat, upright = x.flatten(0, 1), x.transpose(0, 1).contiguous()

    quick = compiled(cell, backend)

    def by_vgraph() -> Tensor:
        return squares(own(vgraph.batch(graphs), x=flat)["h"])

    def by_cell() -> Tensor:
        states = [(torch.zeros(batch, hidden), torch.zeros(batch, hidden))]
        for rows in upright.unbind():
            states.append(quick(rows, states[-1]))
        return squares(torch.stack([h for h, _ in states[1:]]))

    sides = {
        "vgraph": training(cell.parameters(), by_vgraph),
        "torch LSTM": training(lstm.parameters(), lambda: squares(lstm(upright)[0])),
        "LSTMCell loop, torch.compile": training(cell.parameters(), by_cell),
    }
    if has_onednn_bf16():
        half, wide = in_bf16(lstm), upright.bfloat16()
        sides["oneDNN LSTM in bf16"] = training(half.parameters(), lambda: squares(half(wide)[0]))
    if serial:
        for name, one in {ALONE: ChainLSTM(cell), CAVS_SERIAL: _BaseChain(cell)}.items():
            one.policy = "serial"
            step = training(cell.parameters(), lambda one=one: squares(one(vgraph.batch(graphs), x=flat)["h"]))
            sides[f"vgraph, {name}"] = _under(BASE, step) if isinstance(one, _BaseChain) else step
    flops = 2 * 4 * hidden * hidden * batch * steps * 5
    return Workload(f"Fixed-LSTM hidden {hidden} batch {batch}", sides, flops, steps)
