"""Which ops compute row by row, which sum rows away, which mix them.

Takes: an Op and its TDL notation. Gives: an Effect for every result. Runs once per function.
Source: Cavs section 3.2 (what may be batched), stated through index notation.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from vgraph.ir.moves import AnyMove, Random
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.space import EDGE, SLOT, VERTEX, Space
from vgraph.ir.tdl.notation import Notation
from vgraph.ir.tdl.table import FACTORIES, describe, is_absent, is_pointwise, tensor_operands


class Effect(Enum):
    ROWWISE = "row by row"
    CONTRACT = "sums rows away"
    MIXES = "mixes rows"
    UNKNOWN = "not described"


_BROADCASTS = frozenset("expand repeat".split())


@lru_cache(1024)  # every stage asks the same of the same ops
def row_effects(op: Op) -> tuple[Effect, ...]:
    """The effect of an op on the rows of its operands, for each of its results."""
    if isinstance(op.target, AnyMove):
        return (Effect.ROWWISE,) * len(op.results)
    if isinstance(op.target, Random):  # its numbers are keyed by rows that come first
        keyed = op.results[0].row_dim in (None, 0)
        return (Effect.ROWWISE if keyed else Effect.MIXES,)
    if not any(v.row_dim is not None for v in (*op.operands(), *op.results)):
        return ((Effect.MIXES if _counted(op) else Effect.ROWWISE),) * len(op.results)
    if is_pointwise(op.target) and _meets_row_by_row(op) and not _counted(op):
        return (Effect.ROWWISE,)
    name, given = op.name, any(v.row_dim is not None for v in op.operands())
    if not (given or name in FACTORIES | _BROADCASTS):
        return (Effect.UNKNOWN,) * len(op.results)
    notation = describe(op)
    if notation is None:
        return (Effect.UNKNOWN,) * len(op.results)
    if name in FACTORIES:
        return ((Effect.MIXES if _counted(op) else Effect.ROWWISE),) * len(op.results)
    atoms = operand_atoms(op, notation)
    if atoms is None or _counted(op):
        return (Effect.MIXES,) * len(op.results)
    return tuple(
        Effect.ROWWISE if is_absent(result) else _effect(op, result, dims, atoms, notation)
        for result, dims in zip(op.results, notation.outputs, strict=True)
    )


_SIZES_AT = {  # where numbers of rows may stand: as sizes of the result
    **dict.fromkeys(
        """view _unsafe_view reshape expand repeat slice_backward select_backward
        diagonal_backward unfold_backward affine_grid_generator""".split(),
        1,
    ),
    **dict.fromkeys("zeros ones full empty".split(), 0),
    **dict.fromkeys("new_zeros new_ones new_full new_empty".split(), 1),
}


def _meets_row_by_row(op: Op) -> bool:
    """Whether rows of a pointwise op's operands all lie where those of its one result do, as they nearly always do."""
    if len(op.results) != 1:
        return False
    shape = op.results[0].shape
    rows = {place: size for place, size in enumerate(shape, -len(shape)) if isinstance(size, Rows)}
    found = [(p, n) for v in op.operands() for p, n in enumerate(v.shape, -len(v.shape)) if isinstance(n, Rows)]
    differ = len({size.space for size in rows.values()}) == len(rows)
    return differ and all(rows.get(place) == size for place, size in found) and len(dict(found)) == len(rows)


def _counted(op: Op) -> bool:
    """Whether a number of rows stands among the arguments other than as a size of the result."""
    at = _SIZES_AT.get(op.name)
    return any(map(_names_rows, (arg for position, arg in enumerate(op.args) if position != at))) or any(
        map(_names_rows, op.kwargs.values())
    )


def _names_rows(tree: object) -> bool:
    if isinstance(tree, (tuple, list)):
        return any(map(_names_rows, tree))
    return isinstance(tree, Rows)


def operand_atoms(op: Op, notation: Notation) -> dict[str, Space] | None:
    """Index name to the space whose rows it counts, over all operands; None on a contradiction."""
    atoms, edges = dict[str, Space](), _edge_indices(op, notation)
    for value, dims in zip(tensor_operands(op), notation.inputs, strict=True):
        found = dim_atoms(value, dims, edges)
        if found is None:
            return None
        for name, space in found.items():
            if atoms.setdefault(name, space) != space:
                return None
    return atoms


def _edge_indices(op: Op, notation: Notation) -> frozenset[str]:
    """Indices that count edges by themselves, in an operand or in a result."""
    operands = zip(tensor_operands(op), notation.inputs, strict=True)
    results = ((v, dims) for v, dims in zip(op.results, notation.outputs, strict=False) if not is_absent(v))
    return frozenset(
        name
        for value, dims in (*operands, *results)
        for size, name in zip(value.shape, dims, strict=True)
        if isinstance(size, Rows) and size.space == EDGE and size.times == 1
    )


def dim_atoms(value: Value, dims: tuple[str, ...], edges: frozenset[str]) -> dict[str, Space] | None:
    """The same for one value whose dims have these indices.

    A dim of edges that has several indices is one of vertices and slots, unless the first is among ``edges``: then
    it is one of edges and what each holds.
    """
    atoms: dict[str, Space] = {}
    for size, name in zip(value.shape, dims, strict=True):
        if not isinstance(size, Rows):
            continue
        parts = name.split()
        if not parts or parts[0] == "1" or "?" in parts[0]:
            return None
        if size.space == EDGE and len(parts) > 1 and parts[0] not in edges:
            atoms.update({parts[0]: VERTEX, parts[1]: SLOT})
        else:
            atoms[parts[0]] = size.space
    return atoms


def _effect(op: Op, result: Value, dims: tuple[str, ...], atoms: dict[str, Space], notation: Notation) -> Effect:
    if 0 in result.shape:  # statistics that were not asked for
        return Effect.ROWWISE
    made = dim_atoms(result, dims, _edge_indices(op, notation))
    if made is None or len(set(made.values())) < len(made):  # every row with every row
        return Effect.MIXES
    for name, space in made.items():
        if _merges_edge(name, space, atoms) or _is_broadcast(op, name, notation):
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


def _is_broadcast(op: Op, name: str, notation: Notation) -> bool:
    """Rows that no operand has: each is a copy of the same numbers."""
    return op.name in _BROADCASTS and all(name not in d for d in notation.inputs)


def _merges_edge(name: str, space: Space, atoms: dict[str, Space]) -> bool:
    """(vertex, slot) read as edges: the vertex is the slow factor of an edge row."""
    return space == EDGE and atoms.get(name) == VERTEX and SLOT in atoms.values()
