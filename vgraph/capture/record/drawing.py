"""Drawing: what a recording makes of torch's operators that draw random numbers.

Takes: such an operator. Gives: a distribution whose numbers are keyed by rows, and which of a recording's draws are
the same. Runs once per function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import bare
from vgraph.capture.record.modes import generator_state, move_generator_on
from vgraph.capture.record.op_tables import Kwargs, Overload
from vgraph.user_line import recorded_line

DRAW_BEFORE = "draw its numbers before the call and pass them as a tensor"  # a cure
_KNOWN: dict[str, tuple[str, bool, tuple[float, ...]]] = {
    # operators: the distribution, whether they write to their first argument, and parameters that a call may leave out
    "bernoulli_": ("bernoulli", True, ()),
    "bernoulli": ("bernoulli", False, ()),
    "rand_like": ("uniform", False, ()),
    "rand": ("uniform", False, ()),
    "uniform_": ("uniform", True, (0.0, 1.0)),
    "randn_like": ("normal", False, ()),
    "randn": ("normal", False, ()),
    "normal_": ("normal", True, (0.0, 1.0)),
    "exponential_": ("exponential", True, (1.0,)),
}
_DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


@dataclass(frozen=True, eq=False)
class Drawing:
    """Numbers to draw; ``like`` has their shape, if a tensor tells it, and ``writes`` says that they are put there."""

    distribution: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    parameters: tuple[object, ...]
    like: Tensor | None
    writes: bool


def drawing_of(name: str, func: Overload, args: tuple[Any, ...], kwargs: Kwargs) -> Drawing | str:
    """What a call draws; a string says why there are no such numbers that are keyed by rows.

    Raises: what torch raises for parameters that no distribution has.
    """
    if name not in _KNOWN:
        return f"{name} has no counterpart that is keyed by rows"
    if kwargs.get("generator") is not None:
        return f"{name} draws from a generator of its own"
    distribution, writes, defaults = _KNOWN[name]
    like = args[0] if args and isinstance(args[0], Tensor) else None
    sizes: Any = args[0] if like is None else like.shape
    shape = tuple(sizes)
    dtype = kwargs.get("dtype") or (like.dtype if like is not None else torch.get_default_dtype())
    if dtype not in _DTYPES and (dtype.is_complex or not distribution.startswith("bernoulli")):
        return f"{name} of {dtype} has no counterpart that is keyed by rows"
    if writes and like is not None:
        func(bare(like).new_empty(0), *args[1:])  # draws none, but refuses what torch refuses
    if name == "bernoulli" and len(args) == 1:
        return Drawing("bernoulli_tensor", shape, dtype, args, like, writes)
    given = args[1:]  # all of a distribution's, or none; a call may leave out the last ones
    return Drawing(distribution, shape, dtype, (*given, *defaults[len(given) :]) if given else (), like, writes)


class Draws:
    """Numbers the draws of one recording: those that find torch's generator in the same state draw the same.

    So a checkpoint, which puts the generator back before it runs its function again in the backward, gets the mask of
    the forward. Outside of the recording the generator is where it was, however much was drawn.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._seed, self._seeded_between, self._depth = torch.initial_seed(), False, 0
        self._left = set[bytes]()  # states after a draw
        self._outside: Tensor | None = None  # the state that is put back
        self._within: Tensor | None = None  # the state in which the recording goes on

    def number(self) -> int:
        """That of a draw which is made now.

        Raises:
            CaptureError: the function itself has seeded the generator, so that each of its calls draws alike.
        """
        state = generator_state()
        if self._seeded_between or (state not in self._left and _is_seeded(state, self._seed)):
            raise CaptureError("torch's generator is seeded before it draws", recorded_line(), DRAW_BEFORE)
        found = self._numbers.setdefault(state, len(self._numbers))
        self._move_on()
        return found

    def _move_on(self) -> None:
        move_generator_on()
        self._left.add(generator_state())

    def go_on(self) -> None:
        """Begins, or goes on after ``pause``."""
        self._depth += 1
        if self._depth > 1:
            return
        self._outside = torch.get_rng_state()
        if self._within is None:
            self._move_on()  # from where it may just have been seeded, which so is told from what the function seeds
        else:
            self._seeded_between = torch.initial_seed() != self._seed
            torch.set_rng_state(self._within)

    def pause(self) -> None:
        """Puts torch's generator back, unless somebody else has drawn meanwhile."""
        self._depth -= 1
        if self._outside is not None and not self._depth and generator_state() in self._left:
            self._within = torch.get_rng_state()
            torch.set_rng_state(self._outside)


def _is_seeded(state: bytes, seed: int) -> bool:
    """Whether a state of torch's generator is one of another seed, or of this one when nothing was drawn."""
    return torch.initial_seed() != seed or state == generator_state(torch.Generator().manual_seed(seed))
