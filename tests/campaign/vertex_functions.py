"""Random vertex functions on random forests, chains and DAGs, beside a loop over vertices in plain torch.

Forward, backward and double backward, kernels on and off, one thread and two, all frontiers or one vertex at a time.
"""

from __future__ import annotations

import contextlib
import random
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import vgraph
from tests.campaign.drawn_vertices import Case, Data, make_case
from tests.campaign.grammar import Shape
from tests.campaign.judging import MOVES, Found, differences, differentiated, draw_ways, rooms_of
from vgraph import VGraphError

FULL_COUNT = 3_000
SHORT_COUNT = 10
KERNELS = 0.12  # of the cases are compiled, too


# ---------------------------------------------------------------- the reference: vertex by vertex
def _mean(slots: Tensor) -> Tensor:
    return slots.mean(0) if slots.shape[0] else slots.sum(0)


def _logsumexp(slots: Tensor) -> Tensor:
    return slots.logsumexp(0) if slots.shape[0] else slots.sum(0) - torch.inf


def _most(slots: Tensor) -> Tensor:
    """The first of the largest in edge order; zero where there is none."""
    if not slots.shape[0]:
        return slots.sum(0)
    first = (slots == slots.amax(0, keepdim=True)).to(torch.int64).argmax(0, keepdim=True)
    return slots.gather(0, first).squeeze(0)


_PLAIN = {"mean": _mean, "logsumexp": _logsumexp, "most": _most}


class _PlainVertex:
    """One vertex: rows have no dim of rows, slots one of children."""

    def __init__(
        self,
        data: Data,
        place: tuple[int, int],
        edges: list[int],
        children: list[dict[str, Tensor]],
        dtype: torch.dtype,
    ) -> None:
        (self.graph, self.vertex), self.edges, self.children = place, edges, children
        self.data, self.dtype, self.in_degree = data, dtype, torch.tensor(len(edges))

    def pull(self, name: str) -> Tensor:
        rows = self.data.features[name]
        if name != "p":
            return rows[self.vertex]
        at = (self.data.at == self.vertex).nonzero().squeeze(1)
        return rows[at[0]] if at.shape[0] else rows.new_zeros(rows.shape[1:])

    def pull_edge(self, name: str) -> Tensor:
        return self.data.features[name][self.edges]

    def pull_graph(self, name: str) -> Tensor:
        return self.data.features[name][self.graph]

    def gather(self, k: int | None = None, default: float = 0.0) -> _Gathered:
        return _Gathered(self, k, default)


@dataclass
class _Gathered:
    of: _PlainVertex
    k: int | None
    default: float

    def __getitem__(self, asked: tuple[str, Shape]) -> Tensor:
        name, shape = asked
        rows = [child[name] for child in self.of.children]
        if self.k is None:
            return torch.stack(rows) if rows else torch.zeros((0, *shape), dtype=self.of.dtype)
        if self.k < len(rows):
            return rows[self.k]
        return torch.full(shape, self.default if rows else 0.0, dtype=self.of.dtype)


def expected(case: Case, data: Data, steps: Sequence[Any], absent: torch.dtype) -> dict[str, Tensor]:
    """Children before parents; zeros for what a type of vertices does not push; absent states are of ``absent``."""
    outputs: dict[int, dict[str, Tensor]] = {}
    vertices = edges = 0
    for graph, (src, dst, count) in enumerate(data.graphs):
        if case.direction == "reverse":
            src, dst = dst, src
        states: dict[int, dict[str, Tensor]] = {}
        while len(states) < count:
            for vertex in range(count):
                mine = [e for e, parent in enumerate(dst) if parent == vertex]
                if vertex in states or any(src[e] not in states for e in mine):
                    continue
                place, children = (graph, vertices + vertex), [states[src[e]] for e in mine]
                seen = _PlainVertex(data, place, [edges + e for e in mine], children, absent)
                step, holder = steps[data.types[vertices + vertex]]
                states[vertex], outputs[vertices + vertex] = step(holder, seen)
        vertices, edges = vertices + count, edges + len(src)
    like = {name: row for one in outputs.values() for name, row in one.items()}
    return {
        name: torch.stack([outputs[v].get(name, torch.zeros_like(row)) for v in range(vertices)])
        for name, row in like.items()
    }


