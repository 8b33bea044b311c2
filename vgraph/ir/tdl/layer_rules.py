"""Rules of the TDL table: layers and convolutions.

Takes: an Op with its shapes. Gives: its Notation, or None where it has none. Runs once per function.
Source: Tofu section 4 (tensor description language); accesses of convolutions are affine.
"""

from __future__ import annotations

from vgraph.ir.program import Op, Rows
from vgraph.ir.tdl.notation import Indices, Notation
from vgraph.ir.tdl.rules import fresh


# ---------------------------------------------------------------- layers
def layer_norm(op: Op) -> Notation:
    """native_layer_norm: result, mean and reciprocal deviation."""
    x, normalised = op.args[0].shape, len(op.args[1])
    names = fresh(len(x))
    lead = len(x) - normalised
    stats = (*names[:lead], *("1",) * normalised)
    scale = tuple(names[lead:])
    extra = tuple(scale for _ in list(op.operands())[1:])
    return Notation((names, *extra), (names, stats, stats), whole=frozenset(scale))


def layer_norm_backward(op: Op) -> Notation | None:
    """Gradients of input, scale and shift."""
    x, normalised = op.args[1].shape, len(op.args[2])
    names = fresh(len(x))
    lead = len(x) - normalised
    stats = (*names[:lead], *("1",) * normalised)
    scale = tuple(names[lead:])
    extra = tuple(scale for _ in list(op.operands())[4:])
    gone = dict.fromkeys(names[:lead], "sum")
    return Notation((names, names, stats, stats, *extra), (names, scale, scale), gone, frozenset(scale))


def batch_norm(op: Op) -> Notation | None:
    """With statistics that are given: a map. With those of the batch it is not described."""
    if op.args[5]:
        return None
    out = ("n", "c", *fresh(len(op.args[0].shape) - 2, "s"))
    stats = tuple(("c",) for _ in list(op.operands())[1:])
    return Notation((out, *stats), (out, *(("1",) for _ in op.results[1:])))


def batch_norm_backward(op: Op) -> Notation | None:
    """Gradients with statistics that were given."""
    if op.args[7]:
        return None
    out = ("n", "c", *fresh(len(op.args[0].shape) - 2, "s"))
    stats = tuple(("1",) if v.shape == (0,) else ("c",) for v in list(op.operands())[2:])
    gone = dict.fromkeys(out[:1] + out[2:], "sum")
    return Notation((out, out, *stats), (out, ("c",), ("c",)), gone)


# ---------------------------------------------------------------- convolutions
def window(made: str, inner: str, stride: int, padding: int, dilation: int) -> str:
    """The access of a window: stride * made + dilation * inner - padding."""
    first = f"{f'{stride}*' if stride != 1 else ''}{made}"
    then = f"{f'{dilation}*' if dilation != 1 else ''}{inner}"
    return f"{first}+{then}{f'{-padding:+d}' if padding else ''}"


def convolution(op: Op) -> Notation | None:
    """With groups, a group's channels are one index beside the group."""
    if op.args[6]:
        return transposed_convolution(op)
    x, w = op.args[0].shape, op.args[1].shape
    rank, groups = len(w) - 2, op.args[8]
    made, kernel = fresh(rank, "y"), fresh(rank, "k")
    channels, filters = ("c", "o") if groups == 1 else ("g c", "g o")
    if any(isinstance(d, Rows) for d in x[2:]):
        space: Indices = tuple(f"{m}?" for m in made)
    else:
        stride, padding, dilation = ([*op.args[at], *op.args[at] * rank][:rank] for at in (3, 4, 5))
        windows = zip(made, kernel, stride, padding, dilation, strict=True)
        space = tuple(window(*each) for each in windows)
    bias = ((filters,),) if len(list(op.operands())) > 2 else ()
    inner = (*(("n",) if len(x) == len(w) else ()), channels, *space)
    out = (*(("n",) if len(x) == len(w) else ()), filters, *made)
    lost = {"c": "addend" if bias else "sum", **dict.fromkeys(kernel, "whole")}
    return Notation((inner, (filters, "c", *kernel), *bias), (out,), lost, frozenset(kernel))


def transposed_convolution(op: Op) -> Notation:
    """Every entry is spread over a window, whose cut would cut what falls together: space is whole."""
    rank, groups = len(op.args[1].shape) - 2, op.args[8]
    channels, filters = ("c", "o") if groups == 1 else ("g c", "g o")
    made, kernel, space = (fresh(rank, prefix) for prefix in "yks")
    bias = ((filters,),) if len(list(op.operands())) > 2 else ()
    data, out = ("n", channels, *(f"{s}?" for s in space)), ("n", filters, *(f"{m}?" for m in made))
    lost = {"c": "addend" if bias else "sum", **dict.fromkeys(kernel, "whole")}
    return Notation((data, (channels, "o", *kernel), *bias), (out,), lost, frozenset({*kernel, *made, *space}))


def convolution_backward(op: Op) -> Notation | None:
    """Gradients of input, kernel and bias."""
    grad, x, w = (op.args[i].shape for i in range(3))
    if len(x) != len(w):
        return None
    rank, groups, is_transposed = len(w) - 2, op.args[9], op.args[7]
    channels, filters = ("c", "o") if groups == 1 else ("g c", "g o")
    made, kernel, space = (fresh(rank, prefix) for prefix in "yks")
    g = ("n", filters, *(f"{m}?" for m in made))
    data = ("n", channels, *space)
    weights = (channels, "o", *kernel) if is_transposed else (filters, "c", *kernel)
    assert len(grad) == len(g)
    whole = frozenset({*space, *kernel, *made})
    reads = {0: (0, 2), 1: (0, 1), 2: (0,)}
    return Notation((g, data, weights), (data, weights, (filters,)), {"n": "sum", "o": "sum"}, whole, reads=reads)


def resample(op: Op) -> Notation:
    """Images of another size, or their gradients: space is whole, samples and channels are apart."""
    (x,) = op.operands()
    space = fresh(len(x.shape) - 2, "s")
    read, made = (("n", "c", *(f"{name}{mark}?" for name in space)) for mark in "xy")
    return Notation((read,), (made,))
