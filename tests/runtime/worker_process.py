"""What one process of a distributed test does; started with a folder and task:model:workers ..."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import vgraph
from tests.partition.small_models import model_and_batch


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def made(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model, batch = model_and_batch(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model, batch


def shard_of(plan: Any, worker: Any, name: str, whole: Tensor) -> Tensor:
    from vgraph.runtime.in_process import whole_like
    from vgraph.runtime.shards import take

    region = worker.layout(name).regions[worker.rank]
    return take(whole, whole_like(whole), region)


def train(name: str, workers: int, folder: Path) -> None:
    """Three steps with clipping: loss, gradients, parameters as one process has them; bytes as planned."""
    model, batch = made(name)
    plan = vgraph.parallelize(model, batch, workers)
    worker = plan.launch(timeout=60)
    mine = torch.optim.Adam(worker.parameters(), lr=0.01)
    whole = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        mine.zero_grad()
        whole.zero_grad()
        before = worker.sent_bytes
        loss = worker(*batch)
        sent = torch.tensor(worker.sent_bytes - before)
        wanted = model(*batch)
        wanted.backward()
        close(loss, wanted.detach())
        named = dict(model.named_parameters())
        for key, parameter in worker.named_parameters():
            close(parameter.grad, shard_of(plan, worker, key, named[key].grad))
        dist.all_reduce(sent)
        replicas = dist.get_world_size() // workers
        assert int(sent) == plan.communicated_bytes * replicas, (int(sent), plan.communicated_bytes)
        close(worker.clip_grad_norm_(0.05), nn.utils.clip_grad_norm_(model.parameters(), 0.05))
        mine.step()
        whole.step()
        for key, parameter in worker.named_parameters():
            close(parameter.detach(), shard_of(plan, worker, key, named[key].detach()))
        for key, buffer in worker.named_buffers():
            close(buffer, shard_of(plan, worker, key, dict(model.named_buffers())[key]))


def accumulate(name: str, workers: int, folder: Path) -> None:
    """Gradients of two batches add up."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    for _ in range(2):
        worker(*batch)
        model(*batch).backward()
    for key, parameter in worker.named_parameters():
        close(parameter.grad, shard_of(None, worker, key, dict(model.named_parameters())[key].grad))


def save(name: str, workers: int, folder: Path) -> None:
    """Two steps, a checkpoint, a third step whose loss is written down."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    optimizer = torch.optim.Adam(worker.parameters(), lr=0.01)
    for step in range(4):
        if step == 2:
            worker.save(folder / "checkpoint", optimizer)
        optimizer.zero_grad()
        loss = worker(*batch)
        optimizer.step()
    if worker.rank == 0:
        torch.save(loss, folder / "loss")


def load(name: str, workers: int, folder: Path) -> None:
    """The checkpoint of another number of workers goes on to the same loss."""
    model, batch = made(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    optimizer = torch.optim.Adam(worker.parameters(), lr=0.01)
    worker.load(folder / "checkpoint", optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        loss = worker(*batch)
        optimizer.step()
    close(loss, torch.load(folder / "loss", weights_only=True))
    state = worker.state_dict()
    worker.load_state_dict(state)


def meta(name: str, workers: int, folder: Path) -> None:
    """A model on the meta device: every shard is that of the tensor that one process would make."""
    real, batch = made(name)
    with torch.device("meta"):
        model, _ = model_and_batch(name)

    def init(key: str, tensor: Tensor) -> None:
        tensor.copy_({**real.state_dict()}[key])

    worker = vgraph.parallelize(model, batch, workers, init=init).launch(timeout=60)
    close(worker(*batch), real(*batch).detach())


def die(name: str, workers: int, folder: Path) -> None:
    """The last worker leaves without a word in its second step; the others say so."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=20)
    optimizer = torch.optim.SGD(worker.parameters(), lr=0.01)
    worker(*batch)
    worker.save(folder / "checkpoint", optimizer)
    if worker.rank == workers - 1:
        os._exit(7)
    try:
        for _ in range(3):
            worker(*batch)
    except vgraph.VGraphError as error:
        (folder / f"error{worker.rank}").write_text(f"{type(error).__name__}: {error}")
        os._exit(0)


if __name__ == "__main__":
    for given in sys.argv[2:]:
        task, model_name, count = given.split(":")
        globals()[task](model_name, int(count), Path(sys.argv[1]))
    if dist.is_initialized():
        dist.destroy_process_group()
