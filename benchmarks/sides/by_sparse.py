"""By torch.sparse: the adjacency as a CSR matrix, for what is a product with it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sides.steps import Step, alone, parameter, training
from sides.workloads import Data


def adjacency(data: Data, values: Tensor) -> Tensor:
    """(receivers, senders); parallel edges add up."""
    ends = torch.stack([data.dst, data.src])
    whole = torch.sparse_coo_tensor(ends, values, (data.num_nodes, data.num_nodes), check_invariants=False)
    return whole.to_sparse_csr()


def build(data: Data) -> Step:
    kind = data.workload.kind
    if kind == "aggregate":
        a, x = adjacency(data, torch.ones(data.num_edges)), data.draw(1, data.num_nodes, data.workload.width)
        return alone(lambda: a @ x)
    if kind != "gcn":
        raise NotImplementedError("not a product with a constant matrix")
    a, weights = adjacency(data, data.norm), [parameter(one["W"]) for one in data.layers()]

    def run() -> Tensor:
        rows = data.x
        for i, weight in enumerate(weights):
            rows = a @ F.linear(torch.relu(rows) if i else rows, weight)
        return rows

    return training(run, weights, data.y)
