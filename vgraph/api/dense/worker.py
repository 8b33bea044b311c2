"""Worker: one process's part of a plan, as a module of sharded parameters that any optimizer steps.

Takes: a plan's programs, this process's place. Gives: losses, gradients on shards. Runs at every step.
Source: Tofu section 6 (each worker holds its shards; the graph of a step is its own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vgraph.api.dense.elementwise import watch_optimizers
from vgraph.api.dense.initial_state import StepState
from vgraph.api.dense.shard_gradient import ShardGradient, powers
from vgraph.errors import CheckpointError, ModelError
from vgraph.ir.partitioned import Layout, PartitionedProgram
from vgraph.ir.program import Value
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.rewrite.layout import Workers, build_exchange, chunk_layout
from vgraph.runtime.distributed.in_process import whole_like
from vgraph.runtime.distributed.process_group import WorkerGroup, as_dtensor, load_sharded, local_part, save_sharded
from vgraph.runtime.distributed.shards import take


class Worker(nn.Module):
    """One worker of a plan, a module of sharded parameters; made by ``Plan.launch``.

    ``loss = worker(*batch)`` leaves gradients on its parameters. With an optimizer in the plan the call also updates
    them, at ``worker.learning_rate``; without, ``torch.optim.SGD(worker.parameters(), lr=0.1).step()`` does, or any
    other that works element by element. Gradients add up over calls until ``zero_grad``.

    Source: Wang, Huang and Li 2019 (Tofu), section 6; the words are those of ``torch.nn.Module``.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> plan = vgraph.parallelize(Model(8, 8), (torch.ones(4, 8),), num_workers=2)
        >>> worker = plan.launch()  # doctest: +SKIP
        >>> loss = worker(torch.ones(4, 8))  # doctest: +SKIP
    """

    def __init__(
        self,
        step: TrainingStep,
        parts: PartitionedProgram,
        state: StepState,
        group: WorkerGroup,
        sharding: ShardingPlan,
        learning_rate: float,
    ) -> None:
        super().__init__()
        self._step, self._parts, self._state, self._group = step, parts, state, group
        self._workers = Workers(sharding)
        self.learning_rate = learning_rate
        self._layouts = {i.value.id: at for i, at in zip(step.program.inputs, parts.input_layouts, strict=True)}
        self._held: dict[int, Tensor] = {}
        self._initialise()
        self.training = state.is_training
        self._is_owner = {name: self._is_first(name) for name in step.parameters}
        watch_optimizers(self.parameters())

    @property
    def rank(self) -> int:
        """This worker's number in the plan, from 0 up."""
        return self._group.rank

    @property
    def sent_bytes(self) -> int:
        """The bytes that this worker has sent to others of its plan since it was launched."""
        return self._group.sent_bytes

    # ------------------------------------------------------------ state
    def _initialise(self) -> None:
        """Each tensor is made whole, cut, and let go before the next: no worker holds the model."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._group.agree(torch.get_rng_state()).cpu())
            for entry in self._step.program.inputs:
                value = entry.value
                if entry.name != "$seed" and not any(value is x for x in self._step.inputs):
                    whole = self._state.initial(value, self.learning_rate)
                    if self._state.is_copied(value):  # models of other seeds are no parts of one model
                        whole = self._group.from_first(whole)
                    self._held[value.id] = self._shard(value, whole)
        for name, value in self._step.parameters.items():
            tensor = self._held[value.id]
            parameter = nn.Parameter(tensor, requires_grad=tensor.is_floating_point() and name in self._step.gradients)
            self._held[value.id] = parameter
            _put(self, name, parameter)
        for name, value in self._step.buffers.items():
            _put(self, name, self._held[value.id])
        for alias, name in self._state.aliases.items():
            _put(self, alias, self._held[self._named()[name].id])

    def _shard(self, value: Value, whole: Tensor) -> Tensor:
        region = self._layouts[value.id].regions[self.rank]
        part = whole.new_empty((0,)) if region is None else take(whole, whole_like(whole), region)
        return part.to(self._group.device, copy=True, memory_format=torch.contiguous_format)

    def layout(self, name: str) -> Layout:
        """Where a parameter or a buffer lies.

        Args:
            name: its name in the model.

        Returns:
            A Layout, with the region of the whole tensor that each worker holds.

        Raises:
            KeyError: the model has no such parameter or buffer.
        """
        return self._layouts[{**self._step.parameters, **self._step.buffers}[name].id]

    def train(self, mode: bool = True) -> Worker:
        """Says that a call is in the mode that was recorded; there is no other.

        Args:
            mode: whether to train.

        Returns:
            This worker.

        Raises:
            ModelError: the step was recorded in the other mode.
        """
        if mode != self._state.is_training:
            word, other = ("train", "evaluation") if mode else ("eval", "training")
            raise ModelError(
                f"the plan was made of a model in {other} mode, and a call runs what was recorded, dropout and "
                f"gradients included: {word}() would change nothing",
                cure=f"make another plan of model.{word}(), and give its worker this one's state: "
                "other.load_state_dict(worker.state_dict(), strict=False)",
            )
        return self

    # ------------------------------------------------------------ a step
    def forward(self, *batch: object) -> Tensor:
        """One step on the full batch.

        Args:
            *batch: the full batch, of the shapes of the example's; every rank of a replica passes the same.

        Returns:
            The loss, a scalar, equal on every worker.
        """
        step = self._step
        given = {
            value.id: self._shard(value, x) for value, x in zip(step.inputs, self._state.batch(batch), strict=True)
        }
        given |= {i: tensor.detach() for i, tensor in self._held.items()}
        for entry in step.program.inputs:
            if entry.name == "$seed":
                given[entry.value.id] = self._group.agree(torch.randint(2**62, ()))
        if step.learning_rate is not None:
            rate = torch.tensor(self.learning_rate, dtype=step.learning_rate.dtype)
            given[step.learning_rate.id] = rate.to(self._group.device)
        program = self._parts.programs[self.rank]
        inputs = [given.pop(i.value.id) for i in step.program.inputs]
        with torch.no_grad():
            found = self._group.run(program, inputs, self._parts.overwrites)
        outputs = {v.id: t for v, t in zip(step.program.outputs, found, strict=True) if v is not None and t is not None}
        return self._file(outputs)

    def _file(self, outputs: Mapping[int, Tensor]) -> Tensor:
        step, loss = self._step, outputs[self._step.loss.id]
        gradients = {n: outputs[v.id] for n, v in step.gradients.items() if v.id in outputs}
        if self._group.has_replicas:
            loss = loss.clone()
            gradients = {n: g if step.updated else g.clone() for n, g in gradients.items()}
            self._group.average([loss, *(gradients.values() if not step.updated else ())])
        with torch.no_grad():
            for name, gradient in gradients.items():
                parameter = self._held[step.parameters[name].id]
                if parameter.grad is None:
                    parameter.grad = ShardGradient.of(gradient.clone(), self._norms, self._is_owner[name])
                else:
                    parameter.grad.add_(gradient)
            self._overwrite({step.parameters[n]: v for n, v in step.updated.items()}, outputs)
            self._overwrite({step.buffers[n]: v for n, v in step.new_buffers.items()}, outputs)
            self._overwrite({kept.before: kept.after for kept in step.history}, outputs)
        return loss

    def _overwrite(self, pairs: Mapping[Value, Value], outputs: Mapping[int, Tensor]) -> None:
        for before, after in pairs.items():
            if after.id in outputs and outputs[after.id].data_ptr() != self._held[before.id].data_ptr():
                self._held[before.id].copy_(outputs[after.id])

    # ------------------------------------------------------------ over all shards
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scales all gradients so that their norm over all workers is at most ``max_norm``.

        Args:
            max_norm: the largest norm, above 0.

        Returns:
            The norm before, a float64 scalar.
        """
        given = {name: self._held[value.id].grad for name, value in self._step.parameters.items()}
        mine = [ShardGradient.of(g, self._norms, self._is_owner[n]) for n, g in given.items() if g is not None]
        norm = torch.linalg.vector_norm(self._norms(mine, 2.0)) if mine else torch.zeros((), dtype=torch.float64)
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale.to(parameter.grad.dtype))
        return norm

    def _norms(self, shards: Sequence[Tensor], order: float) -> Tensor:
        """Norms of whole gradients, of which these are this worker's parts; all workers call it."""
        mine = powers(shards, order)
        if order == torch.inf:
            return self._group.largest(mine)
        return self._group.total(mine).pow(1 / order)

    # ------------------------------------------------------------ checkpoints
    def state_dict(self, *_: object, **__: object) -> dict[str, Tensor]:
        """Parameters, buffers and history as DTensors in equal chunks, whatever the plan; all workers call it.

        A tensor that the model has under several names is there under each.

        Args:
            *_: ignored, as of ``torch.nn.Module.state_dict``.
            **__: ignored likewise.

        Returns:
            DTensors by name.
        """
        found = self._own_state()
        return found | {alias: found[name] for alias, name in self._state.aliases.items()}

    def _own_state(self) -> dict[str, Tensor]:
        """Every tensor once."""
        return {name: self._chunk(value, self._held[value.id].detach()) for name, value in self._named().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Takes over what ``state_dict`` gave, on any number of workers; all workers call it.

        Args:
            state_dict: DTensors by name.
            strict: whether the names must be the same; False: those that both have are taken over.
            assign: ignored, as tensors are copied.

        Raises:
            CheckpointError: the names are not those of this model and optimizer.
        """
        named = self._named()
        odd = sorted((set(named) ^ set(state_dict)) - set(self._state.aliases))
        if odd and strict:
            raise CheckpointError(
                f"the state differs in {odd[:3]}", cure="load the state of the same model and optimizer"
            )
        for name in [name for name in named if name in state_dict]:
            value = named[name]
            with torch.no_grad():
                self._held[value.id].copy_(self._unchunk(value, state_dict[name]))

    def save(self, path: str | Path, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Writes a checkpoint folder, whole or not at all; all workers call it with the same path.

        Args:
            path: the folder.
            optimizer: one of the worker's parameters, whose state is to be kept; None: none.
        """
        state = {"model": self.state_dict(), "optimizer": self._optimizer_state(optimizer)}
        save_sharded(state, Path(path), self._group)

    def load(self, path: str | Path, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Reads a checkpoint that any number of workers wrote; all workers call it.

        Args:
            path: the folder.
            optimizer: one of the worker's parameters, whose state is to be restored; None: none.

        Raises:
            CheckpointError: there is none, or it is of another model or optimizer.
        """
        state: dict[str, dict[str, Tensor]] = {
            "model": self._own_state(),
            "optimizer": self._optimizer_state(optimizer),
        }
        load_sharded(state, Path(path), self._group)
        self.load_state_dict(state["model"])
        for name, held in state["optimizer"].items():
            parameter, key = self._step.parameters[name.rpartition("/")[0]], name.rpartition("/")[2]
            assert optimizer is not None
            tensor = optimizer.state[self._held[parameter.id]][key]
            with torch.no_grad():
                tensor.copy_(self._unchunk(parameter, held) if tensor.dim() else held)

    def _optimizer_state(self, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
        """What an optimizer holds beside each parameter lies as the parameter does."""
        found: dict[str, Tensor] = {}
        for name, value in self._step.parameters.items() if optimizer is not None else ():
            assert optimizer is not None
            parameter = self._held[value.id]
            if parameter.requires_grad and parameter not in optimizer.state:
                _make_state(optimizer)
            for key, tensor in optimizer.state.get(parameter, {}).items():
                if isinstance(tensor, Tensor):
                    found[f"{name}/{key}"] = self._chunk(value, tensor) if tensor.dim() else tensor
        return found

    def _named(self) -> dict[str, Value]:
        history = {f"history.{kept.parameter}.{kept.key}": kept.before for kept in self._step.history}
        return {**self._step.parameters, **self._step.buffers, **history}

    def _chunk(self, value: Value, shard: Tensor) -> Tensor:
        chunks = chunk_layout(value.row_shape, self._workers)
        part = self._move(value, self._layouts[value.id], chunks, shard)
        return as_dtensor(part, value.row_shape, self._group)

    def _unchunk(self, value: Value, tensor: Tensor) -> Tensor:
        chunks = chunk_layout(value.row_shape, self._workers)
        return self._move(value, chunks, self._layouts[value.id], local_part(tensor))

    def _move(self, value: Value, before: Layout, after: Layout, shard: Tensor) -> Tensor:
        exchange = build_exchange(0, value.dtype, before, after.regions, frozenset(), self._workers)
        mine = None if before.regions[self.rank] is None else shard
        found = self._group.exchange(exchange, mine)
        return shard.new_empty((0,)) if found is None else found

    def _is_first(self, name: str) -> bool:
        """Of workers that hold the same part, the first counts it."""
        regions = self.layout(name).regions
        return regions.index(regions[self.rank]) == self.rank


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """A fresh optimizer makes its state in its first step: one that changes nothing."""
    held = [(p, p.grad, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]
    for parameter, _, _ in held:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with torch.no_grad():
        for parameter, grad, before in held:
            parameter.copy_(before)
            parameter.grad = grad


def _put(root: nn.Module, name: str, tensor: Tensor) -> None:
    """Registers a tensor under the dotted name that it has in the model."""
    *path, last = name.split(".")
    for part in path:
        children = dict(root.named_children())
        if part not in children:
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        root.register_parameter(last, tensor)
    else:
        root.register_buffer(last, tensor)
