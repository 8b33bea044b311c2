"""TDL: what every operator does to every dim, in index notation.

Takes: an Op with its shapes. Gives: its Notation, or None where it is not described; tempo: once a function.
Source: Tofu section 4 (tensor description language), short form "m k, k n -> m n".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from vgraph.ir.program import EDGE, SLOT, VERTEX, Dim, Op, Rows, Value

Indices = tuple[
    str, ...
]  # one entry a dim; "a b": dim is the product of a (slow) and b; "1": no index


@dataclass(frozen=True)
class Notation:
    """Indices of every tensor operand and result; how indices that no result has are combined.

    ``whole``: indices along which an element of the result depends on more than its own position.
    """

    inputs: tuple[Indices, ...]
    outputs: tuple[Indices, ...]
    reduced: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: frozenset[str] = frozenset()

    def __str__(self) -> str:
        def side(all_dims: tuple[Indices, ...]) -> str:
            return ", ".join(
                " ".join(f"({d})" if " " in d else d for d in dims) for dims in all_dims
            )

        return f"{side(self.inputs)} -> {side(self.outputs)}"


Rule = Callable[[Op], "Notation | None"]
_RULES: dict[str, Rule] = {}


def describe(op: Op) -> Notation | None:
    """The notation of an aten op, or None: then it is handled with all its rows at once."""
    rule = _RULES.get(op_name(op.target))
    return rule(op) if rule else None


def op_name(target: Any) -> str:
    """``mm`` for ``aten.mm.default``; the printed form for a Move."""
    packet = getattr(target, "overloadpacket", None)
    return packet.__name__ if packet is not None else str(target)


def described_ops() -> frozenset[str]:
    """The names of all operators that the table describes."""
    return frozenset(_RULES)


# ---------------------------------------------------------------- families
def _fresh(rank: int, prefix: str = "d") -> Indices:
    return tuple(f"{prefix}{i}" for i in range(rank))


def _aligned(shape: Sequence[Dim], out: Indices) -> Indices:
    """Broadcasting: dims align from the right; a size of 1 has no index."""
    tail = out[len(out) - len(shape) :]
    return tuple("1" if size == 1 else name for size, name in zip(shape, tail, strict=True))


def _pointwise(op: Op) -> Notation:
    out = _fresh(max(len(result.shape) for result in op.results))
    inputs = tuple(_aligned(value.shape, out) for value in op.operands())
    return Notation(inputs, tuple(out[len(out) - len(r.shape) :] for r in op.results))


def _factory(op: Op) -> Notation:
    """Results that do not depend on what the operands hold."""
    inputs = tuple(("1",) * len(value.shape) for value in op.operands())
    return Notation(inputs, tuple(_fresh(len(r.shape)) for r in op.results))


def _dims_of(op: Op, position: int, rank: int) -> tuple[int, ...]:
    given = op.args[position] if len(op.args) > position else op.kwargs.get("dim")
    if given is None or given == []:
        return tuple(range(rank))
    dims: Sequence[int] = [given] if isinstance(given, int) else given
    return tuple(dim % max(rank, 1) for dim in dims)


def _reduction(kind: str, dim_position: int = 1) -> Rule:
    def rule(op: Op) -> Notation | None:
        rank, kept = len(op.args[0].shape), len(op.results[0].shape)
        names, dims = _fresh(rank), _dims_of(op, dim_position, rank)
        if kept == rank:
            out = tuple("1" if i in dims else n for i, n in enumerate(names))
        else:
            out = tuple(n for i, n in enumerate(names) if i not in dims)
        gone = {names[i]: kind for i in dims}
        return Notation((names,), (out,) * len(op.results), gone)

    return rule


def _along(*dim_positions: int) -> Rule:
    """Same shapes in and out; every dim named by an argument is needed whole."""

    def rule(op: Op) -> Notation | None:
        rank = len(op.results[0].shape)
        names = _fresh(rank)
        dims = {d for p in dim_positions for d in _dims_of(op, p, rank)}
        inputs = tuple(_aligned(v.shape, names) for v in op.operands())
        return Notation(inputs, (names,) * len(op.results), whole=frozenset(names[d] for d in dims))

    return rule


def _table(text: str) -> Rule:
    """A fixed notation; an operand of lower rank broadcasts (the bias of addmm)."""
    left, right = text.split("->")
    wanted = [tuple(part.split()) for part in left.split(",")]
    out = tuple(right.split())
    gone = {name: "sum" for dims in wanted for name in dims if name not in out}

    def rule(op: Op) -> Notation | None:
        operands = list(op.operands())
        if len(operands) != len(wanted):
            return None
        inputs = tuple(
            _aligned(value.shape, dims) for value, dims in zip(operands, wanted, strict=True)
        )
        return Notation(inputs, (out,), gone)

    return rule


# ---------------------------------------------------------------- views
def _sizes(shape: Sequence[Dim]) -> list[int]:
    """Stand-in sizes under which two products are equal only if they are the same product."""
    primes = {VERTEX: 1_000_003, SLOT: 10_007, EDGE: 1_000_003 * 10_007}
    return [primes.get(d.space, 998_244_353) * d.times if isinstance(d, Rows) else d for d in shape]


def _grouped(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[Indices, Indices] | None:
    """Splits a reshape into groups of equal products: (a b) -> a b, a b -> (a b), or whole groups."""
    left, right = _sizes(before), _sizes(after)
    ins, outs, i, j, group = [""] * len(left), [""] * len(right), 0, 0, 0
    while i < len(left) or j < len(right):
        i0, j0 = i, j
        p = left[i] if i < len(left) else 1
        q = right[j] if j < len(right) else 1
        i, j = min(i + 1, len(left)), min(j + 1, len(right))
        while p != q:
            if p < q and i < len(left):
                p, i = p * left[i], i + 1
            elif q < p and j < len(right):
                q, j = q * right[j], j + 1
            else:
                return None
        _name_group(ins, range(i0, i), outs, range(j0, j), f"g{group}")
        group += 1
    return tuple(ins), tuple(outs)


def _name_group(ins: list[str], i: range, outs: list[str], j: range, name: str) -> None:
    parts = [f"{name}{letter}" for letter in "abcdefgh"]
    count = max(len(i), len(j))
    few, few_at, many, many_at = (ins, i, outs, j) if len(i) <= 1 else (outs, j, ins, i)
    if min(len(i), len(j)) <= 1:
        for at, part in zip(many_at, parts, strict=False):
            many[at] = part
        for at in few_at:
            few[at] = " ".join(parts[: max(count, 1)]) if many_at else "1"
        if not few_at:
            for at in many_at:
                many[at] = "1"
    else:  # several to several: only the slowest factor keeps its name
        for at, part in zip(i, parts, strict=False):
            ins[at] = part
        for k, at in enumerate(j):
            outs[at] = parts[0] + " ?" if k == 0 else f"{name}?{k}"


def _view(op: Op) -> Notation | None:
    pair = _grouped(op.args[0].shape, op.results[0].shape)
    return Notation((pair[0],), (pair[1],)) if pair else None


def _expand(op: Op) -> Notation:
    out = _fresh(len(op.results[0].shape))
    return Notation((_aligned(op.args[0].shape, out),), (out,))


def _permute(order: Callable[[Op, int], Sequence[int]]) -> Rule:
    def rule(op: Op) -> Notation:
        rank = len(op.args[0].shape)
        names = _fresh(rank)
        return Notation((names,), (tuple(names[i] for i in order(op, rank)),))

    return rule


def _swap(op: Op, rank: int) -> list[int]:
    order = list(range(rank))
    a, b = op.args[1] % rank, op.args[2] % rank
    order[a], order[b] = order[b], order[a]
    return order


def _unsqueeze(op: Op) -> Notation:
    names = list(_fresh(len(op.args[0].shape)))
    dim = op.args[1] % (len(names) + 1)
    return Notation((tuple(names),), ((*names[:dim], "1", *names[dim:]),))


def _part(dim_position: int) -> Rule:
    """slice, split, select ...: all dims stay but one, of which a part is taken."""

    def rule(op: Op) -> Notation:
        rank = len(op.args[0].shape)
        names = _fresh(rank)
        given = op.args[dim_position] if len(op.args) > dim_position else op.kwargs.get("dim", 0)
        dim = given % rank
        drops = len(op.results[0].shape) < rank if op.results else False
        kept = names[:dim] + (names[dim + 1 :] if drops else (f"{names[dim]}?", *names[dim + 1 :]))
        return Notation((names,), (kept,) * len(op.results), whole=frozenset({names[dim]}))

    return rule


def _part_backward(op: Op) -> Notation:
    """slice_backward(grad, sizes, dim ...), select_backward(grad, sizes, dim, index)."""
    out = _fresh(len(op.results[0].shape))
    dim = op.args[2] % len(out)
    grad = op.args[0].shape
    inner = tuple(f"{n}?" if i == dim else n for i, n in enumerate(out))
    inner = inner[:dim] + inner[dim + 1 :] if len(grad) < len(out) else inner
    return Notation((inner,), (out,), whole=frozenset({out[dim]}))


def _cat(op: Op) -> Notation:
    out = list(_fresh(len(op.results[0].shape)))
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)) % max(len(out), 1)
    inner = tuple(f"{n}?" if i == dim else n for i, n in enumerate(out))
    return Notation(tuple(inner for _ in op.operands()), (tuple(out),), whole=frozenset({out[dim]}))


def _stack(op: Op) -> Notation:
    out = _fresh(len(op.results[0].shape))
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)) % len(out)
    inner = out[:dim] + out[dim + 1 :]
    return Notation(tuple(inner for _ in op.operands()), (out,))


# ---------------------------------------------------------------- indexing and layers
def _embedding(op: Op) -> Notation:
    rows = _fresh(len(op.args[1].shape))
    return Notation((("v", "f"), rows), ((*rows, "f"),), whole=frozenset({"v"}))


def _embedding_backward(op: Op) -> Notation:
    rows = _fresh(len(op.args[1].shape))
    return Notation(((*rows, "f"), rows), (("v", "f"),), dict.fromkeys(rows, "sum"))


def _index_select(op: Op) -> Notation:
    names = list(_fresh(len(op.args[0].shape)))
    dim = op.args[1] % len(names)
    out = [*names[:dim], "n", *names[dim + 1 :]]
    return Notation((tuple(names), ("n",)), (tuple(out),), whole=frozenset({names[dim]}))


def _gather(op: Op) -> Notation:
    """gather, scatter: positions agree in every dim but one."""
    rank = len(op.args[0].shape)
    names = _fresh(rank)
    dim = op.args[1] % max(rank, 1)
    other = tuple(f"{n}?" if i == dim else n for i, n in enumerate(names))
    out = other if op_name(op.target) == "gather" else names
    inputs = (names, *(other for _ in list(op.operands())[1:]))
    return Notation(inputs, (out,), whole=frozenset({names[dim]}))


def _layer_norm(op: Op) -> Notation:
    x, normalised = op.args[0].shape, len(op.args[1])
    names = _fresh(len(x))
    lead = len(x) - normalised
    stats = (*names[:lead], *("1",) * normalised)
    scale = tuple(names[lead:])
    extra = tuple(scale for _ in list(op.operands())[1:])
    return Notation((names, *extra), (names, stats, stats), whole=frozenset(scale))


def _layer_norm_backward(op: Op) -> Notation | None:
    x, normalised = op.args[1].shape, len(op.args[2])
    names = _fresh(len(x))
    lead = len(x) - normalised
    stats = (*names[:lead], *("1",) * normalised)
    scale = tuple(names[lead:])
    extra = tuple(scale for _ in list(op.operands())[4:])
    gone = dict.fromkeys(names[:lead], "sum")
    return Notation(
        (names, names, stats, stats, *extra), (names, scale, scale), gone, frozenset(scale)
    )


def _convolution(op: Op) -> Notation:
    x, w = op.args[0].shape, op.args[1].shape
    batch, space = "n", _fresh(len(x) - 2, "s")
    bias = (("o",),) if len(list(op.operands())) > 2 else ()
    inner = ("c", *space)
    out = (batch, "o", *(f"{s}?" for s in space))
    kernel = ("o", "c?", *_fresh(len(w) - 2, "k"))
    return Notation(((batch, *inner), kernel, *bias), (out,), whole=frozenset({"c", *space}))


def _convolution_backward(op: Op) -> Notation:
    grad, x, w = (op.args[i].shape for i in range(3))
    space = _fresh(len(x) - 2, "s")
    g = ("n", "o", *(f"{s}?" for s in space))
    data, kernel = ("n", "c", *space), ("o", "c?", *_fresh(len(w) - 2, "k"))
    assert len(grad) == len(g)
    whole = frozenset({"c", "o", *space})
    return Notation((g, data, kernel), (data, kernel, ("o",)), {"n": "sum"}, whole)


POINTWISE = frozenset(
    """abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sign sgn sin cos tan asin
    acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma polygamma floor ceil round
    trunc frac sigmoid log_sigmoid_forward log_sigmoid_backward relu relu6 leaky_relu elu selu celu gelu silu
    mish softplus hardtanh hardsigmoid hardswish threshold rrelu_with_noise add sub rsub mul div true_divide
    floor_divide remainder fmod pow maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or
    logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor where clamp clamp_min clamp_max
    addcmul addcdiv lerp isnan isinf isfinite nan_to_num masked_fill heaviside hypot copysign xlogy sinc i0
    logaddexp logaddexp2 logit signbit positive clone _to_copy to contiguous copy fill zero _conj real imag
    sigmoid_backward tanh_backward threshold_backward leaky_relu_backward elu_backward gelu_backward
    silu_backward mish_backward softplus_backward hardtanh_backward hardsigmoid_backward hardswish_backward
    logit_backward native_dropout_backward masked_scale softshrink hardshrink softshrink_backward
    hardshrink_backward prelu _prelu_kernel _prelu_kernel_backward special_entr huber_loss mse_loss zeros_like ones_like full_like empty_like
    mse_loss_backward smooth_l1_loss smooth_l1_loss_backward rad2deg deg2rad float_power gcd lcm""".split()
)
_FACTORIES = "zeros ones full empty new_zeros new_ones new_full new_empty"
_STRINGS = {
    "mm": "m k, k n -> m n",
    "addmm": "m n, m k, k n -> m n",
    "bmm": "b m k, b k n -> b m n",
    "baddbmm": "b m n, b m k, b k n -> b m n",
    "mv": "m k, k -> m",
    "addmv": "m, m k, k -> m",
    "dot": "k, k ->",
}


@cache
def _fill_table() -> None:
    _RULES.update(dict.fromkeys(POINTWISE, _pointwise))
    _RULES.update(dict.fromkeys(_FACTORIES.split(), _factory))
    _RULES.update({name: _table(text) for name, text in _STRINGS.items()})
    for name in ("sum", "mean", "amax", "amin", "prod", "any", "all", "logsumexp", "max", "min"):
        _RULES[name] = _reduction(name)
    for name in ("argmax", "argmin", "var", "std", "var_mean", "std_mean", "median", "norm"):
        _RULES[name] = _reduction("whole")
    for name in ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp", "flip"):
        _RULES[name] = _along(1)
    for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        _RULES[name] = _along(2)
    _RULES.update(dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze"), _view))
    _RULES.update(dict.fromkeys(("slice", "select", "unbind"), _part(1)))
    _RULES["unbind"] = _part(1)
    _RULES.update(dict.fromkeys(("split", "split_with_sizes", "chunk", "narrow"), _part(2)))
    _RULES["narrow"] = _part(1)
    _RULES.update(dict.fromkeys(("slice_backward", "select_backward"), _part_backward))
    _RULES.update(dict.fromkeys(("gather", "scatter", "scatter_add"), _gather))
    _RULES["t"] = _permute(lambda op, rank: range(rank)[::-1])
    _RULES["permute"] = _permute(lambda op, rank: [d % rank for d in op.args[1]])
    _RULES["transpose"] = _permute(_swap)
    _RULES.update(expand=_expand, unsqueeze=_unsqueeze, cat=_cat, stack=_stack)
    _RULES.update(embedding=_embedding, embedding_dense_backward=_embedding_backward)
    _RULES.update(index_select=_index_select, sort=_along(1), topk=_part(2))
    _RULES.update(native_layer_norm=_layer_norm, native_layer_norm_backward=_layer_norm_backward)
    _RULES.update(convolution=_convolution, convolution_backward=_convolution_backward)


_fill_table()


def is_view(target: Any) -> bool:
    """Whether the result shares its operand's memory."""
    return op_name(target) in _VIEWS


def is_pointwise(target: Any) -> bool:
    """Whether every element of the result depends on the same element of each operand."""
    return op_name(target) in POINTWISE


_VIEWS = frozenset(
    """view _unsafe_view reshape squeeze slice select split split_with_sizes unbind chunk narrow t permute
    transpose expand unsqueeze detach alias""".split()
)


def tensor_operands(op: Op) -> list[Value]:
    """The operands that a notation's ``inputs`` stand for, in the same order."""
    return list(op.operands())
