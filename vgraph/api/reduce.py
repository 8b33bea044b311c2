"""vgraph.reduce: any subset of a tensor's dims in one launch, with what is pointwise before it computed inside.

Takes: tensors, dims, an operation. Gives: the reduced tensor, with gradient. Runs at every call.
Source: Koç, multi-mode tensor reduction on GPUs (virtual coordinates); docs/adr/0016.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from vgraph import arguments, config
from vgraph.capture.guards.functorch_checks import is_batched
from vgraph.capture.scalar.pointwise import Function, checked, identity_of, record_pointwise
from vgraph.compiler import REDUCTIONS, compile_reduction
from vgraph.errors import DimError, DTypeError, FeatureError, FunctionError
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import ACCUMULATED
from vgraph.ir.reductions import REDUCTIONS as TABLE
from vgraph.ir.reductions import reduce_info
from vgraph.runtime.in_memory import has_elements, in_memory
from vgraph.runtime.reductions.reduction import CompiledReduction, torch_reduce

_MOST_KEPT = 512
_compiled: dict[str, CompiledReduction] = {}
_plain: set[tuple[object, ...]] = set()  # layouts of sums that torch computes: the way there is as short as it can be
logger = logging.getLogger("vgraph")


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.device, tensor.dtype


def forget() -> None:
    """Lets go of all compiled reductions."""
    _compiled.clear()
    _builtin.cache_clear()
    _plain.clear()


@cache
def _say(line: str) -> None:
    logger.info("%s", line)


@arguments.checked()
def reduce(
    tensor: Tensor | Sequence[Tensor],
    dims: int | Sequence[int] | None = None,
    op: str | Function = "sum",
    *,
    of: Function | None = None,
    then: Function | None = None,
    keepdim: bool = False,
    identity: float | None = None,
) -> Tensor:
    """Reduces any dims of a tensor in one launch; two runs give the same bits.

    Args:
        tensor: of any shape and strides, or several tensors that broadcast, for ``of``.
        dims: the dims to reduce, of what the tensors broadcast to; None: all; (): none.
        op: ``"sum"``, ``"prod"``, ``"max"``, ``"min"`` (of equal elements, each gets its share of the gradient),
            another row of ``vgraph.ir.reductions``, or an associative function of two scalars, written in torch on
            tensors of any shape. It need not be commutative: elements are combined in row-major order.
        of: a pointwise function of the tensors that is computed inside the loop, element by element, and never
            stored. A number that changes from call to call is best one of the tensors.
        then: a pointwise function of what a slice gave, computed before it is stored.
        keepdim: whether reduced dims stay, with size 1.
        identity: what slices without elements give; 0 for a sum, 1 for a product, none for anything else.

    Returns:
        The kept dims in their order. float16 and bfloat16 are added in float32 and rounded once; sums and products of
        integers have 64 bits.

    Raises:
        DimError: a dim that is not there, or is named twice (IndexError).
        FunctionError: an operation that is unknown, or does not give one tensor of its arguments' shape (TypeError).
        FeatureError: tensors that do not broadcast, or lie on two devices; no elements and no identity (ValueError).
        DTypeError: what is given is no tensor (TypeError).

    Source: Koç, multi-mode tensor reduction on GPUs.

    Example:
        >>> x = torch.arange(24.0).reshape(2, 3, 4)
        >>> reduce(x, (0, 2))
        tensor([ 60.,  92., 124.])
        >>> reduce((x, x), (0, 2), "max", of=lambda a, b: a * b)
        tensor([225., 361., 529.])
        >>> reduce(x, (1, 2), lambda a, b: torch.maximum(a, b))
        tensor([11., 23.])
    """
    is_sum = of is None and then is None and op == "sum"
    if is_sum and type(tensor) is Tensor and isinstance(dims, (int, tuple)) and (dims, *_layout(tensor)) in _plain:
        return tensor.sum(dims, keepdim)
    tensors = _tensors(tensor, of)
    shape = _shape(tensors)
    call = _call(op, of, _dims(dims, len(shape)), then)
    result = _reduce(call, tensors, shape, identity)
    kernel = call.kernel(tensors) if is_sum and type(dims) in (int, tuple) else None
    if kernel is not None and not kernel.bound(tensors, call.dims):
        _plain.add((dims, *_layout(tensors[0])))
    return _keep(result, call.dims) if keepdim else result


def _call(op: str | Function, of: Function | None, dims: tuple[int, ...], then: Function | None) -> _Call:
    for name, function in (("of", of), ("then", then)):
        if function is not None and not callable(function):
            fact = f"{name} is a {type(function).__name__}, not a function"
            raise FunctionError(fact, cure="give a function of tensors")
    if not isinstance(op, str):
        return _Call("", checked(op), of, dims, op, then, torch.is_grad_enabled())
    if op not in TABLE:
        cure = f"one of {', '.join(TABLE)}, or a function"
        raise FunctionError(f"there is no operation {op!r}", cure=cure)
    return _Call(op, None, of, dims, None, then, torch.is_grad_enabled())


def _reduce(call: _Call, tensors: tuple[Tensor, ...], shape: tuple[int, ...], identity: float | None) -> Tensor:
    grads = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if call.then is not None and (grads or call.kernel(tensors) is None):
        return call.finished(_reduce(replace(call, then=None), tensors, shape, identity))
    if any(shape[d] == 0 for d in call.dims):
        return _of_nothing(call, tensors, shape, identity)
    if call.of is not None and call.kernel(tensors) is None:  # stored first
        tensors, call = (call.element(tensors),), replace(call, of=None)
    if grads and call.kernel(tensors) is not None:
        return _Reduce.apply(call, *tensors)
    return call.run(tensors)


# ---------------------------------------------------------------- what was asked for
def _tensors(given: object, of: Function | None) -> tuple[Tensor, ...]:
    items: list[object] = list(given) if isinstance(given, (tuple, list)) else [given]
    strange = [t for t in items if not isinstance(t, Tensor)]
    if strange or not items:
        found = type(strange[0] if strange else given).__name__
        raise DTypeError(f"reduce was given a {found}", cure="give a tensor, or several and of=")
    tensors = [t for t in items if isinstance(t, Tensor)]
    if len(tensors) > 1 and of is None:
        raise FunctionError(
            f"reduce was given {len(tensors)} tensors and no function of them",
            cure="say what is reduced: of=lambda a, b: a * b",
        )
    first = tensors[0].device
    for position, t in enumerate(tensors):
        if t.device != first and t.dim():
            fact = f"tensor 0 lies on {first}, tensor {position} on {t.device}"
            raise FeatureError(fact, cure=f"move one: .to({str(first)!r})")
    return tuple(tensors)


def _shape(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    if len(tensors) == 1:
        return tuple(tensors[0].shape)
    try:
        return tuple(torch.broadcast_shapes(*(t.shape for t in tensors)))
    except RuntimeError:
        shapes = " and ".join(str(tuple(t.shape)) for t in tensors)
        cure = "give dims of the same size, or of size 1"
        raise FeatureError(f"tensors of {shapes} do not broadcast", cure=cure) from None


def _dims(given: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if not (given is None or isinstance(given, int) or arguments.is_iterable(given)):
        raise DimError(f"dims are a {type(given).__name__}", cure="give a whole number, or several")
    asked = tuple(range(rank)) if given is None else (given,) if isinstance(given, int) else tuple(given)
    for dim in asked:
        _check_dim(dim, rank)
    found = sorted(dim % rank for dim in asked) if rank else []
    for one, other in itertools.pairwise(found):
        if one == other:
            raise DimError(f"dim {one} is named twice in {asked}", cure="name it once")
    return tuple(found)


def _check_dim(dim: object, rank: int) -> None:
    if not isinstance(dim, int) or not -max(rank, 1) <= dim < max(rank, 1):
        cure = f"name dims from {-rank} to {rank - 1}" if rank else "leave dims out"
        raise DimError(f"dim {dim!r} of a tensor of {rank} dims", cure=cure)


def _of_nothing(call: _Call, tensors: Sequence[Tensor], shape: tuple[int, ...], identity: float | None) -> Tensor:
    """No elements in any slice; gradients are zeros."""
    row = TABLE.get(call.name)
    value = row.empty if identity is None and row is not None and not row.picks else identity
    kept = tuple(size for d, size in enumerate(shape) if d not in call.dims)
    if value is None and 0 not in kept:
        asked = f"op={call.name!r}" if call.name else "a function"
        fact = f"dims {call.dims} of {shape} hold no elements, of which {asked} gives nothing"
        raise FeatureError(fact, cure="say what it is: identity=")
    element = call.element(tensors)
    total = torch_reduce(element, call.dims, "sum", None)  # for its shape, dtype and gradient
    if row is None or not row.widens:
        total = total.to(element.dtype)
    return total + (value or 0)


@dataclass(frozen=True, eq=False)
class _Call:
    """One reduction as it was asked for; ``with_grad``: under which grad mode, which functions may ask for."""

    name: str
    combine: Function | None
    of: Function | None
    dims: tuple[int, ...]
    given: Function | None = None  # the combination as the user wrote it
    then: Function | None = None
    with_grad: bool = True  # there is no backward of another call

    @property
    def only_adds(self) -> bool:
        """Whether every element gets the gradient, whatever it is, in derivatives of all orders."""
        row = TABLE.get(self.name)
        return self.of is None and row is not None and row.is_linear

    def element(self, tensors: Sequence[Tensor]) -> Tensor:
        """What is reduced, stored."""
        if self.of is None:
            return tensors[0]
        shape = torch.broadcast_shapes(*(t.shape for t in tensors))
        return _one_for_each(self.of(*tensors), shape, "of gives {} for tensors that broadcast to {}")

    def by_library(self, tensors: Sequence[Tensor]) -> Tensor:
        """By torch's operators, differentiable to any order."""
        return self.finished(torch_reduce(self.element(tensors), self.dims, self.name, self.combine))

    def finished(self, reduced: Tensor) -> Tensor:
        """What ``then`` makes of it, stored."""
        if self.then is None:
            return reduced
        return _one_for_each(self.then(reduced), reduced.shape, "then gives {} for {} reduced numbers")

    def run(self, tensors: Sequence[Tensor]) -> Tensor:
        """Without gradient where a kernel runs."""
        kernel = self.kernel(tensors)
        found = None if kernel is None else kernel([in_memory(t.detach()) for t in tensors], self.dims)
        return self.by_library(tensors) if found is None else found

    def kernel(self, tensors: Sequence[Tensor]) -> CompiledReduction | None:
        """What runs it in one launch; None: torch's operators do, and the log says why."""
        is_one = len({t.device for t in tensors}) == 1  # a number may lie elsewhere
        is_known = is_one and tensors[0].device.type in REDUCTIONS
        if not config.kernels_enabled() or not self.dims or not is_known or not all(map(has_elements, tensors)):
            return None
        if self.combine is None and self.of is None and self.then is None:
            return _builtin(self.name, tensors[0].dtype)
        with torch.set_grad_enabled(self.with_grad):  # forward and backward of autograd functions run without
            made = self._reduction(tensors)
        if isinstance(made, str):
            _say(f"a reduction runs on torch's operators: {made}")
            return None
        known = _compiled.get(made.key)
        if known is None:
            if len(_compiled) >= _MOST_KEPT:
                _compiled.clear()
            known = _compiled[made.key] = compile_reduction(made)
        return known

    def _reduction(self, tensors: Sequence[Tensor]) -> Reduction | str:
        dtypes = [t.dtype for t in tensors]
        element = identity_of(dtypes[0]) if self.of is None else record_pointwise(self.of, dtypes)
        if isinstance(element, str):
            return element
        dtype = element.result.dtype
        if dtype not in ACCUMULATED:
            return f"there are no loops over modes for {dtype}"
        total = ACCUMULATED[dtype]
        function = None if self.combine is None else record_pointwise(self.given or self.combine, (total, total))
        after = None if self.then is None else record_pointwise(self.then, (total,))
        if isinstance(function, str) or isinstance(after, str):
            return function if isinstance(function, str) else f"then: {after}"
        same = after is None or after.result.dtype == total
        return Reduction(element, self.name, function, after) if same else "then gives numbers of another dtype"


