"""A whole training step of an ordinary model, recorded on fake tensors: forward, backward, update.

Takes: a model that returns its loss, example inputs, an optimizer. Gives: a TrainingStep. Runs once per model.
Source: Tofu section 5; torch's own decompositions take composed operators apart (docs/adr/0004).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.attention import SDPBackend, sdpa_kernel

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.cut_short import as_it_was
from vgraph.capture.record.modes import made_on_cpu, without_whole_layers
from vgraph.capture.step.arguments import map_arguments
from vgraph.capture.step.bags import PlainBags
from vgraph.capture.step.build_program import Finished, build_step
from vgraph.capture.step.copy_model import copy_around
from vgraph.capture.step.fake_results import FakeResults
from vgraph.capture.step.lost_writes import lost_writes_told
from vgraph.capture.step.optimizer import Optimizer, Start, Update, record_update, starts_of
from vgraph.capture.step.returns import find_loss, numbered, tensors_of
from vgraph.capture.step.tracer import StepTracer, watch_modules
from vgraph.collection import uncollected
from vgraph.errors import FunctionError, ModelError
from vgraph.forks import held_by_forks
from vgraph.ir.step import BACKWARD, UPDATE, TrainingStep


@made_on_cpu()
@uncollected()
def capture_forward(
    model: nn.Module, example_inputs: Sequence[object], *, is_divided: bool = False
) -> tuple[TrainingStep, object, bool]:
    """``model(*example_inputs)`` alone: what it returns are the Program's first outputs.

    Also gives the nest in which the model returns them, with a number for each tensor, and whether that is a
    scalar that depends on parameters (a loss). ``is_divided``: as steps are recorded that will be.

    Raises:
        ModelError: what the model does cannot be recorded; the message has its own line.
    """
    kept: list[object] = []

    def run(fakes: _FakeModel, tracer: StepTracer) -> Finished:
        with PlainBags() if is_divided else nullcontext():
            nest = _call(fakes, tracer)
        found = tensors_of(nest)
        if not found:
            raise ModelError(f"{type(model).__name__} returns no tensor", cure="return a tensor, or a tuple of them")
        first, *others = found.values()
        kept[:] = numbered(nest, list(found)), isinstance(nest, Tensor) and first.dim() == 0 and first.requires_grad
        return Finished(first, fakes.parameters, {}, fakes.buffers_now(), fakes.inputs, Update(), others)

    step = _record(model, example_inputs, run)
    returns, is_loss = kept
    return step, returns, bool(is_loss)


@made_on_cpu()
def capture_step(
    model: nn.Module,
    example_inputs: Sequence[object],
    optimizer: Optimizer | None = None,
    max_norm: float | None = None,
) -> TrainingStep:
    """``capture_training`` without the nest."""
    return capture_training(model, example_inputs, optimizer, max_norm)[0]


@made_on_cpu()
@uncollected()
def capture_training(
    model: nn.Module,
    example_inputs: Sequence[object],
    optimizer: Optimizer | None,
    max_norm: float | None,
) -> tuple[TrainingStep, object]:
    """One training step of ``model(*example_inputs)``, which returns a scalar loss, as a Program.

    Also gives the nest in which the model returns the loss, with a number for each tensor: that of the loss is 0,
    others are those of the Program's next outputs. Nothing is computed, so the model may be on the meta device, or
    larger than memory. The model is not modified: what is traced is a copy of its modules around fake tensors.
    ``max_norm``: what the optimizer's gradients are clipped to, over all parameters.

    Raises:
        ModelError: what the model does cannot be recorded; the message has its own line.
    """
    update = None
    if optimizer:
        _check_model(model)
        stand_in = FakeResults().stand_in
        trained = [nn.Parameter(stand_in(p)) for p in model.parameters() if p.requires_grad]
        update = (optimizer, starts_of(optimizer, trained), max_norm)
    kept: list[object] = []
    step = _record(model, example_inputs, lambda fakes, tracer: _run(fakes, tracer, update, kept))
    return step, kept[0]


def _record(
    model: nn.Module, example_inputs: Sequence[object], run: Callable[[_FakeModel, StepTracer], Finished]
) -> TrainingStep:
    _check_model(model)
    tracer = StepTracer()
    try:
        with torch.inference_mode(False):
            fakes = _FakeModel(model, example_inputs, tracer)
        for name, tensor in fakes.named():
            tracer.add_input(name, tensor)

        def recorded() -> TrainingStep:
            math = sdpa_kernel(SDPBackend.MATH)
            with (
                torch.inference_mode(False),
                tracer.fakes.mode,
                tracer,
                math,
                _without_checks.held(),
                without_whole_layers(),
            ):
                return build_step(tracer, run(fakes, tracer))

        return as_it_was(recorded)
    except CaptureError as error:
        raise ModelError(
            f"{type(model).__name__} cannot be captured: {error.reason}",
            line=error.line or tracer.last_line,
            cure=error.cure or "keep shapes and branches independent of the data, and leave numbers in tensors",
        ) from error
    finally:
        tracer.forget()


class _WithoutChecks:
    """No log of an error that is raised besides, and no checks of data by torch, while any thread records a step.

    Those of distributions' parameters, and of anomaly mode, look at numbers that a recording does not have. All threads
    share these settings: the last one puts back what the first one found.
    """

    def __init__(self) -> None:
        self._lock, self._num_threads = held_by_forks(threading.Lock()), 0
        self._before = ExitStack()

    @contextmanager
    def held(self) -> Generator[None]:
        with self._lock:
            if not self._num_threads:
                self._begin()
            self._num_threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_threads -= 1
                if not self._num_threads:
                    self._before.close()

    def _begin(self) -> None:
        log, checks = logging.getLogger("torch._subclasses.fake_tensor"), Distribution._validate_args  # pyright: ignore[reportPrivateUsage]  # it has no getter
        self._before.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        self._before.callback(Distribution.set_default_validate_args, checks)
        Distribution.set_default_validate_args(False)
        self._before.enter_context(torch.autograd.set_detect_anomaly(False))


_without_checks = _WithoutChecks()


def _run(
    fakes: _FakeModel,
    tracer: StepTracer,
    optimizer: tuple[Optimizer, Sequence[Start], float | None] | None,
    kept: list[object],
) -> Finished:
    """Records all phases; ``kept`` takes the nest that the model returns."""
    with PlainBags():
        nest = _call(fakes, tracer)
    beside = tensors_of(nest)
    loss = beside.pop(path := find_loss(nest, beside, type(fakes.module).__name__))
    kept[:] = [numbered(nest, [path, *beside])]
    wanted = {name: p for name, p in fakes.parameters.items() if p.requires_grad}
    tracer.phase = BACKWARD
    tracer.watch_backward(loss)
    found = _backward(loss, list(wanted.values()), tracer)
    gradients = {name: g for name, g in zip(wanted, found, strict=True) if isinstance(g, Tensor)}
    for name, gradient in gradients.items():
        if gradient.layout != torch.strided:
            raise ModelError(
                f"the gradient of {name} is a sparse tensor, which cannot be divided",
                cure="leave sparse=True out: a gradient of a divided table is divided as the table is",
            )
    tracer.phase = UPDATE
    update = record_update(tracer, wanted, gradients, *optimizer) if optimizer else Update()
    others = list(beside.values())
    return Finished(loss, fakes.parameters, gradients, fakes.buffers_now(), fakes.inputs, update, others)


@contextmanager
def _stumbling(line: Callable[[], str], cure: str, where: str = "") -> Generator[None]:
    """What torch, or the model itself, raises is why it cannot be captured, at the user's line."""
    try:
        yield
    except (CaptureError, FunctionError):
        raise
    except Exception as error:
        reason = f"{where}{type(error).__name__}: {error}".splitlines()[0]
        if isinstance(error, RuntimeError) and str(error).startswith(".numpy() is not supported"):
            cure = "compute with torch's functions instead of NumPy's"
        elif type(error).__name__ == "DynamicOutputShapeException":  # of fake tensors
            cure = "keep shapes independent of the data: in place of packed sequences pass padded ones, and a mask"
        raise CaptureError(reason, line(), cure) from error


