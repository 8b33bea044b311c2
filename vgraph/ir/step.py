"""TrainingStep: the Program of one whole step of a dense model, and what its values are to the user.

Takes: a captured step (nothing itself). Gives: plain data for the partitioner and placement. Runs once per model.
Source: Tofu section 5 (the dataflow graph of forward, backward and update).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from vgraph.ir.program import Op, Program, Value

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"


@dataclass(frozen=True)
class OpNote:
    """Where an op comes from; ops of one ``pair`` are a forward operator and its gradients."""

    phase: str = FORWARD
    module: str = ""  # path of the user's module: layers.3.mlp
    call: int = 0  # how many calls of that module came before: the time step of an unrolled loop
    pair: int = -1


@dataclass(frozen=True, eq=False)
class History:
    """One tensor that an optimizer keeps beside a parameter, before and after the step."""

    parameter: str
    key: str
    before: Value
    after: Value
    initial: float  # what every element is before the first step


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """A Program with the names of its inputs and outputs.

    The Program's inputs are parameters, buffers, the batch, the optimizer's history and (with an
    optimizer) ``$lr``, in this order; its outputs are the loss, what the model returns beside it, the
    gradients in the order of ``gradients``, updated parameters, updated buffers and the history after
    the step. A forward alone has what the model returns first in place of the loss, and no gradients.
    """

    program: Program
    notes: tuple[OpNote, ...]  # one an op
    loss: Value
    parameters: Mapping[str, Value]
    gradients: Mapping[str, Value]  # of the parameters that the loss depends on
    buffers: Mapping[str, Value]
    inputs: tuple[Value, ...]  # the tensors of example_inputs, in their order
    updated: Mapping[str, Value] = field(default_factory=dict[str, Value])  # parameters after the update
    new_buffers: Mapping[str, Value] = field(default_factory=dict[str, Value])  # those that the step writes
    history: tuple[History, ...] = ()
    learning_rate: Value | None = None
    initial_rate: float = 0.0  # what the learning rate is until another is given
    constants: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])  # value id -> a tensor the model holds
    returned: tuple[Value, ...] = ()  # what the model returns beside the loss; outputs that follow it

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.program.ops

    @property
    def results_for_all(self) -> tuple[Value, ...]:
        """What every worker has at the end: what ops made of that which the model returns."""
        given = {entry.value.id for entry in self.program.inputs}
        return tuple(value for value in (self.loss, *self.returned) if value.id not in given)

    @property
    def swapped(self) -> frozenset[str]:
        """Buffers whose new contents are another input as it was, which must be read before that is written."""
        given = {entry.value.id for entry in self.program.inputs}
        return frozenset(name for name, value in self.new_buffers.items() if value.id in given)

    @property
    def overwrites(self) -> tuple[tuple[int, int], ...]:
        """(input, output) of the Program, where the output is the input after the step."""
        inputs = {given.value.id: i for i, given in enumerate(self.program.inputs)}
        outputs = {value.id: o for o, value in enumerate(self.program.outputs) if value is not None}
        pairs = [(self.parameters[name], value) for name, value in self.updated.items()]
        pairs += [(self.buffers[name], value) for name, value in self.new_buffers.items()]
        pairs += [(kept.before, kept.after) for kept in self.history]
        return tuple((inputs[before.id], outputs[after.id]) for before, after in pairs)

    @property
    def state_bytes(self) -> int:
        """Bytes of parameters, their gradients and the optimizer's history."""
        held = [*self.parameters.values(), *self.gradients.values(), *(h.before for h in self.history)]
        return sum(value.row_bytes for value in held)
