"""Aliases: views of one memory, so that a write through one of them is seen by all.

Takes: a recording's view operators and writes. Gives: the functional operators that stand for them. Runs once per
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vgraph.capture.record.op_tables import Kwargs
from vgraph.ir.program import Aten, map_leaves, op_name
from vgraph.runtime.in_memory import has_memory

aten = torch.ops.aten
T = TypeVar("T")
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
Place = tuple[Layout, tuple[int, ...], tuple[int, ...], int]  # of a view: its base's, shape, strides, where it begins


@dataclass(frozen=True)
class Ref:
    """A recorded tensor, by number."""

    index: int


@dataclass(frozen=True, eq=False)
class ViewStep:
    """``func(parent, *rest, **kwargs)``, of several results number ``index``."""

    func: Aten
    rest: tuple[Any, ...]
    kwargs: Kwargs
    index: int | None
    offset: int = 0  # where a part begins along its dim


@dataclass(eq=False, slots=True)
class Cell:
    """What a tensor object stands for now; a write changes it for all its twins."""

    ref: Ref
    tensor: Tensor  # of any twin: same elements, same shape
    parent: Cell | None = None
    step: ViewStep | None = None
    is_stale: bool = False

    @property
    def root(self) -> Cell:
        found = self
        while found.parent is not None:
            found = found.parent
        return found


Note = Callable[[Aten, tuple[Any, ...], Kwargs, Any], tuple[Ref, ...]]  # records an op on Cells


class Aliases:
    """The cells that share memory, by their root, and the ways from roots to views."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._families: dict[int, list[Cell]] = {}
        self._ways: dict[Place, tuple[ViewStep, ...]] = {}

    def add_view(self, cell: Cell, parent: Cell, step: ViewStep) -> None:
        """``cell`` looks at the memory of ``parent``."""
        cell.parent, cell.step = parent, step
        root = cell.root
        self._families.setdefault(id(root), []).append(cell)
        self._ways.setdefault(_place(root.tensor, root.tensor), ())
        self._ways.setdefault(_place(root.tensor, cell.tensor), _way(cell))

    def way_to(
        self, base: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None
    ) -> tuple[ViewStep, ...] | None:
        """The views that lead to these elements of ``base``, as some earlier view did, or slices; or None."""
        base = bare(base)
        start = 0 if offset is None else offset - int(base.storage_offset())
        wanted = (tuple(size), tuple(stride), start)
        known = self._ways.get((_layout(base), *wanted))
        if known is None and base.dim() == 1 and base.is_contiguous():  # a storage of its own
            if start == 0 and _is_dense(wanted[:2], base.numel()):
                return (ViewStep(aten.view.default, (list(size),), {}, None),)
            for (layout, *place), way in self._ways.items():
                way = way if tuple(place) == wanted else _cut(layout, *wanted)
                if way is not None and _is_dense(layout, base.numel()):
                    return (ViewStep(aten.view.default, (list(layout[0]),), {}, None), *way)
        return _cut(_layout(base), *wanted) if known is None else known

    def current(self, cell: Cell) -> Ref:
        """What a cell stands for after all writes."""
        stale, above = list[Cell](), cell
        while above.is_stale:
            assert above.parent is not None
            stale.append(above)
            above = above.parent
        for one in reversed(stale):
            assert one.parent is not None and one.step is not None
            step = one.step
            out = step.func(one.parent.tensor, *step.rest, **step.kwargs)
            one.ref = self._note(step.func, (one.parent, *step.rest), step.kwargs, out)[step.index or 0]
            one.is_stale = False
        return cell.ref

    def write(self, cell: Cell, ref: Ref) -> bool:
        """``cell`` stands for ``ref`` from now on, and so does its part of every other view."""
        seen, child = {id(cell)}, cell
        cell.ref, cell.is_stale = ref, False
        while child.parent is not None:
            parent = child.parent
            self.current(parent)
            undo = _undo(parent.tensor, child)
            if undo is None:
                return False
            func, args = undo
            (parent.ref,) = self._note(func, args, {}, parent.tensor)
            seen.add(id(parent))
            child = parent
        for other in self._families.get(id(child), ()):
            other.is_stale = id(other) not in seen
        return True


def _way(cell: Cell) -> tuple[ViewStep, ...]:
    steps = list[ViewStep]()
    while cell.parent is not None and cell.step is not None:
        steps.append(cell.step)
        cell = cell.parent
    return tuple(reversed(steps))


def _cut(layout: Layout, size: tuple[int, ...], stride: tuple[int, ...], start: int) -> tuple[ViewStep, ...] | None:
    """Slices of a tensor laid out so, in which these elements are the whole; None where slices do not lead there."""
    dims = sorted(range(len(layout[0])), key=lambda d: -layout[1][d])
    begins: dict[int, int] = {}
    for dim in dims:
        begins[dim], start = divmod(start, max(layout[1][dim], 1))
    taken: dict[int, int] = {}  # a dim to that of the result that runs along it
    for place, (count, apart) in enumerate(zip(size, stride, strict=True)):
        able = (d for d in dims if d not in taken and _runs(layout, d, begins[d], count, apart))
        found = next(able, None) if count != 1 else None
        if count != 1 and found is None:
            return None
        if found is not None:
            taken[found] = place
    if start or any(begin >= layout[0][dim] for dim, begin in begins.items()):
        return None
    steps: list[ViewStep] = []
    for dim in reversed(range(len(layout[0]))):
        begin = begins[dim]
        if dim not in taken:
            steps.append(ViewStep(aten.select.int, (dim, begin), {}, None))
        elif size[taken[dim]] != layout[0][dim]:
            step = stride[taken[dim]] // layout[1][dim]
            end = begin + (size[taken[dim]] - 1) * step + 1
            steps.append(ViewStep(aten.slice.Tensor, (dim, begin, end, step), {}, None))
    left = sorted(taken)
    order = [left.index(dim) for dim in sorted(taken, key=lambda dim: taken[dim])]
    if order != sorted(order):
        steps.append(ViewStep(aten.permute.default, (order,), {}, None))
    single = (place for place, count in enumerate(size) if count == 1)
    return (*steps, *(ViewStep(aten.unsqueeze.default, (place,), {}, None) for place in single))