def _one_for_each(out: object, shape: torch.Size, fact: str) -> Tensor:
    if not isinstance(out, Tensor) or out.shape != shape:
        kind = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        said = fact.format(kind, tuple(shape))
        raise FunctionError(said, cure="give one number for each element")
    return out


@cache
def _builtin(name: str, dtype: torch.dtype) -> CompiledReduction | None:
    return compile_reduction(Reduction(identity_of(dtype), name)) if dtype in ACCUMULATED else None


# ---------------------------------------------------------------- gradients
class _Reduce(torch.autograd.Function):
    """Derivatives of higher order are those of torch's operators."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Tensor:
        out, row = call.run(tensors), TABLE.get(call.name)
        ctx.call = call
        if call.only_adds:
            tensors = tuple(t.new_empty(()).expand(t.shape) for t in tensors)
        reads_result = row is not None and row.derivative.reads_result
        ctx.save_for_backward(out if reads_result else None, *tensors)  # what it does not read may be written to
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        out, *tensors = ctx.saved_tensors
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
        beyond_kernels = torch.is_grad_enabled() or is_batched(grad)
        if ctx.call.combine is not None or (beyond_kernels and not ctx.call.only_adds):
            found = _through_library(ctx.call, tensors, wanted, grad)
        else:
            found = _gradients(ctx.call, tensors, wanted, out, grad)
        return (None, *(found.get(i) for i in range(len(tensors))))


def _through_library(call: _Call, tensors: Sequence[Tensor], wanted: Sequence[int], grad: Tensor) -> dict[int, Tensor]:
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        given = [t.view_as(t) if i in wanted else t.detach() for i, t in enumerate(tensors)]
        reduced = call.by_library(given)
        if not reduced.requires_grad:  # it compares, rounds or detaches
            return {}
        found: tuple[Any, ...] = torch.autograd.grad(
            reduced, [given[i] for i in wanted], grad, create_graph=again, allow_unused=True
        )
    return {i: g for i, g in zip(wanted, found, strict=True) if isinstance(g, Tensor)}


def _gradients(
    call: _Call, tensors: Sequence[Tensor], wanted: Sequence[int], out: Tensor | None, grad: Tensor
) -> dict[int, Tensor]:
    """A reduction over the dims along which a tensor was broadcast; else pointwise."""
    tensors = [t.detach() for t in tensors]
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    share, extras = _share(call, tensors, out, _keep(grad, call.dims))
    element = call.of or (lambda x: x)
    found: dict[int, Tensor] = {}
    for i in wanted:
        if call.of is None:
            found[i] = share(tensors[0], *extras).expand(shape)
            continue
        own = (1,) * (len(shape) - tensors[i].dim()) + tuple(tensors[i].shape)
        repeated = tuple(d for d in range(len(shape)) if own[d] != shape[d])
        pull = _pull_back(element, share, i, len(tensors))
        total = _Call("sum", None, pull, repeated)
        found[i] = total.run((*tensors, *extras)).reshape(tensors[i].shape)
    return found


def _pull_back(element: Function, share: Function, index: int, count: int) -> Function:
    """The share of ``index`` in the gradient at one element."""

    def pull(*given: Tensor) -> Tensor:
        with torch.enable_grad():
            shape = torch.broadcast_shapes(*(x.shape for x in given))
            leaves = [_expanded(x, shape).detach() for x in given[:count]]
            leaf = leaves[index].requires_grad_()
            value = element(*leaves)
            if not value.requires_grad:  # it compares, rounds or detaches
                return torch.zeros_like(leaf)
            part = _expanded(share(value.detach(), *given[count:]), shape)
            found: Any = torch.autograd.grad(value, [leaf], part, allow_unused=True)[0]
        return torch.zeros_like(leaf) if found is None else found

    return pull


def _expanded(x: Tensor, shape: torch.Size) -> Tensor:
    return x if x.shape == shape else x.expand(shape)


def _keep(reduced: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        reduced = reduced.unsqueeze(dim)
    return reduced


Share = tuple[Callable[..., Tensor], tuple[Tensor, ...]]  # of an element in the gradient, by more operands


def _share(call: _Call, tensors: Sequence[Tensor], out: Tensor | None, grad: Tensor) -> Share:
    """As the reduction's row of the table says; ``out``: its result, if that row reads it."""
    rule = reduce_info(call.name).derivative
    given = () if out is None else (_keep(out, call.dims),)
    sums = [_keep(_inside(call, other.name, other.of, tensors, given), call.dims) for other in rule.sums]
    return rule.at, (*given, grad, *sums)


def _inside(
    call: _Call, name: str, function: Function, tensors: Sequence[Tensor], extras: tuple[Tensor, ...]
) -> Tensor:
    """Another reduction over the same elements."""
    element, count = call.of or (lambda x: x), len(tensors)
    again = _Call(name, None, lambda *xs: function(element(*xs[:count]), *xs[count:]), call.dims)
    return again.run((*tensors, *extras))
