"""What one process of a distributed test does; started with a folder and task:model:workers ..."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import vgraph
from tests.api.test_forms import classifier
from tests.partition.small_models import Cast, model_and_batch
from vgraph.ir.sharding import Split
from vgraph.runtime.distributed import shards

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-6),
}  # eps: gradients that are zero but for rounding (of the keys' bias) would be divided by themselves
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
UPDATES = {"wresnet": "sgd", "block": "sgd", "lstm": "adagrad", "attention": "adam", "mlp": "adam"}


def close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def made(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model, batch = model_and_batch(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model, batch


def shard_of(plan: Any, worker: Any, name: str, whole: Tensor) -> Tensor:
    from vgraph.runtime.distributed.in_process import whole_like
    from vgraph.runtime.distributed.shards import take

    region = worker.layout(name).regions[worker.rank]
    return whole.new_empty((0,)) if region is None else take(whole, whole_like(whole), region)


def same_step(plan: Any, worker: Any, model: nn.Module, loss: Tensor, wanted: Tensor) -> None:
    """The loss and every gradient, parameter and buffer, each compared with this worker's part of it."""
    close(loss, wanted.detach())
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    for key, parameter in worker.named_parameters():
        close(parameter.detach(), shard_of(plan, worker, key, parameters[key].detach()))
        close(parameter.grad, shard_of(plan, worker, key, parameters[key].grad))
    for key, buffer in worker.named_buffers():
        close(buffer, shard_of(plan, worker, key, buffers[key]))


def sent(plan: Any, worker: Any, batch: tuple[Tensor, ...]) -> Tensor:
    """The loss of a step, whose bytes over all workers are those of the plan."""
    before = worker.sent_bytes
    loss = worker(*batch)
    bytes_sent = torch.tensor(worker.sent_bytes - before)
    dist.all_reduce(bytes_sent)
    assert int(bytes_sent) == plan.communicated_bytes * (SIZE // plan.num_workers), (
        int(bytes_sent),
        plan.communicated_bytes,
    )
    return loss


def train(name: str, workers: int, folder: Path) -> None:
    """Steps of an optimizer on the shards, gradients clipped: one process has the same; overlapped or not."""
    model, batch = made(name)
    plan = vgraph.parallelize(model, batch, workers)
    worker, make = plan.launch(timeout=60), OPTIMIZERS[UPDATES[name]]
    mine, whole = make(worker.parameters()), make(model.parameters())
    for _ in range(2):
        mine.zero_grad()
        whole.zero_grad()
        loss, wanted = sent(plan, worker, batch), model(*batch)
        wanted.backward()
        close(worker.clip_grad_norm_(0.05), nn.utils.clip_grad_norm_(model.parameters(), 0.05))
        mine.step()
        whole.step()
        same_step(plan, worker, model, loss, wanted)
    (waited, none), (overlapped, some) = (exchanged(worker, batch, overlaps=each) for each in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(waited, overlapped, strict=True))
    assert none == 0 and (some > 0 or not plan.overlapped_bytes)


def exchanged(worker: Any, batch: tuple[Tensor, ...], *, overlaps: bool) -> tuple[list[Tensor], int]:
    """Loss and gradients of a step, and how many exchanges ended after something else than their own start."""
    group, events = worker._group, list[object]()
    start, finish, evaluate = group.start, group.finish, shards.evaluate
    early = 0

    def started(exchange: Any, *given: Any) -> Any:
        events.append(exchange)
        return start(exchange, *given)

    def finished(exchange: Any, *given: Any) -> Any:
        nonlocal early
        early += events[-1] is not exchange
        return finish(exchange, *given)

    def evaluated(op: Any, *given: Any) -> None:
        events.append(op)
        evaluate(op, *given)

    worker.zero_grad()
    group.overlaps, group.start, group.finish, shards.evaluate = overlaps, started, finished, evaluated
    try:
        loss = worker(*batch)
        return [loss, *(p.grad.clone() for p in worker.parameters() if p.grad is not None)], early
    finally:
        group.overlaps, shards.evaluate = True, evaluate
        del group.start, group.finish