# ---------------------------------------------------------------- vgraph
def found_by(case: Case, data: Data, module: Any) -> dict[str, Tensor]:
    graph = vgraph.batch(
        [
            vgraph.graph((torch.tensor(s, dtype=torch.int64), torch.tensor(d, dtype=torch.int64)), num_nodes=n)
            for s, d, n in data.graphs
        ]
    )
    features: dict[str, Any] = dict(data.features)
    features["p"] = vgraph.at(features["p"], data.at)
    if len(case.classes) > 1:
        features["type"] = torch.tensor(data.types)
    return module(graph, **features)


# ---------------------------------------------------------------- a case
def check(seed: int, *, given: bool = False) -> str | None:
    """What is wrong with the case of a seed; ``given``: the shapes of states are, whatever was drawn."""
    case = make_case(seed)
    if given:
        case.given = {s.name: s.shape for s in case.states}
    draw = random.Random(f"ways of {seed}")
    order = draw.choice((1, 2, 2))
    try:
        try:
            exact = [_exact(case, data, order) for data in case.data]
        except RuntimeError:  # torch has no second derivative of some operators, as of flattened empty slots
            order = 1
            exact = [_exact(case, data, order) for data in case.data]
    except Exception:
        return _told(seed, case, "the reference", [traceback.format_exc(limit=-3)])
    for way in draw_ways(draw, KERNELS):
        with way.running():
            module, parameters = case.module(case.dtype, way.policy)
            for number, data in enumerate(case.data):
                leaves = [*data.leaves(), *parameters]

                def evaluate(data: Data = data, module: Any = module) -> dict[str, Tensor]:
                    return _named(case, data, found_by(case, data, module))

                try:
                    found = differentiated(evaluate, leaves, order)
                except VGraphError:
                    if not case.given:  # what cannot be inferred may be asked for
                        return check(seed, given=True)
                    return _told(seed, case, f"{way}, batch {number}", [traceback.format_exc(limit=-4)])
                except Exception:
                    return _told(seed, case, f"{way}, batch {number}", [traceback.format_exc(limit=-4)])
                wrong = differences(found, exact[number])
                if wrong:
                    wrong = differences(found, exact[number], _rooms(case, data, order, exact[number]))
                if wrong:
                    return _told(seed, case, f"{way}, batch {number}", wrong)
    return None


def _named(case: Case, data: Data, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what types push that none of these vertices has."""
    if len(case.classes) == 1:
        return found
    present = set(data.types)
    return {n: t for n, t in found.items() if any(f"{n}=" in case.plains[kind].splitlines()[-1] for kind in present)}


def _exact(
    case: Case,
    data: Data,
    order: int,
    dtype: torch.dtype = torch.float64,
    eps: float = 0.0,
    draw: int = 0,
    absent: torch.dtype | None = None,
) -> Found:
    steps, parameters = case.steps(dtype, _PLAIN)
    data = data.converted(dtype, eps, draw)
    return differentiated(lambda: expected(case, data, steps, absent or dtype), [*data.leaves(), *parameters], order)


def _rooms(case: Case, data: Data, order: int, exact: Found) -> list[float]:
    eps = torch.finfo(case.dtype).eps
    others = [_exact(case, data, order, eps=4 * eps, draw=draw) for draw in range(MOVES)]
    if case.dtype != torch.float64:
        others.append(_exact(case, data, order, dtype=case.dtype))
    else:  # states that nothing but themselves gives a dtype have torch's default; other states are the same with it
        with contextlib.suppress(RuntimeError):  # two dtypes in one product: something else tells
            others.append(_exact(case, data, order, absent=torch.get_default_dtype()))
    return rooms_of(exact, others)


def _told(seed: int, case: Case, where: str, wrong: list[str]) -> str:
    kinds = f"{case.direction}, states {[(s.name, s.shape) for s in case.states]}, given {sorted(case.given)}"
    return "\n".join([f"seed {seed}, {kinds}, {case.dtype}, {where}:", *wrong, *case.classes, ""])


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch, about variances of few numbers
        return [told for case in range(seed, seed + count) if (told := check(case)) is not None]
