"""Again: a captured function on a topology on which it has run, where nothing has to be found out any more.

Takes: features where they lie, the functions of a call. Gives: outputs; None where a guard does not hold, and then
the capture is looked for as at a first call. Runs at every call, where a small graph pays for each question that is
asked again (ADR 0024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

import torch
from torch import Tensor, nn

from vgraph.capture.body import Body
from vgraph.capture.capture import Bound, Captured, is_watched
from vgraph.capture.guards.watched import code_of
from vgraph.capture.record.modes import current_modes
from vgraph.ir.topology import Topology
from vgraph.runtime.autograd import Call, Pair, run_alone, run_pair
from vgraph.runtime.call_rows import CallContext
from vgraph.runtime.compiled import CompiledProgram

Frames = Mapping[str, Mapping[str, Tensor]]  # "src", "dst" and "edge" to features
MakeBody = Callable[[Sequence[Any]], Body]  # of the functions of a call; it holds no feature
Outputs = list[Tensor | None]
Results = dict[str, Tensor]
_AGAIN = "again"  # under which they are kept with a topology
_MOST_CODES, _MOST_ALIKE = 64, 4  # and how many, for functions of one code differ by what they close over
_PLAIN = (Tensor, nn.Parameter)
_NO_SUBSETS: Mapping[str, tuple[Tensor, int]] = {}


@dataclass(eq=False, slots=True)
class _Column:
    """A feature's place, and what its guards compare."""

    end: str
    name: str
    dtype: torch.dtype
    requires_grad: bool
    row_shape: torch.Size


@dataclass(eq=False, slots=True)
class _Again:
    """One capture on one topology, which holds it; ``codes``: of the functions, so that no others have their ids."""

    codes: tuple[CodeType, ...]
    captured: Captured
    columns: tuple[_Column, ...]
    make_body: MakeBody
    runs: Pair | CompiledProgram

    def run(self, topology: Topology, frames: Frames, roots: Sequence[object]) -> Outputs | None:
        """The outputs; None: something is not as it was."""
        captured, device = self.captured, topology.device
        if captured.is_forgotten or captured.underivable or current_modes(device) != captured.modes:
            return None
        given = self._given(frames, device)
        lifted = None if given is None else captured.check(roots)
        if given is None or lifted is None:
            return None
        tensors = (*given, *lifted)
        try:
            for tensor in tensors:
                tensor.data_ptr()
        except RuntimeError:  # a transform of torch.func has left what stands for a tensor
            return None
        make_body, runs = self.make_body, self.runs
        bound = Bound(captured, lambda _: make_body(roots), roots)
        call = Call(bound, CallContext(topology, "once", _NO_SUBSETS), (), captured.names)
        return run_pair(call, runs, tensors) if isinstance(runs, Pair) else run_alone(call, runs, tensors)

    def _given(self, frames: Frames, device: torch.device) -> list[Tensor] | None:
        """The features, if they look as they did and lie where kernels read them."""
        given = list[Tensor]()
        for column in self.columns:
            rows = frames[column.end].get(column.name)
            if (
                rows is None
                or rows.dtype is not column.dtype
                or rows.requires_grad is not column.requires_grad
                or rows.shape[1:] != column.row_shape
                or rows.layout is not torch.strided
                or type(rows) not in _PLAIN
                or rows.device != device
            ):
                return None
            given.append(rows)
        return given


def run_again(topology: Topology, frames: Frames, roots: Sequence[object], way: str) -> Results | None:
    """What functions give that have run in this way on this topology; None: they must be looked for.

    No lock is held: what another thread's recording puts in the place of a number is no number to a guard.
    """
    kept = topology.kept.get(_AGAIN)
    if kept is None or is_watched():
        return None
    key = (way, *[id(code_of(root)) for root in roots])
    for again in kept.get(key, ()):
        outputs = again.run(topology, frames, roots)
        if outputs is not None:
            facts = again.captured.facts
            return {name: rows for name, rows in zip(facts, outputs, strict=True) if rows is not None}
    return None


def keep_again(topology: Topology, bound: Bound, tensors: Sequence[Tensor], way: str, make_body: MakeBody) -> None:
    """Keeps with a topology what has just run on it, if guards alone decide whether it holds for a call."""
    captured, codes = bound.captured, tuple([code_of(root) for root in bound.roots])
    may_differ = captured.oracle or captured.asked or captured.uses_seed or captured.meanwhile.pending
    is_plain = all(type(tensor) in _PLAIN for tensor in tensors) and not captured.modes[1]
    if captured.replayed is not None or may_differ or not is_plain or None in codes or topology.halo is not None:
        return
    wrt = tuple([name for name, tensor in zip(captured.names, tensors, strict=True) if tensor.requires_grad])
    runs = bound.pair((), wrt) if captured.modes[0] and wrt else bound.plain(())
    columns = tuple([_column(name, tensor) for name, tensor in zip(captured.feature_names, tensors, strict=False)])
    kept = topology.keep(_AGAIN, dict[tuple[str | int, ...], list[_Again]])
    if len(kept) >= _MOST_CODES:
        kept.clear()  # functions come and go, the graph stays
    alike = kept.setdefault((way, *map(id, codes)), [])
    alike.insert(0, _Again(cast("tuple[CodeType, ...]", codes), captured, columns, make_body, runs))
    del alike[_MOST_ALIKE:]


def _column(full: str, tensor: Tensor) -> _Column:
    end, _, name = full.partition(":")
    return _Column(end, name, tensor.dtype, tensor.requires_grad, tensor.shape[1:])
