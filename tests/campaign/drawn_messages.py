"""Random message and reduce functions, as a user would write them, and graphs with features to run them on.

Takes: a seed. Gives: a Case; its functions read features of every rank, width and dtype at both ends and on the edges.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.campaign.grammar import NUM_IDS, Shape, Store, Var, Writer, namespace

Frame = dict[str, Tensor]
Shapes = Mapping[str, tuple[Shape, str]]  # of features by "node:a", and what their numbers are
ENTRIES = """update update update apply bipartite block batch pull push send edges some_edges nodes builtin
several""".split()


@dataclass
class Data:
    """A graph's edges and features; a graph of one type of nodes has one frame for both ends."""

    src: Tensor
    dst: Tensor
    num_src: int
    num_dst: int
    frames: dict[str, Frame]
    chosen: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def leaves(self) -> list[Tensor]:
        found = {id(t): t for frame in self.frames.values() for t in frame.values()}
        return [t for t in found.values() if t.requires_grad]

    def converted(self, change: Callable[[Tensor], Tensor]) -> Data:
        """With every floating feature changed, and those that were one still one."""
        known: dict[int, Frame] = {}
        for frame in self.frames.values():
            if id(frame) not in known:
                known[id(frame)] = {n: change(t) if t.is_floating_point() else t for n, t in frame.items()}
        frames = {kind: known[id(frame)] for kind, frame in self.frames.items()}
        return Data(self.src, self.dst, self.num_src, self.num_dst, frames, self.chosen)


@dataclass
class Case:
    """Functions as text, graphs, and how they meet; ``frozen``: the part of parameters that no gradient is asked of."""

    entry: str
    text: str
    plain: str
    store: Store
    style: str
    data: list[Data]
    dtype: torch.dtype
    frozen: float = 0.0

    def functions(self, dtype: torch.dtype, *, reference: bool) -> dict[str, Any]:
        """What the text defines; parameters under ``"parameters"``."""
        names = namespace(self.store, dtype)
        parameters = [names[name] for name in self.store.made]
        if self.style == "layer":
            names["layer"] = layer = nn.Module()
            for name in self.store.made:
                setattr(layer, name, names.pop(name))
        exec(compile(self.plain if reference else self.text, "<campaign>", "exec"), names)
        if self.style == "closure":
            made = names["make"](*(names[name] for name in self.store.made))
            names |= made
        tensors = [t for p in parameters for t in (p.parameters() if isinstance(p, nn.Module) else [p])]
        for number, tensor in enumerate(tensors):
            tensor.requires_grad_(number >= self.frozen * len(tensors))
        return names | {"parameters": [tensor for tensor in tensors if tensor.requires_grad]}


SPECS: dict[str, list[tuple[str, str]]] = {
    "node": [("a", "float"), ("b", "float"), ("s", "float"), ("k", "int"), ("q", "bool"), ("z", "low")],
    "edge": [("w", "float"), ("x", "float"), ("e", "int"), ("r", "bool"), ("y", "low")],
}


def make_case(seed: int) -> Case:
    draw = random.Random(seed)
    entry = draw.choice(ENTRIES)
    rounded = draw.choices([torch.float64, torch.float32, torch.bfloat16], [8, 1.3, 0.7])[0]
    style = draw.choice(("", "layer", "closure"))
    store = Store(draw, "layer." if style == "layer" else "", rounded)
    shapes = _draw_shapes(draw)
    small = [draw_data(draw, entry, shapes, rounded, draw.choice((1, 3, 6, 9)), draw.choice((0, 1, 4, 12, 20)))]
    large = draw.random() < 0.1
    small.append(draw_data(draw, entry, shapes, rounded, 150 if large else 7, 1200 if large else 9))
    text, plain = _draw_builtin(draw, shapes) if entry == "builtin" else _draw_text(draw, store, shapes, entry)
    if style == "closure" and entry != "builtin":
        text, plain = (_as_closure(t, list(store.made)) for t in (text, plain))
    elif style == "closure":
        style = ""
    return Case(entry, text, plain, store, style, small, rounded)


def _draw_shapes(draw: random.Random) -> dict[str, tuple[Shape, str]]:
    width, heads = draw.choice((1, 2, 3, 4, 5, 8)), draw.choice((1, 2, 3))
    usual = [(width,), (width,), (heads, width), (heads, 1), (1,), (), (draw.choice((2, 3, 6, 17)),), (2, heads, 2)]
    found: dict[str, tuple[Shape, str]] = {}
    for kind, specs in SPECS.items():
        for name, what in specs:
            shape = draw.choice(usual) if what in ("float", "low") else draw.choice([(), (), (2,)])
            found[f"{kind}:{name}"] = (shape, what)
    return found


