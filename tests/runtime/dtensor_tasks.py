"""What processes of a distributed test do with ``Plan.as_dtensor``; tasks of ``worker_process``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

import vgraph
from benchmarks.partitioning.listed import listed as listed_model
from benchmarks.partitioning.vision_models import BATCH
from tests.campaign.drawn_dense import drawn_dense
from tests.runtime.worker_process import CHANGES, RANK, SIZE, Tied, close, made, refused


class SentBytes(CommDebugMode):
    """CommDebugMode, and the bytes that all-to-alls take: what this process sends to others."""

    sent = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "alltoall_base" in str(func):
            self.sent += args[1].numel() * args[1].element_size()
        return super().__torch_dispatch__(func, types, args, kwargs)


def distributed(name: str, workers: int) -> tuple[Any, nn.Module, nn.Module, tuple[Tensor, ...]]:
    """A plan, its model as DTensors and as it was, and a batch."""
    model, batch = made(name)
    whole = copy.deepcopy(model)
    plan = vgraph.parallelize(model, batch, workers)
    return plan, plan.as_dtensor(model, init_device_mesh("cpu", (SIZE,))), whole, batch


def step(
    model: nn.Module,
    whole: nn.Module,
    batch: tuple[Tensor, ...],
    called: Callable[..., Tensor] | None = None,
    tolerance: float = 1e-9,
) -> Tensor:
    """Loss, gradients and buffers of a step are those of one process; ``called``: the model, compiled."""
    for each in (model, whole):
        each.zero_grad()
    loss, wanted = (model if called is None else called)(*batch), whole(*batch)
    loss.backward()
    wanted.backward()
    close(loss, wanted, tolerance)
    for parameter, other in zip(model.parameters(), whole.parameters(), strict=True):
        if other.grad is None:
            assert parameter.grad is None
            continue
        assert isinstance(parameter.grad, DTensor) and parameter.grad.placements == parameter.placements
        close(parameter.grad.full_tensor(), other.grad, tolerance)
    for buffer, other in zip(model.buffers(), whole.buffers(), strict=True):
        close(buffer, other, tolerance)
    return loss


def train(name: str, workers: int, folder: Path) -> None:
    """Bytes are those of the books; clipping, Adam, other batches and evaluation are as in one process.

    State goes to the plain model and back, and into a checkpoint that other numbers of processes read.
    """
    plan, model, whole, batch = distributed(name, workers)
    step(model, whole, batch)
    with SentBytes() as counted:
        model(*batch).backward()
    total = torch.tensor(counted.sent)
    dist.all_reduce(total)
    assert int(total) == plan.dtensor_layout().communicated_bytes
    whole(*batch).backward()  # gradients add up
    norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.05) for each in (model, whole)]
    close(norms[0].full_tensor(), norms[1])
    for each in (model, whole):
        torch.optim.Adam(each.parameters(), lr=0.01).step()
    step(model, whole, batch)
    few = tuple(x.narrow(1 if name == "lstm" else 0, 0, 3) for x in batch)
    step(model, whole, few)
    with torch.no_grad():
        close(model.eval()(*few), whole.eval()(*few))
    assert len(model.forward.recordings) == 3
    full = {key: x.full_tensor() if isinstance(x, DTensor) else x for key, x in model.state_dict().items()}
    plain, batch = made(name)
    plain.load_state_dict(full)
    set_model_state_dict(model, whole.state_dict(), options=StateDictOptions(full_state_dict=True))
    step(model.train(), plain, batch)
    dcp.save(model.state_dict(), checkpoint_id=folder / f"dtensors-{name}")
    if RANK == 0:
        torch.save(plain.state_dict(), folder / f"plain-{name}")


def resume(name: str, workers: int, folder: Path) -> None:
    """A checkpoint of another number of processes is what the plain model was."""
    _, model, whole, batch = distributed(name, workers)
    state = model.state_dict()
    dcp.load(state, checkpoint_id=folder / f"dtensors-{name}")
    model.load_state_dict(state)
    whole.load_state_dict(torch.load(folder / f"plain-{name}", weights_only=True))
    step(model, whole, batch)


def listed(name: str, workers: int, folder: Path) -> None:
    """A model of the list of twenty-six; ``workers`` are all processes."""
    model, batch = listed_model(name)
    everything(name, model, batch, tuple(list(x.shape).index(BATCH) for x in batch), folder)


def drawn(name: str, workers: int, folder: Path) -> None:
    """The model of a seed; ``workers`` are all processes."""
    model, batch = drawn_dense(int(name))
    everything(name, model, batch, (0,) * len(batch), folder)


def everything(name: str, model: nn.Module, batch: tuple[Tensor, ...], dims: tuple[int, ...], folder: Path) -> None:
    """What ``train`` asks for, to 1e-10; a checkpoint; ``torch.compile``. ``dims``: where each tensor has its samples.

    The checkpoint is read by the plain model, and the plain model's by the divided one.
    """
    whole, plain = copy.deepcopy(model), copy.deepcopy(model)
    plan = vgraph.parallelize(model, batch, SIZE)
    plan.as_dtensor(model, init_device_mesh("cpu", (SIZE,)))
    step(model, whole, batch, tolerance=1e-10)
    with SentBytes() as counted:
        model(*batch).backward()
    total = torch.tensor(counted.sent)
    dist.all_reduce(total)
    assert int(total) == plan.dtensor_layout().communicated_bytes, (int(total), plan.dtensor_layout())
    travelling = [part for each in plan._as_dtensors.parts.exchanges for part in each.parts]
    assert counted.get_total_counts() == sum(part.num_bytes > 0 for part in travelling)
    whole(*batch).backward()
    norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.05) for each in (model, whole)]
    close(norms[0].full_tensor(), norms[1], 1e-10)
    for each in (model, whole):
        torch.optim.SGD(each.parameters(), lr=0.1).step()
    few = tuple(x.narrow(dim, 0, 3) for dim, x in zip(dims, batch, strict=True))
    step(model, whole, few, tolerance=1e-10)
    with torch.no_grad():
        close(model.eval()(*few), whole.eval()(*few), 1e-10)
    model.train()
    whole.train()
    saved = folder / f"{name}-{SIZE}"
    dcp.save(model.state_dict(), checkpoint_id=saved)
    dcp.load(state := plain.state_dict(), checkpoint_id=saved)
    plain.load_state_dict(state)
    step(model, plain, batch, tolerance=1e-10)
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    set_model_state_dict(model, plain.state_dict(), options=StateDictOptions(full_state_dict=True))
    step(model, plain, batch, tolerance=1e-10)
    with torch._dynamo.config.patch(allow_rnn=True):  # without it Dynamo refuses whatever holds an nn.LSTM
        called = torch.compile(model, fullgraph=True, backend="aot_eager")
        step(model, plain, batch, called, tolerance=1e-10)


def habits(name: str, workers: int, folder: Path) -> None:
    """Tied weights, settings that change, automatic casts, torch.compile, names of arguments; and what is refused."""
    torch.manual_seed(0)
    model = Tied().double()
    batch = (torch.randint(32, (16,)), torch.randint(32, (16,)))
    plan, whole = vgraph.parallelize(model, batch, workers), copy.deepcopy(model)
    mesh = init_device_mesh("cpu", (SIZE,))
    refused(lambda: plan.as_dtensor(made("mlp")[0], mesh), "this is a MLP, and the plan is of a Tied")
    refused(lambda: vgraph.parallelize(model, batch, 8).as_dtensor(model, mesh), f"has {SIZE} devices and the plan is")
    handle = model.head.weight.register_hook(lambda gradient: 2.0 * gradient)
    refused(lambda: plan.as_dtensor(model, mesh), "has a hook")
    handle.remove()
    plan.as_dtensor(model, mesh)
    refused(lambda: plan.as_dtensor(model, mesh), "has a forward of its own")
    assert model.head.weight is model.embedding.weight
    refused(lambda: model.load_state_dict(whole.state_dict()), "is a DTensor, and a Tensor in the state that is loaded")
    set_model_state_dict(model, whole.state_dict(), options=StateDictOptions(full_state_dict=True))
    model.load_state_dict(model.state_dict())
    handles = [each.head.weight.register_hook(lambda gradient: 2.0 * gradient) for each in (model, whole)]
    step(model, whole, batch)
    for handle in handles:
        handle.remove()
    step(model, whole, batch)
    for change in CHANGES.values():
        change(model)
        change(whole)
        step(model, whole, batch)
    compiled = torch.compile(model, backend="eager")
    close(compiled(batch[0], y=batch[1]), whole(*batch))
    with torch.autocast("cpu", torch.bfloat16):
        cast = model.float()(*batch)
    assert cast.dtype == torch.float32 and 0 < abs(cast - whole(*batch)) < 0.1
    model.head.weight = nn.Parameter(whole.head.weight.detach().float())
    refused(lambda: model(*batch), "head.weight is a Parameter that as_dtensor has not made")


def refusals(name: str, workers: int, folder: Path) -> None:
    """Gradients that a divided step does not give are refused, and parameters of others; batches may be empty."""
    _, model, whole, batch = distributed(name, workers)
    refused(lambda: model(*(x + RANK for x in batch)), "the workers were given different batches")
    loss, parameters = model(*batch), list(model.parameters())
    refused(lambda: torch.autograd.grad(loss, parameters, create_graph=True), "no second derivative")
    traced = (batch[0].clone().requires_grad_(), *batch[1:])
    refused(lambda: model(*traced), "requires a gradient")
    with torch.no_grad():
        close(model(*traced), whole(*traced))
    assert model(*(x.narrow(0, 0, 0) for x in batch)).isnan()
    path, _, last = next(iter(dict(model.named_parameters()))).rpartition(".")
    setattr(model.get_submodule(path), last, nn.Parameter(whole.get_parameter(f"{path}.{last}").detach().clone()))
    refused(lambda: model(*batch), "that as_dtensor has not made")


def compiled(name: str, workers: int, folder: Path) -> None:
    """``torch.compile``: a graph for each form of a call, with the step's operators in it; numbers are one process's.

    Forward and backward lie where the compiler cuts the step, but all exchanges are in the forward's graph. Another
    batch and evaluation are other forms. Inductor, which takes long, compiles one evaluation of one model.
    """
    torch._dynamo.config.recompile_limit = 64  # the forms of several models in one process, all of one code
    plan, model, whole, batch = distributed(name, workers)
    graphs: list[list[str]] = []

    def kept(graph: torch.fx.GraphModule, example: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    traced = aot_autograd(fw_compiler=kept, partition_fn=min_cut_rematerialization_partition)
    called = torch.compile(model, fullgraph=True, backend=traced)
    for _ in range(2):
        step(model, whole, batch, called)
    forward, backward = graphs
    moving = sum(exchange.num_bytes > 0 for exchange in plan._as_dtensors.parts.exchanges)
    assert moving > 0
    assert [forward.count(f"vgraph.{each}.default") for each in ("send", "receive", "after")] == [moving, moving, 1]
    assert not any(each.startswith("vgraph.") for each in backward)
    few = tuple(x.narrow(0, 0, 3) for x in batch)
    step(model, whole, few, called)
    if name == "mlp":
        kind, own = type(whole), type(whole).forward
        kind.forward = lambda self, x: 2.0 * own(self, x)
        refused(lambda: called(*few), "MLP.forward, which MLP reads, has changed since the step was compiled")
        torch.compiler.reset()
        with torch.no_grad():
            close(torch.compile(model, fullgraph=True, backend="inductor")(*few), whole(*few))
        kind.forward = own
        torch.compiler.reset()
    with torch.no_grad():
        close(called(*few), whole(*few))
        close(called.eval()(*few), whole.eval()(*few))


def compiled_by_inductor(name: str, workers: int, folder: Path) -> None:
    """Two steps and another batch; forward and backward are compiled."""
    _, model, whole, batch = distributed(name, workers)
    called = torch.compile(model, fullgraph=True, backend="inductor")
    for rows in (batch, batch, tuple(x.narrow(0, 0, 3) for x in batch)):
        step(model, whole, rows, called)


def compiled_dropout(name: str, workers: int, folder: Path) -> None:
    """A step that draws random numbers leaves the graph, and draws those that it draws uncompiled."""
    _, model, whole, batch = distributed(name, workers)
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert layers
    for layer in layers:
        layer.p = 0.5
    broken = torch.compile(model, backend="aot_eager")
    found = [(torch.manual_seed(7), each(*batch))[1] for each in (model, broken, whole)]
    close(found[0], found[1])
    assert abs(found[1] - found[2]) > 1e-9


@dataclass
class Pair:
    """A batch that no operator takes."""

    x: Tensor
    wanted: Tensor


class Described(nn.Module):
    """Is passed a dict or a dataclass, and gives a dict in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, batch: Any) -> Any:
        given = vars(batch) if isinstance(batch, Pair) else batch
        made = self.linear(given["x"])
        loss = (made - given["wanted"]).square().mean()
        return loss if self.training else {"made": made, "loss": loss}


