"""``dgl.nn.NodeEmbedding``: rows that are trained a few at a time, shared by the processes of a program.

Takes: how many rows, how wide. Gives: rows of some nodes, whose gradients ``dgl.optim`` applies. Runs at every step.
Source: DGL 1.1, ``dgl.nn.NodeEmbedding``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import vgraph.distributed as vd
from vgraph.compat.shared import shared_by_all
from vgraph.errors import DeviceError
from vgraph.graphs.types import Device
from vgraph.runtime.distributed.ranks import rank_in_group


class NodeEmbedding:
    """A row for each node, in memory that the processes of a torch.distributed group on one machine share.

    Called with ids, it gives their rows; ``dgl.optim.SparseAdam`` and ``SparseAdagrad`` change the rows whose gradients
    came since the last step. ``name`` is told the processes' own; ``init_func`` is given the rows, and gives them
    back; ``partition`` is ignored, as rows are not divided.

    Raises:
        DeviceError: rows of several processes are to lie on a GPU.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        name: str,
        init_func: Callable[[Tensor], Tensor] | None = None,
        device: Device = None,
        partition: object = None,
    ) -> None:
        found = rank_in_group()
        self.rank, self.world_size = (-1, 0) if found is None else found
        self.num_embeddings, self.embedding_dim, self.name, self.partition = (
            num_embeddings,
            embedding_dim,
            name,
            partition,
        )
        self.device = torch.device("cpu" if device is None else device)
        if self.device.type != "cpu" and self.world_size > 1:
            fact = f"rows of {self.world_size} processes are to lie on {self.device}"
            raise DeviceError(fact, cure="leave device out: rows lie in memory that all processes share")
        self.weight = self.shared("", (num_embeddings, embedding_dim), torch.float32, init_func)
        self.optm_state: tuple[Tensor, ...] | None = None
        self.trace: list[tuple[Tensor, Tensor]] = []

    def shared(
        self,
        suffix: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        init_func: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Zeros, or what ``init_func`` makes of them, that all processes share; all call this in the same order."""
        if self.device.type != "cpu" or self.world_size < 2:
            made = torch.zeros(*shape, dtype=dtype, device=self.device)
            return made if init_func is None else init_func(made)
        return shared_by_all(f"{self.name}{suffix}", shape, dtype, init_func)

    def __call__(self, node_ids: Tensor, device: Device = None) -> Tensor:
        place = torch.device("cpu" if device is None else device)
        rows = self.weight[node_ids.to(self.weight.device)].to(place)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            self.trace.append((node_ids.to(place), rows))
        return rows

    def set_optm_state(self, state: tuple[Tensor, ...]) -> None:
        """What an optimizer remembers of the rows."""
        self.optm_state = state

    def reset_trace(self) -> None:
        """Forgets which rows were given since the last step."""
        self.trace = []

    def all_set_embedding(self, values: Tensor) -> None:
        """Replaces all rows; all processes call it, with the same values."""
        self.meet()  # whoever reads the old ones has done so
        if self.rank <= 0:
            self.weight.copy_(values)
        self.meet()

    def all_get_embedding(self) -> Tensor:
        """A copy of all rows, on the CPU; all processes call it."""
        self.meet()
        return self.weight.to("cpu", copy=True)

    def meet(self) -> None:
        """Waits for all processes."""
        if self.world_size > 1:
            vd.barrier()
