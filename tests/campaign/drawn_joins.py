"""Random functions whose rows are joined, scaled, cut and joined again, with features from one number to a hundred.

Takes: a seed. Gives: a Case: several aggregations of the same messages, joins of joins, of slices, views and
transposed rows, products before and behind them, numbers of several dtypes, writes in place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from tests.campaign.drawn_messages import SPECS, Case, Shapes, draw_data, functions_text, leaf, reduced
from tests.campaign.grammar import RULES, Shape, Store, Var, Writer

WIDTHS = (1, 2, 3, 7, 8, 16, 33, 64, 100)
ENTRIES = "update update update update apply apply bipartite block batch edges nodes pull".split()
DTYPES = {torch.float64: 4, torch.float32: 5, torch.bfloat16: 1, torch.float16: 0.5}
MOST_NUMBERS = 600  # of one row
COMPUTED = ["{}.flip(-1)", "{}.clone()", "-{}", "{} * 0.5", "{}.tanh()", "{}.roll(1, -1)", "{}.detach()"]
AGGREGATIONS = [  # which kernels make; the last two pick one of equal numbers
    "{m}.sum(1)", "{m}.mean(1)", "{m}.logsumexp(1)", "({m}.var(1, unbiased=False) + 0.01).sqrt()",
    "{m}.tanh().prod(1)", "{m}.softmax(1).mul({m}).sum(1)", "{m}.amax(1)", "{m}.min(1).values",
]  # fmt: skip
SCALED = [
    "{x} * {s}", "{s} * {x}", "{x} / ({s} * {s} + 1)", "{x} + {s}", "{s} - {x}", "torch.where({s} > 0.1, {x}, {s})",
    "torch.addcmul({x}, {x}, {s}, value=0.5)", "{x} * ({s} > 0)", "{x}.clamp(max=2) * {s}.sigmoid()",
    "torch.lerp({x}, {s}, 0.25)",
]  # fmt: skip
ROUNDED = [
    "{x}.float().to(DTYPE)", "({x} > 0.2).to(DTYPE)", "{x} * ({x} > -0.3)", "{x}.double().sin().to(DTYPE)",
    "({x} * 4).detach().clamp(-9, 9).int() * {x} * 0.5",  # in this order the dtype is that of x
]  # fmt: skip


class JoinWriter(Writer):
    """Statements that join rows and take them apart, among the usual ones."""

    def grow(self, steps: int) -> None:
        tries = 0
        while steps and tries < 200:
            tries += 1
            rule = self.draw.choice(_JOINING if self.draw.random() < 0.6 else RULES)
            if rule(self) is not None:
                steps -= 1

    def joined(self) -> Var | None:
        """``cat`` or ``stack`` of two to five, along any dim of features."""
        first = self.choose(least=1, most=3)
        if first is None:
            return None
        rank, is_stack = len(first.shape), self.draw.random() < 0.3 and len(first.shape) < 3
        dim = -self.draw.choice([1, 1, *range(1, rank + 1 + is_stack)])
        if dim == -rank - is_stack and self.draw.random() < 0.7:
            dim = -1
        alike = [v for v in self.known if v.kind == first.kind and v.on == first.on and _meets(v, first, dim, is_stack)]
        parts = [first, *self.draw.choices(alike, k=self.draw.choice((1, 1, 2, 3, 4)))]
        self.draw.shuffle(parts)
        texts, sizes = zip(*[(p.name, 1) if is_stack else self._cut(p, dim) for p in parts], strict=True)
        place = rank + 1 + dim if is_stack else rank + dim
        shape = list(first.shape)
        shape[place : place + (not is_stack)] = [sum(sizes)]
        name = "stack" if is_stack else self.draw.choice(("cat", "cat", "concat"))
        form = self.draw.choice((f"torch.{name}([{{}}], {dim})", f"torch.{name}(({{}},), dim={dim})"))
        tied = any(part.tied for part in parts)
        return self._put(form.format(", ".join(texts)), tuple(shape), replace(first, tied=tied))

    def _cut(self, part: Var, dim: int) -> tuple[str, int]:
        """A part as it is, some of it, several of it or what is computed of it; and its size along the dim."""
        size, name, draw = part.shape[dim], part.name, self.draw
        chance = draw.random()
        if chance < 0.1:
            many = draw.choice((2, 3))
            return f"torch.cat([{name}] * {many}, {dim})", size * many
        if chance < 0.25 and size > 1:
            few = draw.randrange(1, size)
            last, first = f"narrow({dim}, {size - few}, {few})", f"split([{few}, {size - few}], {dim})[0]"
            return f"{name}.{draw.choice((last, first))}", few
        return draw.choice(["{}"] * 6 + COMPUTED).format(name), size

    def scaled(self) -> Var | None:
        """A row and one number a row, or one a head."""
        x = self.choose(least=1)
        singles = [v for v in self.known if v.kind == "float" and x and v.on == x.on and _is_single(v.shape, x.shape)]
        if x is None or not singles:
            return None
        s, form = self.draw.choice(singles), self.draw.choice(SCALED)
        text = form.format(x=x.name, s=s.name + "[..., None]" * (len(x.shape) - len(s.shape)))
        return self.put(text, x.shape, x, tied=x.tied or s.tied or ">" in form or "clamp" in form)

    def parts(self) -> Var | None:
        """A row taken apart: each part is there for what follows."""
        x = self.choose(least=1, most=3)
        if x is None:
            return None
        dim = -self.draw.randrange(1, len(x.shape) + 1)
        size, place = x.shape[dim], len(x.shape) + dim
        if size < 2:
            return None
        made = None
        if size <= 4 and self.draw.random() < 0.4:
            texts = [(f"{x.name}.unbind({dim})[{i}]", 0) for i in range(size)]
        elif size % 2 == 0 and self.draw.random() < 0.5:
            form = self.draw.choice(("chunk(2, {d})", "split({h}, {d})", "tensor_split(2, {d})"))
            texts = [(f"{x.name}.{form.format(d=dim, h=size // 2)}[{i}]", size // 2) for i in range(2)]
        else:
            at = self.draw.randrange(1, size)
            texts = [(f"{x.name}.narrow({dim}, {n}, {m})", m) for n, m in ((0, at), (at, size - at))]
        for text, width in self.draw.sample(texts, min(2, len(texts))):
            shape = (*x.shape[:place], *([width] if width else []), *x.shape[place + 1 :])
            made = self.put(text, shape, x)
        return made

    def mapped(self) -> Var | None:
        """A product with a matrix, to one of the usual widths."""
        x = self.choose(least=1)
        if x is None:
            return None
        inner, outer = x.shape[-1], self.draw.choice((1, 3, 8, 16, 33, x.shape[-1]))
        smaller, store = f"({x.name} * {inner**-0.5:.3f})", self.store
        forms = (
            lambda: f"{smaller} @ {store.tensor(inner, outer)}",
            lambda: f"F.linear({smaller}, {store.tensor(outer, inner)}, {store.tensor(outer)})",
            lambda: f"{store.linear(inner, outer, True)}({smaller})",
        )
        return self._put(self.draw.choice(forms)(), (*x.shape[:-1], outer), x)

    def picked(self) -> Var | None:
        """Some of a row's features by their places."""
        x = self.choose(least=1)
        if x is None:
            return None
        size = x.shape[-1]
        ids = [self.draw.randrange(size) for _ in range(self.draw.choice((1, 2, 5)))]
        form = self.draw.choice(("{}[..., {}]", "{}[..., torch.tensor({})]", "{}.index_select(-1, torch.tensor({}))"))
        return self.put(form.format(x.name, ids), (*x.shape[:-1], len(ids)), x)

    def views(self) -> Var | None:
        """The same numbers in another order."""
        x = self.choose(least=1)
        if x is None:
            return None
        n, (*outer, width) = x.name, x.shape
        forms: list[tuple[str, Shape]] = [
            (f"{n}.unsqueeze(-1)", (*x.shape, 1)),
            (f"{n}.unsqueeze(-2)", (*outer, 1, width)),
        ]
        if outer:
            *ahead, high = outer
            turned, flat = (*ahead, width, high), (*ahead, high * width)
            forms = [(f"{n}.mT", turned), (f"{n}.flatten(-2)", flat), (f"{n}.transpose(-1, -2).flatten(-2)", flat)]
        if width % 2 == 0:
            halves = (*outer, 2, width // 2)
            forms += [(f"{n}.unflatten(-1, (2, -1))", halves), (f"{n}.unflatten(-1, (-1, 2)).mT", halves)]
        if width == 1:
            forms.append((f"{n}.expand(*{n}.shape[:-1], 3)", (*outer, 3)))
        return self._put(*self.draw.choice(forms), x)

    def rounded(self) -> Var | None:
        """Through another dtype and back, or a mask as numbers."""
        x = self.choose()
        if x is None:
            return None
        return self.put(self.draw.choice(ROUNDED).format(x=x.name), x.shape, x, tied=True)

    def _put(self, text: str, shape: Shape, like: Var) -> Var | None:
        return self.put(text, shape, like) if torch.Size(shape).numel() <= MOST_NUMBERS and len(shape) <= 3 else None


_JOINING: list[Callable[[JoinWriter], Var | None]] = [
    *[JoinWriter.joined] * 5, *[JoinWriter.scaled] * 3, *[JoinWriter.parts] * 2, *[JoinWriter.mapped] * 2,
    JoinWriter.picked, *[JoinWriter.views] * 2, JoinWriter.rounded,
]  # fmt: skip


def _meets(v: Var, first: Var, dim: int, is_stack: bool) -> bool:
    if len(v.shape) != len(first.shape):
        return False
    skip = None if is_stack else len(v.shape) + dim
    return all(a == b for i, (a, b) in enumerate(zip(v.shape, first.shape, strict=True)) if i != skip)


def _is_single(s: Shape, x: Shape) -> bool:
    s = s + (1,) * (len(x) - len(s))
    return len(s) == len(x) and s[-1] == 1 and all(a in (1, b) for a, b in zip(s, x, strict=True))


def make_case(seed: int) -> Case:
    draw = random.Random(f"joins {seed}")
    entry = draw.choice(ENTRIES)
    dtype = draw.choices(list(DTYPES), list(DTYPES.values()))[0]
    store = Store(draw, "", dtype)
    shapes = _draw_shapes(draw)
    sizes = [(draw.choice((1, 2, 6, 9)), draw.choice((0, 1, 5, 12, 20))), (7, 9) if draw.random() < 0.7 else (60, 300)]
    draw.shuffle(sizes)
    data = [draw_data(draw, entry, shapes, dtype, *size) for size in sizes]
    text = _draw_text(draw, store, shapes, entry)
    return Case(entry, text, text, store, "", data, dtype, frozen=0.3 if draw.random() < 0.3 else 0.0)


def _draw_shapes(draw: random.Random) -> dict[str, tuple[Shape, str]]:
    width, other, heads = draw.choice(WIDTHS), draw.choice(WIDTHS), draw.choice((1, 2, 3))
    usual: list[Shape] = [(width,)] * 4 + [(other,), (1,), (), (1,)]
    if width * heads <= MOST_NUMBERS // 4:
        usual += [(heads, width), (heads, 1)]
    found: dict[str, tuple[Shape, str]] = {}
    for kind, specs in SPECS.items():
        for name, what in specs:
            is_float = what in ("float", "low")
            found[f"{kind}:{name}"] = (draw.choice(usual if is_float else [(), (2,)]), what)
    return found


def _draw_text(draw: random.Random, store: Store, shapes: Shapes, entry: str) -> str:
    message = JoinWriter(draw, store)
    for _ in range(draw.randrange(2, 5)):
        leaf(message, draw.choice(["edges.src", "edges.dst", "edges.src", "edges.data"]), shapes)
    message.grow(draw.randrange(1, 6))
    floats = [v for v in message.known if v.kind == "float"] or [message.put('edges.src["a"]', shapes["node:a"][0])]
    chosen = [floats[-1], *draw.sample(floats[:-1], min(len(floats) - 1, draw.choice((0, 0, 1))))]
    sent = {f"m{i}": v for i, v in enumerate(chosen)}
    reduce = JoinWriter(draw, store, lift="{}[:, None]", first="u")
    rows = _written_reduce(reduce, shapes, sent)
    apply = JoinWriter(draw, store, first="r")
    last = _written_apply(apply, shapes, rows if entry == "apply" else {})
    return functions_text([
        ("message", "edges", message, sent), ("reduce", "nodes", reduce, rows), ("apply", "nodes", apply, last),
    ])  # fmt: skip


def _written_reduce(writer: JoinWriter, shapes: Shapes, sent: Mapping[str, Var]) -> dict[str, Var]:
    """Several aggregations of the same messages, side by side."""
    draw = writer.draw
    for name, v in sent.items():
        writer.put(f'nodes.mailbox["{name}"]', v.shape, on="slot", tied=v.tied)
    if draw.random() < 0.4:
        super(JoinWriter, writer).grow(draw.randrange(1, 3))
    slots = [v for v in writer.known if v.on == "slot" and v.kind == "float"]
    m = draw.choice(slots)
    writer.known = [m]
    usual, is_usual = AGGREGATIONS[: 6 if m.tied else None], draw.random() < 0.75
    for _ in range(draw.choice((1, 2, 3, 4))):
        if is_usual:
            writer.put(draw.choice(usual).format(m=m.name), m.shape, m, on="row")
        else:
            reduced(writer)
    writer.known = [v for v in writer.known if v.on == "row"]
    if draw.random() < 0.6:  # the degree, one number a row
        box = f'nodes.mailbox["{next(iter(sent))}"]'
        writer.put(f"{box}.new_full(({box}.shape[0], 1), {box}.shape[1])", (1,), tied=True)
    for rule in draw.sample([writer.joined, writer.scaled, writer.joined], draw.choice((0, 2, 3))):
        rule()
    for _ in range(draw.randrange(0, 3)):
        leaf(writer, "nodes.data", shapes)
    writer.grow(draw.randrange(0, 5))
    writer.joined()
    rows = [v for v in writer.known if v.on == "row" and v.kind == "float"]
    chosen = [rows[-1], *draw.sample(rows[:-1], min(len(rows) - 1, draw.choice((0, 0, 1, 2))))]
    return dict(zip(("o", "p", "t"), chosen, strict=False))


def _written_apply(writer: JoinWriter, shapes: Shapes, rows: Mapping[str, Var]) -> dict[str, Var]:
    draw = writer.draw
    for name, v in rows.items():
        writer.put(f'nodes.data["{name}"]', v.shape, tied=True)
    for _ in range(draw.randrange(1, 4)):
        leaf(writer, "nodes.data", shapes)
    writer.grow(draw.randrange(1, 5))
    floats = [v for v in writer.known if v.kind == "float"] or [writer.put('nodes.data["a"]', shapes["node:a"][0])]
    return dict(zip(("v", "u"), floats[: -1 - draw.randrange(2) : -1], strict=False))