def compiled_nests(name: str, workers: int, folder: Path) -> None:
    """A dict of tensors is passed within the graph; a dataclass, or a dict that is given, outside of it.

    Automatic casts are part of the graph.
    """
    torch.manual_seed(0)
    model = Described().double()
    batch = {"wanted": torch.randn(8, 16).double(), "x": torch.randn(8, 16).double()}
    whole, plan = copy.deepcopy(model), vgraph.parallelize(model, (batch,), workers)
    plan.as_dtensor(model, init_device_mesh("cpu", (SIZE,)))
    called = torch.compile(model, fullgraph=True, backend="aot_eager")
    step(model, whole, (turned := dict(reversed(batch.items())),), called)
    close(called(batch=turned), whole(batch))
    assert len(model.forward.traced) == 1
    broken = torch.compile(model, backend="aot_eager")
    step(model, whole, (Pair(**batch),), broken)
    assert len(model.forward.traced) == 1
    with torch.no_grad():
        close(broken.eval()(batch)["made"], whole.eval()(batch)["made"])
    rounded = {key: x.float() for key, x in batch.items()}
    model.train().float()
    with torch.autocast("cpu", torch.bfloat16):
        close(called(rounded), model(rounded))
        assert abs(model(rounded) - whole.train().float()(rounded)) < 0.1
    assert len({each.recording.form.casts for each in model.forward.traced}) == 2


