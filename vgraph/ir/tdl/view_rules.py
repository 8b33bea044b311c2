"""Rules of the TDL table: operators that rearrange, take parts and put parts together.

Takes: an Op with its shapes. Gives: its Notation, or None where it has none. Runs once per function.
Source: Tofu section 4 (tensor description language).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence

from vgraph.ir.program import Dim, Op, Rows, Value
from vgraph.ir.space import EDGE, SLOT, VERTEX
from vgraph.ir.tdl.notation import Indices, Notation, Rule
from vgraph.ir.tdl.rules import aligned, fresh

_END = 2**63 - 1  # how a slice says "to the end"


def _sizes(shape: Sequence[Dim]) -> list[int]:
    """Stand-in sizes under which two products are equal only if they are the same product."""
    primes = {VERTEX: 1_000_003, SLOT: 10_007, EDGE: 1_000_003 * 10_007}
    return [primes.get(d.space, 998_244_353) * d.times if isinstance(d, Rows) else d for d in shape]


def _grouped(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[Indices, Indices] | None:
    """Splits a reshape into groups: (a b) -> a b, a b -> (a b), a (b c) -> (a b) c, or whole ones of equal product."""
    ins, outs = ["1"] * len(before), ["1"] * len(after)
    at_left, at_right = _wide(before), _wide(after)
    left = _sizes([before[k] for k in at_left])
    right = _sizes([after[k] for k in at_right])
    i, j, group = 0, 0, 0
    while i < len(left) and j < len(right):
        i0, j0, p, q = i, j, left[i], right[j]
        i, j = i + 1, j + 1
        while p != q:
            if p < q and i < len(left):
                p, i = p * left[i], i + 1
            elif q < p and j < len(right):
                q, j = q * right[j], j + 1
            else:
                return None
        sides = ((ins, at_left[i0:i]), (outs, at_right[j0:j]))
        is_plain = min(i - i0, j - j0) == 1 or not any(isinstance(d, Rows) for d in (*before, *after))
        if not (is_plain and _name_factors(sides, f"g{group}", (left[i0:i], right[j0:j]))):
            _name_slowest(*sides[0], *sides[1], f"g{group}")
        group += 1
    return (tuple(ins), tuple(outs)) if i == len(left) and j == len(right) else None


def _wide(shape: Sequence[Dim]) -> list[int]:
    """The dims that have an index at all: those of more than one entry."""
    return [k for k, size in enumerate(shape) if size != 1]


def _name_slowest(ins: list[str], i: Sequence[int], outs: list[str], j: Sequence[int], name: str) -> None:
    """Several to several dims that are no products of common factors: only the slowest factor keeps its name."""
    for k, at in enumerate(i):
        ins[at] = f"{name}{_LETTERS[k]}"
    for k, at in enumerate(j):
        outs[at] = f"{name}a ?" if k == 0 else f"{name}?{k}"


_LETTERS = "abcdefghijkl"


def _name_factors(sides: Sequence[tuple[list[str], Sequence[int]]], name: str, sizes: Sequence[Sequence[int]]) -> bool:
    """(16, 512) and (128, 64) are a (b c) and (a b) c, of 16, 8 and 64; False: there are no such factors."""
    ends = [list(itertools.accumulate(side, operator.mul)) for side in sizes]
    every = sorted({*ends[0], *ends[1]})
    if len(every) > len(_LETTERS) or any(later % end for end, later in itertools.pairwise(every)):
        return False
    for (names, at), mine in zip(sides, ends, strict=True):
        places = [0, *(every.index(end) + 1 for end in mine)]
        for k, (first, last) in zip(at, itertools.pairwise(places), strict=True):
            names[k] = " ".join(f"{name}{letter}" for letter in _LETTERS[first:last])
    return True


def view(op: Op) -> Notation | None:
    """Sizes of equal product stand for the same indices."""
    pair = _grouped(op.args[0].shape, op.results[0].shape)
    return Notation((pair[0],), (pair[1],)) if pair else None


def expand(op: Op) -> Notation:
    """What is made from a size of 1 has an index that the operand lacks: a broadcast."""
    out = fresh(len(op.results[0].shape))
    return Notation((aligned(op.args[0].shape, out),), (out,))


def permute(order: Callable[[Op, int], Sequence[int]]) -> Rule:
    """Dims in the order that a function of (op, rank) gives."""

    def rule(op: Op) -> Notation:
        rank = len(op.args[0].shape)
        names = fresh(rank)
        return Notation((names,), (tuple(names[i] for i in order(op, rank)),))

    return rule


def swap(op: Op, rank: int) -> list[int]:
    """The order of dims after ``transpose``."""
    order = list(range(rank))
    a, b = op.args[1] % rank, op.args[2] % rank
    order[a], order[b] = order[b], order[a]
    return order


def unsqueeze(op: Op) -> Notation:
    """A dim of size 1 more."""
    names = list(fresh(len(op.args[0].shape)))
    dim = op.args[1] % (len(names) + 1)
    return Notation((tuple(names),), ((*names[:dim], "1", *names[dim:]),))


def complex_parts(*, made: bool) -> Rule:
    """A last dim of two, the real and the imaginary part, which is whole: made by view_as_real, or read."""

    def rule(op: Op) -> Notation:
        names = fresh(len((op.args[0] if made else op.results[0]).shape))
        pair = (*names, "re?")
        return Notation((names if made else pair,), (pair if made else names,))

    return rule


def bits(op: Op) -> Notation:
    """The bits of a tensor as another dtype: entries of another size are made of the whole last dim."""
    (before,), (after,) = op.operands(), op.results
    names = fresh(len(before.shape))
    if before.dtype.itemsize == after.dtype.itemsize:
        return Notation((names,), (names,))
    return Notation(((*names[:-1], "before?"),), ((*names[:-1], "after?"),))


def part(dim_position: int) -> Rule:
    """slice, split, select ...: all dims stay but one, of which a part is taken."""

    def rule(op: Op) -> Notation:
        rank = len(op.args[0].shape)
        names = fresh(rank)
        if _takes_all(op):
            return Notation((names,), (names,))
        given = op.args[dim_position] if len(op.args) > dim_position else op.kwargs.get("dim", 0)
        dim = given % rank
        drops = len(op.results[0].shape) < rank if op.results else False
        access = _part_access(op, names[dim], dim, drops)
        if access is not None:
            outputs = names[:dim] + names[dim + 1 :] if drops else names
            return Notation(((*names[:dim], access, *names[dim + 1 :]),), (outputs,) * len(op.results))
        kept = names[:dim] + (names[dim + 1 :] if drops else (f"{names[dim]}?", *names[dim + 1 :]))
        return Notation((names,), (kept,) * len(op.results), whole=frozenset({names[dim]}))

    return rule


def _part_access(op: Op, name: str, dim: int, drops: bool) -> str | None:
    """The entries of one dim that parts read; None where they are rows, or parts of several sizes."""
    size, name_of = op.args[0].shape[dim], op.name
    made = [d for result in op.results if not drops and isinstance(d := result.shape[dim], int)]
    if isinstance(size, Rows) or (not drops and len(made) < len(op.results)):
        return None
    if drops:
        return f"0+{op.args[2] % size}" if name_of == "select" else None
    if name_of == "slice":
        start, step = op.args[2] if len(op.args) > 2 else 0, op.args[4] if len(op.args) > 4 else 1
        start = min(max(start + size if (start or 0) < 0 else start or 0, 0), size)
        return offset(name, start, step)
    if name_of == "narrow" or len(set(made)) != 1:
        return None
    return "|".join(offset(name, made[0] * k) for k in range(len(made)))


def offset(name: str, start: int, step: int = 1) -> str:
    """The access ``step * name + start``; never the bare name, whose size would be that of the operand's dim."""
    return f"{f'{step}*' if step != 1 else ''}{name}{start:+d}"


