"""What processes of a distributed test do with torch's own engines; tasks of ``worker_process``.

They count the bytes that ``DistributedDataParallel``, ``fully_shard`` and ``parallelize_module`` move in a step, beside
the books of the plans that have their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.partition.small_models import model_and_batch
from tests.partition.training_step import step_of
from tests.runtime.worker_process import RANK, SIZE
from vgraph.partition.accounting.account import account
from vgraph.partition.search.named import named_plans

WIDTH, HEAD = 32, 8


class MovedBytes(TorchDispatchMode):
    """The bytes that cross processes, all of them together, where each collective moves as few as it can."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        name, others = str(func), SIZE - 1
        if name.startswith("_c10d_functional.all_gather_into_tensor"):
            self.total += others * SIZE * _bytes(args[0])
        elif name.startswith("c10d._allgather_base_"):
            self.total += others * SIZE * _bytes(args[1])
        elif name.startswith("_c10d_functional.reduce_scatter_tensor"):
            self.total += others * _bytes(args[0])
        elif name.startswith("c10d._reduce_scatter_base_"):
            self.total += others * _bytes(args[1])
        elif name.startswith(("_c10d_functional.all_reduce", "c10d.allreduce_")):
            self.total += 2 * others * _bytes(args[0])
        elif name.startswith(("_c10d_functional.", "c10d.")):
            assert "wait" in name or "wrap" in name, f"bytes of {name} are not known"
        return func(*args, **(kwargs or {}))


def _bytes(given: Any) -> int:
    tensors = [given] if isinstance(given, Tensor) else given
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Attention(nn.Module):
    """Queries, keys and values each have a product of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        heads = [f(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for f in (self.q, self.k, self.v)]
        return self.o(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention, self.up, self.down = Attention(), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """Two layers; the embedding of words is the head's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(96, WIDTH), nn.Linear(WIDTH, 96, bias=False)
        self.layers, self.norm = nn.ModuleList([Layer(), Layer()]), nn.LayerNorm(WIDTH)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.words(x)
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def example(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    if name == "gpt":
        return GPT(), (torch.randint(96, (8, 16)), torch.randint(96, (8, 16)))
    model, batch = model_and_batch(name)
    return model.float(), tuple(x.float() if x.is_floating_point() else x for x in batch)


def named(name: str, workers: int, folder: Path) -> None:
    """The books of data parallel and FSDP are what the engines move; so are those of Megatron but for a few ids.

    What is beyond an engine's bytes is the loss and how many words it is a mean of, of which every worker has its part
    there, and a BatchNorm's statistics, which are those of the whole batch by the plan.
    """
    model, batch = example(name)
    step, _ = step_of(model, *batch)
    books = {key: account(step, plan).total_bytes for key, plan in named_plans(step, workers).items()}
    statistics = 4 * sum(2 * (SIZE - 1) * buffer.nbytes for buffer in model.buffers() if buffer.dim())
    beside = 128 + statistics
    mesh, part = init_device_mesh("cpu", (SIZE,)), tuple(x.chunk(SIZE)[RANK] for x in batch)
    summed = nn.parallel.DistributedDataParallel(example(name)[0], forward_sync_buffers=False)
    assert 0 <= books["data parallel"] - moved(lambda: summed(*part).backward()) <= beside
    sharded = example(name)[0]
    for module in sharded.layers if isinstance(sharded, GPT) else ():
        fully_shard(module, mesh=mesh, reshard_after_forward=False)
    fully_shard(sharded, mesh=mesh, reshard_after_forward=False)
    assert 0 <= books["FSDP, ZeRO-3"] - moved(lambda: sharded(*part).backward()) <= beside
    if name == "gpt":
        divided = tensor_parallel(GPT(), mesh)
        real = moved(lambda: trained(divided, batch))
        assert 0.95 < books["Megatron"] / real < 1.005


def moved(train: Callable[[], None]) -> int:
    """Bytes of a third step: engines prepare themselves in those before."""
    for _ in range(2):
        train()
    with MovedBytes() as counted:
        train()
    return counted.total


def tensor_parallel(model: GPT, mesh: DeviceMesh) -> GPT:
    """As torch's tutorial has it: columns, then rows, the sequence cut in between, the loss by parts of the words."""
    rows, columns = RowwiseParallel(output_layouts=Shard(1), use_local_output=False), ColwiseParallel
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    words = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False)
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    plan: dict[str, Any] = {"words": words, "norm": SequenceParallel(), "head": head}
    for each in ("layers.0.", "layers.1."):
        plan |= {f"{each}norms.{i}": SequenceParallel(use_local_output=False) for i in range(2)}
        plan |= {f"{each}attention": whole, f"{each}attention.o": rows, f"{each}down": rows}
        plan |= {f"{each}attention.{name}": columns() for name in "qkv"}
        plan[f"{each}up"] = columns(input_layouts=Shard(1))
    parallelize_module(model, mesh, plan)
    model.head.weight = model.words.weight
    return model


def trained(model: GPT, batch: tuple[Tensor, ...]) -> None:
    """A step whose gradients are complete: those of norms and biases are sums over parts of the sequence."""
    model.zero_grad()
    with loss_parallel():
        model(*batch).backward()
    for parameter in model.parameters():
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(place.is_partial() for place in gradient.placements):
            gradient.redistribute(placements=[Replicate()]).to_local()
