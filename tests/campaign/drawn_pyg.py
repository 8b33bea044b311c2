"""Random MessagePassing layers of PyG, as a user would write them, and graphs with features to run them on.

Takes: a seed. Gives: a Case: the text of a class, and arguments of several calls of its layer.
"""

from __future__ import annotations

import importlib
import random
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tests.campaign.grammar import NUM_IDS, Shape, Store, Var, Writer, namespace

# Of the nodes at one end of an edge, of edges, and of neither; what their numbers are.
NODE = {"x": "float", "p": "float", "s": "float", "k": "int"}
EDGE = {"a": "float", "w": "float", "t": "int"}
SHARED = {"m": "float", "c": "float"}
# What PyG gives its functions besides: statements that use it, for a variable of a shape (..., {v}).
OF_SEGMENTS = [
    "softmax({v}, index, num_nodes=size_i)",
    "softmax({v}, index, ptr, size_i, dim=0)",
    'scatter({v}, index, 0, size_i, reduce="sum")[index]',
    'scatter({v}, index, dim=0, dim_size=size_i, reduce="mean").index_select(0, index)',
    "{v} / degree(index, size_i, dtype=DTYPE){ones}",
    "{v} - torch.zeros(size_i, *{v}.shape[1:], dtype=DTYPE).index_add_(0, index, {v})[index]",
    "{v} * (size_i + dim_size)",
    "{v} * {v}.size(0)",
    "{v} + index{ones}",
    "{v} * (index == edge_index_j){ones}",
    "{v} / degree(edge_index_j, size_j, dtype=DTYPE)[edge_index_j]{ones}",
    "{v} * (edge_index[0] - edge_index[1]){ones}",
    "{v} - degree(edge_index[1], size[1], dtype=DTYPE)[edge_index[1]]{ones} * edge_index.size(0)",
]
AGGREGATIONS = ["sum", "add", "mean", "max", "min", "softmax", "std", "var", "powermean", "median", "mul"]
SEVERAL = [["sum", "std", "mean"], ["max", "mean", "softmax", "min"]]
# Of equal numbers each library takes another one's gradient, and how far they spread is the root of a rounding error.
NO_TIES = {"max", "min", "median", "std", "var"}
BY_HAND = [
    'return scatter(inputs, index, dim=0, dim_size=dim_size, reduce="{reduce}")',
    "return inputs.new_zeros(dim_size, *inputs.shape[1:]).index_add_(0, index, inputs)",
    "return inputs.new_zeros((dim_size, *inputs.shape[1:])).index_add(0, index, inputs * 2) / 3",
    "weights = softmax(inputs, index, num_nodes=dim_size)\n"
    'return scatter(weights * inputs, index, dim=0, dim_size=dim_size, reduce="sum")',
    "total = scatter(inputs, index, 0, dim_size)\n"
    "return total / (1 + degree(index, dim_size, DTYPE).view(-1, *[1] * (inputs.dim() - 1)))",
    'middle = scatter(inputs, index, 0, dim_size, reduce="mean")\n'
    "return scatter((inputs - middle[index]).square(), index, 0, dim_size, 'sum')",
    "return super().aggregate(inputs.tanh(), index, ptr=ptr, dim_size=dim_size)",
    "both = [scatter(part, index, 0, dim_size) for part in (inputs, inputs.square())]\nreturn torch.cat(both, -1)",
    "ids = index.view(-1, *[1] * (inputs.dim() - 1)).expand_as(inputs)\n"
    "return torch.zeros(dim_size, *inputs.shape[1:], dtype=DTYPE).scatter_add(0, ids, inputs)",
]