class Added(nn.Module):
    """Two weights that are added: one tensor is the gradient of both."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Parameter(torch.randn(8, 8)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ (self.one + self.other)).square().mean()


def added(name: str, workers: int, folder: Path) -> None:
    """A gradient of two parameters that lie differently, by a plan of one's own, goes to where each lies."""
    torch.manual_seed(0)
    model, x = Added().double(), torch.randn(8, 8).double()
    plan = vgraph.parallelize(model, (x,), workers)
    one, other = plan.step.parameters.values()
    assert plan.step.gradients["one"] is plan.step.gradients["other"]
    placements = {**plan.sharding.placements, one.id: (Split(1),), other.id: (Split(0),)}
    plan.sharding = replace(plan.sharding, placements=placements)
    worker = plan.launch(timeout=60)
    assert worker.layout("one").regions != worker.layout("other").regions
    for _ in range(2):
        loss, wanted = worker(x), model(x)
        wanted.backward()
        same_step(plan, worker, model, loss, wanted)


def update(name: str, workers: int, folder: Path) -> None:
    """Three steps whose update is part of the plan, at another rate from the second on, gradients clipped.

    Where there are replicas each has a batch of its own; one process has them one after the other.
    """
    model, batch = made(name)
    make = OPTIMIZERS[UPDATES[name]]
    replicas, mine = SIZE // workers, RANK // workers
    batches = [tuple(x.roll(r, 0) for x in batch[:1]) + batch[1:] for r in range(replicas)]
    plan = vgraph.parallelize(model, batch, workers, optimizer=make, max_norm=0.5)
    worker, whole = plan.launch(timeout=60), make(model.parameters())
    for step in range(3):
        if step == 1:
            worker.learning_rate = whole.param_groups[0]["lr"] = 0.03
        worker.zero_grad()
        whole.zero_grad()
        loss = sent(plan, worker, batches[mine])
        losses = [model(*b) for b in batches]
        wanted = torch.stack(losses).mean()
        wanted.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        whole.step()
        same_step(plan, worker, model, loss, wanted)


def dropout(name: str, workers: int, folder: Path) -> None:
    """Random numbers are those of one process, given the same seed of torch's generator."""
    model, batch = model_and_batch(name)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    assert any(isinstance(m, nn.Dropout) and m.p for m in model.modules())
    worker, alone = vgraph.parallelize(model, batch, workers).launch(timeout=60), vgraph.parallelize(model, batch, 1)
    torch.manual_seed(5)
    first, second = worker(*batch), worker(*batch)
    torch.manual_seed(5)
    close(first, alone.run_in_process(*batch).loss)
    close(second, alone.run_in_process(*batch).loss)
    assert not torch.equal(first, second)


def autocast(name: str, workers: int, folder: Path) -> None:
    """bf16 products: what the workers compute is what the plan computes in one process."""
    model, batch = made(name)
    cast, batch = Cast(model.float()), tuple(x.float() if x.is_floating_point() else x for x in batch)
    plan = vgraph.parallelize(cast, batch, workers)
    assert any(e.dtype == torch.bfloat16 for e in plan.parts.exchanges)
    worker = plan.launch(timeout=60)
    loss, found = sent(plan, worker, batch), plan.run_in_process(*batch)
    assert torch.equal(loss, found.loss)
    for (key, parameter), whole in zip(worker.named_parameters(), found.grads, strict=True):
        assert torch.equal(parameter.grad, shard_of(plan, worker, key, whole))


def seeds(name: str, workers: int, folder: Path) -> None:
    """Processes whose models differ train the first one's; processes whose plans differ say so."""
    model, batch = made(name)
    wanted = model(*batch).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(RANK + 1)
    close(vgraph.parallelize(model, batch, workers).launch(timeout=60)(*batch), wanted)
    other = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    refused(lambda: other(*(x + RANK for x in batch)), "the workers were given different batches")
    close(other(*(x * (1 + 1e-7 * RANK) for x in batch)), wanted, 1e-6)  # rounding
    rows = tuple(x.repeat(1 + RANK, 1) for x in batch)
    try:
        vgraph.parallelize(model, rows, workers).launch(timeout=60)
    except vgraph.VGraphError as error:
        assert "have made different plans" in str(error)
    else:
        raise AssertionError("different plans were launched")


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=8).square().sum()


def complex_numbers(_: str, workers: int, folder: Path) -> None:
    """Who asks parameters whether they are trained finds complex ones, too."""
    torch.manual_seed(0)
    model, x = Fourier(), torch.randn(4, 8, dtype=torch.float64)
    worker = vgraph.parallelize(model, (x,), workers).launch(timeout=60)
    assert [parameter.requires_grad for parameter in worker.parameters()] == [True]
    close(worker(x), model(x).detach())


