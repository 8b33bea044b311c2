"""Which ops compute row by row, which sum rows away, which mix them.

Takes: an Op and its TDL notation. Gives: an Effect for every result; tempo: once a function.
Source: Cavs section 3.2 (what may be batched), stated through index notation.
"""

from __future__ import annotations

from enum import Enum

from vgraph.ir.moves import Gather, PutSlot, Random, SegmentReduce, TakeSlot
from vgraph.ir.program import EDGE, SLOT, VERTEX, Op, Rows, Space, Value, map_leaves
from vgraph.ir.tdl import Notation, describe, op_name, tensor_operands


class Effect(Enum):
    ROWWISE = "row by row"
    CONTRACT = "sums rows away"
    MIXES = "mixes rows"
    UNKNOWN = "not described"


_CONSTANT = frozenset("zeros ones full empty new_zeros new_ones new_full new_empty".split())
MOVES = (Gather, SegmentReduce, TakeSlot, PutSlot)


def row_effects(op: Op) -> tuple[Effect, ...]:
    """The effect of an op on the rows of its operands, for each of its results."""
    if isinstance(op.target, (*MOVES, Random)):
        return (Effect.ROWWISE,) * len(op.results)
    if op_name(op.target) in _CONSTANT:
        return (Effect.ROWWISE,) * len(op.results)
    has_rows = [v.row_dim is not None for v in (*op.operands(), *op.results)]
    if not any(has_rows):
        return (Effect.ROWWISE,) * len(op.results)
    if not any(v.row_dim is not None for v in op.operands()):
        return (Effect.UNKNOWN,) * len(op.results)
    notation = describe(op)
    if notation is None or len(notation.outputs) != len(op.results):
        return (Effect.UNKNOWN,) * len(op.results)
    atoms = operand_atoms(op, notation)
    if atoms is None or not _sizes_only(op):
        return (Effect.MIXES,) * len(op.results)
    return tuple(
        _effect(result, dims, atoms, notation)
        for result, dims in zip(op.results, notation.outputs, strict=True)
    )


_SIZED = frozenset(
    "view _unsafe_view reshape expand squeeze slice_backward select_backward".split()
)


def _sizes_only(op: Op) -> bool:
    """Numbers of rows may stand among the arguments only as sizes of the result."""
    found: list[Rows] = []
    map_leaves(
        (op.args, tuple(op.kwargs.values())),
        lambda x: found.append(x) if isinstance(x, Rows) else None,
    )
    return not found or op_name(op.target) in _SIZED | _CONSTANT


def operand_atoms(op: Op, notation: Notation) -> dict[str, Space] | None:
    """Index name to the space whose rows it counts, over all operands; None on a contradiction."""
    atoms: dict[str, Space] = {}
    for value, dims in zip(tensor_operands(op), notation.inputs, strict=True):
        found = dim_atoms(value, dims)
        if found is None:
            return None
        for name, space in found.items():
            if atoms.setdefault(name, space) != space:
                return None
    return atoms


def dim_atoms(value: Value, dims: tuple[str, ...]) -> dict[str, Space] | None:
    """The same for one value whose dims have these indices."""
    atoms: dict[str, Space] = {}
    for size, name in zip(value.shape, dims, strict=True):
        if not isinstance(size, Rows):
            continue
        parts = name.split()
        if not parts or parts[0] == "1" or "?" in parts[0]:
            return None
        if size.space == EDGE and len(parts) > 1:
            atoms.update({parts[0]: VERTEX, parts[1]: SLOT})
        else:
            atoms[parts[0]] = size.space
    return atoms


def _effect(
    result: Value, dims: tuple[str, ...], atoms: dict[str, Space], notation: Notation
) -> Effect:
    made = dim_atoms(result, dims)
    if made is None:
        return Effect.MIXES
    for name, space in made.items():
        if _merges_edge(name, space, atoms):
            continue
        if atoms.get(name) != space:
            return Effect.MIXES
    lost = [name for name in atoms if name not in made and not _kept(name, dims)]
    if any(name in notation.whole for name in atoms):
        return Effect.MIXES
    if any(notation.reduced.get(name) != "sum" for name in lost):
        return Effect.MIXES
    return Effect.CONTRACT if lost else Effect.ROWWISE


def _kept(name: str, dims: tuple[str, ...]) -> bool:
    return any(name in dim.split() for dim in dims)


def _merges_edge(name: str, space: Space, atoms: dict[str, Space]) -> bool:
    """(vertex, slot) read as edges: the vertex is the slow factor of an edge row."""
    return space == EDGE and atoms.get(name) == VERTEX and SLOT in atoms.values()
