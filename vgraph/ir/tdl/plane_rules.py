"""Rules of the TDL table: what mixes the last dims, planes or matrices, and computes the dims before them apart.

Takes: an Op with its shapes. Gives: its Notation, or None where it has none. Runs once per function.
Source: Tofu section 4 (tensor description language).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgraph.ir.program import Op, Value
from vgraph.ir.tdl.notation import Indices, Notation, Rule
from vgraph.ir.tdl.rules import aligned, dims_of, fresh


def planes(space: int, *read: int) -> Rule:
    """The last ``space`` dims of all operands and results are whole: pooling, padding.

    ``read``: the operands whose elements matter, if not all; of the others only the shape does.
    """

    def rule(op: Op) -> Notation | None:
        values: Sequence[Value] = [*op.operands(), *op.results]
        rank, count = len(op.results[0].shape), len(list(op.operands()))
        if any(len(v.shape) != rank for v in values) or rank <= space:
            return None
        lead = fresh(rank - space, "n")
        sides = tuple((*lead, *whole) for whole in (fresh(space, "s"), fresh(space, "y")))
        sides = tuple((*side[: rank - space], *(f"{name}?" for name in side[rank - space :])) for side in sides)
        return Notation((sides[0],) * count, (sides[1],) * len(op.results), reads={0: read} if read else {})

    return rule


def matrices(op: Op) -> Notation | None:
    """One matrix at a time: what is before the last two dims of the first operand stands first in all others.

    But for results that were not asked for, as singular vectors, which have no elements.
    """
    values: Sequence[Value] = [*op.operands(), *op.results]
    lead = values[0].shape[:-2]
    if any(value.shape[: len(lead)] != lead for value in values if value.shape != (0,)):
        return None
    names = fresh(len(lead), "n")
    dims = [
        ("m0?",) if value.shape == (0,) else (*names, *(f"m{i}?" for i in range(len(value.shape) - len(lead))))
        for value in values
    ]
    count = len(list(op.operands()))
    return Notation(tuple(dims[:count]), tuple(dims[count:]))


# ---------------------------------------------------------------- windows
def im2col(op: Op) -> Notation | None:
    """Windows of planes as columns: a channel's entries of a window follow one another."""
    return _columns(op, op.args[0].shape, op.args[1], is_made=True)


def col2im(op: Op) -> Notation | None:
    """Columns of windows are added up to planes."""
    return _columns(op, op.results[0].shape, op.args[2], is_made=False)


def _columns(op: Op, image: Sequence[object], window: Sequence[int], *, is_made: bool) -> Notation:
    lead = ("n",) if len(image) == 4 else ()
    plane, columns = (*lead, "c", "s0?", "s1?"), (*lead, "c k", "l?")
    sides = (plane, columns) if is_made else (columns, plane)
    return Notation(sides[:1], sides[1:], whole=frozenset({"k"}), sizes={"k": math.prod(window)})


def unfold(op: Op) -> Notation:
    """Windows of one dim, in a dim of their own at the end; or their sum."""
    is_made = "backward" not in str(op.target)
    names = fresh(len(op.results[0].shape) - is_made)
    dim = op.args[1 if is_made else 2] % max(len(names), 1)
    whole = tuple(f"{name}?" if i == dim else name for i, name in enumerate(names))
    return Notation((whole,), ((*whole, "w?"),)) if is_made else Notation(((*whole, "w?"),), (whole,))


def sampled(op: Op) -> Notation:
    """grid_sampler: an element for each point of a grid, from anywhere in the planes of its sample."""
    rank = len(op.args[0].shape) - 2
    points = fresh(rank, "y")
    planes_of = ("n", "c", *(f"s{i}?" for i in range(rank)))
    return Notation((planes_of, ("n", *points, "t?")), (("n", "c", *points),))


def sampled_backward(op: Op) -> Notation:
    """Gradients of the planes, to which all points add, and of the grid, to which all channels do."""
    rank = len(op.args[1].shape) - 2
    points = fresh(rank, "y")
    planes_of, grid = ("n", "c", *(f"s{i}?" for i in range(rank))), ("n", *points, "t?")
    return Notation((("n", "c", *points), planes_of, grid), (planes_of, grid), dict.fromkeys(("c", *points), "sum"))


