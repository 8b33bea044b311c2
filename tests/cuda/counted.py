"""Torch's "meta" device in a GPU's place: nothing is computed, every launch and every copy between devices is noted.

What waits for a GPU (``.item()``, ``.cpu()``, ``nonzero``) is an error on "meta".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vgraph import compiler
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.loop_body import LoopOnDevice
from vgraph.runtime.cuda.driver import Launch
from vgraph.runtime.cuda.frontier_loop import DeviceFrontiers
from vgraph.runtime.cuda.kernel import DeviceKernel

LIMITS = (132, 232_448)  # of an H200: processors, bytes of a block's own memory


class Notes(TorchDispatchMode):
    """``launched``: kernels and torch's operators, in order; ``copied``: bytes from the CPU, and whether waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[str] = []
        self.copied: list[tuple[int, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [a for a in args if isinstance(a, Tensor)]
        made = func(*args, **(kwargs or {}))
        kinds = {t.device.type for t in given}
        name = str(func).removeprefix("aten.")
        if name.startswith(("_to_copy", "copy_")):
            ends = [*kinds, *([made.device.type] if isinstance(made, Tensor) else [])]
            if len(set(ends)) > 1:
                self.copied.append((given[-1].nbytes, not (kwargs or {}).get("non_blocking", False)))
        elif "meta" in kinds or (isinstance(made, Tensor) and made.device.type == "meta"):
            self.launched.append(name)
        return made

    def counted(self, *words: str) -> Counter[str]:
        """How many there were of each whose name holds one of the words, by that word."""
        return Counter(word for name in self.launched for word in words if word in name)


@contextmanager
def on_meta() -> Generator[Notes]:
    """While it lasts, "meta" is a kind of device with kernels."""
    notes = Notes()

    def functions(names: Sequence[str]) -> Mapping[str, Launch]:
        return {name: lambda *_, name=name: notes.launched.append(name) for name in names}

    def kernels(specs: Sequence[KernelSpec]) -> list[DeviceKernel]:
        _, loops = emit_cuda(specs)
        return [DeviceKernel(s, n, functions([e.name for e in n.entries])) for s, n in zip(specs, loops, strict=True)]

    def loops(emitted: Sequence[tuple[str, LoopOnDevice]]) -> list[DeviceFrontiers]:
        return [DeviceFrontiers(n, functions(n.names), lambda _: LIMITS) for _, n in emitted]

    with mock.patch.dict(compiler.TARGETS, meta=kernels), mock.patch.dict(compiler.LOOPS, meta=loops):
        yield notes
