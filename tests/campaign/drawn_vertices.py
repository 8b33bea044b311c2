"""Random functions of one vertex, as a user would write them, and batches of graphs to run them on.

Takes: a seed. Gives: a Case; every line has two texts, one in the words of vgraph and one of one vertex in plain torch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import vgraph
from tests.campaign.grammar import NUM_IDS, Shape, Store, Var, Writer, namespace
from tests.campaign.judging import moved

# name, of what, and what its numbers are; "p" stands at some vertices only
FEATURES = [
    ("x", "vertex", "float"), ("y", "vertex", "float"), ("k", "vertex", "int"), ("q", "vertex", "bool"),
    ("w", "edge", "float"), ("e", "edge", "int"), ("g", "graph", "float"), ("p", "subset", "float"),
]  # fmt: skip


@dataclass
class State:
    """What is scattered under a name."""

    name: str
    shape: Shape


@dataclass
class Data:
    """Graphs of a batch and their features; ``at``: the vertices that have the feature ``p``."""

    graphs: list[tuple[list[int], list[int], int]]
    features: dict[str, Tensor]
    at: Tensor
    types: list[int]

    def leaves(self) -> list[Tensor]:
        return [t for t in self.features.values() if t.requires_grad]

    def converted(self, dtype: torch.dtype, eps: float = 0.0, draw: int = 0) -> Data:
        def change(t: Tensor) -> Tensor:
            if not t.is_floating_point():
                return t
            same = t.detach().to(dtype).requires_grad_(t.requires_grad)
            return moved(same, eps, draw) if eps else same

        return Data(self.graphs, {n: change(t) for n, t in self.features.items()}, self.at, self.types)


@dataclass
class Case:
    """Functions of one vertex as text, one a type; batches of graphs."""

    classes: list[str]
    plains: list[str]
    states: list[State]
    given: dict[str, Shape]
    stores: list[Store]
    direction: str
    data: list[Data]
    dtype: torch.dtype

    def module(self, dtype: torch.dtype, policy: str) -> tuple[Any, list[Tensor]]:
        """The module that a user would write, and its parameters."""
        options: dict[str, Any] = {"direction": self.direction, "policy": policy}
        parts: list[Any] = []
        for text, store in zip(self.classes, self.stores, strict=True):
            names = namespace(store, dtype) | {"vgraph": vgraph}
            exec(compile(text, "<campaign>", "exec"), names)
            part = names["Random"](states=self.given or None, **(options if len(self.classes) == 1 else {}))
            for name in store.made:
                setattr(part, name, names[name])
            parts.append(part)
        whole = parts[0] if len(parts) == 1 else vgraph.ByType(dict(enumerate(parts)), **options)
        pairs = zip(parts, self.stores, strict=True)
        return whole, [p for part, store in pairs for p in _parameters(part, list(store.made))]

    def steps(self, dtype: torch.dtype, words: Mapping[str, Any]) -> tuple[list[Any], list[Tensor]]:
        """The same as functions of one vertex in plain torch, which know ``words``; parameters in the same order."""
        found: list[Any] = []
        parameters: list[Tensor] = []
        for text, store in zip(self.plains, self.stores, strict=True):
            names = namespace(store, dtype) | words
            holder = nn.Module()
            for name in store.made:
                setattr(holder, name, names[name])
            exec(compile(text, "<reference>", "exec"), names)
            found.append((names["step"], holder))
            parameters += _parameters(holder, list(store.made))
        return found, parameters


def _parameters(module: Any, names: Sequence[str]) -> list[Tensor]:
    things = [getattr(module, name) for name in names]
    return [t for thing in things for t in (thing.parameters() if isinstance(thing, nn.Module) else [thing])]


def make_case(seed: int) -> Case:
    draw = random.Random(seed)
    rounded = draw.choices([torch.float64, torch.float32], [9, 1])[0]
    width = draw.choice((1, 2, 3, 4, 5, 8))
    usual = [(width,), (width,), (width,), (), (1,), (2, width), (draw.choice((2, 3, 6, 17)),)]
    shapes = {name: draw.choice(usual) if what == "float" else () for name, _, what in FEATURES}
    states = [State(f"s{i}", draw.choice(usual)) for i in range(draw.choice((1, 1, 2, 3)))]
    types = draw.choice((1, 1, 1, 1, 2, 3))
    stores = [Store(draw, "self.", rounded) for _ in range(types)]
    most = draw.choice((0, 1, 2, 3))  # the children that every vertex with children has at least
    written = [_Function(draw, store, shapes, states, most, f"o{kind}") for kind, store in enumerate(stores)]
    texts = [function.text() for function in written]
    direction = draw.choice(("forward", "forward", "reverse"))
    data = [_draw_data(draw, shapes, rounded, types, most, size) for size in (draw.choice((1, 3, 5)), 6)]
    if direction == "reverse":
        for batch in data:
            batch.graphs = [(dst, src, count) for src, dst, count in batch.graphs]
    is_given = draw.random() < 0.5 or any(function.is_free for function in written)
    given = {s.name: s.shape for s in states} if is_given else {}
    return Case(
        [user for user, _ in texts], [plain for _, plain in texts], states, given, stores,
        direction, data, rounded,
    )  # fmt: skip


def _draw_data(
    draw: random.Random, shapes: Mapping[str, Shape], rounded: torch.dtype, types: int, most: int, size: int
) -> Data:
    made = torch.Generator().manual_seed(draw.randrange(1 << 30))
    graphs = [_draw_graph(draw, draw.randrange(1, size + 2), most) for _ in range(draw.choice((1, 2, 3)))]
    counts = {"vertex": sum(n for *_, n in graphs), "edge": sum(len(s) for s, *_ in graphs), "graph": len(graphs)}
    at = torch.tensor(sorted(draw.sample(range(counts["vertex"]), draw.randrange(1, counts["vertex"] + 1))))
    counts["subset"] = at.shape[0]
    features: dict[str, Tensor] = {}
    for name, of, what in FEATURES:
        shape = (counts[of], *shapes[name])
        if what == "int":
            features[name] = torch.randint(0, NUM_IDS, shape, generator=made)
        elif what == "bool":
            features[name] = torch.rand(shape, generator=made) > 0.5
        else:
            numbers = torch.randn(shape, generator=made, dtype=torch.float64).to(rounded)
            features[name] = numbers.requires_grad_(draw.random() < 0.85)
    return Data(graphs, features, at, [draw.randrange(types) for _ in range(counts["vertex"])])


def _draw_graph(draw: random.Random, count: int, least: int) -> tuple[list[int], list[int], int]:
    """Children before parents after a permutation of ids; a vertex has no children, or ``least`` and more."""
    kind = draw.choice(("tree", "dag", "chain", "forest", "none"))
    names = list(range(count))
    draw.shuffle(names)
    edges: list[tuple[int, int]] = []
    free = []
    for vertex in range(count):
        below = list(range(vertex))
        if kind == "chain" and vertex:
            below = [vertex - 1] * max(1, least)
        elif kind in ("tree", "forest"):
            many = min(len(free), draw.choice((0, 2, 3) if kind == "tree" else (0, 1, 2, 4)))
            below = draw.sample(free, many)
            free = [v for v in free if v not in below] + [vertex]
        elif kind == "dag" and vertex:
            below = draw.choices(below, k=draw.randrange(0, 4))
        else:
            below = []
        edges += [(names[child], names[vertex]) for child in below] if len(below) >= least else []
    draw.shuffle(edges)
    return [s for s, _ in edges], [d for _, d in edges], count


class _Function:
    """One forward(v) while it is written."""

    def __init__(
        self, draw: random.Random, store: Store, shapes: Mapping[str, Shape], states: Sequence[State], most: int,
        pushes: str,
    ) -> None:  # fmt: skip
        self.pushes, self.is_free = pushes, False  # whether a state's shape is nowhere but in states
        self.draw, self.store, self.shapes, self.states, self.most = draw, store, shapes, states, most
        self.writer = Writer(draw, store)

    def text(self) -> tuple[str, str]:
        writer, draw = self.writer, self.draw
        for _ in range(draw.randrange(1, 4)):
            self._pulled()
        for state in self.states:
            if draw.random() < 0.85:  # else it is scattered for nobody
                self._gathered(state)
        for _ in range(draw.randrange(1, 4)):
            writer.grow(draw.randrange(0, 3))
            self._reduced()
        writer.grow(draw.randrange(0, 4))
        scattered = [(state.name, self._fitting(state)) for state in self.states]
        rows = [v for v in writer.known if v.on == "row" and v.kind == "float"]
        chosen = draw.sample(rows, min(len(rows), draw.choice((1, 2, 3))))
        pushed = [(self.pushes + letter, v.name) for letter, v in zip("abc", chosen, strict=False)]
        if draw.random() < 0.5:
            pushed.append(("last", scattered[-1][1]))
        return self._joined(scattered, pushed)

    def _joined(self, scattered: list[tuple[str, str]], pushed: list[tuple[str, str]]) -> tuple[str, str]:
        one, two = (", ".join(f"{n}={t}" for n, t in named) for named in (scattered, pushed))
        user = [line for line, _ in self.writer.lines] + [f"v.scatter({one})", f"v.push({two})"]
        plain = [line for _, line in self.writer.lines] + [f"return dict({one}), dict({two})"]
        body = "\n        ".join(user)
        head = "class Random(vgraph.VertexFunction):\n    def forward(self, v):\n        "
        return head + body, "def step(self, v):\n    " + "\n    ".join(plain)

    # ------------------------------------------------------------ where rows come from
    def _pulled(self) -> Var:
        draw, put = self.draw, self.writer.put
        name, of, what = draw.choice(FEATURES)
        shape = self.shapes[name]
        if draw.random() < 0.1:
            return put("v.in_degree.to(DTYPE)", (), tied=True)
        verb = {"edge": "pull_edge", "graph": "pull_graph"}.get(of, "pull")
        tied = of in ("graph", "subset")
        return put(f'v.{verb}("{name}")', shape, on="slot" if of == "edge" else "row", kind=what, tied=tied)

    def _gathered(self, state: State) -> Var:
        draw, put = self.draw, self.writer.put
        if draw.random() < 0.25:
            k = draw.randrange(0, 3)
            if k < self.most and draw.random() < 0.6:
                text = f'v.gather({k})["{state.name}"]'
            else:
                default = draw.choice(("0.0", "0.7", "-1.0"))
                text = f'v.gather({k}, default={default})["{state.name}"]'
            return put(
                text, state.shape, plain=_with_shape(text, state), tied=True, free=1 if len(state.shape) == 1 else 2
            )
        text = f'v.gather()["{state.name}"]'
        return put(
            text,
            state.shape,
            plain=_with_shape(text, state),
            on="slot",
            tied=True,
            free=1 if len(state.shape) == 1 else 2,
        )

    def _reduced(self) -> Var | None:
        m = self.writer.choose(on="slot")
        if m is None:
            return None
        sure = [(u, p) for u, p, needs_no_ties in REDUCTIONS if not (needs_no_ties and m.tied)]
        user, plain = self.draw.choice(sure)
        return self.writer.put(user.format(m=m.name), m.shape, m, plain=plain.format(m=m.name), on="row", tied=True)

    def _fitting(self, state: State) -> str:
        """A row of the state's shape that stays small; made if there is none."""
        writer, draw = self.writer, self.draw
        fits = [v for v in writer.known if v.on == "row" and v.kind == "float" and v.shape == state.shape]
        if fits and draw.random() < 0.8:
            x = fits[-1]
        else:
            x = self._of_width(state)
        self.is_free |= x.free > 0
        return writer.put(f"torch.tanh({x.name})", x.shape, x).name

    def _of_width(self, state: State) -> Var:
        writer, store = self.writer, self.store
        rows = [v for v in writer.known if v.on == "row" and v.kind == "float"]
        x = rows[-1] if rows else writer.put("v.in_degree.to(DTYPE)", (), tied=True)
        if len(x.shape) == 0:
            x = writer.put(f"{x.name}.unsqueeze(-1)", (1,), x)
        while len(x.shape) > 1:
            x = writer.put(f"{x.name}.flatten(-2)", (*x.shape[:-2], x.shape[-2] * x.shape[-1]), x)
        size = torch.Size(state.shape).numel()
        x = writer.put(f"{x.name} @ {store.tensor(x.shape[-1], size)}", (size,), x, free=x.free if x.free == 2 else 0)
        if len(state.shape) == 0:
            return writer.put(f"{x.name}.squeeze(-1)", (), x)
        return x if len(state.shape) == 1 else writer.put(f"{x.name}.unflatten(-1, {state.shape})", state.shape, x)


