"""Views: values with the entries of another, turned, reshaped or cast to more bytes: its copies serve them, too.

Takes: a Program. Gives: by value what it is a view of, and where its parts lie there. Runs once per function.
Source: none (FSDP gathers a weight once where forward reads it turned and backward as it is).
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.index_set import IndexSet
from vgraph.ir.program import Op, Program, Value, once_each, op_name
from vgraph.ir.sharding import Partial, Placement, Region, Replicate, Split, split_at
from vgraph.partition.rewrite.regions import notation_of

Placements = tuple[Placement, ...]
_SAME_ENTRIES = frozenset(
    "t transpose permute view _unsafe_view reshape squeeze unsqueeze alias detach _to_copy".split()
)


@dataclass(frozen=True, eq=False)
class View:
    """``dims``: for each dim of the view the dim of its base with the same index, -1 where several share one."""

    op: Op
    base: Value
    dims: tuple[int, ...]

    def placements(self, needed: Placements) -> Placements | None:
        """How the base is cut where the view is cut so; None: in a way that is no cut of one dim."""
        found = [there for one in needed if (there := self.placement(one)) is not None]
        return tuple(found) if len(found) == len(needed) else None

    def placement(self, one: Placement) -> Placement | None:
        """The same of one step."""
        if isinstance(one, Split) and self.dims[one.dim] >= 0:
            return split_at(self.dims[one.dim], one.outer)
        return one if isinstance(one, (Replicate, Partial)) else None

    def region(self, part: Region) -> Region | None:
        """The entries of the base that a part of the view has."""
        found = [IndexSet.whole(size) for size in self.base.row_shape]
        for entries, size, dim in zip(part, self.op.results[0].row_shape, self.dims, strict=True):
            if dim >= 0:
                found[dim] = entries
            elif len(entries) != size:
                return None
        return tuple(found)


class Views:
    """What the values of a Program are views of, found of those that are asked about."""

    def __init__(self, program: Program) -> None:
        self._makers = {op.results[0].id: op for op in program.ops if op.results}
        self._found: dict[int, View | None] = {}

    def get(self, value_id: int) -> View | None:
        """What the value of an id is a view of, if it is one."""
        if value_id not in self._found:
            maker = self._makers.get(value_id)
            self._found[value_id] = None if maker is None else view_of(maker)
        return self._found[value_id]


@once_each
def views_of(program: Program) -> Views:
    """Those of a Program; whoever asks again has the same."""
    return Views(program)


def view_of(op: Op) -> View | None:
    """What an op's result is a view of, if it is one."""
    if op_name(op.target) not in _SAME_ENTRIES:
        return None
    operands, notation = list(op.operands()), notation_of(op)
    if notation is None or len(operands) != 1 or operands[0].dtype.itemsize > op.results[0].dtype.itemsize:
        return None
    places = {name: dim for dim, name in enumerate(notation.inputs[0]) if name.isidentifier()}
    return View(op, operands[0], tuple([places.get(name, -1) for name in notation.outputs[0]]))
