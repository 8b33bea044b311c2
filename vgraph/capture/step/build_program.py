"""From a recorded step to its Program: values, ops in order, what nobody reads left out.

Takes: a StepTracer and what the step ended with. Gives: a TrainingStep. Runs once per model.
Source: Tofu section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.tracer import DETERMINANTS
from vgraph.capture.step.optimizer import Update
from vgraph.capture.step.tracer import StepTracer
from vgraph.ir.program import Input, Op, Program, Target, Value, op_name
from vgraph.ir.space import SHARED
from vgraph.ir.step import History, OpNote, TrainingStep
from vgraph.ir.verify import verify

aten = torch.ops.aten

# Copies are left out and so are the layouts that they made; a view takes what it is given.
_ANY_LAYOUT: Mapping[str, Target] = {"view": aten.reshape.default, "_unsafe_view": aten.reshape.default}
_RESHAPES = frozenset({*_ANY_LAYOUT, "reshape"})
_COPIES = frozenset({"copy", "clone", "contiguous", "_to_copy", "to"})


def _refuse_other_look(name: str, before: Value, after: Value) -> None:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        raise CaptureError(
            f"its forward leaves the buffer {name} as {after.dtype}{list(after.row_shape)}, "
            f"which was {before.dtype}{list(before.row_shape)}",
            "",
            "let a buffer keep its shape and dtype: write into a part of one that is long enough",
        )


@dataclass(frozen=True, eq=False)
class Finished:
    """The tensors that a step began with and those it ended with."""

    loss: Tensor
    parameters: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]  # what now has their names: a forward may have put another tensor there
    inputs: Sequence[Tensor]
    update: Update
    others: Sequence[Tensor] = ()  # what the model returns beside it


def build_step(tracer: StepTracer, end: Finished) -> TrainingStep:
    """The TrainingStep of everything recorded."""
    return _Builder(tracer).build(end)


class _Builder:
    def __init__(self, tracer: StepTracer) -> None:
        self.tracer, self.recording = tracer, tracer.recording
        self.values: dict[int, Value] = {}
        self._drop_copies()
        self._drop_equal_reshapes()
        self.by_name = {name: self._value(ref) for name, ref in self.recording.inputs.items()}

    def build(self, end: Finished) -> TrainingStep:
        loss = self._now(end.loss)
        gradients = {name: self._now(g) for name, g in end.gradients.items()}
        updated = {name: self._now(end.parameters[name]) for name in end.update.updated}
        buffers = {name: self.by_name[f"buffer:{name}"] for name in end.buffers}
        current = {name: self._now(b) for name, b in end.buffers.items()}
        for name, value in current.items():
            _refuse_other_look(name, buffers[name], value)
        self._refuse_written(end, updated)
        written = {name: value for name, value in current.items() if value is not buffers[name]}
        history = tuple(
            History(k.parameter, k.key, self.by_name[f"history:{k.parameter}:{k.key}"], self._now(k.after), k.initial)
            for k in end.update.history
        )
        others = [self._now(tensor) for tensor in end.others]
        outputs = (
            loss,
            *others,
            *gradients.values(),
            *updated.values(),
            *written.values(),
            *(h.after for h in history),
        )
        ops, notes = self._ops(outputs)
        constants = {self._value(ref).id: tensor for tensor, ref in self.recording.lifted}
        inputs = [Input(value, name) for name, value in self.by_name.items()]
        inputs += [Input(self._value(ref), f"constant:{i}") for i, (_, ref) in enumerate(self.recording.lifted)]
        program = Program("training_step", tuple(inputs), ops, outputs)
        verify(program)
        return TrainingStep(
            program=program,
            notes=notes,
            loss=loss,
            parameters={name: self.by_name[f"parameter:{name}"] for name in end.parameters},
            gradients=gradients,
            buffers=buffers,
            inputs=tuple(self.by_name[f"input:{i}"] for i in range(len(end.inputs))),
            updated=updated,
            new_buffers=written,
            history=history,
            learning_rate=self.by_name.get("$lr"),
            initial_rate=end.update.rate,
            constants=constants,
            returned=tuple(others),
        )

    def _refuse_written(self, end: Finished, updated: Mapping[str, Value]) -> None:
        """A parameter that the model itself writes to would be as before in the next step."""
        for name, parameter in end.parameters.items():
            if name not in updated and self._now(parameter) is not self.by_name[f"parameter:{name}"]:
                raise CaptureError(
                    f"its forward writes to the parameter {name}",
                    "",
                    "write to parameters between steps, under torch.no_grad(); leave max_norm of an embedding out",
                )

    def _now(self, tensor: Tensor) -> Value:
        return self._value(self.tracer.ref(tensor))

    def _value(self, ref: Ref) -> Value:
        found = self.values.get(ref.index)
        if found is None:
            tensor = self.recording.tensors[ref.index]
            found = self.values[ref.index] = Value(ref.index, SHARED, tensor.dtype, tuple(tensor.shape))
        return found

    def _ops(self, outputs: Iterable[Value]) -> tuple[tuple[Op, ...], tuple[OpNote, ...]]:
        """Backwards from the outputs: what nobody reads is not computed."""
        needed = {value.id for value in outputs}
        kept: list[tuple[Op, OpNote]] = []
        for record, note in zip(reversed(self.recording.records), reversed(self.tracer.notes), strict=True):
            if not any(ref.index in needed and self._value(ref).id == ref.index for ref in record.results):
                continue
            line, target = self.tracer.line_of(note, record.line), record.target
            op = record.as_op(self._value, line, _ANY_LAYOUT.get(op_name(target), target))
            needed.update([value.id for value in op.operands()])
            kept.append((op, note))
        kept.reverse()
        return tuple(op for op, _ in kept), tuple(note for _, note in kept)

    def _drop_copies(self) -> None:
        """In a Program nothing is written to, so a copy of the same dtype is its source.

        Only a determinant asks how its operand lies.
        """
        laid_out = {record.args[0] for record in self.recording.records if op_name(record.target) in DETERMINANTS}
        for record in self.recording.records:
            if op_name(record.target) not in _COPIES or record.results[0] in laid_out:
                continue
            if operands := [leaf for leaf in record.args if isinstance(leaf, Ref)]:
                source, result = self._value(operands[-1]), self._value(record.results[0])
                if source.dtype == result.dtype and source.shape == result.shape:
                    self.values[record.results[0].index] = source

    def _drop_equal_reshapes(self) -> None:
        """What several layers reshape alike is one value: what is fetched of it for one of them serves all.

        Rows of a batch become rows of a matrix before every linear layer, such as those of queries, keys and values.
        """
        known: dict[tuple[object, ...], Value] = {}
        for record, note in zip(self.recording.records, self.tracer.notes, strict=True):
            if op_name(record.target) in _RESHAPES:
                result = self._value(record.results[0])
                (source,) = [self._value(leaf) for leaf in record.args if isinstance(leaf, Ref)]
                first = known.setdefault((note.phase, source.id, result.shape, result.dtype), result)
                self.values[record.results[0].index] = first
