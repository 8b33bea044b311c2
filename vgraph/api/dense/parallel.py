"""parallelize: an ordinary model's training step divided among workers; the plan that shows and runs it.

Takes: a model that returns its loss, example inputs, a number of workers. Gives: a Plan. Runs once per model.
Source: Tofu (EuroSys 2019): partition-n-reduce, recursive search, generated programs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import cached_property
from html import escape
from pathlib import Path

import torch
from torch import Tensor, nn

from vgraph.api.dense.checks import LIMIT, check_arguments, refuse_beyond, refuse_hooks, refuse_trained
from vgraph.api.dense.dtensor.layout import AsDTensors, DTensorLayout, as_dtensors, layout_of
from vgraph.api.dense.dtensor.model import distribute_model
from vgraph.api.dense.dtensor.recordings import Planned
from vgraph.api.dense.forms import Form, Forms, Recipe
from vgraph.api.dense.initial_state import Init, StepState
from vgraph.api.dense.plan_file import load_plan, plan_digest, save_plan
from vgraph.api.dense.plan_hints import hints, holds_much
from vgraph.api.dense.plan_report import describe, describe_named, save_tiles
from vgraph.api.dense.step_result import StepResult
from vgraph.api.dense.worker import Worker
from vgraph.arguments import EACH, FINITE, FUNCTION, NUMBER, PATH, POSITIVE, SECONDS, WHOLE, Bound, checked
from vgraph.capture.step.arguments import Arguments, as_arguments
from vgraph.capture.step.capture_step import capture_forward, capture_training
from vgraph.capture.step.optimizer import Optimizer
from vgraph.errors import FunctionError, ModelError, NameLookupError, WorkerError
from vgraph.ir.departures import early_departures, overlapped_bytes
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.account import Account, account
from vgraph.partition.accounting.footprint import Footprint, footprint, program_footprint, whole_footprint
from vgraph.partition.accounting.machines import Machine
from vgraph.partition.accounting.machines import machine as find_machine
from vgraph.partition.accounting.simulate import Simulation, simulate
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.fit import rows_of_named, search_best
from vgraph.partition.search.named import divides_work, why_undivided
from vgraph.partition.search.search import Found
from vgraph.partition.search.unequal import search_unequal
from vgraph.runtime.distributed.dtensors import DeviceMesh, MeshWorkers
from vgraph.runtime.distributed.groups import join
from vgraph.runtime.distributed.in_process import collect, run_all, scatter
from vgraph.runtime.distributed.process_group import WorkerGroup, local_device, replica_groups

logger = logging.getLogger("vgraph")


def _are_tensors(state: Mapping[object, object]) -> bool:
    return all(isinstance(value, Tensor) for value in state.values())


_RATE, _SEED = NUMBER.or_none(), WHOLE.or_none()
_STATE = Bound(
    "the state of a step: tensors by number", lambda given: isinstance(given, Mapping) and _are_tensors(given)
)
_MODULE = Bound("a module", lambda given: isinstance(given, nn.Module), FunctionError)
_MESH = Bound("a DeviceMesh", lambda given: isinstance(given, DeviceMesh), FunctionError)


class Plan:
    """A training step divided among workers; made by ``vgraph.parallelize``.

    Source: Wang, Huang and Li 2019 (Tofu), sections 4 to 6.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> x = torch.ones(4, 8)
        >>> plan = vgraph.parallelize(Model(8, 8), (x,), num_workers=2)
        >>> plan.num_workers, plan.memory_per_worker > 0
        (2, True)
    """

    def __init__(
        self,
        step: TrainingStep,
        state: StepState,
        recipe: Recipe,
        sharding: ShardingPlan,
        options: RewriteOptions,
        devices: tuple[int, ...] | None = None,
        search_seconds: float = 0.0,
    ) -> None:
        self.step, self.sharding, self.options = step, sharding, options
        self.devices = tuple(range(sharding.num_workers)) if devices is None else devices  # that of each worker
        self.learning_rate = step.initial_rate
        self.search_seconds = search_seconds  # coarsening, strategies and search, without capture
        self._state, self._recipe = state, recipe
        self._launched: Worker | None = None

    @property
    def num_workers(self) -> int:
        """How many workers share the step."""
        return self.sharding.num_workers

    @cached_property
    def parts(self) -> PartitionedProgram:
        """One Program a worker."""
        return rewrite(self.step.program, self.sharding, self.options, self.step.overwrites)

    @cached_property
    def _forms(self) -> Forms:
        return self._new_forms()

    def _new_forms(self, *, has_replicas: bool = False) -> Forms:
        made = self._recipe
        first = Form(
            self.step, self.sharding, self.parts, made.arguments, made.returns, made.is_training, made.form.casts
        )
        return Forms(made, first, self.options, has_replicas=has_replicas)

    @property
    def communicated_bytes(self) -> int:
        """The bytes that cross workers in one step: the sum over all fetches."""
        return self.parts.communicated_bytes

    @property
    def overlapped_bytes(self) -> int:
        """Of ``communicated_bytes`` those that travel while the worker that receives them computes.

        Workers begin a fetch as soon as its source is made, but not where they would then need more memory at once.
        """
        parts = self.parts
        return sum(overlapped_bytes(each, early_departures(each, parts.overwrites)) for each in parts.programs)

    @cached_property
    def book(self) -> Account:
        """What every op fetches and every worker holds, by the search's own costs."""
        return account(self.step, self.sharding)

    @property
    def memory_per_worker(self) -> int:
        """Bytes that the fullest worker needs at once, by the lifetimes of its generated program's buffers.

        Inputs (parameters, history, its part of the batch) count as long as the step, updates take the memory of
        what they update, and a fetch holds what it sends and receives.
        """
        return int(self.footprint.total)

    @cached_property
    def footprint(self) -> Footprint:
        """``memory_per_worker`` by what it is for."""
        return program_footprint(self.parts, self.step)

    def print(self) -> None:
        """Prints, module by module, how products are divided and how many bytes are fetched.

        Beside it stand data parallel, FSDP (ZeRO-3) and Megatron, as far as the step can be divided so, dims that
        should be padded, and what makes a worker hold more than 1.5 of its part.
        """
        print(self)

    def __str__(self) -> str:
        whole = whole_footprint(self.step)
        moved = (self.communicated_bytes, self.overlapped_bytes)
        lines = describe(self.book, whole, self.footprint, self.search_seconds, moved)
        named = describe_named(rows_of_named(self.step, self.num_workers), whole, self.num_workers)
        return "\n".join([*lines, *named, *hints(self.book, whole, self.footprint)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @checked(path=PATH)
    def save_plot(self, path: str | Path) -> None:
        """Draws the tiles of weights and results in the colours of their workers.

        Args:
            path: where to; its end says the format, such as ``.png`` or ``.svg``.

        Raises:
            ImportError: matplotlib is not installed.
        """
        save_tiles(self.book, path)

    def simulate(self, preset: str | Machine = "paper") -> Simulation:
        """Simulated seconds and memory of a step on a described machine.

        Args:
            preset: "paper", "nvlink" or "hosts", or a Machine of your own.

        Returns:
            A Simulation, with seconds and bytes.

        Raises:
            NameLookupError: there is no such preset.
        """
        return simulate(self.book, find_machine(preset))

    @checked(path=PATH)
    def save(self, path: str | Path) -> None:
        """Writes the plan (not the model) as JSON.

        Args:
            path: where to; a file that is there is replaced.
        """
        save_plan(path, self.sharding, self.step)

    @checked(path=PATH)
    def load(self, path: str | Path) -> Plan:
        """Takes over a plan that was saved for the same model, batch and optimizer.

        Args:
            path: a file that ``save`` wrote.

        Returns:
            This plan itself.

        Raises:
            DataError: the file is missing.
            WorkerError: this process's ``worker()`` runs by this plan already.
            ModelError: it is no plan, one of another step, one by which this step cannot be divided, or one whose
                workers need more than this plan's limit of memory.
        """
        if self._launched is not None:
            fact = "this plan's worker has been made, and goes on by the plan that it was made by"
            raise WorkerError(fact, cure="load the file before the first call of worker()")
        found = load_plan(path, self.step)
        made = Plan(self.step, self._state, self._recipe, found, self.options)
        try:
            parts, book, footprint = made.parts, made.book, made.footprint
        except Exception as error:  # of a plan that was written by hand, whatever its parts do not fit
            fact = f"{path} does not divide this step: {type(error).__name__} {error}"
            raise ModelError(fact, cure="search again: call parallelize without this file") from error
        cure = "search again: call parallelize without this file, or with a higher memory_limit"
        refuse_beyond(self._recipe.memory_limit, footprint.total, f"by {path}", cure)
        self.sharding = found
        if len(self.devices) != self.num_workers:
            self.devices = made.devices
        self.__dict__.pop("_as_dtensors", None)
        self.__dict__.update(parts=parts, book=book, footprint=footprint)
        self.__dict__.pop("_forms", None)
        return self

    def with_options(self, **switches: bool) -> Plan:
        """The same plan with switches of the generated program set.

        Args:
            **switches: fields of its options, such as ``fused_fetch=False``.

        Returns:
            Another Plan; this one stays as it is.

        Raises:
            NameLookupError: there is no such switch.
        """
        known = [each.name for each in fields(RewriteOptions)]
        if odd := sorted(switches.keys() - set(known)):
            raise NameLookupError(f"no switch is called {odd[0]!r}", cure=f"use one of {', '.join(known)}")
        options = replace(self.options, **switches)
        return Plan(self.step, self._state, self._recipe, self.sharding, options, self.devices)

    @checked(state=_STATE.or_none(), lr=_RATE, seed=_SEED)
    def run_in_process(
        self, *inputs: object, state: dict[int, Tensor] | None = None, lr: float | None = None, seed: int | None = None
    ) -> StepResult:
        """One step of all workers in this process: the reference that distributed runs agree with.

        Args:
            *inputs: a full batch; one of other extents than the example's is recorded and planned when it first comes.
            state: ``result.state`` of the step before; None: begin with the parameters that the model had.
            lr: the learning rate; None: that of the optimizer.
            seed: what random numbers are keyed by; None: torch's generator gives one.

        Returns:
            A StepResult of whole tensors.

        Raises:
            ModelError: the model cannot be recorded with these inputs, or one of them requires a gradient.
        """
        form = self._forms.find(inputs, is_training=self._recipe.is_training)
        if form.is_training:
            refuse_trained(form.arguments.tensors(inputs))
        with torch.no_grad():
            held = self._held(state or {}, lr)
            return self._result(form, held, self._run(form, inputs, held, seed))

    @checked(state=_STATE.or_none())
    @torch.no_grad()
    def evaluate_in_process(self, *inputs: object, state: dict[int, Tensor] | None = None) -> object:
        """What the model returns in evaluation mode, computed by all workers in this process.

        Args:
            *inputs: a full batch, which may have other extents than the example's, and other arguments.
            state: ``result.state`` of a step; None: the parameters that the model had.

        Returns:
            The model's results, as whole tensors: what ``plan.worker().eval()(*inputs)`` gives on every worker.

        Raises:
            ModelError: the model cannot be recorded with these inputs, or a worker would need more than the plan's
                limit of memory.

        Example:
            >>> import torch, vgraph
            >>> class Model(torch.nn.Linear):
            ...     def forward(self, x, y=None):
            ...         z = super().forward(x)
            ...         return z if y is None else (z - y).square().mean()
            >>> model, x, y = Model(8, 8), torch.randn(4, 8), torch.randn(4, 8)
            >>> plan = vgraph.parallelize(model, (x, y), num_workers=2)
            >>> torch.testing.assert_close(plan.evaluate_in_process(x[:3]), model(x[:3]).detach())
        """
        form = self._forms.find(inputs, is_training=False)
        whole = self._run(form, inputs, self._held(state or {}, None), None)
        return form.result([whole[value.id] for value in (form.step.loss, *form.step.returned)])

    @checked(inputs=EACH, state=_STATE, lr=_RATE, seed=_SEED)
    def given(
        self, inputs: Sequence[object], state: dict[int, Tensor], lr: float | None, seed: int | None
    ) -> dict[int, Tensor]:
        """The tensors that a step begins with, whole.

        Args:
            inputs: a full batch, of the shapes of the example's.
            state: tensors by the id of their value that go before the model's own.
            lr: the learning rate; None: that of the optimizer.
            seed: what random numbers are keyed by; None: torch's generator gives one.

        Returns:
            A tensor for every input of the step, by the id of its value.
        """
        return self._given(self._forms.first, inputs, self._held(state, lr), seed)

    def _given(
        self, form: Form, inputs: Sequence[object], held: Mapping[str, Tensor], seed: int | None
    ) -> dict[int, Tensor]:
        batch = form.arguments.tensors(inputs)
        found = {value.id: tensor for value, tensor in zip(form.step.inputs, batch, strict=True)}
        found |= {value.id: held[name] for name, value in form.held.items()} | dict(form.step.constants)
        for entry in form.step.program.inputs:
            if entry.name == "$seed":
                found[entry.value.id] = torch.tensor(torch.randint(2**62, ()).item() if seed is None else seed)
        return found

    def _held(self, state: Mapping[int, Tensor], lr: float | None) -> dict[str, Tensor]:
        """Parameters, buffers, history and the rate, whole, by the names of a step's inputs."""
        found = {
            name: state[value.id] if value.id in state else self._state.initial(value, self.learning_rate)
            for name, value in self._forms.first.held.items()
        }
        if self.step.learning_rate is not None and lr is not None:
            found["$lr"] = torch.tensor(lr, dtype=self.step.learning_rate.dtype)
        return found

    def _run(
        self, form: Form, inputs: Sequence[object], held: Mapping[str, Tensor], seed: int | None
    ) -> dict[int, Tensor]:
        """The outputs of a step, whole, by the ids of their values."""
        given, parts, program = self._given(form, inputs, held, seed), form.parts, form.step.program
        shards = [scatter(given[v], layout) for v, layout in form.layouts.items()]
        with torch.autocast("cpu", enabled=False):  # casts are ops of the step
            found = run_all(parts, [[s[worker] for s in shards] for worker in range(self.num_workers)])
        whole: dict[int, Tensor] = {}
        for place, (value, layout) in enumerate(zip(program.outputs, parts.output_layouts, strict=True)):
            assert value is not None and layout is not None
            whole[value.id] = collect([outputs[place] for outputs in found], layout, value.row_shape)
        return whole

    def _result(self, form: Form, held: Mapping[str, Tensor], whole: Mapping[int, Tensor]) -> StepResult:
        step, names = form.step, self._forms.first.held
        grads = tuple(whole[step.gradients[n].id] if n in step.gradients else None for n in step.parameters)
        made = {f"parameter:{n}": v for n, v in step.updated.items()}
        made |= {f"buffer:{n}": v for n, v in step.new_buffers.items()}
        made |= {f"history:{kept.parameter}:{kept.key}": kept.after for kept in step.history}
        now = {name: whole[made[name].id] if name in made else held[name] for name in names if name != "$lr"}
        return StepResult(
            whole[step.loss.id],
            grads,
            tuple(now[f"parameter:{n}"] for n in step.parameters),
            {n: now[f"buffer:{n}"] for n in step.buffers},
            {names[name].id: tensor for name, tensor in now.items()},
            form.result([whole[value.id] for value in (step.loss, *step.returned)]),
        )

    @checked(timeout=SECONDS)
    def launch(self, device: str | torch.device | None = None, *, timeout: float = 300.0) -> Worker:
        """This process's worker, in each process that torchrun started.

        A multiple of the plan's workers makes replicas, each with a batch of its own, whose gradients are averaged.
        All begin with the numbers that the first process's model has.

        Args:
            device: where the worker computes; "cuda" is the GPU of the process's local rank; None: the CPU.
            timeout: seconds after which a worker that does not answer is given up.

        Returns:
            A Worker, a module of sharded parameters: ``loss = worker(*batch)`` runs one step, and every rank of a
            replica passes the same full batch; after ``worker.eval()`` a call gives the model's results.

        Raises:
            ArgumentError: the timeout is no number above 0, or is longer than a year.
            WorkerError: the number of processes is no multiple of the plan's workers, there is no such device, or
                the processes have made different plans.
        """
        place = local_device(device)
        rank, size = join(self.num_workers, place, timedelta(seconds=float(timeout)))
        mine, peers = replica_groups(self.num_workers, size)
        group = WorkerGroup(rank % self.num_workers, mine, peers, place, is_first=rank < self.num_workers)
        group.check_equal("plans", plan_digest(self.sharding, self.step))
        forms = self._new_forms(has_replicas=group.has_replicas)
        return Worker(forms, self._state, group, self.learning_rate)

    @checked(timeout=SECONDS)
    def worker(self, device: str | torch.device | None = None, *, timeout: float = 300.0) -> Worker:
        """This process's worker: ``launch`` at the first call, and later the same one.

        Args:
            device: as for ``launch``; a worker that there is stays where it is.
            timeout: likewise.

        Returns:
            A Worker: ``plan.worker().eval()(*batch)`` gives the model's results.

        Raises:
            ArgumentError, WorkerError: as ``launch`` raises them.
        """
        if self._launched is None:
            self._launched = self.launch(device, timeout=timeout)
        return self._launched

    @checked(model=_MODULE, mesh=_MESH)
    def as_dtensor(self, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """The model itself, with its parameters as DTensors on a mesh and its forward divided as the plan says.

        Args:
            model: the model that the plan was made of; changed in place, as by ``fully_shard``.
            mesh: as many devices as the plan has workers: of one dim, or of one for each step of the plan.

        Returns:
            The model. ``loss = model(*batch)`` takes the full batch, of any size, on every rank; ``loss.backward()``
            leaves gradients that are DTensors.

        Raises:
            ModelError: the model is not that of the plan, or returns more than its loss.
            WorkerError: the mesh does not fit the plan, or the processes have made different plans.
        """
        made, found = self._recipe, self._as_dtensors
        made.refuse_other_results()
        workers = MeshWorkers(mesh, found.plan.axes)
        planned = Planned(found.step, found.plan, self.options, found.parameters, made.form, made.arguments, made.watch)
        distribute_model(model, planned, workers)
        if found.name or found.moved:
            logger.warning("%s\n%s", type(model).__name__, self.dtensor_layout())
        return model

    @cached_property
    def _as_dtensors(self) -> AsDTensors:
        is_limited = self._recipe.memory_limit is not None
        return as_dtensors(self.step, self.sharding, self.options, is_limited=is_limited)

    def dtensor_layout(self) -> DTensorLayout:
        """Where ``as_dtensor`` puts every parameter, and the bytes that a step then moves; needs no processes.

        Returns:
            A DTensorLayout; ``print`` shows it line by line.
        """
        return layout_of(self._as_dtensors, self.options)


@checked(
    num_workers=POSITIVE,
    max_norm=LIMIT,
    init=FUNCTION.or_none(),
    memory_limit=LIMIT,
    speeds=FINITE.each().or_none(),
)
def parallelize(
    model: nn.Module,
    example_inputs: object,
    num_workers: int,
    *,
    optimizer: Optimizer | None = None,
    max_norm: float | None = None,
    init: Init | None = None,
    options: RewriteOptions | None = None,
    memory_limit: float | None = None,
    machine: str | Machine | None = None,
    speeds: Sequence[float] | None = None,
) -> Plan:
    """Divides a whole training step of a model among ``num_workers`` so that least bytes cross workers.

    Args:
        model: a module that returns its scalar loss, alone or beside other results (as the only scalar, or ``loss``);
            in evaluation mode also one without, for a plan of its forward. Copied; it may be on the meta device.
        example_inputs: a tuple of what the model is called with: tensors, in tuples, lists, dicts or dataclasses, and
            constants. The plan is the best for these shapes; batches of others run as well. Constants are fixed.
        num_workers: how many workers; each dim that is split is divided by their factors, largest first.
        optimizer: a factory, ``lambda parameters: torch.optim.SGD(parameters, lr=0.1)``, which adds the update to the
            step; None: the step is forward and backward.
        max_norm: what gradients' norm over all parameters is clipped to before the update; None: they stay.
        init: for models on the meta device: a function of (name, tensor) that fills a parameter in place; None: the
            model has its numbers.
        options: switches of the generated program, for comparisons; None: the defaults.
        memory_limit: bytes that one worker may need at once; None: any.
        machine: where links are a hierarchy ("hosts", or a Machine of your own), the plan that keeps them busy for
            the shortest time: what moves most is divided inside a host. None: bytes count alike.
        speeds: how fast each of unequal devices is; None: they are equal. Such a plan has as many equal workers as
            simulates fastest, a fast device several and a slow one perhaps none (``plan.devices``).

    Returns:
        A Plan, which shows what is divided how, runs in this process, or launches workers.

    Raises:
        ArgumentError: a number is outside of what it counts or measures.
        ModelError: the model cannot be captured, or divided so, or needs more than the limit; or speeds are missing.
        FunctionError, NameLookupError: ``optimizer`` is no factory; there is no such machine.

    Source: Wang, Huang and Li 2019 (Tofu), sections 4 to 6.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> model, x = Model(8, 8), torch.randn(4, 8)
        >>> plan = vgraph.parallelize(model, (x,), num_workers=2)
        >>> torch.testing.assert_close(plan.run_in_process(x).loss, model(x).detach())
    """
    arguments = Arguments(inputs := as_arguments(example_inputs))
    check_arguments(num_workers, speeds, max_norm, optimizer, options)
    links = None if machine is None else find_machine(machine)
    step, recipe = _captured(model, inputs, arguments, optimizer, max_norm, memory_limit)
    found, devices = _search(step, num_workers, speeds, memory_limit, links)
    state, chosen = StepState(model, step, init), options or RewriteOptions()
    plan = Plan(step, state, recipe, found.plan, chosen, devices, found.seconds)
    return _told(plan, found) if memory_limit is None else plan


def _captured(
    model: nn.Module,
    inputs: tuple[object, ...],
    arguments: Arguments,
    optimizer: Optimizer | None,
    max_norm: float | None,
    memory_limit: float | None,
) -> tuple[TrainingStep, Recipe]:
    """The step, a forward alone if the model is in evaluation mode and returns no loss; and what others are made of."""
    is_forward, step, returns = False, None, None
    if optimizer is None and not getattr(model, "training", True):
        step, returns, is_loss = capture_forward(model, inputs, is_divided=True)
        is_forward = not is_loss
    if step is None or not is_forward:
        step, returns = capture_training(model, inputs, optimizer, max_norm)
        refuse_hooks(model.named_parameters())
    recipe = Recipe(
        model,
        arguments,
        returns,
        is_forward=is_forward,
        optimizer=optimizer,
        max_norm=max_norm,
        memory_limit=memory_limit,
    )
    return step, recipe


def _search(
    step: TrainingStep,
    num_workers: int,
    speeds: Sequence[float] | None,
    memory_limit: float | None,
    links: Machine | None,
) -> tuple[Found, tuple[int, ...]]:
    """The plan found, and the device of each worker; ModelError: it divides nothing that takes time."""
    if speeds is None:
        found, devices = search_best(step, num_workers, memory_limit, links), tuple(range(num_workers))
    else:
        found, devices = search_unequal(step, speeds, memory_limit, links)
    _refuse_undivided(found.plan, step, found.plan.num_workers)
    return found, devices


def _told(plan: Plan, found: Found) -> Plan:
    """The plan; what makes its workers hold much more than their part is a warning."""
    if holds_much(plan.step, found):
        logger.warning("%s", "\n".join(hints(plan.book, whole_footprint(plan.step), footprint(plan.book))))
    return plan


def _refuse_undivided(sharding: ShardingPlan, step: TrainingStep, num_workers: int) -> None:
    """Every step must divide some contraction or convolution: else its workers would repeat each other."""
    for number, ways in enumerate(sharding.axes):
        if not divides_work(step, sharding, number):
            reason, cure = why_undivided(step, ways)
            raise ModelError(f"the model cannot be divided among {num_workers} workers: {reason}", cure=cure)
