"""Hoist: what depends on one end of an edge alone runs over the vertices at that end.

Takes: ops in order. Gives: ops in order that compute the same values. Runs once per function.
Source: DGL section 3 (SDDMM and SpMM) with linear maps moved across gathers and sums, so that no matrix
product runs over edges where one over vertices gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from vgraph.ir.moves import AnyMove, Gather, Random, SegmentReduce
from vgraph.ir.program import Dim, Op, Rows, Value
from vgraph.ir.space import EDGE, SHARED, Space
from vgraph.ir.tdl.rowwise import Effect, row_effects
from vgraph.ir.tdl.table import is_view
from vgraph.ir.trampoline import Steps, run_deep

NewValue = Callable[..., Value]
_mm, _cat, _add, _t = (
    torch.ops.aten.mm.default,
    torch.ops.aten.cat.default,
    torch.ops.aten.add.Tensor,
    torch.ops.aten.t.default,
)
_sub, _neg = torch.ops.aten.sub.Tensor, torch.ops.aten.neg.default
_MOST_TERMS = 16  # of a sum of products that is taken apart
# Of finite numbers of usual size these give finite ones.
_BOUNDED = frozenset(
    "mm addmm bmm add sub rsub neg mul addcmul cat stack view _unsafe_view reshape slice select split split_with_sizes "
    "chunk unbind flip roll constant_pad_nd t permute transpose expand unsqueeze squeeze clone alias detach _to_copy "
    "tanh sigmoid relu leaky_relu elu gelu silu mish hardtanh hardswish softplus log_sigmoid_forward erf sin cos clamp "
    "clamp_min clamp_max maximum minimum where abs sum mean amax amin _softmax _log_softmax ones_like zeros_like "
    "full_like masked_fill eq ne gt lt ge le tanh_backward sigmoid_backward threshold_backward leaky_relu_backward "
    "elu_backward gelu_backward silu_backward mish_backward hardtanh_backward hardswish_backward softplus_backward "
    "log_sigmoid_backward _softmax_backward_data _log_softmax_backward_data native_dropout native_dropout_backward "
    "native_layer_norm native_layer_norm_backward".split()
)
_ADDITIVE = frozenset("mm addmm add sub neg cat sum _to_copy".split())  # sums of their results need sums of operands
_slice, _permute, _view = torch.ops.aten.slice.Tensor, torch.ops.aten.permute.default, torch.ops.aten.view.default


def hoist(ops: Sequence[Op], new_value: NewValue) -> list[Op]:
    """The ops with these laws applied; the values that they replace keep their names.

    f(x[src]) = f(x)[src]; cat(a, b) W = a W1 + b W2; sum over edges of (g W + h V) = (sum of g) W + (sum of h) V;
    the sum over edges of x[src]^T g = x^T (sum over out-edges of g); a sum over all edges is one
    over vertices of sums over their in-edges.
    """
    pass_ = _Hoist(new_value, {v.id: op for op in ops for v in op.results}, _read_on_edges(ops))
    for op in ops:
        pass_.add(op)
    return pass_.ops


@dataclass(eq=False)
class _Hoist:
    new_value: NewValue
    makers: dict[int, Op]
    read_on_edges: set[int]  # ids of rows that are there for every edge, whether or not a sum needs them
    ops: list[Op] = field(default_factory=list[Op])
    spread: dict[int, tuple[Gather, Value]] = field(default_factory=dict[int, "tuple[Gather, Value]"])
    sums: dict[tuple[str, int], Value] = field(default_factory=dict["tuple[str, int]", Value])
    parts: dict[tuple[int, ...], Value] = field(default_factory=dict[tuple[int, ...], Value])
    unbounded: set[int] = field(default_factory=set[int])  # of vertices, which may be infinite where no edge reads them

    def add(self, op: Op) -> None:
        for law in (self._note_gather, self._at_one_end, self._product, self._moved_sum, self._sum_of_rows):
            if law(op):
                return
        self.ops.append(op)

    # ------------------------------------------------------------ f(x[src]) = f(x)[src]
    def _note_gather(self, op: Op) -> bool:
        if isinstance(op.target, Gather) and op.target.end in ("src", "dst") and not op.target.part:
            (operand,) = op.operands()
            self.spread[op.results[0].id] = (op.target, operand)
            self.ops.append(op)
            return True
        return False

    def _at_one_end(self, op: Op) -> bool:
        if isinstance(op.target, AnyMove | Random) or any(v.space != EDGE for v in op.results):
            return False
        rows = [v for v in op.operands() if v.space != SHARED]
        moves = {self.spread[v.id][0] for v in rows if v.id in self.spread}
        if not rows or len(moves) != 1 or any(v.id not in self.spread for v in rows):
            return False
        if any(effect != Effect.ROWWISE for effect in row_effects(op)):
            return False
        (move,) = moves
        self._run_at(op, move)
        return True

    def _run_at(self, op: Op, move: Gather) -> None:
        def at_end(leaf: object) -> object:
            if isinstance(leaf, Value) and leaf.id in self.spread:
                return self.spread[leaf.id][1]
            return _on(leaf, move.source) if isinstance(leaf, Rows) else leaf

        results = tuple(self._at(value, move.source) for value in op.results)
        moved = replace(op.mapped(at_end), results=results)
        self.ops.append(moved)
        if op.name not in _BOUNDED or any(v.id in self.unbounded for v in moved.operands()):
            self.unbounded |= {value.id for value in results}
        for value, inner in zip(op.results, results, strict=True):
            self.spread[value.id] = (move, inner)
            self._gather(move, inner, value, op.line)

    def _gather(self, move: Gather, inner: Value, value: Value, line: str) -> None:
        """Rows along the first dim move as they are; others come first meanwhile, as does a dim within them."""
        dim = inner.row_dim
        if dim is not None and isinstance(size := inner.shape[dim], Rows) and size.times != 1:
            self._gather_several(move, inner, value, line)
            return
        if not dim:
            self.ops.append(Op(move, (inner,), {}, (value,), line))
            return
        there = [dim, *(d for d in range(len(inner.shape)) if d != dim)]
        back = sorted(range(len(there)), key=there.__getitem__)
        first = self.new_value(inner, shape=tuple(inner.shape[d] for d in there))
        moved = self.new_value(value, shape=tuple(value.shape[d] for d in there))
        self.ops.append(Op(_permute, (inner, there), {}, (first,), line))
        self.ops.append(Op(move, (first,), {}, (moved,), line))
        self.ops.append(Op(_permute, (moved, back), {}, (value,), line))

    def _gather_several(self, move: Gather, inner: Value, value: Value, line: str) -> None:
        """Where each row stands for several of a flattened dim, those move together."""
        apart, moved = (self.new_value(v, shape=_apart(v.shape)) for v in (inner, value))
        self.ops.append(Op(_view, (inner, list(apart.shape)), {}, (apart,), line))
        self._gather(move, apart, moved, line)
        self.ops.append(Op(_view, (moved, list(value.shape)), {}, (value,), line))

    def _at(self, value: Value, space: Space) -> Value:
        return self.new_value(value, space=space, shape=tuple(_on(d, space) for d in value.shape))

    # ------------------------------------------------------------ products
    def _product(self, op: Op) -> bool:
        if op.name not in ("mm", "addmm") or op.kwargs:
            return False
        *addend, left, right = op.args
        if left.space == EDGE and right.space == SHARED:
            return self._cat_times_weight(op, addend, left, right)
        return not addend and self._sum_of_products(op, left, right)

    def _cat_times_weight(self, op: Op, addend: list[Value], left: Value, weight: Value) -> bool:
        maker = self.makers.get(left.id)
        if maker is None or maker.name != "cat" or not _is_along_features(maker):
            return False
        pieces = list(maker.operands())
        if not any(p.id in self.spread for p in pieces) or any(v.space == EDGE for v in addend):
            return False
        start, total = 0, None
        for piece in pieces:
            width = piece.shape[1]
            assert isinstance(width, int)
            rows = self._part(weight, 0, start, start + width)
            result = self.new_value(op.results[0])
            if total is None and addend:
                self.add(Op(op.target, (*addend, piece, rows), {}, (result,), op.line))
            else:
                self.add(Op(_mm, (piece, rows), {}, (result,), op.line))
            start += width
            total = result if total is None else self._added(total, result, op, last=piece is pieces[-1])
        return True

    def _added(self, one: Value, other: Value, op: Op, *, last: bool) -> Value:
        result = op.results[0] if last else self.new_value(op.results[0])
        self.add(Op(_add, (one, other), {}, (result,), op.line))
        return result

    def _sum_of_products(self, op: Op, left: Value, right: Value) -> bool:
        """Left is the transpose of rows on edges, right has rows on edges: the sum over edges of outer products."""
        turned = self.makers.get(left.id)
        if turned is None or turned.name != "t" or left.space != EDGE or right.space != EDGE:
            return False
        first = turned.args[0]
        if first.row_dim != 0 or right.row_dim != 0 or len(right.shape) != 2 or right.shape[0] != Rows(EDGE):
            return False
        if self._outer_of_cat(op, first, right):
            return True
        sides = [side for side in ((first, right, True), (right, first, False)) if side[0].id in self.spread]
        if not sides:
            return False
        given, other, is_first = min(sides, key=lambda side: self.spread[side[0].id][1].id in self.unbounded)
        move, inner = self.spread[given.id]
        total = self._segment_sum(move.end, other, op.line)
        inner = self._zero_without_edges(move.end, inner, given, op.line)
        a, b = (inner, total) if is_first else (total, inner)
        self._outer(a, b, op.results[0], op.line)
        return True

    def _zero_without_edges(self, end: str, inner: Value, on_edges: Value, line: str) -> Value:
        """Rows at one end, which count for nothing where no edge has that end: not even what is infinite there."""
        if inner.id not in self.unbounded:
            return inner
        count = self._segment_sum(end, self._ones(on_edges, line), line)
        none, kept = self.new_value(count, dtype=torch.bool), self.new_value(inner)
        self.ops.append(Op(torch.ops.aten.eq.Scalar, (count, 0), {}, (none,), line))
        self.ops.append(Op(torch.ops.aten.masked_fill.Scalar, (inner, none, 0.0), {}, (kept,), line))
        return kept

    def _ones(self, rows: Value, line: str) -> Value:
        """A one for every row of two dims."""
        one = self.new_value(rows, shape=(rows.shape[0], 1))
        ones = self.new_value(one)
        self.ops.append(Op(_slice, (rows, 1, 0, 1), {}, (one,), line))
        self.ops.append(Op(torch.ops.aten.ones_like.default, (one,), {}, (ones,), line))
        return ones

    def _outer_of_cat(self, op: Op, first: Value, right: Value) -> bool:
        for given, other, is_first in ((first, right, True), (right, first, False)):
            maker = self.makers.get(given.id)
            if maker is None or maker.name != "cat" or not _is_along_features(maker):
                continue
            pieces = list(maker.operands())
            if not any(p.id in self.spread for p in pieces):
                continue
            made: list[Value] = []
            for piece in pieces:
                a, b = (piece, other) if is_first else (other, piece)
                result = self.new_value(op.results[0], shape=(a.shape[1], b.shape[1]))
                turned = self._turned(a, op.line)
                self.add(Op(_mm, (turned, b), {}, (result,), op.line))
                made.append(result)
            self.ops.append(Op(_cat, (made, 0 if is_first else 1), {}, op.results, op.line))
            return True
        return False

    def _outer(self, a: Value, b: Value, result: Value, line: str) -> None:
        self.ops.append(Op(_mm, (self._turned(a, line), b), {}, (result,), line))

    def _turned(self, value: Value, line: str) -> Value:
        turned = self.new_value(value, shape=value.shape[::-1])
        made = Op(_t, (value,), {}, (turned,), line)
        self.makers[turned.id] = made
        self.ops.append(made)
        return turned

    def _part(self, value: Value, dim: int, start: int, stop: int) -> Value:
        key = (value.id, dim, start, stop)
        if key not in self.parts:
            shape = tuple(stop - start if d == dim else n for d, n in enumerate(value.shape))
            self.parts[key] = self.new_value(value, shape=shape)
            self.ops.append(Op(_slice, (value, dim, start, stop), {}, (self.parts[key],), value.line))
        return self.parts[key]

    # ------------------------------------------------------------ sums over edges
    def _segment_sum(self, end: str, rows: Value, line: str) -> Value:
        return run_deep(self._summing(end, rows, line))

    def _summing(self, end: str, rows: Value, line: str) -> Steps[Value]:
        """The sum at one end of edges, made once."""
        key = (end, rows.id)
        if key not in self.sums:
            move = SegmentReduce(end, "sum")
            total = self._at(rows, move.result)
            self.sums[key] = total
            yield self._adding(Op(move, (rows,), {}, (total,), line))
        return self.sums[key]

    def _adding(self, op: Op) -> Steps[None]:
        """Of a reduction, moved if that can be."""
        if not (yield self._moving(op)):
            self.ops.append(op)

    def _moved_sum(self, op: Op) -> bool:
        return run_deep(self._moving(op))

    def _moving(self, op: Op) -> Steps[bool]:
        """The sum of (g W) is (the sum of g) W, and so is that of several; of cat, the cat of sums."""
        move = op.target
        if not isinstance(move, SegmentReduce) or move.end not in ("src", "dst") or move.part:
            return False
        (rows,) = op.operands()
        maker = self.makers.get(rows.id)
        if maker is None or len(rows.shape) != 2:
            return False
        name = maker.name
        if name == "_to_copy" and move.info.is_linear:
            return (yield self._widened_sum(op, move, maker))
        if name == "cat" and _is_along_features(maker) and len(op.results) == 1:
            yield self._sums_of_pieces(op, move, maker)
            return True
        if not move.info.is_linear or rows.id in self.read_on_edges:
            return False
        products = _products(rows, self.makers)
        if products is not None:
            yield self._sums_of_products(op, move.end, products)
            return True
        if name != "addmm" or maker.kwargs or maker.args[0].space != SHARED or not _is_product(maker):
            return False
        yield self._sum_of_affine(op, move.end, *maker.args)
        return True

    def _widened_sum(self, op: Op, move: SegmentReduce, maker: Op) -> Steps[bool]:
        """The sum of products that autocast has made wider again is that of the products, made wider.

        The sum of what is multiplied is rounded once; bfloat16 has the range of float32, so that no sum leaves it.
        """
        (given,), (result,) = maker.operands(), op.results
        product = self.makers.get(given.id)
        is_widened = given.dtype == torch.bfloat16 and result.dtype == torch.float32
        if not is_widened or product is None or product.name == "cat":
            return False
        narrow = self.new_value(result, dtype=given.dtype)
        if not (yield self._moving(Op(move, (given,), {}, (narrow,), op.line))):
            return False
        self.ops.append(replace(maker, args=(narrow,), results=op.results))
        return True

    def _sums_of_products(self, op: Op, end: str, products: Sequence[_Product]) -> Steps[None]:
        """The summed rows of each product times its matrix, or columns of that, and these added."""
        whole: Value | None = None
        for product in products:
            total = yield self._summing(end, product.rows, op.line)
            start, stop = product.columns
            is_all = (start, stop) == (0, product.weight.shape[1])
            weight = product.weight if is_all else self._part(product.weight, 1, start, stop)
            is_last, is_negative = product is products[-1], product.sign < 0
            is_result = is_last and whole is None and not is_negative
            term = op.results[0] if is_result else self.new_value(op.results[0])
            self.ops.append(Op(_mm, (total, weight), {}, (term,), op.line))
            if whole is None and not is_negative:
                whole = term
                continue
            result = op.results[0] if is_last else self.new_value(op.results[0])
            join, given = (_neg, (term,)) if whole is None else (_sub if is_negative else _add, (whole, term))
            self.ops.append(Op(join, given, {}, (result,), op.line))
            whole = result

    def _sum_of_affine(self, op: Op, end: str, added: Value, rows: Value, weight: Value) -> Steps[None]:
        """The summed rows times the matrix; what was added to each edge's is added as often as there are edges."""
        total = yield self._summing(end, rows, op.line)
        maker = self.makers.get(rows.id)
        if maker is not None and maker.name == "cat" and _is_along_features(maker):
            rows = next(maker.operands())  # one is there for every edge, too, without the others
        product, many = self.new_value(op.results[0]), self.new_value(op.results[0])
        count = yield self._summing(end, self._ones(rows, op.line), op.line)
        self.ops.append(Op(_mm, (total, weight), {}, (product,), op.line))
        self.ops.append(Op(torch.ops.aten.mul.Tensor, (count, added), {}, (many,), op.line))
        self.ops.append(Op(_add, (product, many), {}, op.results, op.line))

    def _sums_of_pieces(self, op: Op, move: SegmentReduce, maker: Op) -> Steps[None]:
        made: list[Value] = []
        for piece in maker.operands():
            if move.info.is_linear:
                made.append((yield self._summing(move.end, piece, op.line)))
                continue
            total = self._at(piece, move.result)
            yield self._adding(Op(move, (piece,), {}, (total,), op.line))
            made.append(total)
        self.ops.append(Op(_cat, (made, 1), {}, op.results, op.line))

    def _sum_of_rows(self, op: Op) -> bool:
        """A sum over all edges: over vertices of sums over their in-edges."""
        if op.name != "sum" or not op.args or op.kwargs or op.args[0].space != EDGE:
            return False
        rows, dims = op.args[0], (*op.args[1:2], None)[0] or [0]  # without dims all of them
        if rows.row_dim != 0 or rows.shape[0] != Rows(EDGE) or 0 not in [d % len(rows.shape) for d in dims]:
            return False
        if not rows.dtype.is_floating_point:
            return False
        total = self._segment_sum("dst", rows, op.line)
        self.ops.append(replace(op, args=(total, *op.args[1:])))
        return True


