"""Session: one run of a function on examples, where its features come from and where its Moves go.

Takes: a tracer, what features look like. Gives: examples by name, moved rows. Runs once per function.
Source: Cavs section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.record.aliases import memory_of
from vgraph.capture.record.function_mode import beneath
from vgraph.capture.record.profiler import unseen
from vgraph.capture.record.row_counts import count_of
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.rows.row_mixing import check_rows
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, plain
from vgraph.capture.rows.slot_reductions import Context
from vgraph.errors import FunctionError
from vgraph.ir.moves import Move, SegmentReduce
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.user_line import recorded_line


@dataclass(frozen=True)
class Spec:
    """What an input looks like: its space, the shape of a row, dtype and whether it has gradient."""

    space: Space
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, space: Space, rows: Tensor) -> Spec:
        """What these rows look like."""
        return cls(space, tuple(rows.shape[1:]), rows.dtype, rows.requires_grad)


Specs = Callable[[str], Spec]


class Session(Context):
    """One run of a Body on examples: where its features come from and where its Moves go."""

    def __init__(self, tracer: Tracer, specs: Specs, mailbox: bool | int) -> None:
        self.tracer, self.specs = tracer, specs
        self.branched, self.counted, self.widens, self.per_vertex = False, False, False, False
        self.guesses_whole = False
        sizes = tracer.recording.sizes
        self.mailbox: tuple[int, int] | None = None
        self.row_sizes = frozenset(sizes.values())
        if mailbox is not False:
            slots = sizes[EDGE] // sizes[VERTEX]
            self.mailbox = (sizes[VERTEX], slots)
        self.num_slots_needed: set[int | tuple[int, str]] = set()  # k, or (k, type)
        self.num_vertices, self.asked = sizes[VERTEX], Asked()
        self.mixed: FunctionError | None = None  # where it reduced all rows to one number
        self.num_checked = 0  # ops, the first of the recording, that must not mix rows
        self.at_sources = False  # outputs are rows of edges that follow from their sources; made at those

    @property
    def sizes(self) -> Mapping[Space, int]:
        """How many rows the examples of every space have."""
        return self.tracer.recording.sizes

    def row_count(self, size: int) -> int:
        """A number of rows that the user asked for, made to notice comparisons."""
        return count_of(size, self)

    def made(self) -> list[Tensor]:
        """What the function has made of rows and of tensors that it reads."""
        recording = self.tracer.recording
        outside = {id(tensor) for tensor, _ in recording.lifted}
        return [tensor for tensor in recording.tensors if id(tensor) not in outside]

    def made_memory(self) -> set[object]:
        """Where that lies, but for what lies in a tensor that it reads."""
        outside = {memory_of(tensor) for tensor, _ in self.tracer.recording.lifted}
        return {memory_of(tensor) for tensor in self.made()} - outside - {None}

    def forget(self) -> None:
        """Lets go of the examples, and of the call's features: nodes of autograd may hold the session for longer."""
        self.tracer.forget()
        self.specs = _no_specs

    def note_checked(self) -> None:
        """What was recorded up to now must not mix rows."""
        self.num_checked = len(self.tracer.recording.records)

    def input(self, name: str) -> RowTensor:
        """The example for a feature, made at its first use."""
        with self.tracer.paused():  # looking a feature up may select its rows
            spec = self.specs(name)
        tensor = self.tracer.input_once(name, spec.space, spec.row_shape, spec.dtype, spec.requires_grad)
        return as_rows(tensor, spec.space, self)

    def child(self, name: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> RowTensor:
        """The example for a state of every child: what a Carry will feed."""
        has_grad = (dtype.is_floating_point or dtype.is_complex) and torch.is_grad_enabled()
        tensor = self.tracer.new_input(f"child:{name}", EDGE, row_shape, dtype, has_grad)
        return as_rows(tensor, EDGE, self)

    def leaf(self, name: str) -> Tensor:
        """The example that stands for an input; others are its twins, and no way leads through them all."""
        recording = self.tracer.recording
        return recording.tensors[recording.inputs[name].index]

    def _topological(self, name: str, space: Space) -> Tensor:
        return self.tracer.input_once(name, space, (), torch.int64, False)

    def ids(self, name: str, space: Space) -> RowTensor:
        """The user's ids of rows: ``$vertex_ids``, ``$edge_ids``, ``$src_ids`` or ``$dst_ids``."""
        return as_rows(self._topological(name, space), space, self)

    def in_degree(self) -> Tensor:
        return self._topological("$in_degree", VERTEX)

    def note_look(self, name: str) -> None:
        raise CaptureError(f"{name} looks at the data of a tensor", recorded_line())

    def note_whole(self, name: str) -> None:
        raise CaptureError(f"what {name} does to rows is not described", recorded_line())

    def note_mixed(self, error: FunctionError) -> None:
        self.mixed = self.mixed or error

    def note_branch(self) -> None:
        self.branched = True

    def note_count(self) -> None:
        self.counted = True
        self.branched |= not self.per_vertex  # a branch on a plain number is not noticed

    def is_numbering(self, numbers: Tensor) -> bool:
        with self.tracer.paused():  # examples of two sizes: a constant is right for one of them at most
            return torch.equal(numbers, torch.arange(numbers.shape[0], device=numbers.device))

    def slots(self) -> Tensor:
        return self._topological("$slot", EDGE)

    @unseen
    @beneath
    def run_move(self, move: Move, rows: Tensor) -> Any:
        """Records a Move; its example result is made of ones."""
        size = self.tracer.recording.sizes[move.result]
        if self.per_vertex:
            check_rows(rows, self.tracer.recording.sizes[move.source])
        two = isinstance(move, SegmentReduce) and move.info.picks
        with self.tracer.paused():
            out = torch.ones((size, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
            pair = (out, torch.zeros_like(out, dtype=torch.int64)) if two else out
        return self.tracer.record(move, (plain(rows),), {}, pair)


def _no_specs(name: str) -> Spec:
    raise AssertionError(f"{name} is asked for after the recording")
