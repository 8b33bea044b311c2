"""By torch.sparse: the adjacency as a CSR matrix, for what is a product with it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sides.steps import Step, alone, parameter, training
from sides.workloads import Data, NotExpressible


def adjacency(data: Data, values: Tensor) -> Tensor:
    """(receivers, senders); parallel edges add up. On a GPU every edge is an entry, and ids have 32 bits."""
    if data.src.is_cuda:
        by_row = data.dst.argsort(stable=True)
        starts = torch.zeros(data.num_nodes + 1, dtype=torch.int64)
        starts[1:] = torch.bincount(data.dst, minlength=data.num_nodes).cumsum(0)
        columns, shape = data.src[by_row].int(), (data.num_nodes, data.num_nodes)
        return torch.sparse_csr_tensor(starts.int(), columns, values[by_row], shape, check_invariants=False)
    ends = torch.stack([data.dst, data.src])
    whole = torch.sparse_coo_tensor(ends, values, (data.num_nodes, data.num_nodes), check_invariants=False)
    return whole.to_sparse_csr()


def build(data: Data) -> Step:
    kind = data.workload.kind
    if kind == "aggregate":
        a, x = adjacency(data, torch.ones(data.num_edges)), data.draw(1, data.num_nodes, data.workload.width)
        return alone(lambda: a @ x)
    if kind != "gcn":
        raise NotExpressible("not a product with a constant matrix")
    a, weights = adjacency(data, data.norm), [parameter(one["W"]) for one in data.layers()]

    def run() -> Tensor:
        rows = data.x
        for i, weight in enumerate(weights):
            rows = a @ F.linear(torch.relu(rows) if i else rows, weight)
        return rows

    return training(run, weights, data.y)
