"""Repeated ops: what an operator of a step becomes is recorded once for all arguments that look alike.

Takes: operators on fake tensors, what records one. Gives: the same records, of other tensors. Runs at every operator
of a step; layers repeat, and a BatchNorm is taken apart into two dozen operators each time.
Source: value numbering (Cocke 1970), of whole sequences of operators.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.capture.record.aliases import Cell, Ref, ViewStep, geometry_of, leaves_of
from vgraph.capture.record.op_tables import Kwargs, Overload
from vgraph.capture.record.tracer import Record, Tracer
from vgraph.capture.step.fake_results import FakeResult, FakeResults, Results, memories_of, results_of
from vgraph.ir.program import map_leaves
from vgraph.ir.step import OpNote


@dataclass(frozen=True, eq=False)
class _Output:
    """A tensor that an operator gives: number ``held`` of those that are kept.

    ``number``: of its Ref; ``parent``: the argument that it is a view of by ``step``; ``twin``: the one that it is.
    """

    held: int
    number: int
    parent: int | None
    step: ViewStep | None
    twin: int | None


@dataclass(frozen=True, eq=False)
class _Sequence:
    """What an operator was recorded as. A Ref counts the tensors among the arguments, then those that are kept.

    ``outputs``: None is no new tensor; ``writes``: which arguments stand for which Ref afterwards.
    """

    records: tuple[Record, ...]
    tensors: tuple[Tensor, ...]
    results: Results
    outputs: tuple[_Output | None, ...]
    writes: tuple[tuple[int, int], ...]


_NEW = _Sequence((), (), Results((), tuple), (), ())


class RepeatingTracer(Tracer):
    """Records what it has seen before without running it."""

    def __init__(self) -> None:
        super().__init__({})
        self.fakes = FakeResults()
        self.notes: list[OpNote] = []
        self._sequences: dict[object, _Sequence | None] = {}  # None: it is run every time

    def forget(self) -> None:
        """Lets go of tensors, and of those that were remembered."""
        super().forget()
        self._sequences.clear()

    @abstractmethod
    def note_of_op(self) -> OpNote:
        """Where the op that is recorded comes from."""

    def repeated(self, func: Overload, args: Sequence[object], kwargs: Kwargs, run: Callable[[], object]) -> object:
        """What ``run`` gives and records, which is ``func(*args, **kwargs)``."""
        tensors: list[Tensor] = []
        key = self.fakes.key(func, args, kwargs, tensors)
        if key is None or not all(map(self.is_known, tensors)):
            return run()
        cells = [self._cells[id(tensor)] for tensor in tensors]
        if any(cell.is_stale for cell in cells):
            return run()
        about = (key, *_modes(), *_relations(tensors, cells))
        known = self._sequences.get(about, _NEW)
        if known is _NEW:
            return self._first(about, tensors, cells, run, lambda: self.fakes.key(func, args, kwargs, []) == key)
        return run() if known is None else self._again(known, tensors, cells)

    def _first(
        self,
        about: object,
        tensors: Sequence[Tensor],
        cells: Sequence[Cell],
        run: Callable[[], object],
        is_as_it_was: Callable[[], bool],
    ) -> object:
        """Runs what is new, and remembers it where it only makes records."""
        recording, seen = self.recording, self._seen()
        first, num_records, num_written = len(recording.tensors), len(recording.records), len(self.written)
        refs, memories = [cell.ref for cell in cells], memories_of(tensors)
        out = run()
        self._sequences[about] = None
        results = results_of(out, tensors, memories)
        roots = {id(self._cells[id(tensor)].root) for tensor in self.written[num_written:]}
        writes_to_views = any(cell.parent is not None and id(cell.root) in roots for cell in cells)
        if results is None or writes_to_views or seen != self._seen() or not is_as_it_was():
            return out
        numbers = {ref.index: number for number, ref in enumerate(refs)}
        kept = recording.tensors[first:]
        numbers |= {first + place: len(refs) + place for place in range(len(kept))}
        try:
            records = [_numbered(record, numbers) for record in recording.records[num_records:]]
            outputs = [
                None if item is None or item.given is not None else self._output(tensor, item, kept, cells, numbers)
                for tensor, item in zip(leaves_of(out), results.items, strict=True)
            ]
            changed = [(place, cell.ref) for place, cell in enumerate(cells) if cell.ref is not refs[place]]
            writes = [(place, numbers[ref.index]) for place, ref in changed]
        except KeyError:  # it reads, or gives, what is neither an argument nor new
            return out
        self._sequences[about] = _Sequence(tuple(records), tuple(kept), results, tuple(outputs), tuple(writes))
        return out

    def _seen(self) -> tuple[int, ...]:
        """How much there is beside records."""
        recording = self.recording
        return recording.num_randoms, len(recording.inputs), len(recording.lifted), len(recording.constants)

    def _output(
        self,
        tensor: object,
        item: FakeResult,
        kept: Sequence[Tensor],
        cells: Sequence[Cell],
        numbers: dict[int, int],
    ) -> _Output:
        """What stands for a result; a view of all of a tensor in between is as good as that.

        Raises:
            KeyError: it is a part of one, or was there before.
        """
        held = {id(one): place for place, one in enumerate(kept)}[id(tensor)]
        places = {id(cell): place for place, cell in enumerate(cells)}
        cell = self._cells[id(tensor)]
        parent = None if cell.parent is None else places.get(id(cell.parent))
        if cell.parent is not None and parent is None and not (item.is_new and item.is_dense(kept[held])):
            raise KeyError("a part of what is not given")
        number = numbers[self._aliases.current(cell).index]
        return _Output(held, number, parent, cell.step, places.get(id(cell)))

    def _again(self, known: _Sequence, tensors: Sequence[Tensor], cells: Sequence[Cell]) -> object:
        """Records what is known of these tensors."""
        recording, note, line = self.recording, self.note_of_op(), self.line_now()
        first = len(recording.tensors)
        refs = [cell.ref for cell in cells]
        refs += [Ref(first + place) for place in range(len(known.tensors))]
        recording.tensors += known.tensors

        def now(leaf: object) -> object:
            return refs[leaf.index] if type(leaf) is Ref else leaf

        for record in known.records:
            results = tuple([refs[ref.index] for ref in record.results])
            args = map_leaves(record.args, now)
            recording.records.append(Record(record.target, args, record.kwargs, results, record.returns_sequence, line))
        self.notes += [note] * len(known.records)
        for place, number in known.writes:
            self.written.append(tensors[place])
            self._aliases.write(cells[place], refs[number])
        made = self.fakes.make(known.results, tensors)
        for tensor, output in zip(made, known.outputs, strict=True):
            if output is not None and tensor is not None:
                recording.tensors[first + output.held] = tensor
                self._stand_for(tensor, output, refs, cells)
        return known.results.collect(made)

    def _stand_for(self, tensor: Tensor, output: _Output, refs: Sequence[Ref], cells: Sequence[Cell]) -> None:
        if output.twin is not None:
            self._cells[id(tensor)] = cells[output.twin]
            return
        cell = self._cells[id(tensor)] = Cell(refs[output.number], tensor)
        self._by_geometry[geometry_of(tensor)] = tensor
        if output.parent is not None and output.step is not None:
            self._aliases.add_view(cell, cells[output.parent], output.step)


def _modes() -> tuple[object, ...]:
    """What may change how an operator is taken apart, beside its arguments."""
    casts = [torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda")]
    return (torch.is_grad_enabled(), *casts)


def _relations(tensors: Sequence[Tensor], cells: Sequence[Cell]) -> tuple[object, ...]:
    """Beside the looks of arguments what their records depend on: which are one, or views of one."""
    numbers: dict[int, int] = {}
    found: list[object] = []
    for tensor, cell in zip(tensors, cells, strict=True):
        found += (numbers.setdefault(id(cell), len(numbers)), numbers.setdefault(id(cell.root), len(numbers)))
        found += (tensor.requires_grad, cell.parent is None)
    return tuple(found)


def _numbered(record: Record, numbers: dict[int, int]) -> Record:
    """The same record on the numbers of a sequence."""

    def number(leaf: object) -> object:
        return Ref(numbers[leaf.index]) if isinstance(leaf, Ref) else leaf

    if any(isinstance(leaf, Ref) for leaf in leaves_of(tuple(record.kwargs.values()))):
        raise KeyError("a tensor is passed by name")
    results = tuple([Ref(numbers[ref.index]) for ref in record.results])
    args = map_leaves(record.args, number)
    return Record(record.target, args, record.kwargs, results, record.returns_sequence, record.line)
