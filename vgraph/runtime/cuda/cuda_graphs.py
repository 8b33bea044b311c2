"""Replay: a call of a Program recorded once as a CUDA graph, and launched as a whole where the like comes again.

Takes: a call's inputs and plan. Gives: its Outcome, or None where it is to be evaluated. Runs at every step. Static
buffers: inputs are copied to where they were, and so are the index tensors of another schedule of the same form (the
same numbers of rows everywhere), so that graphs of one form share one recording.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import ReferenceType, WeakValueDictionary, ref

import torch
from torch import Tensor

from vgraph.ir.schedule import Schedule
from vgraph.runtime.outcome import Outcome

logger = logging.getLogger("vgraph")
MOST_RECORDINGS = 32  # of one Program
_LAST_SEEN = 1024  # forms of calls that are remembered
_BY_ADDRESS = ("saved:", "state", "lifted:")  # parameters and what a recorded call has saved lie where they lay
Form = tuple[Hashable, ...]  # all that calls must have in common to share a recording
Evaluate = Callable[[Mapping[str, Tensor], Schedule], Outcome]
# Runs work, and gives its result and what repeats it.
Record = Callable[[Callable[[], Outcome]], tuple[Outcome, Callable[[], None]]]


@dataclass(eq=False)
class _Use:
    """A recording's results are in use until this is forgotten: it stands for the lease of a call's memory."""

    recording: Recording
    buffer: Tensor

    def __post_init__(self) -> None:
        self.recording.is_used = True

    def __del__(self) -> None:
        self.recording.is_used = False


@dataclass(eq=False)
class Recording:
    """One recorded call: where its inputs are copied to, the schedule that it reads, what it gave."""

    given: Mapping[str, Tensor]
    twin: Schedule
    exact: ReferenceType[Schedule] | None  # the schedule whose very numbers it depends on; None: any of its form
    outcome: Outcome
    repeat: Callable[[], None]
    is_used: bool = False

    def fits(self, schedule: Schedule) -> bool:
        return not self.is_used and (self.exact is None or self.exact() is schedule)

    def run(self, inputs: Mapping[str, Tensor], schedule: Schedule) -> Outcome:
        if self.exact is None:
            self.twin.refill(schedule)
        for name, place in self.given.items():
            place.copy_(inputs[name])
        self.repeat()
        outputs = [None if o is None else o.clone() for o in self.outcome.outputs]
        saved = [tensor.detach() for tensor in self.outcome.saved]
        return replace(self.outcome, outputs=outputs, saved=saved, lease=_Use(self, torch.empty(0, device="cpu")))


_kept: WeakValueDictionary[int, Recording] = WeakValueDictionary()  # by address of what they save


@dataclass(eq=False)
class CudaGraphs:
    """Of one Program. ``evaluate(inputs, schedule)``: runs it on a schedule of the call's form."""

    known: dict[Form, list[Recording]] = field(default_factory=dict[Form, list[Recording]])
    seen: dict[Form, None] = field(default_factory=dict[Form, None])
    is_full: bool = False

    def call(
        self, record: Record, inputs: Mapping[str, Tensor], schedule: Schedule, evaluate: Evaluate
    ) -> Outcome | None:
        """The Outcome; None: the call is the first of its kind, or none that can be recorded."""
        key = self._key(inputs, schedule)
        if key is None:
            return None
        found = next((r for r in self.known.get(key, ()) if r.fits(schedule)), None)
        if found is None:
            if not self._is_wanted(key):
                return None
            found = self._record(record, inputs, schedule, evaluate)
            self.known.setdefault(key, []).append(found)
        return found.run(inputs, schedule)

    def _key(self, inputs: Mapping[str, Tensor], schedule: Schedule) -> Form | None:
        """All that a recording depends on beside what is copied."""
        device = schedule.order.src_rows.device
        words: list[Hashable] = [schedule.form]
        for name, tensor in inputs.items():
            if tensor.device != device or tensor.layout != torch.strided:
                return None
            word: Form = (name, tuple(tensor.shape), tensor.dtype)
            if name.startswith(_BY_ADDRESS):
                address = tensor.data_ptr()
                if not name.startswith("lifted:") and address not in _kept:
                    return None
                word += (address, tensor.stride())
            words.append(word)
        return tuple(words)

    def _is_wanted(self, key: Form) -> bool:
        """Whether the like was seen before, and there is room."""
        if key not in self.seen:
            self.seen[key] = None
            if len(self.seen) > _LAST_SEEN:
                del self.seen[next(iter(self.seen))]
            return False
        if sum(map(len, self.known.values())) < MOST_RECORDINGS:
            return True
        if not self.is_full:
            self.is_full = True
            logger.info("%d forms of one call are recorded: others run launch by launch", MOST_RECORDINGS)
        return False

    @staticmethod
    def _record(record: Record, inputs: Mapping[str, Tensor], schedule: Schedule, evaluate: Evaluate) -> Recording:
        """A first run, not recorded, tells whether the schedule's own numbers decide how it runs."""
        given = {n: torch.empty_like(t, memory_format=torch.contiguous_format) for n, t in _copied(inputs)}
        for name, place in given.items():
            place.copy_(inputs[name])
        static = {**{name: tensor.detach() for name, tensor in inputs.items()}, **given}
        twin = schedule.twin()
        evaluate(static, twin)
        is_exact = twin.is_read
        twin = twin if is_exact else schedule.twin()
        outcome, repeat = record(lambda: evaluate(static, twin))
        made = Recording(given, twin, ref(schedule) if is_exact else None, outcome, repeat)
        _kept.update((t.data_ptr(), made) for t in outcome.saved)
        return made


def _copied(inputs: Mapping[str, Tensor]) -> Sequence[tuple[str, Tensor]]:
    return [(name, tensor) for name, tensor in inputs.items() if not name.startswith(_BY_ADDRESS)]