def _read_on_edges(ops: Sequence[Op]) -> set[int]:
    """Ids of rows that something reads for which their sum is not enough: the maximum over edges, a square."""
    found: set[int] = set()
    for op in reversed(ops):
        if is_view(op.target):
            needs = any(value.id in found for value in op.results)
        elif isinstance(op.target, SegmentReduce):
            needs = not op.target.info.is_linear
        else:
            needs = op.name not in _ADDITIVE
        if needs:
            found.update(value.id for value in op.operands() if value.space == EDGE)
    return found


@dataclass(frozen=True)
class _Product:
    """One term of a sum: rows of edges times columns of a matrix that all share."""

    rows: Value
    weight: Value
    columns: tuple[int, int]
    sign: int


def _products(rows: Value, makers: Mapping[int, Op]) -> list[_Product] | None:
    """Rows of edges as a sum of products, sliced along columns or not; None: they are something else."""
    found: list[_Product] = []
    width = rows.shape[1]
    todo: list[tuple[Value, int, int]] = [(rows, 1, 0)]  # with its sign, and at which of its columns the term begins
    while todo:
        value, sign, start = todo.pop()
        maker = makers.get(value.id)
        if maker is None or maker.kwargs or not isinstance(width, int) or len(found) + len(todo) == _MOST_TERMS:
            return None
        name, given = maker.name, maker.args
        if name == "mm" and _is_product(maker):
            found.append(_Product(given[0], given[1], (start, start + width), sign))
        elif name in ("add", "sub", "neg") and all(_is_alike(v, value) for v in given):
            signs = (sign, -sign if name == "sub" else sign) if len(given) == 2 else (-sign,)
            todo += reversed([(v, s, start) for v, s in zip(given, signs, strict=True)])
        elif name == "slice" and (first := _first_column(maker)) is not None:
            todo.append((given[0], sign, start + first))
        else:
            return None
    return found