def accumulate(name: str, workers: int, folder: Path) -> None:
    """Gradients of two batches add up."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    for _ in range(2):
        worker(*batch)
        model(*batch).backward()
    for key, parameter in worker.named_parameters():
        close(parameter.grad, shard_of(None, worker, key, dict(model.named_parameters())[key].grad))


class Tied(nn.Module):
    """Embedding and head share a weight, and have a scale; dropout tells modes apart; a buffer is not in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner = nn.Embedding(32, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 32)
        self.head.weight = self.embedding.weight
        self.head.register_parameter("scale", nn.Parameter(torch.tensor(1.5)))
        self.act, self.scales, self.table = torch.tanh, [1.0, 2.0], torch.ones(16)
        self.register_buffer("shift", torch.full((16,), 0.25), persistent=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = nn.functional.dropout(self.act(self.inner(self.embedding(x))), 0.0, self.training)
        h = h * self.scales[0] * self.table + self.shift
        return nn.functional.cross_entropy(self.head.scale * self.head(h), y)


CHANGES: dict[str, Callable[[Any], object]] = {  # of what Tied reads
    "act": lambda model: setattr(model, "act", torch.sigmoid),
    "scales[0]": lambda model: model.scales.__setitem__(0, 3.0),
    "table": lambda model: model.table.mul_(2.0),
}


def habits(name: str, workers: int, folder: Path) -> None:
    """What is done to any module by habit is right on a worker, or refused: tied names, clipping, modes, optimizers."""
    torch.manual_seed(0)
    model, other = Tied().double(), Tied().double()
    batch = (torch.randint(32, (16,)), torch.randint(32, (16,)))
    plan = vgraph.parallelize(model, batch, workers)
    worker = plan.launch(timeout=60)
    state = {key: tensor.full_tensor() for key, tensor in worker.state_dict().items()}
    assert state.keys() == model.state_dict().keys()
    other.load_state_dict(state)
    worker.load_state_dict(worker.state_dict())
    worker.load_state_dict(model.state_dict())
    assert worker.head.weight is worker.embedding.weight
    for order in (2.0, 1.0, float("inf")):
        for each in (model, worker):
            each.zero_grad()
        model(*batch).backward()
        close(worker(*batch), other(*batch).detach())
        norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.05, order) for each in (worker, model)]
        close(*norms)
        for key, parameter in worker.named_parameters():
            close(parameter.grad, shard_of(plan, worker, key, dict(model.named_parameters())[key].grad))
        if RANK == SIZE - 1:
            next(worker.parameters()).grad[:1] = torch.nan  # on one worker alone
        assert nn.utils.get_total_norm([p.grad for p in worker.parameters()], order).isnan()
        assert nn.utils.clip_grad_norm_(worker.parameters(), 0.05, order).isnan()
    assert worker.train() is worker
    matrices = [p for p in worker.parameters() if p.dim() == 2]
    before = [p.detach().clone() for p in matrices]
    refused(torch.optim.Adafactor(worker.parameters(), lr=0.1).step, "Adafactor does not work element by element")
    refused(torch.optim.Muon(matrices, lr=0.1).step, "Muon does not work element by element")
    assert all(torch.equal(p, b) for p, b in zip(matrices, before, strict=True))
    worker.save(folder / "tied")
    worker.load(folder / "tied")
    model.act = torch.sigmoid
    refused(lambda: worker(*batch), "model.act, which Tied reads, has changed since it was planned")
    model.act = torch.tanh
    worker(*batch)


def two_optimizers(each: nn.Module) -> list[torch.optim.Optimizer]:
    """One of the first parameter, one of the others; decay tells a step that was made from one that was not."""
    first, *others = each.parameters()
    return [
        torch.optim.SGD([first], lr=0.1, momentum=0.9, weight_decay=0.1),
        torch.optim.Adam(others, lr=0.01, weight_decay=0.1),
    ]


