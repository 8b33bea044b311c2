"""A Tree-LSTM on several processes with torch alone: batches that lie level by level, samplers, weights of samples.

What examples/tree_lstm_ddp.py is without vgraph, but for its arguments and what it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import vgraph

Level = tuple[int, int, Tensor, Tensor]  # its rows from and to; children's rows; where in the level their parents are
Batch = tuple[Tensor, list[Level], Tensor, Tensor]


def collate(samples: Sequence[tuple[vgraph.Graph, Tensor]]) -> Batch:
    """Tokens level by level, levels, rows of roots, labels; children have higher numbers than their parents."""
    heights: list[int] = []
    child: list[int] = []
    parent: list[int] = []
    starts: list[int] = []
    for tree, _ in samples:
        start = len(heights)
        starts.append(start)
        heights += [0] * tree.num_nodes()
        pairs = zip(*(ids.tolist() for ids in tree.edges()), strict=True)
        for a, b in sorted(pairs, reverse=True):
            child.append(start + a)
            parent.append(start + b)
            heights[start + b] = max(heights[start + b], heights[start + a] + 1)
    height = torch.tensor(heights)
    order = height.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    kids, heads = torch.tensor(child, dtype=torch.int64), torch.tensor(parent, dtype=torch.int64)
    levels: list[Level] = []
    first = 0
    for level, count in enumerate(torch.bincount(height).tolist()):
        here = height[heads] == level
        levels.append((first, first + count, place[kids[here]], place[heads[here]] - first))
        first += count
    token = torch.cat([tree.ndata["token"] for tree, _ in samples])[order]
    return token, levels, place[torch.tensor(starts)], torch.stack([label for _, label in samples])


def states(cell: Any, x: Tensor, levels: list[Level]) -> Tensor:
    """vgraph.nn.ChildSumTreeLSTM on rows that lie level by level."""
    h = c = x.new_zeros(0, cell.hidden_size)
    for first, last, child, parent in levels:
        rows = x[first:last]
        zeros = rows.new_zeros(last - first, cell.hidden_size)
        iou = cell.W_iou(rows) + cell.U_iou(zeros.index_add(0, parent, h[child]))
        f = torch.sigmoid(cell.W_f(rows)[parent] + cell.U_f(h[child]))
        i, o, u = iou.chunk(3, -1)
        new = torch.sigmoid(i) * torch.tanh(u) + zeros.index_add(0, parent, f * c[child])
        c = torch.cat([c, new])
        h = torch.cat([h, torch.sigmoid(o) * torch.tanh(new)])
    return h


class ByLevels(nn.Module):
    """Namer of examples/tree_lstm_ddp.py on what ``collate`` gives."""

    def __init__(self, namer: Any) -> None:
        super().__init__()
        self.namer = namer

    def forward(self, token: Tensor, levels: list[Level], roots: Tensor) -> Tensor:
        h = states(self.namer.cell, self.namer.dropout(self.namer.embedding(token)), levels)
        return self.namer.out(self.namer.dropout(h[roots]))


def train(namer: Any, samples: Dataset[Any], batch_size: int, epochs: int) -> float:
    """The last loss, after training on this process's share of every batch; all processes are to have joined."""
    ranks = dist.get_world_size()
    sampler = DistributedSampler(samples)
    loader = DataLoader(samples, batch_size // ranks, sampler=sampler, collate_fn=collate)
    parallel = DistributedDataParallel(ByLevels(namer))
    optimizer = torch.optim.AdamW(namer.parameters(), lr=2e-3)
    mean = torch.zeros(())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for token, levels, roots, label in loader:
            loss = F.cross_entropy(parallel(token, levels, roots), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach() / ranks
            dist.all_reduce(mean)
    return float(mean)
