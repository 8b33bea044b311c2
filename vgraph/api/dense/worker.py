"""Worker: one process's part of a plan, as a module of sharded parameters that any optimizer steps.

Takes: a plan's programs, this process's place. Gives: losses, gradients on shards. Runs at every step.
Source: Tofu section 6 (each worker holds its shards; the graph of a step is its own).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vgraph.api.dense.call_form import in_order
from vgraph.api.dense.checks import refuse_hooks, refuse_trained
from vgraph.api.dense.elementwise import watch_optimizers
from vgraph.api.dense.forms import Form, Forms
from vgraph.api.dense.initial_state import StepState
from vgraph.api.dense.plan_file import plan_digest
from vgraph.api.dense.shard_gradient import ShardGradient, powers
from vgraph.arguments import FROM_ZERO, checked
from vgraph.errors import CheckpointError, ModelError
from vgraph.ir.partitioned import Layout
from vgraph.ir.program import Value
from vgraph.partition.rewrite.layout import Workers, build_exchange, chunk_layout, whole_layout
from vgraph.runtime.distributed.in_process import whole_like
from vgraph.runtime.distributed.process_group import (
    WorkerGroup,
    as_dtensor,
    load_sharded,
    own_chunk,
    save_sharded,
    saved_names,
    whole_tensor,
)
from vgraph.runtime.distributed.shards import take

_HAS_OPTIMIZER = "has_optimizer"  # in a checkpoint


class Worker(nn.Module):
    """One worker of a plan, a module of sharded parameters; made by ``Plan.launch``.

    ``loss = worker(*batch)`` leaves gradients on its parameters; after ``eval()`` a call gives the model's results and
    leaves none. With an optimizer in the plan a call in training also updates them, at ``worker.learning_rate``;
    without, ``torch.optim.SGD(worker.parameters(), lr=0.1).step()`` does, or any other that works element by element.
    Gradients add up over calls until ``zero_grad``.

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

    def __init__(self, forms: Forms, state: StepState, group: WorkerGroup, learning_rate: float) -> None:
        super().__init__()
        self._forms, self._state, self._group = forms, state, group
        self._step = forms.first.step
        self._workers = Workers(forms.first.sharding)
        self.learning_rate = learning_rate
        self._layouts = {name: forms.first.layouts[value.id] for name, value in forms.first.held.items()}
        self._held: dict[str, Tensor] = {}  # by the names of a step's inputs
        self._constants: WeakKeyDictionary[Form, dict[int, Tensor]] = WeakKeyDictionary()
        self._initialise()
        super().train(forms.recipe.is_training)
        self._is_owner = {name: self._is_first(name) for name in self._step.parameters}
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
            for name, value in self._forms.first.held.items():
                whole = self._state.initial(value, self.learning_rate)
                if self._state.is_copied(value):  # models of other seeds are no parts of one model
                    whole = self._group.from_first(whole)
                self._held[name] = self._shard(whole, self._layouts[name])
        for name in self._step.parameters:
            tensor = self._held[key := f"parameter:{name}"]
            parameter = nn.Parameter(tensor, requires_grad=self._is_trained(name, tensor))
            self._held[key] = parameter
            _put(self, name, parameter)
        for name in self._step.buffers:
            _put(self, name, self._held[f"buffer:{name}"])
        for alias, name in self._state.aliases.items():
            _put(self, alias, self._held[self._named()[name]])

    def _shard(self, whole: Tensor, layout: Layout) -> Tensor:
        region = layout.regions[self.rank]
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
        return self._layouts[f"parameter:{name}" if name in self._step.parameters else f"buffer:{name}"]

    def train(self, mode: bool = True) -> Worker:
        """Says in which mode the next calls run the model; ``eval()`` is ``train(False)``.

        In evaluation mode a call gives what the model returns, and leaves no gradients: dropout is off, BatchNorm
        takes its running statistics. A plan of ``model.eval()`` runs its own step in that mode, gradients included.

        Args:
            mode: whether to train.

        Returns:
            This worker.

        Raises:
            ModelError: the plan has no training step, for its model returned no loss.
        """
        recipe = self._forms.recipe
        if mode and recipe.is_forward:
            raise ModelError(
                f"the plan is one of {recipe.name}'s results, of which none is a loss: it has no step of training",
                cure="make the plan of a model in training mode that returns its loss, alone or beside other results",
            )
        return super().train(mode)

    # ------------------------------------------------------------ a step
    def forward(self, *batch: object, **named: object) -> object:
        """One step on the full batch: of training, or of evaluation after ``eval()``.

        A batch of other extents than the example's, as the last of an epoch, is recorded and planned when it first
        comes, with parameters where they are; so is the first of evaluation, which may have other arguments.

        Args:
            *batch: the full batch; every rank of a replica passes the same.
            **named: some of it, by the names that the model's ``forward`` has for them.

        Returns:
            What the model returns, in whole tensors, equal on every worker: the loss, a scalar, alone or beside
            other results, which have no gradient.

        Raises:
            ModelError: the model cannot be recorded with this batch, takes some of it by name alone, or a worker would
                need more than the plan's limit of memory.
        """
        self._refuse_changes()
        if named:
            batch = in_order(inspect.signature(self._forms.recipe.model.forward), batch, named)
        form = self._form(batch)
        full = form.arguments.tensors(batch)
        if form.is_training:
            refuse_trained(full)
        if form not in self._constants:
            self._group.check_batch(full)
        given = {name: tensor.detach() for name, tensor in self._held.items()}
        if (rate := self._step.learning_rate) is not None:
            given["$lr"] = torch.tensor(self.learning_rate, dtype=rate.dtype).to(self._group.device)
        if any(entry.name == "$seed" for entry in form.step.program.inputs):
            given["$seed"] = self._group.agree(torch.randint(2**62, ()))
        tensors = zip(form.step.inputs, full, strict=True)
        own = self._constants_of(form) | {v.id: self._shard(x, form.layouts[v.id]) for v, x in tensors}
        inputs = [own[e.value.id] if e.value.id in own else given[e.name] for e in form.step.program.inputs]
        del own, given
        with torch.no_grad():
            found = self._group.run(form.parts.programs[self.rank], inputs, form.parts.overwrites)
        return self._file(form, found)

    def _refuse_changes(self) -> None:
        """Raises where a parameter or a buffer is no more what the step was divided for."""
        registered = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        refuse_hooks(self.named_parameters())
        for name, key in self._named().items():
            if key.startswith("history:"):
                continue
            tensor, wanted = registered.get(name), self._forms.first.held[key].dtype
            if tensor is None or tensor is not self._held[key]:
                raise ModelError(
                    f"{name} is not the tensor that the worker was launched with",
                    cure="copy numbers into the worker's tensors, and leave them in their places",
                )
            if tensor.dtype != wanted:
                raise ModelError(
                    f"{name} is of {tensor.dtype} now, and the plan is of {wanted}",
                    cure="make the plan of a model of the dtype that is wanted",
                )
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad != self._is_trained(name, tensor):
                raise ModelError(
                    f"{name} was {'frozen' if tensor.requires_grad else 'trained'} when the plan was made",
                    cure="make the plan with requires_grad as it is to be, or use plan.as_dtensor",
                )

    def _is_trained(self, name: str, tensor: Tensor) -> bool:
        return (tensor.is_floating_point() or tensor.is_complex()) and name in self._step.gradients

    def _form(self, batch: Sequence[object]) -> Form:
        form = self._forms.known(batch, is_training=self.training)
        if form is None:
            form = self._forms.find(batch, is_training=self.training)
            self._group.check_equal("plans", plan_digest(form.sharding, form.step), everywhere=False)
        return form

    def _constants_of(self, form: Form) -> dict[int, Tensor]:
        if form not in self._constants:
            whole = form.step.constants
            self._constants[form] = {i: self._shard(tensor, form.layouts[i]) for i, tensor in whole.items()}
        return self._constants[form]

    def _file(self, form: Form, found: Sequence[Tensor | None]) -> object:
        """Puts what a step has made where it belongs, and gives what the model returns."""
        step = form.step
        outputs = {v.id: t for v, t in zip(step.program.outputs, found, strict=True) if v is not None and t is not None}
        gradients = self._brought(form, {f"parameter:{n}": v for n, v in step.gradients.items()}, outputs)
        if self._group.has_replicas and step.gradients:
            outputs[step.loss.id] = outputs[step.loss.id].clone()
            gradients = {n: g if step.updated else g.clone() for n, g in gradients.items()}
            self._group.average([outputs[step.loss.id], *(gradients.values() if not step.updated else ())])
        with torch.no_grad():
            for name, gradient in gradients.items():
                self._add_gradient(name.removeprefix("parameter:"), gradient)
            after = {f"parameter:{n}": v for n, v in step.updated.items()}
            after |= {f"buffer:{n}": v for n, v in step.new_buffers.items()}
            after |= {f"history:{k.parameter}:{k.key}": k.after for k in step.history}
            now = self._brought(form, after, outputs)
            now |= {name: now[name].clone() for name in (f"buffer:{n}" for n in step.swapped) if name in now}
            for name, tensor in now.items():
                if tensor.data_ptr() != self._held[name].data_ptr():
                    self._held[name].copy_(tensor)
            return form.result(self._returned(form, outputs))

    def _add_gradient(self, name: str, gradient: Tensor) -> None:
        parameter = self._held[f"parameter:{name}"]
        if parameter.grad is None:
            parameter.grad = ShardGradient.of(gradient.clone(), self._norms, self._is_owner[name])
        else:
            parameter.grad.add_(gradient)

    def _brought(self, form: Form, made: Mapping[str, Value], outputs: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """This worker's part of values, each where the tensor lies whose name it has.

        One value may be that of several which lie differently: the gradient of two parameters that are added.
        """
        found: dict[str, Tensor] = {}
        for name, value in made.items():
            part, lies, home = outputs.get(value.id), form.output_layouts[value.id], self._layouts[name]
            if lies.placements != home.placements:
                part = self._move(value, lies, home, part)
            if part is not None:
                found[name] = part
        return found

    def _returned(self, form: Form, outputs: Mapping[int, Tensor]) -> list[Tensor]:
        """Whole tensors of what the model returns; an input that it returns is put together."""
        lies = form.output_layouts
        values = [v for v in (form.step.loss, *form.step.returned) if v.id in lies]
        wholes = [whole_layout(v.row_shape, self._workers) for v in values]
        return [self._move(v, lies[v.id], to, outputs.get(v.id)) for v, to in zip(values, wholes, strict=True)]

    # ------------------------------------------------------------ over all shards
    @checked(max_norm=FROM_ZERO)
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scales all gradients so that their norm over all workers is at most ``max_norm``.

        Args:
            max_norm: the largest norm, from 0 up.

        Returns:
            The norm before, a float64 scalar.

        Raises:
            ArgumentError: ``max_norm`` is no such number.
        """
        given = {name: self._held[f"parameter:{name}"].grad for name in self._step.parameters}
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
        if order == torch.inf:  # not every backend's maximum of NaN and a number is NaN; their sum is
            strange = self._group.total(torch.where(mine.isnan(), mine, 0.0))
            return self._group.largest(mine) + strange
        return self._group.total(mine).pow(1 / order)

    # ------------------------------------------------------------ checkpoints
    def state_dict(self, *_: object, **__: object) -> dict[str, Tensor]:
        """Parameters, buffers and history as DTensors in equal chunks, whatever the plan; all workers call it.

        A tensor that the model has under several names is there under each; a buffer that the model's own state
        leaves out (``persistent=False``) is left out.

        Args:
            *_: ignored, as of ``torch.nn.Module.state_dict``.
            **__: ignored likewise.

        Returns:
            DTensors by name.
        """
        found = self._own_state()
        return found | {alias: found[name] for alias, name in self._state.aliases.items() if name in found}

    def _own_state(self) -> dict[str, Tensor]:
        """Every tensor once."""
        return {name: self._chunk(key, self._held[key].detach()) for name, key in self._saved().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Takes over what ``state_dict`` gave, on any number of workers, or the plain model's; all workers call it.

        Args:
            state_dict: tensors by name: DTensors, or whole tensors, equal on every worker.
            strict: whether the names must be the same; False: those that both have are taken over.
            assign: ignored, as tensors are copied.

        Raises:
            CheckpointError: the names or shapes are not those of this model and optimizer; nothing is changed.
        """
        named = self._saved()
        odd = sorted((set(named) ^ set(state_dict)) - set(self._state.aliases))
        if odd and strict:
            raise CheckpointError(
                f"the state differs in {odd[:3]}", cure="load the state of the same model and optimizer"
            )
        given = {name: state_dict[name] for name in named if name in state_dict}
        for name, tensor in given.items():
            if tuple(tensor.shape) != (shape := self._forms.first.held[named[name]].row_shape):
                raise CheckpointError(
                    f"{name} has the shape {tuple(tensor.shape)} in the state, and {shape} in the model",
                    cure="load the state of the same model and optimizer",
                )
        for name, tensor in given.items():
            with torch.no_grad():
                self._held[named[name]].copy_(self._own_part(named[name], tensor))

    def save(self, path: str | Path, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Writes a checkpoint folder, whole or not at all; all workers call it with the same path.

        Args:
            path: the folder.
            optimizer: one of the worker's parameters, whose state is to be kept; None: none.
        """
        state: dict[str, object] = {"model": self.state_dict(), "optimizer": self._optimizer_state(optimizer)}
        if optimizer is not None:
            state[_HAS_OPTIMIZER] = torch.ones(())  # its state is empty before its first step
        save_sharded(state, Path(path), self._group)

    def load(self, path: str | Path, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Reads a checkpoint that any number of workers wrote; all workers call it.

        Args:
            path: the folder.
            optimizer: one of the worker's parameters, whose state is to be restored; None: none.

        Raises:
            CheckpointError: there is none, it is damaged, or of another model or optimizer; nothing is changed. Torch
                unpickles its index: load what you have written yourself.
        """
        begun = self._begun(Path(path), optimizer) if optimizer is not None else {}
        made = _make_state(optimizer, begun.values()) if optimizer is not None else []
        try:
            kept = {n: t for n, t in self._optimizer_state(optimizer).items() if n.rpartition("/")[0] in begun}
            parts = {"model": self._own_state(), "optimizer": kept}  # some of them are the worker's own memory
            state = {part: {n: torch.empty_like(t) for n, t in held.items()} for part, held in parts.items()}
            load_sharded(state, Path(path), self._group)
            self.load_state_dict(state["model"])
        except Exception:
            for parameter in made:
                assert optimizer is not None
                del optimizer.state[parameter]
            raise
        if optimizer is not None:
            self._put_state(optimizer, begun, state["optimizer"])

    def _put_state(
        self, optimizer: torch.optim.Optimizer, begun: Mapping[str, Tensor], kept: Mapping[str, Tensor]
    ) -> None:
        for parameter in set(optimizer.state) - set(begun.values()):
            del optimizer.state[parameter]
        for key, held in kept.items():
            name, _, kind = key.rpartition("/")
            tensor = optimizer.state[begun[name]][kind]
            with torch.no_grad():
                tensor.copy_(self._own_part(f"parameter:{name}", held) if tensor.dim() else held)

    def _optimizer_state(self, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
        """What an optimizer holds beside each parameter lies as the parameter does; nothing before its first step."""
        found: dict[str, Tensor] = {}
        for name, parameter in self._stepped(optimizer).items() if optimizer is not None else ():
            assert optimizer is not None
            for key, tensor in optimizer.state.get(parameter, {}).items():
                if isinstance(tensor, Tensor):
                    found[f"{name}/{key}"] = self._chunk(f"parameter:{name}", tensor) if tensor.dim() else tensor
        return found

    def _stepped(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """The parameters that an optimizer steps, by name: perhaps some of all."""
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        held = {name: self._held[f"parameter:{name}"] for name in self._step.parameters}
        return {name: parameter for name, parameter in held.items() if id(parameter) in mine}

    def _begun(self, path: Path, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """The parameters that an optimizer steps and of which a checkpoint has state, by name.

        Raises:
            CheckpointError: it has state of parameters that this optimizer does not step.
        """
        names, stepped = saved_names(path), self._stepped(optimizer)
        if _HAS_OPTIMIZER not in names:  # of an earlier version, or of no optimizer, which the reader tells
            return {name: parameter for name, parameter in stepped.items() if parameter.requires_grad}
        saved = {n.removeprefix("optimizer.").rpartition("/")[0] for n in names if n.startswith("optimizer.")}
        if strange := sorted(saved - stepped.keys()):
            raise CheckpointError(
                f"the checkpoint at {path} has the state of an optimizer that steps {strange[0]}; this one does not",
                cure="load it into the model and optimizer that it was saved from",
            )
        return {name: stepped[name] for name in stepped if name in saved}

    def _saved(self) -> dict[str, str]:
        """By the names of a checkpoint, those of a step's inputs."""
        return {name: key for name, key in self._named().items() if name not in self._state.unsaved}

    def _named(self) -> dict[str, str]:
        """By the names in the model, and of history, those of a step's inputs."""
        history = {f"history.{k.parameter}.{k.key}": f"history:{k.parameter}:{k.key}" for k in self._step.history}
        parameters = {name: f"parameter:{name}" for name in self._step.parameters}
        return parameters | {name: f"buffer:{name}" for name in self._step.buffers} | history

    def _chunk(self, name: str, shard: Tensor) -> Tensor:
        value = self._forms.first.held[name]
        part = self._move(value, self._layouts[name], chunk_layout(value.row_shape, self._workers), shard)
        return as_dtensor(part, value.row_shape, self._group)

    def _own_part(self, name: str, tensor: Tensor) -> Tensor:
        """This worker's part of a chunk that ``_chunk`` gave, or of any other DTensor or whole tensor."""
        chunk = own_chunk(tensor, self._group)
        if chunk is None:
            return self._shard(whole_tensor(tensor), self._layouts[name])
        value = self._forms.first.held[name]
        chunks = chunk_layout(value.row_shape, self._workers)
        return self._move(value, chunks, self._layouts[name], chunk)

    def _move(self, value: Value, before: Layout, after: Layout, shard: Tensor | None) -> Tensor:
        if shard is not None and before.regions == after.regions:
            return shard
        exchange = build_exchange(0, value.dtype, before, after.regions, frozenset(), self._workers)
        found = self._group.exchange(exchange, None if before.regions[self.rank] is None else shard)
        return torch.empty((0,), dtype=value.dtype, device=self._group.device) if found is None else found

    def _is_first(self, name: str) -> bool:
        """Of workers that hold the same part, the first counts it."""
        regions = self.layout(name).regions
        return regions.index(regions[self.rank]) == self.rank


def _make_state(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Those of an optimizer's parameters that had no state: a step that changes nothing has made it."""
    fresh = [p for p in parameters if p not in optimizer.state]
    if not fresh:
        return []
    every = [p for group in optimizer.param_groups for p in group["params"]]
    held = [(p, p.grad, p.detach().clone()) for p in every]
    for parameter in every:  # what has no gradient is left as it is
        parameter.grad = None
    for parameter in fresh:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with torch.no_grad():
        for parameter, grad, before in held:
            parameter.copy_(before)
            parameter.grad = grad
    return [p for p in fresh if p in optimizer.state]


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
