"""StepResult: what a divided step gives where all its workers run in one process.

Takes: nothing (a plain value). Gives: whole tensors. Made once a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class StepResult:
    """What one step of all workers gave, as whole tensors, in the order of ``model.parameters()``.

    ``grads`` has None for a parameter that the loss does not depend on; ``parameters`` are those
    after the update, if the plan has an optimizer; ``state`` continues from here.

    Attributes:
        loss: the loss, a scalar.
        grads: the gradient of every parameter; None where the loss does not depend on it.
        parameters: the parameters after the update, if the plan has an optimizer; else as they were.
        buffers: buffers by name, after the step.
        state: what ``run_in_process(state=...)`` continues from.
        returned: all that the model returns, as it returns it.

    Source: none; it is what a training loop reads after ``loss.backward()`` and ``optimizer.step()``.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> x = torch.ones(4, 8)
        >>> result = vgraph.parallelize(Model(8, 8), (x,), num_workers=2).run_in_process(x)
        >>> result.loss.shape, [tuple(grad.shape) for grad in result.grads]
        (torch.Size([]), [(8, 8), (8,)])
    """

    loss: Tensor
    grads: tuple[Tensor | None, ...]
    parameters: tuple[Tensor, ...]
    buffers: dict[str, Tensor]
    state: dict[int, Tensor] = field(repr=False)
    returned: object = field(default=None, repr=False)
