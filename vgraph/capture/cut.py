"""Cut: a captured function in two, where what sources send is narrowest.

Takes: a Bound. Gives: one of own sources and one of edges, each captured from the same functions, and the names of
what goes from one to the other. Runs once per function. Both run the user's functions whole: the first gives what is
sent, the second reads what arrives in its place. So each has derivatives of any order, as any captured function has.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import compress

import torch
from torch import Tensor

from vgraph.capture.body import Body, Given
from vgraph.capture.capture import Bound, Captured
from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import Ref, share_memory
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session, Spec
from vgraph.capture.trace import Trace
from vgraph.ir.moves import Gather
from vgraph.ir.program import Value, map_leaves, needed_ops
from vgraph.ir.space import EDGE, SHARED, SOURCE
from vgraph.passes.source_side import SourceSide, is_one_row_each, narrowest, source_side

logger = logging.getLogger("vgraph")
Make = Callable[[Captured], Body]


@dataclass(frozen=True, eq=False)
class Cut:
    """What a function is in two parts: ``places`` of what is sent among the rows of edges that it makes, by name."""

    places: Mapping[str, tuple[int, ...]]
    at_sources: Captured
    on_edges: Captured

    def bind(self, whole: Bound) -> tuple[Bound, Bound]:
        """Both parts with the functions of one call."""
        make = whole.make_body
        return (
            Bound(self.at_sources, lambda captured: _AtSources(make(captured), self.places), whole.roots),
            Bound(self.on_edges, lambda captured: _OnEdges(make(captured), self.places), whole.roots),
        )


def cut_of(whole: Bound, held: Set[str], num_readers: int) -> Cut | None:
    """Where the function is cut; None: columns are sent as they are read. Kept.

    ``held``: names of columns that are there already, which cost nothing to send. ``num_readers``: so many functions
    read the same columns and send them once, where each would send what it makes of them.
    """
    made, key = whole.captured.cuts, (frozenset(held & whole.captured.specs.keys()), num_readers)
    if key not in made:
        made[key] = _find_cut(whole, *key)
    found = made[key]
    assert found is None or isinstance(found, Cut)
    return found


# ---------------------------------------------------------------- the functions, watched while they run
@dataclass(eq=False)
class _Watched(ABC):
    """A Body of which every tensor with rows of edges is seen when a torch function returns it, by its number."""

    inner: Body
    count: int = 0

    def __post_init__(self) -> None:
        self.name, self.spaces, self.per_vertex = self.inner.name, self.inner.spaces, self.inner.per_vertex
        self.mailbox = self.inner.mailbox

    def run(self, session: Session) -> Given:
        self.count = 0

        def passing(leaf: Tensor) -> Tensor:
            if not isinstance(leaf, RowTensor) or leaf.vg_space != EDGE:
                return leaf
            self.count += 1
            return self.seen(self.count - 1, leaf, session)

        session.tracer.passing = passing
        try:
            return self.inner.run(session)
        finally:
            session.tracer.passing = None

    def facts(self) -> object:
        return self.inner.facts()

    @abstractmethod
    def seen(self, place: int, rows: RowTensor, session: Session) -> Tensor:
        """What the function goes on with."""


@dataclass(eq=False)
class _Noted(_Watched):
    """Notes what each of them is, and whether it has a gradient; left out is what is written in place later."""

    grad: bool = True
    passed: list[tuple[int, Ref, bool]] = field(default_factory=list["tuple[int, Ref, bool]"])

    def run(self, session: Session) -> Given:
        self.passed, self.tensors = [], list[Tensor]()
        given, written = super().run(session), session.tracer.written
        kept = [not any(share_memory(rows, other) for other in written) for rows in self.tensors]
        self.passed, self.tensors = list(compress(self.passed, kept)), []
        return given

    def seen(self, place: int, rows: RowTensor, session: Session) -> Tensor:
        bare = plain(rows)
        if torch.is_grad_enabled() is self.grad:  # else within what has a derivative of its own, or none
            self.passed.append((place, session.tracer.ref(bare), bare.requires_grad))
            self.tensors.append(bare)
        return rows


class _AtSources(_Watched):
    """Gives what is sent."""

    def __init__(self, inner: Body, places: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(inner)
        self.name = f"{inner.name} at sources"
        self.first = {numbers[0]: i for i, numbers in enumerate(places.values())}
        self.sent: dict[int, Tensor] = {}

    def run(self, session: Session) -> Given:
        session.at_sources = True
        super().run(session)
        return Given([self.sent[i] for i in range(len(self.first))], [], len(self.first))

    def seen(self, place: int, rows: RowTensor, session: Session) -> Tensor:
        if place in self.first:
            self.sent[self.first[place]] = plain(rows)
        return rows


class _OnEdges(_Watched):
    """Reads what has arrived in place of what it computed."""

    def __init__(self, inner: Body, places: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(inner)
        self.names = {number: name for name, numbers in places.items() for number in numbers}

    def seen(self, place: int, rows: RowTensor, session: Session) -> Tensor:
        if place not in self.names:
            return rows
        arrived = move_rows(session, Gather("src"), plain(session.input(self.names[place])))
        return as_rows(arrived if rows.bare().requires_grad else arrived.detach(), EDGE, session)


# ---------------------------------------------------------------- where
def _find_cut(whole: Bound, held: frozenset[str], num_readers: int) -> Cut | None:
    captured, watched = whole.captured, list[_Noted]()

    def noted(one: Captured) -> Body:
        watched.append(_Noted(whole.make_body(one), grad=captured.modes[0]))
        return watched[-1]

    try:
        found = Bound(captured, noted, whole.roots).redo((), None)
        sent = _sent(captured, found, watched[-1].passed, (held, num_readers))
        if not sent:
            return None
        cut = _make_cut(captured, found, sent)
        if _is_same(found, sent, cut.bind(whole)[1].redo((), None)):
            return cut
        reason = "it looks at how its messages were made"
    except CaptureError as error:
        reason = error.reason
    except RuntimeError as error:  # of autograd, in a function that takes derivatives itself
        reason = str(error)
    logger.info("%s: rows of sources are sent as they are, not what it makes of them: %s", captured.name, reason)
    return None


@dataclass(frozen=True, eq=False)
class _Sent:
    """A value that is sent, where it is seen, and whether it has a gradient."""

    value: Value
    places: tuple[int, ...]
    has_grad: bool


def _sent(
    captured: Captured,
    found: Trace,
    passed: Sequence[tuple[int, Ref, bool]],
    columns_at: tuple[frozenset[str], int],
) -> dict[str, _Sent]:
    """What sources send beside columns that are read as they are, by the names under which it arrives."""
    (held, num_readers), columns = columns_at, {value.id: name for name, value in found.tape.inputs.items()}
    seen: dict[int, _Sent] = {}
    for place, ref, has_grad in passed:
        value = found.tape.values.get(ref.index)
        if value is not None and is_one_row_each(value):
            known = seen.get(value.id, _Sent(value, (), False))  # seen again where it was detached
            seen[value.id] = _Sent(value, (*known.places, place), known.has_grad or has_grad)

    def cost(value: Value) -> int | None:
        name = columns.get(value.id)
        if name is not None:
            has_grad = captured.modes[0] and captured.specs[name].requires_grad
            return 0 if name in held else value.row_bytes * (1 + has_grad)
        return num_readers * value.row_bytes * (1 + seen[value.id].has_grad) if value.id in seen else None

    chosen = [value for value in narrowest(_side(found), cost) if value.id not in columns]
    return {f"src:*{i}": seen[value.id] for i, value in enumerate(chosen)}


def _side(found: Trace) -> SourceSide:
    tape = found.tape
    known = {value.id for _, value in tape.lifted}
    known |= {value.id for name, value in tape.inputs.items() if value.space == SHARED and name != "$seed"}
    outputs = _outputs(found)
    return source_side(needed_ops(found.as_written, outputs), known, outputs)


def _outputs(found: Trace) -> set[int]:
    return {value.id for value in found.values(found.levels[0].outputs) if value is not None}


def _make_cut(captured: Captured, found: Trace, sent: Mapping[str, _Sent]) -> Cut:
    ids = {one.value.id for one in sent.values()}
    specs = {n: Spec(SOURCE, one.value.row_shape, one.value.dtype, one.has_grad) for n, one in sent.items()}
    return Cut(
        {name: one.places for name, one in sent.items()},
        _part(captured, f"{captured.name} at sources", _read(found, ids, ()), {}),
        _part(captured, captured.name, _read(found, _outputs(found), ids), specs),
    )


def _read(found: Trace, wanted: Iterable[int], given: Collection[int]) -> set[str]:
    """The names of inputs from which some values are made, where those are ``given``."""
    ops = needed_ops(found.as_written, wanted, given)
    used = {value.id for op in ops for value in op.operands()}
    return {name for name, value in found.tape.inputs.items() if value.id in used}


def _part(captured: Captured, name: str, read: set[str], arriving: Mapping[str, Spec]) -> Captured:
    """A capture of the same functions that reads something else, under the guards of the whole."""
    return replace(
        captured,
        name=name,
        specs=captured.specs | dict(arriving),
        feature_names=(*(n for n in captured.feature_names if n in read), *arriving),
        uses_seed="$seed" in read,
        oracle=None,
        programs={},
        pairs={},
        cuts={},
    )


# ---------------------------------------------------------------- whether it is the same function
def _is_same(whole: Trace, sent: Mapping[str, _Sent], on_edges: Trace) -> bool:
    """Whether outputs follow from what arrives as they did from what was computed in its place.

    They do not where a function looks further back, as one that takes derivatives of its messages.
    """
    numbers: dict[str, int] = {}
    stand_ins = {one.value.id: name for name, one in sent.items()}
    return _numbered(whole, stand_ins, numbers) == _numbered(on_edges, {}, numbers)


def _numbered(found: Trace, stand_ins: Mapping[int, str], numbers: dict[str, int]) -> list[int]:
    """Outputs as numbers, equal for what is computed alike; ``stand_ins``: rows of edges that arrive by a name."""
    tape, known = found.tape, dict[int, int]()

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    def word(leaf: object) -> object:
        return f"%{known[leaf.id]}" if isinstance(leaf, Value) else repr(leaf)

    names = {value.id: name for name, value in tape.inputs.items()}
    known.update((key, number(name)) for key, name in names.items())
    known.update((value.id, number(f"lifted:{i}")) for i, (_, value) in enumerate(tape.lifted))
    known.update((key, number(f"arrived {name}")) for key, name in stand_ins.items())
    for op in found.as_written:
        if op.target == Gather("src") and op.args[0].id in names:
            text = f"arrived {names[op.args[0].id]}"
        else:
            text = f"{op.target} {map_leaves((op.args, tuple(op.kwargs.items())), word)}"
        for i, value in enumerate(op.results):
            known.setdefault(value.id, number(text if len(op.results) == 1 else f"{text} {i}"))
    return [known[value.id] for value in found.values(found.levels[0].outputs) if value is not None]