def scaler(name: str, workers: int, folder: Path) -> None:
    """``torch.amp.GradScaler`` steps as in one process; an infinity on one process alone is found by all."""
    _, model, whole, batch = distributed(name, workers)
    scalers = [torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1) for _ in range(2)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, whole)]
    for number in range(3):
        for each, scale, optimizer in zip((model, whole), scalers, optimizers, strict=True):
            optimizer.zero_grad()
            scale.scale(each(*batch)).backward()
            gradient = next(p.grad for p in each.parameters() if p.grad is not None)
            if number == 1 and isinstance(gradient, DTensor) and RANK == SIZE - 1:
                gradient.to_local().fill_(torch.inf)
            elif number == 1 and not isinstance(gradient, DTensor):
                gradient.fill_(torch.inf)
            scale.step(optimizer)
            scale.update()
        assert scalers[0].get_scale() == scalers[1].get_scale() == (128.0, 64.0, 128.0)[number]
        for parameter, other in zip(model.parameters(), whole.parameters(), strict=True):
            close(parameter.full_tensor(), other)


def meta(name: str, workers: int, folder: Path) -> None:
    """A model on the meta device: planned, distributed, then given memory and numbers, as with ``fully_shard``."""
    whole, batch = made(name)
    with torch.device("meta"):
        model, _ = made(name)
    vgraph.parallelize(model, batch, workers).as_dtensor(model, init_device_mesh("cpu", (SIZE,)))
    assert all(p.is_meta for p in model.parameters())
    model.to_empty(device="cpu")
    full = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, whole.state_dict(), options=full)
    step(model, whole, batch)