@cache
def pyg() -> Any:
    """PyG, whose import uses what torch has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch_geometric.nn")
        return importlib.import_module("torch_geometric")


@dataclass
class Data:
    """Arguments of one call: edges, and features by name; ``two``: nodes at either end are others.

    ``kind``: how the edges are given; ``size``: what is given for it.
    """

    edges: Tensor
    count: tuple[int, int]
    src: dict[str, Tensor]
    dst: dict[str, Tensor]
    edge: dict[str, Tensor]
    shared: dict[str, Tensor]
    kind: str = "plain"
    size: tuple[int, int] | None = None
    two: bool = False

    def leaves(self) -> list[Tensor]:
        frames = (self.src, self.dst, self.edge, self.shared)
        found = {id(t): t for frame in frames for t in frame.values()}
        return [t for t in found.values() if t.requires_grad]

    def converted(self, change: Callable[[Tensor], Tensor]) -> Data:
        """With every floating feature changed."""

        def frame(of: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: change(t) if t.is_floating_point() else t for name, t in of.items()}

        src = frame(self.src)
        dst = frame(self.dst) if self.two else src
        return replace(self, src=src, dst=dst, edge=frame(self.edge), shared=frame(self.shared))


@dataclass
class Case:
    """The text of ``class Layer``, what it holds, and calls of it, one after the other.

    ``in_module``: whether it lies in a module, where vgraph finds PyG's functions that it has something in place of.
    """

    text: str
    store: Store
    data: list[Data]
    dtype: torch.dtype
    in_module: bool

    def layer(self, dtype: torch.dtype) -> nn.Module:
        """A new one, with parameters in ``dtype``."""
        names = namespace(self.store, dtype)
        things = {name: names.pop(name) for name in self.store.made}
        utils = {name: getattr(pyg().utils, name) for name in ("degree", "scatter", "softmax")}
        names |= {"MessagePassing": pyg().nn.MessagePassing, **utils}
        if self.in_module:
            module = ModuleType("drawn_layer")
            vars(module).update(names, __name__="drawn_layer")
            sys.modules["drawn_layer"], names = module, vars(module)
        exec(compile(self.text, "<campaign>", "exec"), names)
        layer = names["Layer"]()
        for name, thing in things.items():
            setattr(layer, name, thing)
        return layer


# ---------------------------------------------------------------- a case
def make_case(seed: int) -> Case:
    draw = random.Random(seed)
    rounded = draw.choices([torch.float64, torch.float32, torch.bfloat16], [8, 1.3, 0.7])[0]
    store = Store(draw, "self.", rounded)
    leads = draw.random() < 0.5  # rows are the dim -2, as by default, or 0
    forward = draw.random() < 0.75
    two = draw.random() < 0.25
    shapes = _draw_shapes(draw, flat=not leads)
    sizes = [(draw.choice((1, 3, 5, 8)), draw.choice((0, 1, 3, 8, 20))) for _ in range(draw.choice((1, 2, 2, 3)))]
    if draw.random() < 0.2:
        sizes.append((120, 900))
    data = [_draw_data(draw, shapes, rounded, nodes, edges, two=two, forward=forward) for nodes, edges in sizes]
    text = _Drawing(draw, store, shapes, two=two, forward=forward, leads=leads).text()
    return Case(text, store, data, rounded, in_module=draw.random() < 0.5)


def _draw_shapes(draw: random.Random, *, flat: bool) -> dict[str, Shape]:
    """``flat``: features of nodes have one dim besides that of rows."""
    width, heads = draw.choice((1, 2, 3, 4, 5, 8)), draw.choice((1, 2, 3))
    usual = [(width,), (width,), (draw.choice((2, 3, 6, 17)),)]
    rich = usual if flat else [*usual, (heads, width), (heads, 1), ()]
    found = {name: draw.choice(rich if what == "float" else [(1,)] if flat else [()]) for name, what in NODE.items()}
    of_edges = [(width,), (width,), (heads, width), (1,), ()]
    found |= {name: draw.choice(of_edges if what == "float" else [()]) for name, what in EDGE.items()}
    return found | {"m": (draw.choice((2, 3, 5)), width), "c": (width,)}


def _draw_data(
    draw: random.Random,
    shapes: dict[str, Shape],
    rounded: torch.dtype,
    nodes: int,
    edges: int,
    *,
    two: bool,
    forward: bool,
) -> Data:
    made = torch.Generator().manual_seed(draw.randrange(1 << 30))
    others = draw.randrange(1, nodes + 4) if two else nodes
    hub = draw.randrange(nodes)
    j = [draw.randrange(others) for _ in range(edges)]
    i = [hub if draw.random() < 0.25 else draw.randrange(nodes) for _ in range(edges)]
    if edges > 2 and draw.random() < 0.4:
        j[1], i[1] = j[0], i[0]
    ids = torch.tensor([j, i] if forward else [i, j], dtype=torch.int64).reshape(2, edges)
    count = (others, nodes) if forward else (nodes, others)

    def rows(lead: tuple[int, ...], name: str, what: str) -> Tensor:
        if what == "int":
            return torch.randint(0, NUM_IDS, (*lead, *shapes[name]), generator=made)
        numbers = torch.randn(*lead, *shapes[name], generator=made, dtype=torch.float64).to(rounded)
        return numbers.requires_grad_(draw.random() < 0.85)

    def frame(of: dict[str, str], *lead: int) -> dict[str, Tensor]:
        return {name: rows(lead, name, what) for name, what in of.items()}

    src = frame(NODE, others)
    dst = frame(NODE, nodes) if two else src
    kind = draw.choices(("plain", "strided", "EdgeIndex", "sorted"), (6, 1, 1, 1))[0]
    size = count if two or draw.random() < 0.2 else None
    return Data(ids, count, src, dst, frame(EDGE, edges), frame(SHARED), kind, size, two)


@dataclass
class _Drawing:
    """The text of a class; ``leads``: its rows are dim 0; ``forward``: along the flow from j to i."""

    draw: random.Random
    store: Store
    shapes: dict[str, Shape]
    two: bool
    forward: bool
    leads: bool

    def text(self) -> str:
        sent, asked, message = self._message()
        head = self._head(sent)
        reduced, aggregate = self._aggregate(sent)
        update = self._update(reduced)
        given = ", ".join(f"{name}={name}" for name in (*NODE, *EDGE, *SHARED))
        weights = self.draw.random() < 0.2
        prepared, extra = [], ""
        if weights:
            prepared, extra = ["alpha = self.edge_updater(edge_index, x=x, a=a, size=size)"], ", alpha=alpha"
            asked = [*asked, "alpha"]
            message = [*message[:-1], message[-1] + " * alpha" + ".unsqueeze(-1)" * len(sent.shape)]
        forward = [
            *prepared,
            f"out = self.propagate(edge_index, size=size, {given}{extra})",
            "return (out, alpha)" if weights and self.draw.random() < 0.4 else "return out",
        ]
        functions = [
            ("__init__", [], head),
            ("forward", ["edge_index", "size", *NODE, *EDGE, *SHARED], forward),
            ("message", asked, message),
            *aggregate,
            *update,
            *([("edge_update", ["x_j", "a", "index", "ptr", "size_i"], self._weights())] if weights else []),
        ]
        lines = ["class Layer(MessagePassing):"]
        for name, arguments, body in functions:
            lines.append(f"    def {name}({', '.join(['self', *arguments])}):")
            lines += [f"        {line}" for text in body for line in text.splitlines()]
        return "\n".join(lines)

    def _head(self, sent: Var) -> list[str]:
        """How the class begins; ``scale`` is changed between calls."""
        aggr = self.draw.choice([*AGGREGATIONS, "sum", "mean", *SEVERAL[:2]])
        names = [aggr] if isinstance(aggr, str) else aggr
        if (sent.tied and NO_TIES & {*names}) or (len(names) > 1 and len(sent.shape) != 1):
            aggr = "sum"
        flow = "source_to_target" if self.forward else "target_to_source"
        dims = ", node_dim=0" if self.leads else ""
        return [f'super().__init__(aggr={aggr!r}, flow="{flow}"{dims})', "self.scale = 1.5"]

    # ------------------------------------------------------------ message
    def _message(self) -> tuple[Var, list[str], list[str]]:
        """What is sent, what is asked for, and the lines."""
        writer, draw = Writer(self.draw, self.store), self.draw
        asked: dict[str, None] = {}
        for _ in range(draw.randrange(2, 5)):
            self._leaf(writer, asked)
        writer.grow(draw.randrange(1, 6))
        if draw.random() < 0.4:
            v = writer.choose()
            if v is not None:
                ones = f".view(-1, *[1] * {len(v.shape)})"
                text = draw.choice(OF_SEGMENTS).format(v=v.name, ones=ones)
                words = "index ptr size size_i size_j dim_size edge_index edge_index_j".split()
                asked |= dict.fromkeys(word for word in words if re.search(rf"(?<![.\w]){word}\b", text))
                writer.put(text, v.shape, v, tied=True)
        writer.grow(draw.randrange(0, 3))
        fits = [v for v in writer.known if v.kind == "float" and len(v.shape) >= (0 if self.leads else 1)]
        fits = [v for v in fits if self.leads or len(v.shape) == 1]
        if not fits:
            asked["x_j"] = None
            fits = [writer.put("x_j", self.shapes["x"])]
        sent = fits[-1]
        scaled = draw.choice(["", "", " * self.scale", " * (2 if self.scale > 1 else 3)"])
        return sent, list(asked), [*(line for line, _ in writer.lines), f"return {sent.name}{scaled}"]

    def _leaf(self, writer: Writer, asked: dict[str, None]) -> Var:
        name, what = self.draw.choice([*NODE.items(), *NODE.items(), *EDGE.items(), *EDGE.items(), *SHARED.items()])
        if name in SHARED:
            asked[name] = None
            rows = next((v for v in writer.known if v.kind == "float" and v.shape[-1:] == self.shapes["c"]), None)
            if rows is not None:
                text = f"{rows.name} + c" if name == "c" else f"{rows.name} @ m.t()"
                return writer.put(text, rows.shape if name == "c" else (*rows.shape[:-1], self.shapes["m"][0]), rows)
            name, what = "w", "float"
        known = name + self.draw.choice(("_j", "_j", "_i")) if name in NODE else name
        asked[known] = None
        return writer.put(known, self.shapes[name], kind=what)

    def _weights(self) -> list[str]:
        """A weight an edge."""
        score = "x_j.flatten(1).sum(-1) + a.flatten(1).sum(-1)" if self.shapes["a"] else "x_j.flatten(1).sum(-1) + a"
        if not self.shapes["x"]:
            score = score.replace("x_j.flatten(1).sum(-1)", "x_j")
        last = ["softmax(score, index, ptr, size_i)", "score.tanh()", "softmax(score, index, num_nodes=size_i)"]
        return [f"score = {score}", f"return {self.draw.choice(last)}"]

    # ------------------------------------------------------------ aggregate, update
    def _aggregate(self, sent: Var) -> tuple[Var, list[tuple[str, list[str], list[str]]]]:
        """How the aggregated rows look, and the function, if there is one of its own."""
        reduced = replace(sent, name="inputs", tied=True)
        if self.draw.random() > 0.35:
            return reduced, []
        reduce = self.draw.choice(("sum", "mean", "sum" if sent.tied else "max", "mul"))
        body = self.draw.choice(BY_HAND).format(reduce=reduce)
        if "cat" in body:
            if not sent.shape:
                return reduced, []
            reduced = replace(reduced, shape=(*sent.shape[:-1], 2 * sent.shape[-1]))
        asked = ["inputs", "index", *(["ptr"] if "ptr" in body else []), "dim_size"]
        return reduced, [("aggregate", asked, [body])]

    def _update(self, reduced: Var) -> list[tuple[str, list[str], list[str]]]:
        if self.draw.random() < 0.5:
            return []
        writer = Writer(self.draw, self.store, first="u")
        asked = ["inputs"]
        if not self.two and self.draw.random() < 0.6:
            asked.append("x")
            writer.put("x", self.shapes["x"])
        writer.grow(self.draw.randrange(1, 4))
        last = next((v for v in reversed(writer.known) if v.kind == "float"), None)
        beside = f" + {last.name}.flatten(1).sum(1).view(-1, *[1] * (inputs.dim() - 1))" if last and last.shape else ""
        ends = ["return inputs.tanh()", f"return inputs * 0.5{beside}", "return F.relu(inputs + 0.1)"]
        return [("update", asked, [*(line for line, _ in writer.lines), self.draw.choice(ends)])]


def edges_of(data: Data) -> Any:
    """The edges as they are given, in memory of their own."""
    if data.kind == "EdgeIndex":
        return pyg().EdgeIndex(data.edges.clone(), sparse_size=data.count)
    if data.kind == "sorted":
        by_row = data.edges[0].argsort(stable=True)
        return pyg().EdgeIndex(data.edges[:, by_row], sparse_size=data.count, sort_order="row")
    return data.edges.t().contiguous().t() if data.kind == "strided" else data.edges.clone()
