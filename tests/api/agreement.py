"""What the tests of message passing share: captured functions beside DGL's own batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.api.messages.propagate import _uncaptured, propagate
from vgraph.capture.capture import Captured, family_of
from vgraph.capture.capture_cache import Family, function_key
from vgraph.ir.topology import Topology

Frames = dict[str, dict[str, Tensor]]
TIGHT = 1e-10

# vertex 0 and 6 are isolated; 1 has a self loop, 2 two parallel in-edges; degrees 1, 2, 2, 3, 4
SRC = [3, 1, 0, 4, 5, 2, 3, 3, 1, 4, 5, 2]
DST = [2, 1, 3, 5, 4, 5, 2, 4, 5, 3, 4, 5]


def topology_of(src: Sequence[int], dst: Sequence[int], count: int) -> Topology:
    return Topology(torch.tensor(src), torch.tensor(dst), count, count)


def small_topology() -> Topology:
    return topology_of(SRC, DST, 7)


def random_frames(topology: Topology, shapes: Mapping[str, tuple[int, ...]]) -> Frames:
    """``shapes``: "node:h" or "edge:w" to the shape of a row; fp64, with gradient."""
    frames: Frames = {"src": {}, "dst": {}, "edge": {}}
    for full, row in shapes.items():
        kind, _, name = full.partition(":")
        rows = topology.num_edges if kind == "edge" else topology.num_dst
        made = torch.randn(rows, *row, dtype=torch.float64, requires_grad=True)
        if kind == "edge":
            frames["edge"][name] = made
        else:
            frames["src"][name] = frames["dst"][name] = made
    return frames


def leaves_of(frames: Frames, parameters: Sequence[Tensor]) -> list[Tensor]:
    found = {id(t): t for frame in frames.values() for t in frame.values()}
    return [t for t in (*found.values(), *parameters) if t.requires_grad]


def outputs_and_grads(
    run: Callable[[], Mapping[str, Tensor]], leaves: Sequence[Tensor]
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Outputs, and gradients of a weighted sum of them."""
    outputs = dict(run())
    floating = [t for t in outputs.values() if t.requires_grad]
    if not floating or not leaves:
        return outputs, []
    weights = [
        torch.linspace(0.3, 1.7, t.numel(), dtype=t.dtype).view(t.shape) * (i + 1) for i, t in enumerate(floating)
    ]
    total = torch.stack([(t * w).sum() for t, w in zip(floating, weights, strict=True)]).sum()
    return outputs, list(torch.autograd.grad(total, list(leaves), allow_unused=True))


def assert_agrees(
    topology: Topology,
    frames: Frames,
    message: Any,
    reduce: Any,
    parameters: Sequence[Tensor] = (),
    tolerance: float = TIGHT,
) -> None:
    """Outputs and every gradient equal those of DGL's own batches."""
    leaves = leaves_of(frames, parameters)
    found, grads = outputs_and_grads(lambda: propagate(topology, frames, message, reduce), leaves)
    wanted, wanted_grads = outputs_and_grads(lambda: _uncaptured(topology, frames, message, reduce), leaves)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        assert_close(found[name], tensor, tolerance, f"output {name}")
    for index, (mine, theirs) in enumerate(zip(grads, wanted_grads, strict=True)):
        zero = torch.zeros_like(leaves[index])
        assert_close(
            zero if mine is None else mine,
            zero if theirs is None else theirs,
            tolerance,
            f"gradient of leaf {index}",
        )


def assert_close(found: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    torch.testing.assert_close(
        found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def way_of(message: Any, reduce: Any) -> str:
    """How a message and a reduce function ran last: segments, degrees or uncaptured."""
    if not family_of_functions(message, reduce, "segments").refused:
        return "segments"
    refused = any(family_of_functions(message, reduce, "degree", d).refused for d in range(1, 10))
    return "uncaptured" if refused else "degrees"


def reasons(message: Any, reduce: Any) -> list[str]:
    """Why the ways that were not taken were not, for a test that fails."""
    tried = [("segments",), *(("degree", d) for d in range(1, 10))]
    found = [family_of_functions(message, reduce, *way).refused for way in tried]
    return [f"{one.error.reason} at {one.error.line}" for refused in found for one in refused]


def family_of_functions(message: Any, reduce: Any, *way: object) -> Family[Captured]:
    """What is known of two functions on graphs whose ids have 64 bits."""
    return family_of((function_key(message), function_key(reduce), *way, torch.int64))