def draw_data(
    draw: random.Random,
    entry: str,
    shapes: Shapes,
    rounded: torch.dtype,
    nodes: int,
    edges: int,
) -> Data:
    made = torch.Generator().manual_seed(draw.randrange(1 << 30))
    two = entry in ("bipartite", "block")
    num_dst, num_src = nodes, draw.randrange(1, nodes + 4) if two else nodes
    if entry == "block":
        num_src = num_dst + draw.randrange(3)
    edges = max(edges, 1) if entry in ("several", "builtin", "apply") else edges
    hub = draw.randrange(num_dst)
    src = [draw.randrange(num_src) for _ in range(edges)]
    dst = [hub if draw.random() < 0.25 else draw.randrange(num_dst) for _ in range(edges)]
    if edges > 2 and draw.random() < 0.4:
        src[1], dst[1] = src[0], dst[0]
    kind = draw.choice((torch.int64, torch.int64, torch.int32))

    def rows(count: int, shape: Shape, what: str) -> Tensor:
        if what == "int":
            return torch.randint(0, NUM_IDS, (count, *shape), generator=made)
        if what == "bool":
            return torch.rand(count, *shape, generator=made) > 0.5
        numbers = torch.randn(count, *shape, generator=made, dtype=torch.float64).to(rounded)
        numbers = numbers.float() if what == "low" and rounded == torch.float64 else numbers
        return numbers.requires_grad_(draw.random() < (0.05 if what == "low" else 0.85))

    def frame(prefix: str, count: int) -> Frame:
        return {n.partition(":")[2]: rows(count, *spec) for n, spec in shapes.items() if n.startswith(prefix)}

    at_dst = frame("node", num_dst)
    frames = {"src": frame("node", num_src) if two else at_dst, "dst": at_dst, "edge": frame("edge", edges)}
    chosen = torch.tensor(sorted(draw.sample(range(num_dst), draw.randrange(1, num_dst + 1))))
    return Data(torch.tensor(src, dtype=kind), torch.tensor(dst, dtype=kind), num_src, num_dst, frames, chosen)


def _draw_text(draw: random.Random, store: Store, shapes: Shapes, entry: str) -> tuple[str, str]:
    message = Writer(draw, store)
    sent = _written_message(message, shapes, writes=entry in ("update", "edges") and draw.random() < 0.1)
    reduce = Writer(draw, store, lift="{}[:, None]", first="u")
    rows = _written_reduce(reduce, shapes, sent)
    apply = Writer(draw, store, first="r")
    last = _written_apply(apply, shapes, rows["o"] if entry == "apply" else None)
    functions: list[tuple[str, str, Writer, Mapping[str, Var]]] = [
        ("message", "edges", message, sent), ("reduce", "nodes", reduce, rows), ("apply", "nodes", apply, {"t": last}),
    ]  # fmt: skip
    text = functions_text(functions)
    return text, text


def functions_text(functions: Sequence[tuple[str, str, Writer, Mapping[str, Var]]]) -> str:
    """Functions one below the other: each has a name, an argument, statements, and what it gives."""
    return "\n\n".join(
        "\n    ".join([f"def {name}({of}):", *(line for line, _ in writer.lines), f"return {_as_dict(given)}"])
        for name, of, writer, given in functions
    )


def _written_message(writer: Writer, shapes: Shapes, *, writes: bool) -> dict[str, Var]:
    """What is sent, by name; ``writes``: one of them becomes a feature of the edges, too."""
    draw = writer.draw
    for _ in range(draw.randrange(2, 5)):
        leaf(writer, draw.choice(["edges.src", "edges.dst", "edges.src", "edges.data"]), shapes)
    writer.grow(draw.randrange(1, 8))
    sent = [v for v in writer.known if v.kind == "float"][-draw.choice((1, 2, 2, 3)) :]
    sent = sent or [writer.put('edges.src["a"]', shapes["node:a"][0])]
    if writes:
        writer.line(f'edges.data["written"] = {sent[0].name}')
    return {f"m{i}": v for i, v in enumerate(sent)}