def replicas(name: str, workers: int, folder: Path) -> None:
    """A mesh whose first dim is one of replicas (HSDP): each has a batch of its own, gradients are means."""
    model, batch = made(name)
    whole, mesh = copy.deepcopy(model), init_device_mesh("cpu", (SIZE // workers, workers))
    plan = vgraph.parallelize(model, batch, workers)
    flat = init_device_mesh("cpu", (SIZE,))
    refused(lambda: plan.as_dtensor(model, flat), f"the mesh has {SIZE} devices and the plan is for {workers} workers")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(RANK + 1)  # the first process's numbers count
    plan.as_dtensor(model, mesh)
    batches = [(batch[0] * (1 + number), *batch[1:]) for number in range(SIZE // workers)]
    for _ in range(2):
        losses = [whole(*each) for each in batches]
        torch.stack(losses).mean().backward()
        loss = model(*batches[RANK // workers])
        loss.backward()
        close(loss, losses[RANK // workers])
        for parameter, other in zip(model.parameters(), whole.parameters(), strict=True):
            assert isinstance(parameter.grad, DTensor) and parameter.grad.placements == parameter.placements
            assert parameter.placements[0].is_replicate()
            close(parameter.grad.full_tensor(), other.grad)
        for each in (model, whole):
            torch.optim.SGD(each.parameters(), lr=0.1).step()
            each.zero_grad()