def _runs(layout: Layout, dim: int, begin: int, count: int, apart: int) -> bool:
    """Whether ``count`` elements that lie ``apart`` follow one another along a dim."""
    length, own = layout[0][dim], layout[1][dim]
    return 0 < own <= apart and apart % own == 0 and begin + (count - 1) * (apart // own) < length


def _layout(tensor: Tensor) -> Layout:
    return tuple(tensor.shape), tensor.stride()


def _is_dense(layout: Layout, numel: int) -> bool:
    """Whether a shape with these strides fills a storage of ``numel`` elements in order."""
    expected = numel
    for size, stride in zip(*layout, strict=True):
        expected, rest = divmod(expected, size)
        if rest or (stride != expected and size != 1):
            return False
    return expected == 1


def _place(root: Tensor, view: Tensor) -> Place:
    offset = int(view.storage_offset()) - int(root.storage_offset())
    return _layout(root), tuple(view.shape), view.stride(), offset


def _undo(parent: Tensor, child: Cell) -> tuple[Aten, tuple[Any, ...]] | None:
    """The operator on Cells that gives the parent with the child's elements in their places."""
    step = child.step
    assert step is not None and child.parent is not None
    name, rest, whole = op_name(step.func), step.rest, child.parent
    if name in ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "_reshape_alias"):
        return aten.view.default, (child, list(parent.shape))
    if name in ("t", "transpose"):
        return step.func, (child, *rest)
    if name == "permute":
        order = [d % parent.dim() for d in rest[0]]
        return step.func, (child, [order.index(d) for d in range(len(order))])
    if name == "diagonal":
        return aten.diagonal_scatter.default, (whole, child, *rest)
    if name == "slice":
        return aten.slice_scatter.default, (whole, child, *rest)
    if name == "select":
        return aten.select_scatter.default, (whole, child, *rest)
    dim = (rest[0] if name == "unbind" else rest[1]) if len(rest) > (name != "unbind") else 0
    if name == "unbind":
        return aten.select_scatter.default, (whole, child, dim, step.index)
    if "split" in name:
        end = step.offset + child.tensor.shape[dim]
        return aten.slice_scatter.default, (whole, child, dim, step.offset, end, 1)
    return None


def view_step(func: Aten, args: tuple[Any, ...], kwargs: Kwargs, out: Any, index: int | None) -> ViewStep:
    """How result ``index`` of an operator was taken from its first argument."""
    offset = 0
    if index and "split" in op_name(func):
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        offset = sum(part.shape[dim] for part in out[:index])
    return ViewStep(func, args[1:], kwargs, index, offset)


def bare(tensor: Tensor) -> Tensor:
    """Without its subclass, which may hand out sizes that notice comparisons; fake tensors stay fake."""
    return tensor if type(tensor) is Tensor or hasattr(tensor, "fake_mode") else tensor.as_subclass(Tensor)


def bare_all(tree: T) -> T:
    """Plain tensors throughout: below autograd nothing may move rows any more."""

    def strip(leaf: object) -> object:
        return bare(leaf) if isinstance(leaf, Tensor) and type(leaf) is not nn.Parameter else leaf

    return map_leaves(tree, strip)


def leaves_of(tree: object) -> list[object]:
    """What a nest of tuples and lists holds, in order."""
    found: list[object] = []
    _add_leaves((tree,), found)
    return found


def _add_leaves(items: Iterable[object], found: list[object]) -> None:
    for item in items:
        if isinstance(item, (tuple, list)):
            _add_leaves(item, found)
        else:
            found.append(item)


def is_imagined(tensor: Tensor) -> bool:
    """Whether it has sizes, but no memory."""
    return hasattr(tensor, "fake_mode") or tensor.is_meta  # a fake tensor asks its mode for its device


def storage_key(tensor: Tensor) -> object:
    """Equal for tensors of one memory, whether it is there or only imagined."""
    is_there = not is_imagined(tensor) and has_memory(tensor)
    return tensor.untyped_storage().data_ptr() if is_there else _storage_id(tensor)


def _storage_id(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def memory_of(tensor: Tensor) -> object:
    """Its ``storage_key``; None where it has none that another tensor could share."""
    own = bare(tensor)
    return storage_key(own) if own.layout == torch.strided and own.numel() > 0 else None


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors look at the same storage."""
    one = memory_of(first)
    return one is not None and one == memory_of(second)


def geometry_of(tensor: Tensor) -> object:
    """Equal for two tensor objects over the same elements (``as_subclass`` makes such twins)."""
    tensor = bare(tensor)
    if tensor.layout != torch.strided:
        return id(tensor)
    has_address = tensor.numel() > 0 and not is_imagined(tensor)
    start = tensor.data_ptr() if has_address else (_storage_id(tensor), tensor.storage_offset())
    meant = (tensor.is_neg(), tensor.is_conj())  # how what lies there is read
    return (start, tuple(tensor.shape), tensor.stride(), tensor.dtype, meant) if start else id(tensor)
