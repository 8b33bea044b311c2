"""Ready: a Program without loops on one topology, with everything resolved that no call changes.

Takes: a Program's code, a schedule, what its outputs are. Gives: turns to run and outputs as they lie. Made once per
topology, of what is the same on all of them; runs at every step, where a small graph pays for each question that is
asked again (ADR 0024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from vgraph.ir.program import Input
from vgraph.ir.schedule import RowOrder
from vgraph.runtime.extent import Extent
from vgraph.runtime.in_memory import in_memory
from vgraph.runtime.moved_rows import MovedRows
from vgraph.runtime.outcome import Outcome
from vgraph.runtime.python_codegen import Run

_NO_ARENA: Mapping[int, Tensor] = {}


@dataclass(frozen=True, eq=False)
class Outputs:
    """Where outputs and saved values lie, if all that is given is without gaps; None: no such gradient.

    ``moved``: places of outputs of edges, which the user has in another order. ``shared``: as in an Outcome.
    """

    given: tuple[int | None, ...]
    saved: tuple[int, ...]
    shared: Mapping[int, int]
    moved: frozenset[int]

    def of(self, env: Mapping[int, Tensor], edge_rows: Tensor | None, moved_rows: MovedRows) -> Outcome | None:
        """The outputs as they lie, those of edges in the user's order; None where another must be moved or copied."""
        given: list[Tensor | None] = []
        for place, value_id in enumerate(self.given):
            tensor = None if value_id is None else env[value_id]
            if tensor is not None:
                if edge_rows is not None and place in self.moved and not tensor.is_sparse:
                    tensor = moved_rows.taken(tensor, edge_rows)
                elif tensor.is_sparse or not tensor.is_contiguous():
                    return None
            given.append(tensor)
        return Outcome(given, [env[i] for i in self.saved] if self.saved else [], None, self.shared)


@dataclass(frozen=True, eq=False)
class ReadyForm:
    """What is the same on every topology whose edges lie in order, or on every other one.

    ``moved``: inputs of edges, which may lie in another order than they are given in. ``others``: inputs that the
    topology gives. ``turns``: code, and ids of what nothing reads after it. ``outputs``: None where some are always
    moved or copied.
    """

    as_given: Sequence[tuple[int, str]]
    moved: Sequence[tuple[int, str]]
    others: Sequence[Input]
    turns: Sequence[tuple[Run, Sequence[int]]]
    outputs: Outputs | None
    moved_rows: MovedRows


@dataclass(eq=False, slots=True)  # a frozen one takes longer to make
class Ready:
    """``order``: of the rows of edges; None: they are read as given. ``edge_rows``: rows of edges of moved outputs.

    It holds no topology, which holds it. Nobody changes it.
    """

    form: ReadyForm
    order: RowOrder | None
    edge_rows: Tensor | None
    extents: Sequence[Extent]

    def run(self, inputs: Mapping[str, Tensor], env: dict[int, Tensor]) -> Outcome | None:
        """Runs all turns; None: what they have left in ``env`` must be moved or copied.

        ``env``: the other inputs by id, as rows lie.
        """
        form, extents, order = self.form, self.extents, self.order
        for value_id, name in form.as_given:
            env[value_id] = in_memory(inputs[name])
        for value_id, name in form.moved:
            given = in_memory(inputs[name])
            env[value_id] = given if order is None else form.moved_rows.in_order(given, order)
        for code, dead in form.turns:
            code(env, _NO_ARENA, extents)
            for value_id in dead:
                env.pop(value_id, None)
        return None if form.outputs is None else form.outputs.of(env, self.edge_rows, form.moved_rows)
