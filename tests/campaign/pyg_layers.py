"""Random MessagePassing layers, accelerated, beside the same layers as PyG runs them.

Forward, backward and double backward, kernels on and off; then with an edge that was changed in place, and with
another attribute of the layer. Where PyG raises, so must the accelerated layer.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from tests.campaign.drawn_pyg import EDGE, NODE, SHARED, Case, Data, edges_of, make_case
from tests.campaign.judging import MOVES, Found, differences, differentiated, draw_ways, moved, rooms_of

FULL_COUNT = 4_000
SHORT_COUNT = 3
KERNELS = 0.25  # of the cases are compiled, too

Stage = tuple[str, Data, Any, float]  # what is tried, with which edges, and the layer's scale


def _stages(case: Case) -> Iterator[Stage]:
    """Calls of a layer, one after the other; each side makes its own edges."""
    for number, data in enumerate(case.data):
        edges = edges_of(data)
        yield f"call {number}", data, edges, 1.5
        if data.kind in ("plain", "strided") and data.edges.shape[1]:
            with torch.no_grad():
                edges[0, -1] = edges[0, 0]
            yield f"call {number} after an edge was changed", data, edges, 1.5
        yield f"call {number} with another scale", data, edges, 0.5


def called(layer: nn.Module, data: Data, edges: Any) -> dict[str, Tensor]:
    """What a layer gives, by name."""
    nodes = {name: (data.src[name], data.dst[name]) if data.two else data.src[name] for name in NODE}
    shared = {name: data.shared[name] for name in SHARED}
    out = layer(edges, data.size, **nodes, **{name: data.edge[name] for name in EDGE}, **shared)
    return {"out": out[0], "alpha": out[1]} if isinstance(out, tuple) else {"out": out}


def _differentiated(layer: nn.Module, data: Data, edges: Any, order: int) -> Found:
    leaves = [*data.leaves(), *layer.parameters()]
    return differentiated(lambda: called(layer, data, edges), leaves, order)


class _Reference:
    """PyG's layer, in double precision, on the numbers of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.layer = case, case.layer(torch.float64)
        self.order = 1 if case.dtype == torch.bfloat16 else 2  # of which rounded second derivatives are mostly noise

    def __call__(self, stage: Stage) -> Found | Exception:
        """What PyG gives, or what it raises; without second derivatives where torch has none."""
        _, data, edges, self.layer.scale = stage
        data = data.converted(_double)
        try:
            if self.order > 1:
                try:
                    return _differentiated(self.layer, data, edges, 2)
                except RuntimeError:
                    self.order = 1
            return _differentiated(self.layer, data, edges, 1)
        except Exception as error:
            return error

    def rooms(self, stage: Stage, exact: Found) -> list[float]:
        """How far the layer itself carries roundings of its inputs."""
        _, data, edges, scale = stage
        eps = torch.finfo(self.case.dtype).eps
        others: list[Found] = []
        for draw in range(MOVES):
            near = data.converted(_double).converted(lambda t, draw=draw: moved(t, 4 * eps, draw))
            others.append(_differentiated(self.layer, near, edges, self.order))
        if self.case.dtype != torch.float64:
            rounded = self.case.layer(self.case.dtype)
            rounded.scale = scale
            others.append(_differentiated(rounded, data, edges, self.order))
        return rooms_of(exact, others)


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def check(seed: int) -> str | None:
    """What is wrong with the case of a seed."""
    case, draw = make_case(seed), random.Random(f"ways of {seed}")
    for way in draw_ways(draw, KERNELS):
        with way.running(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of graphs without edges
            layer, reference = vgraph.accelerate(case.layer(case.dtype)), _Reference(case)
            for stage, alike in zip(_stages(case), _stages(case), strict=True):
                wrong = _compared(layer, stage, reference, alike)
                if wrong:
                    told = f"seed {seed}, {case.dtype}, {way}, {stage[0]}, {stage[1].kind}, {stage[1].count}:"
                    return "\n".join([told, *wrong, case.text, ""])
    return None


def _compared(layer: nn.Module, stage: Stage, reference: _Reference, alike: Stage) -> list[str]:
    """What an accelerated layer gives otherwise than PyG; ``alike``: the stage with edges of the reference's own."""
    exact = reference(alike)
    _, data, edges, layer.scale = stage
    try:
        found = _differentiated(layer, data, edges, reference.order)
    except Exception as error:
        if isinstance(exact, Exception):
            return [] if type(error) is type(exact) else [f"PyG raises {exact!r}", f"vgraph raises {error!r}"]
        return [traceback.format_exc(limit=-4)]
    if isinstance(exact, Exception):
        return [f"PyG raises {exact!r}, which the accelerated layer does not"]
    return differences(found, exact) and differences(found, exact, reference.rooms(alike, exact))


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    return [told for case in range(seed, seed + count) if (told := check(case)) is not None]