def affine_grid(op: Op) -> Notation:
    """A grid of points for each sample's matrix."""
    return Notation((("n", "a?", "b?"),), (("n", *(f"y{i}?" for i in range(len(op.results[0].shape) - 1))),))


# ---------------------------------------------------------------- distances
def distances(op: Op) -> Notation:
    """Of each row to each other one; their entries are needed whole."""
    x, y = op.args[0].shape, op.args[1].shape
    lead = fresh(len(op.results[0].shape) - 2, "b")
    first, second = (aligned(side[:-1], (*lead, name)) for side, name in ((x, "m"), (y, "n")))
    return Notation(((*first, "d?"), (*second, "d?")), ((*lead, "m", "n"),))


def distances_backward(op: Op) -> Notation:
    """The gradient of the first rows, entry by entry."""
    lead = fresh(len(op.results[0].shape) - 2, "b")
    sides = (("m", "n"), ("m", "d"), ("n", "d"), ("m", "n"))
    inputs = tuple(aligned(v.shape, (*lead, *dims)) for v, dims in zip(op.operands(), sides, strict=True))
    return Notation(inputs, ((*lead, "m", "d"),), {"n": "sum"})


# ---------------------------------------------------------------- diagonals and shuffles
def diagonal(op: Op) -> Notation:
    """The diagonal of two dims, at the end."""
    rank = len(op.args[0].shape)
    given, gone = _around(rank, dims_of_pair(op, 2, (0, 1), rank))
    return Notation((given,), ((*(n for n in given if n not in gone), "m?"),))


def diagonal_backward(op: Op) -> Notation:
    """The gradient on the diagonal of two dims."""
    rank = len(op.results[0].shape)
    made, gone = _around(rank, dims_of_pair(op, 3, (0, 1), rank))
    return Notation(((*(n for n in made if n not in gone), "m?"),), (made,))


def diagonal_scatter(op: Op) -> Notation:
    """A tensor with other numbers on the diagonal of two dims."""
    rank = len(op.results[0].shape)
    made, gone = _around(rank, dims_of_pair(op, 3, (0, 1), rank))
    return Notation((made, (*(n for n in made if n not in gone), "m?")), (made,))


def diag_embed(op: Op) -> Notation:
    """The last dim as the diagonal of two."""
    rank = len(op.results[0].shape)
    made, gone = _around(rank, dims_of_pair(op, 2, (-2, -1), rank))
    return Notation(((*(n for n in made if n not in gone), "m?"),), (made,))


def dims_of_pair(op: Op, position: int, default: tuple[int, int], rank: int) -> tuple[int, int]:
    """Two dims that stand one after the other among the arguments."""
    first, second = (
        dims_of(op, position + i, rank)[0] if len(op.args) > position + i else default[i] % rank for i in range(2)
    )
    return first, second


def _around(rank: int, dims: tuple[int, int]) -> tuple[Indices, frozenset[str]]:
    names = tuple(f"d{i}?" if i in dims else f"d{i}" for i in range(rank))
    return names, frozenset(names[dim] for dim in dims)


def pixel_shuffle(op: Op) -> Notation:
    """(c a b) h w -> c (h a) (w b), or back; how large a and b are stands among the arguments."""
    is_made = "unshuffle" not in str(op.target)
    lead, factor = fresh(len(op.args[0].shape) - 3, "n"), op.args[1]
    deep, wide = (*lead, "c a b", "h", "w"), (*lead, "c", "h a", "w b")
    sides = (deep, wide) if is_made else (wide, deep)
    return Notation(sides[:1], sides[1:], whole=frozenset("ab"), sizes={"a": factor, "b": factor})


def channel_shuffle(op: Op) -> Notation:
    """(g c) -> (c g)."""
    rest = fresh(len(op.args[0].shape) - 2)
    return Notation((("n", "g c", *rest),), (("n", "c g", *rest),), whole=frozenset("g"), sizes={"g": op.args[1]})