def kept(name: str, workers: int, folder: Path) -> None:
    """Saving moves no optimizer's state, of some parameters or before its first step; plain state is taken over.

    What a worker cannot follow is refused before anything is changed: other shapes, dtypes, frozen parameters.
    """
    model, batch = made(name)
    plan = vgraph.parallelize(model, batch, workers)
    worker = plan.launch(timeout=60)
    mine, whole = two_optimizers(worker), two_optimizers(model)
    for number in range(3):
        for place, optimizer in enumerate(mine):
            worker.save(folder / f"kept{place}", optimizer)
            if number < 2:
                worker.load(folder / f"kept{place}", optimizer)
        worker.zero_grad()
        model.zero_grad()
        loss, wanted = worker(*batch), model(*batch)
        wanted.backward()
        for optimizer in (*mine, *whole):
            optimizer.step()
        same_step(plan, worker, model, loss, wanted)
    refused(lambda: worker.load(folder / "kept0", mine[1]), "has the state of an optimizer that steps")
    state = {key: 2 * tensor for key, tensor in model.state_dict().items()}
    worker.load_state_dict(state)
    model.load_state_dict(state)
    refused(
        lambda: worker.load_state_dict({**state, next(reversed(state)): torch.zeros(3, 3, 3)}),
        "has the shape (3, 3, 3)",
    )
    close(worker(*batch), model(*batch).detach())
    first = next(worker.parameters()).requires_grad_(False)
    refused(lambda: worker(*batch), "was trained when the plan was made")
    first.requires_grad_(True)
    handle = next(worker.parameters()).register_hook(lambda gradient: 2.0 * gradient)
    refused(lambda: worker(*batch), "has a hook")
    handle.remove()
    refused(lambda: worker(batch[0].clone().requires_grad_(), *batch[1:]), "requires a gradient")
    worker.float()
    refused(lambda: worker(*batch), "is of torch.float32 now, and the plan is of torch.float64")


def evaluation(name: str, workers: int, folder: Path) -> None:
    """Steps of training, a short one among them, and evaluation in between, all on one set of shards."""
    torch.manual_seed(0)
    model, x, y = classifier()
    model.dropout.p = 0.0
    plan = vgraph.parallelize(model, (x, y), workers)
    worker = plan.worker(timeout=60)
    assert plan.worker() is worker
    mine, whole = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (worker, model))
    for rows in (16, 7):
        mine.zero_grad()
        whole.zero_grad()
        found, wanted = worker.train()(x[:rows], y=y[:rows]), model.train()(x[:rows], y[:rows])
        close(found["logits"], wanted["logits"].detach())
        wanted["loss"].backward()
        mine.step()
        whole.step()
        same_step(plan, worker, model, found["loss"], wanted["loss"])
        with torch.no_grad():
            torch.testing.assert_close(worker.eval()(x[:5]), model.eval()(x[:5]), rtol=1e-10, atol=1e-10)
    forward = vgraph.parallelize(model, (x,), workers).launch(timeout=60)
    close(forward(x)["logits"], model(x)["logits"].detach())
    refused(forward.train, "of which none is a loss")


def routine(name: str, workers: int, folder: Path) -> None:
    """Two epochs that one process's limit of memory refuses; the second by new workers that know the checkpoint alone.

    Losses and logits are those of one process that has no limit.
    """
    torch.manual_seed(0)
    model, x, y = classifier()
    model.dropout.p = 0.0
    limit = 0.6 * vgraph.parallelize(model, (x, y), 1).memory_per_worker
    refused(lambda: vgraph.parallelize(model, (x, y), 1, memory_limit=limit), "more than the limit")
    batches = [(x, y), (x.flip(0), y), (x.roll(3, 0), y), (x[:7], y[:7])]
    worker = vgraph.parallelize(model, (x, y), workers, memory_limit=limit).launch(timeout=60)
    whole = torch.optim.Adam(model.parameters(), lr=0.01)
    wanted = [epoch(model, whole, 0, batches), epoch(model, whole, 2, batches)]
    mine = torch.optim.Adam(worker.parameters(), lr=0.01)
    found = [epoch(worker, mine, 0, batches)]
    worker.save(folder / "routine", mine)
    other, _, _ = classifier()
    other.dropout.p = 0.0
    worker = vgraph.parallelize(other, (x, y), workers, memory_limit=limit).launch(timeout=60)
    mine = torch.optim.Adam(worker.parameters(), lr=0.01)
    worker.load(folder / "routine", mine)
    done = int(next(iter(mine.state.values()))["step"])
    found.append(epoch(worker, mine, done, batches))
    close(found, wanted)