def _backward(loss: Tensor, wanted: Sequence[Tensor], tracer: StepTracer) -> tuple[Tensor | None, ...]:
    cure = "see that loss.backward() works without a plan; checkpoints need use_reentrant=False"
    with _stumbling(tracer.line_of_node, cure, "in backward, "):  # the forward line of the op that it had come to
        return torch.autograd.grad(loss, wanted, allow_unused=True)


def _call(fakes: _FakeModel, tracer: StepTracer) -> object:
    cure = "see that the model runs on example_inputs: a tuple of its arguments, in order"
    watched = watch_modules(fakes.module, tracer)
    with _stumbling(lambda: tracer.last_line, cure), watched, torch.enable_grad(), lost_writes_told(fakes.module):
        return fakes.module(*fakes.arguments)


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _check_model(model: nn.Module | Callable[..., object]) -> None:
    """Refuses what has no shapes yet, no dense tensors, or no Python to record."""
    if not isinstance(model, nn.Module):
        raise FunctionError(
            f"{getattr(model, '__name__', type(model).__name__)} is no torch.nn.Module",
            cure="wrap it in a module whose forward calls it and returns the loss",
        )
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{name or 'the model'} was compiled by torch.jit, whose ops cannot be told apart",
                cure="pass the module that torch.jit was given",
            )
        if isinstance(module, _BATCH_NORMS) and module.training and module.momentum is None:
            raise ModelError(
                f"{name or 'the model'} has momentum=None, so it divides by a number of batches that is in a tensor",
                cure=f"give {type(module).__name__} a momentum, such as torch's own 0.1",
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise ModelError(f"{name} has no shape yet", cure="call the lazy model once on a batch, then make the plan")
        if tensor.layout != torch.strided:
            raise ModelError(f"{name} is a sparse tensor", cure="make it a dense one: parameter.to_dense()")


class _FakeModel:
    """A copy of a model around fake tensors of the same shapes, strides, dtypes."""

    def __init__(self, model: nn.Module, example_inputs: Sequence[object], tracer: StepTracer) -> None:
        self._fakes = tracer.fakes
        # Only parameters and buffers: a tensor that no name leads to is a constant, and keeps its numbers.
        self.module: nn.Module = copy_around(model, self._fakes.stand_in, tracer.imagining())
        self.parameters: Mapping[str, Tensor] = dict(self.module.named_parameters())
        self.buffers: Mapping[str, Tensor] = dict(self.module.named_buffers())
        self.inputs: list[Tensor] = []
        with tracer.imagining():
            self.arguments = map_arguments(example_inputs, self._input)

    def _input(self, _: str, leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        self.inputs.append(self._fakes.stand_in(leaf))
        return self.inputs[-1]

    def buffers_now(self) -> dict[str, Tensor]:
        """What has the name of each buffer after the call, in the place of the buffer or the buffer itself."""
        return dict(self.buffers) | {n: b for n, b in self.module.named_buffers() if n in self.buffers}

    def named(self) -> list[tuple[str, Tensor]]:
        """Every tensor that comes from outside, by the name of its input."""
        named: list[tuple[str, Tensor]] = [(f"parameter:{name}", p) for name, p in self.parameters.items()]
        named += [(f"buffer:{name}", b) for name, b in self.buffers.items()]
        return named + [(f"input:{i}", x) for i, x in enumerate(self.inputs)]
