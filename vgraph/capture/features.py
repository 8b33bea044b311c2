"""Features of a call by full name, looked up where they lie, without making any of them.

Takes: how to find one, and what it looks like. Gives: a mapping that knows the graph's device. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from vgraph.capture.session import Spec
from vgraph.ir.space import EDGE, SOURCE, VERTEX

ENDS = {"src": SOURCE, "dst": VERTEX, "edge": EDGE}  # what the rows of a message's and a reduction's features are


class Features(Mapping[str, Tensor]):
    """A call's features by full name (``vertex:x``, ``src:h``), looked up where they lie; the graph's device."""

    def __init__(
        self,
        find: Callable[[str], Tensor | None],
        specs: Callable[[str], Spec],
        device: torch.device,
        names: Callable[[str], Sequence[str]] = lambda kind: (),
    ) -> None:
        self.find, self.specs, self.device, self.names = find, specs, device, names

    @classmethod
    def of_ends(
        cls,
        frames: Mapping[str, Mapping[str, Tensor]],
        device: torch.device,
        names: Callable[[str], Sequence[str]],
    ) -> Features:
        """Features of sources, destinations and edges: "src", "dst" and "edge" to what they have."""

        def find(full: str) -> Tensor | None:
            kind, _, name = full.partition(":")
            return frames[kind].get(name)

        return cls(find, _specs_of_ends(find), device, names)

    @classmethod
    def of_known_ends(cls, frames: Mapping[str, Mapping[str, Tensor]], device: torch.device) -> Features:
        """The same of tensors that are there, without names to ask for."""
        find = {f"{kind}:{name}": rows for kind, frame in frames.items() for name, rows in frame.items()}.get
        return cls(find, _specs_of_ends(find), device)

    def __getitem__(self, name: str) -> Tensor:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def of_kind(self, names: Iterable[str], specs: Mapping[str, Spec]) -> list[Tensor] | None:
        """The features of these names, if all of them are there and look as they did."""
        given: list[Tensor] = []
        for name in names:
            tensor, spec = self.find(name), specs[name]
            if (
                tensor is None
                or tensor.dtype is not spec.dtype
                or tensor.requires_grad is not spec.requires_grad
                or tensor.shape[1:] != spec.row_shape
            ):
                return None
            given.append(tensor)
        return given

    def __iter__(self) -> Iterator[str]:
        raise TypeError("features are looked up by name")

    def __len__(self) -> int:
        raise TypeError("features are looked up by name")


def _specs_of_ends(find: Callable[[str], Tensor | None]) -> Callable[[str], Spec]:
    """What features look like whose names begin with the end that they have rows of."""

    def spec(full: str) -> Spec:
        rows = find(full)
        assert rows is not None, full
        return Spec.of(ENDS[full.partition(":")[0]], rows)

    return spec