def _with_shape(text: str, state: State) -> str:
    """The reference is told what a vertex without children would be given."""
    return text.replace(f'["{state.name}"]', f'["{state.name}", {state.shape}]')


# The user's text, the reference's on (children, ...), and whether it picks one of several equal numbers.
REDUCTIONS: list[tuple[str, str, bool]] = [
    *[("{m}.sum()", "{m}.sum(0)", False)] * 4,
    ("{m}.mean()", "mean({m})", False),
    ("{m}.prod()", "{m}.prod(0)", False),
    ("{m}.logsumexp().clamp_min(-4.0)", "logsumexp({m}).clamp_min(-4.0)", False),
    ("({m}.softmax() * {m}).sum()", "({m}.softmax(0) * {m}).sum(0)", False),
    ("(torch.tanh({m}) * 1.2).prod()", "(torch.tanh({m}) * 1.2).prod(0)", False),
    ("(({m} * {m}).sum() + 0.1).sqrt()", "(({m} * {m}).sum(0) + 0.1).sqrt()", False),
    ("({m} - {m}.mean()).square().sum()", "({m} - mean({m})).square().sum(0)", False),
    ("torch.sum({m})", "{m}.sum(0)", False),
    ("({m}.log_softmax().exp() * {m}).sum()", "({m}.log_softmax(0).exp() * {m}).sum(0)", False),
    ("{m}.max()", "most({m})", True),
    ("{m}.min()", "-most(-{m})", True),
    ("{m}.abs().max()", "most({m}.abs())", True),
]