def epoch(each: nn.Module, optimizer: Any, done: int, batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Steps of two batches each, clipped, at falling rates; the losses, and logits of an evaluation at the end."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: 0.7**number, last_epoch=done - 1)
    found: list[Tensor] = []
    optimizer.zero_grad()
    for number, (x, y) in enumerate(batches):
        loss = each.train()(x, y)["loss"]
        if loss.requires_grad:  # a worker has run the backward
            loss.backward()
        found.append(loss.detach())
        if number % 2:
            nn.utils.clip_grad_norm_(each.parameters(), 0.1)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
    with torch.no_grad():
        return [*found, each.eval()(batches[0][0])["logits"]]


def refused(action: Callable[[], object], fact: str) -> None:
    try:
        action()
    except vgraph.VGraphError as error:
        assert fact in str(error), error
    else:
        raise AssertionError(f"not refused: {fact}")


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


def cut(name: str, workers: int, folder: Path) -> None:
    """A checkpoint that is cut, or has lost a file, is refused by all, and changes nothing of model and optimizer."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    optimizer = torch.optim.Adam(worker.parameters(), lr=0.01)
    worker(*batch)
    optimizer.step()
    for place, cure in ((".metadata", "is damaged"), (f"__{workers - 1}_0.distcp", "does not fit")):
        worker.save(folder / "cut", optimizer)
        worker(*batch)
        optimizer.step()
        held = [*worker.parameters(), *(t for state in optimizer.state.values() for t in state.values())]
        before = [tensor.detach().clone() for tensor in held]
        dist.barrier()
        for size in (0.5, 0.0):
            if worker.rank == 0:
                whole = (folder / "cut" / place).read_bytes()
                (folder / "cut" / place).write_bytes(whole[: int(size * len(whole))])
            dist.barrier()
            refused(lambda: worker.load(folder / "cut", optimizer), cure)
            assert all(torch.equal(tensor, b) for tensor, b in zip(held, before, strict=True))
            dist.barrier()


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
    worker = begun(name, workers, folder)
    if worker.rank == workers - 1:
        os._exit(7)
    tell(worker, folder, lambda: [worker(*made(name)[1]) for _ in range(3)])


def hang(name: str, workers: int, folder: Path) -> None:
    """The last worker stops answering; the others give it up after the timeout."""
    worker = begun(name, workers, folder, timeout=12)
    if worker.rank == workers - 1:
        time.sleep(60)
    tell(worker, folder, lambda: worker(*made(name)[1]))


def die_saving(name: str, workers: int, folder: Path) -> None:
    """The last worker leaves while the second checkpoint is written: the first is still whole."""
    import torch.distributed.checkpoint as dcp

    worker = begun(name, workers, folder)
    worker(*made(name)[1])
    if worker.rank == workers - 1:
        dcp.save = lambda *_, **__: os._exit(7)
    tell(worker, folder, lambda: worker.save(folder / "checkpoint"))


def resume(name: str, workers: int, folder: Path) -> None:
    """What is left can be gone on with."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=60)
    worker.load(folder / "checkpoint", torch.optim.SGD(worker.parameters(), lr=0.01))
    close(worker(*batch), model(*batch).detach())


def begun(name: str, workers: int, folder: Path, timeout: float = 60) -> Any:
    """A worker that has made a step and a checkpoint."""
    model, batch = made(name)
    worker = vgraph.parallelize(model, batch, workers).launch(timeout=timeout)
    optimizer = torch.optim.SGD(worker.parameters(), lr=0.01)
    worker(*batch)
    worker.save(folder / "checkpoint", optimizer)
    return worker


def tell(worker: Any, folder: Path, action: Callable[[], Any]) -> None:
    """Writes down what error an action ends with, and leaves."""
    try:
        action()
    except vgraph.VGraphError as error:
        (folder / f"error{worker.rank}").write_text(f"{type(error).__name__}: {error}")
        os._exit(0)
    os._exit(3)


if __name__ == "__main__":
    for given in sys.argv[2:]:
        task, model_name, count = given.split(":")
        kind, _, rest = task.partition("_")
        if kind in ("dtensor", "engine"):
            tasks = importlib.import_module(f"tests.runtime.{kind}_tasks")
            getattr(tasks, rest)(model_name, int(count), Path(sys.argv[1]))
        else:
            globals()[task](model_name, int(count), Path(sys.argv[1]))
    if dist.is_initialized():
        dist.destroy_process_group()