def _takes_all(op: Op) -> bool:
    """x[:] takes every entry of its dim."""
    given = (*op.args[2:], *(None, None, 1)[len(op.args) - 2 :])
    is_slice = op.name == "slice" and not op.kwargs
    return is_slice and given[0] in (None, 0) and given[1] in (None, _END) and given[2] == 1


def part_backward(op: Op) -> Notation:
    """slice_backward(grad, sizes, dim ...), select_backward(grad, sizes, dim, index)."""
    out = fresh(len(op.results[0].shape))
    dim = op.args[2] % len(out)
    grad = op.args[0].shape
    if len(grad) == len(out) and not isinstance(op.results[0].shape[dim], Rows):
        size, (start, _, step) = op.results[0].shape[dim], op.args[3:6]
        start = min(max(start + size if start < 0 else start, 0), size)
        access = offset(out[dim], -start) if step == 1 else f"({offset(out[dim], -start)})/{step}"
        return Notation(((*out[:dim], access, *out[dim + 1 :]),), (out,))
    inner = tuple(f"{n}?" if i == dim else n for i, n in enumerate(out))
    inner = inner[:dim] + inner[dim + 1 :] if len(grad) < len(out) else inner
    return Notation((inner,), (out,), whole=frozenset({out[dim]}))


def scatter_part(op: Op) -> Notation:
    """slice_scatter(x, part, dim ...), select_scatter(x, part, dim, index)."""
    names = fresh(len(op.results[0].shape))
    part: Value = op.args[1]
    dim = (op.args[2] if len(op.args) > 2 else op.kwargs.get("dim", 0)) % len(names)
    inner = tuple(f"{n}?" if i == dim else n for i, n in enumerate(names))
    if len(part.shape) < len(names):
        inner = inner[:dim] + inner[dim + 1 :]
    return Notation((names, inner), (names,), whole=frozenset({names[dim]}))


