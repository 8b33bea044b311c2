"""Lost writes: what a forward leaves in attributes of its modules, which a recorded step does not leave there again.

Takes: a module, before and after its call. Gives: a warning. Runs once per recording.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from torch import nn

logger = logging.getLogger("vgraph")
_OF_TORCH = frozenset(vars(nn.Module()))


@contextmanager
def lost_writes_told(model: nn.Module) -> Generator[None]:
    """Warns of each attribute of the user's modules that is another object after the block than before."""
    before = _attributes(model)
    yield
    lost = [path for path, value in _attributes(model).items() if path not in before or before[path] is not value]
    if lost:
        _warn(type(model).__name__, ", ".join(lost))


def _attributes(model: nn.Module) -> dict[str, object]:
    """What the user's modules hold beside parameters, buffers and modules."""
    return {
        f"{path}.{name}" if path else name: value
        for path, module in model.named_modules()
        if not type(module).__module__.startswith(("torch.", "vgraph."))
        for name, value in vars(module).items()
        if name not in _OF_TORCH
    }


@cache
def _warn(model: str, names: str) -> None:
    """Once for each model."""
    logger.warning(
        "the forward of %s leaves something in %s: a plan does not, and each of its calls finds there what was there "
        "when it was recorded; make a state a buffer: self.register_buffer(name, tensor)",
        model,
        names,
    )