def _is_product(op: Op) -> bool:
    """Of rows of edges and a matrix that all share."""
    rows, weight = op.args[-2:]
    return weight.space == SHARED and rows.space == EDGE and rows.row_dim == 0


def _is_alike(operand: object, result: Value) -> bool:
    """Whether nothing is repeated or rounded for an operator."""
    return isinstance(operand, Value) and operand.shape == result.shape and operand.dtype == result.dtype


def _first_column(view: Op) -> int | None:
    """Where a slice along columns begins; None: it is another."""
    _, dim, first, _, step = (*view.args, *(None,) * 5)[:5]
    plain = len(view.args) >= 4 and step in (None, 1) and dim in (1, -1) and len(view.args[0].shape) == 2
    start = first or 0
    return start if plain and isinstance(start, int) and start >= 0 else None


def _on(dim: Dim, space: Space) -> Dim:
    """A number of edges turned into one of rows of ``space``."""
    return Rows(space, dim.times) if isinstance(dim, Rows) and dim.space == EDGE else dim


def _apart(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape with what each row holds of a flattened dim in a dim of its own."""
    parts = [(Rows(d.space), d.times) if isinstance(d, Rows) and d.times != 1 else (d,) for d in shape]
    return tuple(size for part in parts for size in part)


def _is_along_features(cat: Op) -> bool:
    """Whether rows of two dims and one dtype are joined along the second."""
    dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
    (whole,) = cat.results
    return dim in (1, -1) and all(
        len(v.shape) == 2 and v.row_dim == 0 and v.dtype == whole.dtype for v in cat.operands()
    )
