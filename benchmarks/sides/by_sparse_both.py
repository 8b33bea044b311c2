"""By torch.sparse at its best: CSR in both directions built beforehand, so that no step transposes anything."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sides.by_sparse import adjacency
from sides.steps import Step, parameter, training
from sides.workloads import Data, NotExpressible


class Product(torch.autograd.Function):
    """A constant matrix times rows; its derivative is the product with the transpose, which is given."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, rows: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        (grad,) = grads
        return None, None, ctx.transposed @ grad


def build(data: Data) -> Step:
    if data.workload.kind != "gcn":
        raise NotExpressible("not a product with a constant matrix that has a derivative")
    matrix, weights = adjacency(data, data.norm), [parameter(one["W"]) for one in data.layers()]
    transposed = matrix.to_sparse_coo().t().to_sparse_csr()

    def run() -> Tensor:
        rows = data.x
        for i, weight in enumerate(weights):
            rows = Product.apply(matrix, transposed, F.linear(torch.relu(rows) if i else rows, weight))
        return rows

    return training(run, weights, data.y)
