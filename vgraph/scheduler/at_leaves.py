"""At leaves: products of what leaves alone were given, made where leaves are evaluated.

Takes: Phases. Gives: Phases in which such products are ops of the loop. Runs once per function.
Rows of a product that are read while they are in the cache need no memory of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Program, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import OF_LEAVES, SHARED, VERTEX

MOST_BYTES = 1 << 20  # of a matrix: as much as stays in the cache while rows pass by


def features_of_leaves(program: Program) -> frozenset[int]:
    """Ids of the features that leaves alone were given: the row behind those of leaves is zero."""
    return frozenset(i.value.id for i in program.inputs if i.name.startswith("subset:") and is_of_leaves(i.value))


def is_of_leaves(value: Value) -> bool:
    """Whether a value has a row for each leaf, and one for all others."""
    return value.space.key.endswith(OF_LEAVES) and value.row_dim == 0


def draw_to_leaves(program: Program, phases: Sequence[Phase], numbers: Iterator[int]) -> tuple[Phase, ...]:
    """Products of features of leaves that nothing reads but one loop's gather are made behind that gather."""
    features, found = features_of_leaves(program), list(phases)
    given = {v.id for v in program.outputs if v is not None} | {c.source.id for c in program.carries}
    for index, phase in enumerate(phases):
        for op in () if phase.is_loop else phase.ops:
            if not _is_small_product(op, features) or op.results[0].id in given:
                continue
            readers = [(i, o) for i, p in enumerate(found) for o in p.ops if _reads(o, op.results[0])]
            if len(readers) != 1 or not _is_gather_in_loop(found[readers[0][0]], readers[0][1]):
                continue
            number, gather = readers[0]
            found[index] = replace(found[index], ops=tuple(o for o in found[index].ops if o is not op))
            found[number] = replace(found[number], ops=_behind(found[number].ops, gather, op, next(numbers)))
    return tuple(phase for phase in found if phase.ops)


def _is_small_product(op: Op, features: frozenset[int]) -> bool:
    if op.name not in ("mm", "addmm") or op.kwargs or op.args[-2].id not in features:
        return False
    *bias, _, matrix = op.args
    shared = all(isinstance(v, Value) and v.space == SHARED for v in (*bias, matrix))
    return shared and math.prod(matrix.row_shape) * matrix.dtype.itemsize <= MOST_BYTES


def _reads(op: Op, value: Value) -> bool:
    return any(v.id == value.id for v in op.operands())


def _is_gather_in_loop(phase: Phase, op: Op) -> bool:
    is_plain = phase.is_loop and not phase.is_serial and not phase.is_reverse
    return is_plain and isinstance(op.target, Gather) and op.target.end.endswith(OF_LEAVES)


def _behind(ops: Sequence[Op], gather: Op, product: Op, number: int) -> tuple[Op, ...]:
    *bias, rows, matrix = product.args
    made = Value(number, VERTEX, rows.dtype, (Rows(VERTEX), *rows.shape[1:]), rows.line)
    first = replace(gather, args=(rows,), results=(made,))
    second = replace(product, args=(*bias, made, matrix), results=gather.results)
    return tuple(new for op in ops for new in ((first, second) if op is gather else (op,)))
