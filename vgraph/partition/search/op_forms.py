"""Forms of ops: what of an op decides how it may be divided; ops of many kinds have one form, whatever their sizes.

Takes: ops and what their index notation says. Gives: numbers of forms. Runs once per kind of op and step of the
recursion. Source: Tofu section 4.2 (a strategy is a cut of an index: of its size only what divides it matters).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

from vgraph.ir.program import Op
from vgraph.ir.tdl.notation import Notation
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.search.linear import linear_operands
from vgraph.partition.search.strategies import Described, Factors, is_long, passes_terms


class OpForms:
    """Numbers of forms: ops of one form have equal choices in a step, if they chose alike in the steps before.

    ``small``: bytes up to which a tensor may be kept by every worker; ``factors``: see ``strategies``; ``loss``: the id
    of the value that every worker has. An op of which more than that matters has its kind for its form.
    """

    def __init__(self, small: int, factors: Factors, loss: int) -> None:
        self.small, self.factors, self.loss = small, factors, loss
        self._numbers: dict[Hashable, int] = {}
        self._forms: dict[Hashable, int] = {}
        self._whole: dict[Hashable, Hashable] = {}  # by kind; None: it is its own form
        self._sizes: dict[tuple[int, tuple[int, ...], int], tuple[int, ...]] = {}

    def number(self, op: Op, kind: Hashable, known: Described | None, past_ways: Sequence[int], ways: int) -> int:
        """That of an op's form in a step of so many workers, after these steps."""
        key = (kind, *past_ways, ways)
        found = self._forms.get(key)
        if found is None:
            form = self._form(op, kind, known, tuple(past_ways), ways)
            found = self._forms[key] = self._numbers.setdefault(form, len(self._numbers))
        return found

    def _form(self, op: Op, kind: Hashable, known: Described | None, past_ways: tuple[int, ...], ways: int) -> Hashable:
        if kind not in self._whole:
            self._whole[kind] = None if known is None else self._without_sizes(op, known)
        whole = self._whole[kind]
        if known is None or whole is None:
            return ("kind", kind, past_ways, ways)
        sizes = [*known.sizes.values(), *[size for value in op.results for size in value.row_shape]]
        return (whole, past_ways, tuple([self._divided(size, past_ways, ways) for size in sizes]))

    def _without_sizes(self, op: Op, known: Described) -> Hashable:
        """What matters beside sizes; None where a cut depends on more of them than on what divides them."""
        values = (*op.operands(), *op.results)
        if not _is_plain(known.notation) or any(self.factors.get(value.id) for value in values):
            return None
        kept = [(is_absent(v), v.id == self.loss, v.row_bytes <= self.small, len(v.shape)) for v in op.results]
        linear = [tuple(sorted(together)) for together in linear_operands(op)]
        return (*_content(known.notation), tuple(known.sizes), tuple(linear), passes_terms(op), tuple(kept))

    def _divided(self, size: int, past_ways: tuple[int, ...], ways: int) -> tuple[int, ...]:
        """How each number of parts that may be asked for divides a dim: evenly, into blocks, or not."""
        key = (size, past_ways, ways)
        found = self._sizes.get(key)
        if found is None:
            parts = sorted(set(_products(past_ways, ways)))
            found = self._sizes[key] = tuple([0 if size % n == 0 else 1 if is_long(size, n) else 2 for n in parts])
        return found


def _products(past_ways: tuple[int, ...], ways: int) -> Iterator[int]:
    """Into how many parts a dim is cut by a step and any of the steps before."""
    for chosen in range(1 << len(past_ways)):
        yield ways * math.prod([count for at, count in enumerate(past_ways) if chosen >> at & 1])


def _is_plain(notation: Notation) -> bool:
    """Whether every dim has one index or none: no cut of it is that of an inner factor, none has a halo."""
    dims = [dim for side in (*notation.inputs, *notation.outputs) for dim in side]
    return not notation.sizes and all(dim == "1" or dim.isidentifier() for dim in dims)


def _content(notation: Notation) -> tuple[Hashable, ...]:
    named: Sequence[Mapping[str, str]] = (notation.reduced, notation.located)
    return (
        notation.inputs,
        notation.outputs,
        *[tuple(sorted(of.items())) for of in named],
        notation.whole,
        tuple(sorted(notation.reads.items())),
    )
