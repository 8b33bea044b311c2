"""Batch normalisation over the rows of all ranks.

Takes: own rows. Gives: own rows, normalised by mean and variance of all. Runs at every step.
Source: Ioffe and Szegedy 2015, algorithm 1; torch's SyncBatchNorm refuses rows on CPUs.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from vgraph.ir.reduction import ACCUMULATED
from vgraph.runtime.distributed.halo_exchange import total
from vgraph.runtime.distributed.ranks import current_ranks

Model = TypeVar("Model", bound=nn.Module)


class BatchNorm1d(nn.BatchNorm1d):
    """As ``torch.nn.BatchNorm1d``, with the mean and variance of the rows of all ranks while it trains.

    It has derivatives of any order, and is made as torch's.

    Raises:
        ValueError: all ranks together have one number a feature.
        WorkerError: a rank is lost.

    Source: Ioffe and Szegedy 2015, algorithm 1.

    Example:
        >>> import torch, vgraph.distributed as vd
        >>> vd.BatchNorm1d(2)(torch.tensor([[1.0, 0.0], [3.0, 4.0]])).round(decimals=2).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The rows, normalised; all ranks call while it trains.

        Args:
            input: (rows, features) or (rows, features, length); a rank may have no row.

        Returns:
            As ``input``.

        Raises:
            ValueError: all ranks together have one number a feature, or there are other dims.
            WorkerError: a rank is lost.
        """
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or current_ranks().size == 1:
            return super().forward(input)
        return self._normalised(input)

    def _normalised(self, rows: Tensor) -> Tensor:
        ranks, given = current_ranks(), rows.dtype
        rows = rows.to(ACCUMULATED.get(given, given))  # as torch's: sums and counts of 16 bits would be rounded
        dims = [0, *range(2, rows.ndim)]
        shape = (1, -1, *(1,) * (rows.ndim - 2))
        own = rows.new_tensor([rows.numel() // self.num_features])
        summed = total(ranks, torch.cat([rows.sum(dims), own]), "batch norm mean")
        count = float(summed[-1].detach())
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got {int(count)} on all ranks")
        mean = summed[:-1] / count
        centred = rows - mean.view(shape)
        variance = total(ranks, centred.square().sum(dims), "batch norm variance") / count
        self._keep(mean.detach(), variance.detach() * (count / (count - 1)))
        found = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:  # pyright: ignore[reportUnnecessaryComparison]
            found = found * self.weight.view(shape) + self.bias.view(shape)
        return found.to(given)

    def _keep(self, mean: Tensor, variance: Tensor) -> None:
        """Running statistics, as torch keeps them."""
        if not (self.training and self.track_running_stats) or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for kept, found in ((self.running_mean, mean), (self.running_var, variance)):
            assert kept is not None
            kept.lerp_(found.to(kept.dtype), share)


def convert_batch_norm(model: Model) -> Model:
    """Replaces every ``torch.nn.BatchNorm1d`` in a model by one over all ranks, with its parameters.

    Args:
        model: a module; it is changed in place, unless it is such a layer itself.

    Returns:
        The model, or the layer in its place.

    Source: PyTorch, ``torch.nn.SyncBatchNorm.convert_sync_batchnorm``.

    Example:
        >>> import torch, vgraph.distributed as vd
        >>> model = vd.convert_batch_norm(torch.nn.Sequential(torch.nn.BatchNorm1d(3)))
        >>> isinstance(model[0], vd.BatchNorm1d)
        True
    """
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is nn.BatchNorm1d:
                setattr(module, name, _converted(child))
    return _converted(model) if type(model) is nn.BatchNorm1d else model


def _converted(given: nn.BatchNorm1d) -> BatchNorm1d:
    made = BatchNorm1d.__new__(BatchNorm1d)
    made.__dict__.update(given.__dict__)
    return made