def _written_reduce(writer: Writer, shapes: Shapes, sent: Mapping[str, Var]) -> dict[str, Var]:
    draw = writer.draw
    for name, v in sent.items():
        writer.put(f'nodes.mailbox["{name}"]', v.shape, on="slot", tied=v.tied)
    for _ in range(draw.randrange(0, 3)):
        leaf(writer, "nodes.data", shapes)
    writer.grow(draw.randrange(0, 4))
    for _ in range(draw.choice((1, 1, 2))):
        reduced(writer)
    writer.grow(draw.randrange(0, 3))
    rows = [v for v in writer.known if v.on == "row" and v.kind == "float"]
    return dict(zip("op", rows[-draw.choice((1, 2)) :], strict=False))


def _written_apply(writer: Writer, shapes: Shapes, reduced: Var | None) -> Var:
    draw = writer.draw
    for _ in range(draw.randrange(1, 4)):
        leaf(writer, "nodes.data", shapes)
    if reduced is not None:
        writer.put('nodes.data["o"]', reduced.shape, tied=True)
    writer.grow(draw.randrange(1, 4))
    rows = [v for v in writer.known if v.kind == "float"]
    return rows[-1] if rows else writer.put('nodes.data["a"]', shapes["node:a"][0])


def _as_dict(named: Mapping[str, Var]) -> str:
    return "{" + ", ".join(f'"{name}": {v.name}' for name, v in named.items()) + "}"


def leaf(writer: Writer, where: str, shapes: Shapes) -> Var:
    kind = "edge" if where == "edges.data" else "node"
    name, what = writer.draw.choice(SPECS[kind])
    shape, _ = shapes[f"{kind}:{name}"]
    text = f'{where}["{name}"]' + (".to(DTYPE)" if what == "low" else "")
    return writer.put(text, shape, kind="float" if what == "low" else what)


def reduced(writer: Writer) -> Var:
    """A slot's values brought to one row."""
    draw = writer.draw
    m = writer.choose(on="slot")
    assert m is not None
    sure = [text for text, needs_no_ties in REDUCTIONS if not (needs_no_ties and m.tied)]
    if len(m.shape) == 1:
        other = writer.choose(on="slot", least=1, most=1)
        if other is not None and draw.random() < 0.2:
            form, shape = draw.choice([
                ('torch.einsum("nd...,nd...->n...", {m}, {w})', m.shape if other.shape == m.shape else None),
                ('torch.einsum("nda,ndb->nab", {m}, {w})', (*m.shape, *other.shape)),
                ("torch.bmm({w}.transpose(1, 2), {m})", (*other.shape, *m.shape)),
                ("({w}.sum(-1, keepdim=True).softmax(1) * {m}).sum(1)", m.shape),
                ("({w}[..., :1].softmax(dim=1) * {m}).sum(dim=1)", m.shape),
            ])  # fmt: skip
            if shape is not None:
                return writer.put(form.format(m=m.name, w=other.name), shape, m, on="row")
    return writer.put(draw.choice(sure).format(m=m.name), m.shape, m, on="row")


