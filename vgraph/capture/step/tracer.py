"""The tracer of whole training steps: what the Tracer of functions lacks, on fake tensors.

Takes: a running model. Gives: records of aten ops, each with a note of where it comes from. Runs once per model.
Source: Tofu section 5; a backward op is paired with its forward op by autograd's sequence number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage]  # docs/adr/0004
)
from torch.utils.hooks import RemovableHandle

from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.op_tables import Kwargs, Overload, facts_of, schema_of
from vgraph.capture.record.tracer import ALIASES
from vgraph.capture.step.repeated import RepeatingTracer
from vgraph.capture.step.rules import Constants, masked_write, without_out
from vgraph.ir.program import Target, map_leaves
from vgraph.ir.step import BACKWARD, FORWARD, OpNote
from vgraph.user_line import recorded_line

aten = torch.ops.aten

# Operators that would hide dims which can be split, or that several kernels implement differently.
_COMPOSED = """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training cudnn_batch_norm native_batch_norm_backward cudnn_batch_norm_backward
    _batch_norm_with_update batch_norm_backward native_layer_norm native_layer_norm_backward _fused_rms_norm
    _fused_rms_norm_backward native_group_norm native_group_norm_backward _softmax _log_softmax
    _softmax_backward_data _log_softmax_backward_data _safe_softmax nll_loss_forward nll_loss_backward
    nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward
    huber_loss huber_loss_backward binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits native_dropout native_dropout_backward logsumexp glu glu_backward std
    std_mean linalg_vector_norm unsafe_split unsafe_split_with_sizes _unsafe_index _weight_norm_interface""".split()


class StepTracer(RepeatingTracer):
    """Records every op of a step; a write to a parameter or buffer is an output of the step."""

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.last_line = FORWARD, ""
        self.path: list[tuple[str, int]] = [("", 0)]
        self._pair, self._node, self._depth = -1, -1, 0
        self._last_sequence, self._fresh = -1, -2
        self._lines: dict[int, tuple[str, str, int]] = {}  # of forward ops, by pair: line, module, call
        self._table: dict[int, Callable[..., object] | None] = {  # by id, as facts_of has it
            id(facts_of(func).func): way for func, way in _decompositions().items()
        }

    def __enter__(self) -> Any:
        """Fake tensors themselves refuse to hand out data."""
        self._draws.go_on()
        return TorchDispatchMode.__enter__(self)

    def __exit__(self, *error: object) -> None:
        TorchDispatchMode.__exit__(self, *error)
        self._draws.pause()

    def run(self, func: Overload, args: Sequence[object], kwargs: Kwargs) -> Any:
        """What an operator gives for fake tensors."""
        return self.fakes.run(func, args, kwargs)

    @contextmanager
    def imagining(self) -> Generator[None]:
        """Tensors that are made are fake, and nothing is recorded."""
        with self.paused(), self.fakes.mode, self:
            yield

    # ------------------------------------------------------------ where an op comes from
    def watch_backward(self, loss: Tensor) -> None:
        """Has every node of autograd's graph say that it runs."""
        seen, queue = {loss.grad_fn}, [loss.grad_fn]
        while queue:
            node: Any = queue.pop()
            node.register_prehook(self._entering(node._sequence_nr()))
            new = {child for child, _ in node.next_functions if child is not None} - seen
            seen |= new
            queue += new

    def _entering(self, number: int) -> Callable[[object], None]:
        return lambda _: setattr(self, "_node", number)

    def _number_pair(self) -> None:
        """In forward an op that autograd made a node for has the newest sequence number."""
        if self.phase != FORWARD:
            self._pair = self._node if self.phase == BACKWARD else -1
            return
        newest = torch.autograd._get_sequence_nr() - 1  # pyright: ignore[reportPrivateUsage]
        if newest == self._last_sequence:
            self._fresh -= 1
        self._pair = self._fresh if newest == self._last_sequence else newest
        self._last_sequence = newest

    def __torch_dispatch__(
        self, func: Overload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        named = kwargs or {}
        facts = facts_of(func)
        if facts.asks_a_tensor:
            return self.fakes.ask(func, args, named)
        if self._paused:
            return self.run(func, args, named)
        if self._depth or facts.name in ALIASES:
            return self._repeated(func, types, args, named)
        self._number_pair()
        self.line = recorded_line()  # of all that it is made of
        self.last_line = self.line or self.last_line
        try:
            return self._repeated(func, types, args, named)
        finally:
            self.line = ""

    def _repeated(self, func: Overload, types: Sequence[type], args: tuple[object, ...], named: Kwargs) -> object:
        """Records an op as one that looked alike was, or for the first time."""
        if func is aten.as_strided.default:  # which depends on earlier views
            return self._take_apart(func, types, args, named)
        return self.repeated(func, args, named, lambda: self._take_apart(func, types, args, named))

    def _take_apart(self, func: Overload, types: Sequence[type], args: tuple[Any, ...], named: Kwargs) -> object:
        """Records an op, or the simpler ones that it is made of."""
        facts = facts_of(func)
        if facts.gives_a_number and (known := self._constant(func, args)) is not None:
            return known
        if (choice := masked_write(func, args, named)) is not None:
            with self:
                chosen = choice(*args)
                return args[0].copy_(chosen) if schema_of(func).is_mutable else chosen
        if id(func) not in self._table:
            self._table[id(func)] = without_out(func) or _decomposition(func)
        decompose = self._table[id(func)]
        if decompose is None:
            return super().__torch_dispatch__(func, types, args, named)
        self._depth += 1
        try:
            with self:
                return decompose(*args, **named)
        finally:
            self._depth -= 1

    def _constant(self, func: Overload, args: tuple[Any, ...]) -> object:
        """What an op says of data that no input reaches, such as a mask made in place; None where one does."""
        if not all(self.is_known(x) for x in args if isinstance(x, Tensor)):
            return None
        refs = map_leaves(args, lambda leaf: self.ref(leaf) if isinstance(leaf, Tensor) else leaf)
        with _disable_current_modes():
            given = Constants(self.recording.records).evaluate(refs)
            return None if given is None else func(*given)

    def _note(
        self, target: Target, args: tuple[Any, ...], kwargs: Kwargs, results: tuple[Ref, ...], out: object
    ) -> None:
        super()._note(target, args, kwargs, results, out)
        self.notes.append(self.note_of_op())

    def note_of_op(self) -> OpNote:
        """Phase, module, call and pair."""
        module, call = self.path[-1]
        if self.phase == FORWARD:
            self._lines[self._pair] = (self.last_line, module, call)
        else:
            _, module, call = self._lines.get(self._pair, ("", "", 0))
        return OpNote(self.phase, module, call, self._pair)

    def line_of_node(self) -> str:
        """The user's line of the forward op that backward has come to."""
        return self._lines.get(self._node, ("", "", 0))[0]

    def line_of(self, note: OpNote, line: str) -> str:
        """The user's line of an op; of a backward op that of its forward op."""
        return line if note.phase == FORWARD else self._lines.get(note.pair, (line, "", 0))[0]

    def _as_strided(
        self, base: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
    ) -> Tensor:
        """The elements of a dense tensor in another shape are a view of it."""
        count, dense = 1, []
        for extent in reversed(size):
            dense, count = [count, *dense], count * extent
        if base.is_contiguous() and count == base.numel() and dense == list(stride) and not offset:
            return self.__torch_dispatch__(aten.view.default, (), (base, list(size)))
        return super()._as_strided(base, size, stride, offset)

    # ------------------------------------------------------------ what may be written
    def check_writable(self, written: Tensor) -> None:
        """Everything may be: what a step writes to is given back as an output."""


@contextmanager
def watch_modules(module: nn.Module, tracer: StepTracer) -> Generator[None]:
    """Notes which module runs, and how often it ran before."""
    calls: Counter[str] = Counter()

    def enter(name: str) -> None:
        tracer.path.append((name, calls[name]))
        calls[name] += 1

    handles: list[RemovableHandle] = []
    for name, inner in module.named_modules():
        handles.append(inner.register_forward_pre_hook(lambda *_, name=name: enter(name)))
        handles.append(inner.register_forward_hook(lambda *_: tracer.path.pop() and None, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _decompositions() -> dict[Overload, Callable[..., object]]:
    packets = [getattr(aten, name) for name in _COMPOSED if hasattr(aten, name)]
    found: dict[Any, Callable[..., object]] = dict(get_decompositions(packets))
    found[aten.var_mean.correction] = _var_mean
    found[aten.var.correction] = lambda *args, **kwargs: _var_mean(*args, **kwargs)[0]
    found[aten._weight_norm_interface_backward.default] = _weight_norm_backward
    found[aten.fill.Tensor] = lambda x, value: value.to(x.dtype).expand(x.shape)
    found[aten.fill_.Tensor] = lambda x, value: x.copy_(value.to(x.dtype).expand(x.shape))
    return found


def _decomposition(func: Overload) -> Callable[..., object] | None:
    """Torch's own way to take an operator apart that is composed of others."""
    is_composed = func.namespace == "aten" and func._can_decompose()  # pyright: ignore[reportPrivateUsage]
    return func.decompose if is_composed else None


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Two sums, each of which may be split."""
    dims = list(range(x.dim()) if dim is None else dim)
    count = math.prod(x.shape[d] for d in dims)
    mean = torch.sum(x, dims, keepdim=True) / count
    squares = torch.sum(torch.square(x - mean), dims, keepdim=True)
    var = squares / max(count - (1 if correction is None else correction), 0)
    return (var, mean) if keepdim else (var.squeeze(dims), mean.squeeze(dims))


def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of w = g v / |v|, with norms over all dims but one: a sum for each norm, and what is pointwise."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    norms = norms.view(g.shape)
    along = torch.sum(gradient * v, others, keepdim=True) / norms
    return g / norms * (gradient - v * (along / norms)), along