def repeat(op: Op) -> Notation:
    """A dim of size 1 is broadcast; one that is repeated has the repetition as its slow factor."""
    shape, times = op.args[0].shape, op.args[1]
    names = fresh(len(times))
    lead = len(times) - len(shape)
    ins, outs = list(aligned(shape, names[lead:])), list(names)
    for i, (size, count) in enumerate(zip(shape, times[lead:], strict=True)):
        if size != 1 and count != 1:
            outs[lead + i] = f"{outs[lead + i]}?" if isinstance(size, Rows) else f"r{i} {names[lead + i]}"
    whole = frozenset(n for n, o in zip(names, outs, strict=True) if "?" in o)
    return Notation((tuple(ins),), (tuple(outs),), whole=whole)


def pad(op: Op) -> Notation:
    """constant_pad_nd: pairs of numbers from the last dim on."""
    names = fresh(len(op.args[0].shape))
    pairs, shape = op.args[1], op.args[0].shape
    ins, outs = list(names), list(names)
    for number in range(len(pairs) // 2):
        dim = len(names) - 1 - number
        if isinstance(shape[dim], Rows) or not all(isinstance(n, int) for n in pairs[2 * number : 2 * number + 2]):
            outs[dim] = f"{names[dim]}?"
        elif pairs[2 * number] or pairs[2 * number + 1]:
            ins[dim] = offset(names[dim], -pairs[2 * number])
    whole = frozenset(n for n, o in zip(names, outs, strict=True) if n != o)
    return Notation((tuple(ins),), (tuple(outs),), whole=whole)


def cat(op: Op) -> Notation | None:
    """All dims agree but the one along which the operands follow one another."""
    out = list(fresh(len(op.results[0].shape)))
    if any(len(v.shape) != len(out) for v in op.operands()):  # torch skips empty vectors
        return None
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)) % max(len(out), 1)
    sizes = [v.shape[dim] for v in op.operands()]
    if any(isinstance(size, Rows) for size in sizes):
        inner = tuple(f"{n}?" if i == dim else n for i, n in enumerate(out))
        return Notation(tuple(inner for _ in op.operands()), (tuple(out),), whole=frozenset({out[dim]}))
    inputs: list[Indices] = []
    start = 0
    for size in sizes:
        assert isinstance(size, int)
        access = offset(out[dim], -start)
        inputs.append((*out[:dim], access, *out[dim + 1 :]))
        start += size
    return Notation(tuple(inputs), (tuple(out),))


def stack(op: Op) -> Notation:
    """A dim more, along which the operands lie."""
    out = fresh(len(op.results[0].shape))
    dim = (op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)) % len(out)
    inner = out[:dim] + out[dim + 1 :]
    return Notation(tuple(inner for _ in op.operands()), (out,), whole=frozenset({out[dim]}))