# Of (nodes, degree, ...); the truth value: whether it is one of several equal numbers that it picks.
REDUCTIONS: list[tuple[str, bool]] = [
    *((text, False) for text in [
        "{m}.sum(1)", "{m}.sum(1)", "{m}.mean(1)", "{m}.mean(dim=1)", "{m}.logsumexp(1)", "{m}.var(1, unbiased=False)",
        "(torch.tanh({m}) * 1.5).prod(1)", "({m} * {m} + 0.1).sum(1).sqrt()", "{m}.abs().sum(1)",
        "torch.sum({m}, dim=1, keepdim=True).squeeze(1)", "{m}.movedim(1, -1).sum(-1)", "{m}.square().mean(1)",
        "{m}.softmax(1).mul({m}).sum(1)",
        "({m} - {m}.mean(1, keepdim=True)).pow(2).mean(1)", "({m}.var(1, correction=0) + 0.1).sqrt()",
        "({m} - {m}.amax(1, keepdim=True)).exp().sum(1)", "{m}.log_softmax(1).mul({m}).sum(1)", "{m}.nansum(1)",
        "({m} > 0.1).sum(1).to(DTYPE)", "({m} > 0.1).any(1).to(DTYPE)", "({m} > 0.1).all(dim=1).to(DTYPE)",
        "torch.logsumexp({m}, 1)", "torch.mean({m}, 1, keepdim=True)[:, 0]", "{m}.sum(1) / {m}.shape[1]",
        "({m} / ({m}.abs().sum(1, keepdim=True) + 1)).tanh().sum(1)", "({m}.abs() + 0.2).prod(1)", "{m}.flip(1)[:, 0]",
        "{m}[:, 0]", "{m}[:, -1] / {m}.shape[1]", "{m}.cumsum(1)[:, -1]", "({m} + 2).norm(dim=1)",
        "({m}.sum(1) if {m}.shape[1] > 2 else {m}.mean(1))", "{m}.unbind(1)[0] * 0.5", "F.softmax({m}, dim=1)[:, 0]",
        "({m} * torch.softmax({m}, 1)).mean(1)", "{m}.transpose(0, 1).sum(0)", "sum({m}.unbind(1))",
        "{m}.cummax(1).values[:, -1]",
        "(lambda w: (w / (w.sum(1, keepdim=True) + 1)).square().sum(1))(({m} - {m}.amax(1, keepdim=True)).exp())",
    ]),
    *((text, True) for text in [
        "{m}.max(1).values", "{m}.max(1)[0]", "{m}.min(dim=1).values", "{m}.amax(1)", "{m}.amin(dim=1)", "{m}.amax(1)",
        "{m}.sort(1).values[:, 0]", "{m}.topk(1, dim=1).values[:, 0]", "torch.max({m}, 1).values", "{m}.abs().amax(1)",
        "{m}.sort(1, descending=True)[0][:, 0]", "({m} - {m}.amin(1, True)).square().sum(1)", "{m}.median(1).values",
    ]),
]  # fmt: skip


def _as_closure(text: str, names: list[str]) -> str:
    inner = text.replace("\n", "\n    ")
    return (
        f"def make({', '.join(names)}):\n    {inner}\n\n    return dict(message=message, reduce=reduce, apply=apply)\n"
    )


_WORDS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_ENDS = {"u": ("edges.src", "node"), "v": ("edges.dst", "node"), "e": ("edges.data", "edge")}
_REDUCED = {"sum": ".sum(1)", "mean": ".mean(1)", "max": ".amax(1)", "min": ".amin(1)", "prod": ".prod(1)"}


def _draw_builtin(draw: random.Random, shapes: Shapes) -> tuple[str, str]:
    left, right = draw.sample("uve", 2)
    names = {end: draw.choice([n for n, what in SPECS[_ENDS[end][1]] if what == "float"]) for end in (left, right)}
    a, b = (f'{_ENDS[end][0]}["{names[end]}"]' for end in (left, right))
    one, two = (shapes[f"{_ENDS[end][1]}:{names[end]}"][0] for end in (left, right))
    rank = max(len(one), len(two))
    a, b = (text + ".unsqueeze(1)" * (rank - len(s)) for text, s in ((a, one), (b, two)))
    whole = [(1,) * (rank - len(s)) + s for s in (one, two)]
    fits = all(x == y or 1 in (x, y) for x, y in zip(*whole, strict=True))
    reducer = draw.choice([*_REDUCED, "sum", "mean"])
    if not fits or draw.random() < 0.3:
        copied = "e" if "e" in (left, right) and draw.random() < 0.5 else "u"
        name = "w" if copied == "e" else "a"
        user, plain = f'fn.copy_{copied}("{name}", "m")', f'{_ENDS[copied][0]}["{name}"]'
    elif rank and whole[0][-1] == whole[1][-1] and draw.random() < 0.25:
        user, plain = (
            f'fn.{left}_dot_{right}("{names[left]}", "{names[right]}", "m")',
            f"({a} * {b}).sum(-1, keepdim=True)",
        )
    else:
        word = draw.choice([*_WORDS])
        b = f"({b})" if word != "div" else b
        user, plain = f'fn.{left}_{word}_{right}("{names[left]}", "{names[right]}", "m")', f"{a} {_WORDS[word]} {b}"
    apply = "def apply(nodes):\n    return {}"
    text = f'import vgraph.function as fn\nmessage = {user}\nreduce = fn.{reducer}("m", "o")\n{apply}'
    reduced = f'nodes.mailbox["m"]{_REDUCED[reducer]}'
    return text, (
        f'def message(edges):\n    return {{"m": {plain}}}\n\n'
        f'def reduce(nodes):\n    return {{"o": {reduced}}}\n\n{apply}'
    )
