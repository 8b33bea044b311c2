"""Random statements of ordinary PyTorch about rows, as text: what a user might write in a function of rows.

Takes: a random number generator. Gives: lines in which variables are made of variables. Only the last dims, those of
a row's features, are named, so that the same lines run on one row, on many, and on slots.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]
NUM_IDS = 5  # rows of tables that whole numbers choose from

SMOOTH = """
torch.tanh({x}) | torch.sigmoid({x}) | {x} * {c} | {x} + {c} | {c} - {x} | -{x} | torch.sin({x}) | {x}.cos() | {x} / 3
F.softplus({x}) | F.silu({x}) | F.gelu({x}) | F.elu({x}) | ({x} * {x} + 0.5).log() | ({x} * {x} + 1).rsqrt()
({x} * {x} + 0.5).sqrt() | torch.erf({x}) | torch.tanh({x}) ** 3 | torch.exp(torch.tanh({x})) | {x}.atan() | F.mish({x})
1 / ({x} * {x} + 1) | torch.log1p({x}.abs()) | {x}.abs() + 0.1 | {x}.detach() + {x} | {x}.contiguous().clone()
F.dropout({x}, 0.0) | F.dropout({x}, 0.5, training=False) | F.leaky_relu({x}, 0.1) | {x}.sub({c}, alpha=2)
torch.expm1(torch.tanh({x})) | {x}.sigmoid().neg().add(1) | torch.rsub({x}, 1, alpha=2) | F.logsigmoid({x})
{x}.tanh().square() | F.selu({x}) | torch.sinh({x}.tanh()) | {x}.to({x}.dtype) | F.hardswish({x})
{x}.mul({c}).add({c})
torch.addcmul({x}, {x}.tanh(), {x}.sin(), value=0.5) | torch.clone({x}).tanh_() | torch.where({x} > 0, {x}, 0.2 * {x})
"""
TIES = """
torch.relu({x}) | {x}.clamp(-0.5, 0.7) | {x}.clamp_min(0.1).reciprocal() | F.relu6({x}) | F.hardtanh({x}) | {x}.floor()
{x}.masked_fill({x} > 1, 0.5) | ({x} > 0).to({x}.dtype) | {x}.clamp(max=0.3) | F.threshold({x}, 0.2, -0.4)
torch.where({x} > 0.2, {x}, torch.zeros_like({x})) | {x}.new_ones({x}.shape) | {x}.round() + {x} | {x}.sign() + {x}
"""
BINARY = """
{a} + {b} | {a} - {b} | {a} * {b} | {a} / ({b} * {b} + 1) | torch.maximum({a}, {b}) | torch.minimum({a}, {b})
torch.where({a} > {b}, {a}, {b} * 0.5) | {a} * torch.sigmoid({b}) | torch.atan2({a}, {b} * {b} + 1)
torch.lerp({a}, {b}, 0.3) | torch.rsub({a}, {b}, alpha=2.0) | torch.add({a}, {b}, alpha=0.5) | {a}.sub({b}).tanh()
torch.addcmul({a}, {b}, {b}.tanh(), value=0.3) | ({b} * {c} + {a}).tanh() | torch.addcdiv({a}, {b}, {b} * {b} + 1)
{a}.detach() * {b} | torch.hypot({a} + 3, {b} * 0.1) | {a}.where({b} > 0.1, {b}) | torch.sigmoid({a}) * {b}.tanh()
"""


def _alternatives(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


UNARY = [*((text, False) for text in _alternatives(SMOOTH)), *((text, True) for text in _alternatives(TIES))]
PAIRED = _alternatives(BINARY)


@dataclass(frozen=True)
class Var:
    """A variable: rows of their own, or slots.

    ``tied``: numbers may be equal where those they are made of are not. ``free``: whether its
    width is that of a state (1), or its rank, too (2).
    """

    name: str
    shape: Shape
    on: str = "row"
    kind: str = "float"
    tied: bool = False
    free: int = 0


class Store:
    """Tensors and modules that functions read, by name: made when drawn, with numbers of any dtype."""

    def __init__(self, draw: random.Random, prefix: str, rounded: torch.dtype) -> None:
        self.draw, self.prefix, self.rounded = draw, prefix, rounded
        self.made: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self.numbers = torch.Generator().manual_seed(draw.randrange(1 << 30))

    def tensor(self, *shape: int) -> str:
        return self._named(("tensor", *shape), lambda: self._drawn(*shape))

    def linear(self, inputs: int, outputs: int, bias: bool) -> str:
        return self._named(("linear", inputs, outputs, bias), lambda: nn.Linear(inputs, outputs, bias).double())

    def norm(self, width: int) -> str:
        return self._named(("norm", width), lambda: nn.LayerNorm(width).double())

    def _named(self, form: tuple[Any, ...], make: Callable[[], Any]) -> str:
        alike = [name for name, (known, _) in self.made.items() if known == form]
        if alike and self.draw.random() < 0.4:
            return self.prefix + self.draw.choice(alike)
        name = f"{form[0][0]}{len(self.made)}"
        thing = make()
        if isinstance(thing, nn.Module):
            for parameter in thing.parameters():
                parameter.data = self._drawn(*parameter.shape).data
        self.made[name] = (form, thing)
        return self.prefix + name

    def _drawn(self, *shape: int) -> nn.Parameter:
        numbers = torch.randn(shape, dtype=torch.float64, generator=self.numbers) * 0.7
        return nn.Parameter(numbers.to(self.rounded).double())

    def things(self) -> dict[str, Any]:
        return {name: thing for name, (_, thing) in self.made.items()}


class Writer:
    """Statements one below the other, and what they have made so far.

    ``lift`` turns the text of a row into one that meets slots. A line has two texts: the user's, and that of the
    reference, where the two are not the same.
    """

    def __init__(self, draw: random.Random, store: Store, lift: str = "{}", first: str = "v") -> None:
        self.draw, self.store, self.lift, self.first = draw, store, lift, first
        self.lines: list[tuple[str, str]] = []
        self.known: list[Var] = []
        self.count = 0  # of variables, also of those that are known no more

    # ------------------------------------------------------------ variables
    def put(self, text: str, shape: Shape, like: Var | None = None, plain: str | None = None, **given: Any) -> Var:
        """A new variable with this text for its value."""
        made = Var(f"{self.first}{self.count}", shape)
        self.count += 1
        made = replace(made, on=like.on, tied=like.tied, free=like.free) if like else made
        made = replace(made, **given)
        self.line(f"{made.name} = {text}", f"{made.name} = {text if plain is None else plain}")
        self.known.append(made)
        return made

    def line(self, text: str, plain: str | None = None) -> None:
        self.lines.append((text, text if plain is None else plain))

    def choose(self, on: str | None = None, kind: str = "float", least: int = 0, most: int = 9) -> Var | None:
        """A variable of that kind, sooner one of the last."""
        fits = [v for v in self.known if v.kind == kind and on in (None, v.on) and least <= len(v.shape) <= most]
        return self.draw.choices(fits, [1 + 3 * i / len(fits) for i in range(len(fits))])[0] if fits else None

    def number(self) -> str:
        return self.draw.choice(["0.5", "1", "-0.7", "2", "1.3", "0.25"])

    def aligned(self, a: Var, b: Var) -> tuple[str, str, Var] | None:
        """Texts of both as they meet, and what the result is like; None where their shapes do not meet."""
        rank = max(len(a.shape), len(b.shape))
        on = "slot" if "slot" in (a.on, b.on) else "row"
        texts: list[str] = []
        for v in (a, b):
            text = v.name + f".unsqueeze({-len(v.shape) - 1})" * (rank - len(v.shape))
            texts.append(self.lift.format(text) if v.on != on else text)
        pairs = list(zip(*((1,) * (rank - len(v.shape)) + v.shape for v in (a, b)), strict=True))
        if any(x != y and 1 not in (x, y) for x, y in pairs):
            return None
        shape = tuple(y if x == 1 else x for x, y in pairs)
        return texts[0], texts[1], Var("", shape, on, tied=a.tied or b.tied, free=max(a.free, b.free))

    # ------------------------------------------------------------ statements
    def grow(self, steps: int) -> None:
        """So many statements more."""
        tries = 0
        while steps and tries < 200:
            tries += 1
            if self.draw.choice(RULES)(self) is not None:
                steps -= 1

    def unary(self) -> Var | None:
        x = self.choose()
        if x is None:
            return None
        text, ties = self.draw.choice(UNARY)
        return self.put(text.format(x=x.name, c=self.number()), x.shape, x, tied=x.tied or ties)

    def binary(self) -> Var | None:
        a, b = self.choose(), self.choose()
        met = self.aligned(a, b) if a and b else None
        if met is None:
            return None
        text = self.draw.choice(PAIRED).format(a=met[0], b=met[1], c=self.number())
        return self.put(text, met[2].shape, met[2])

    def product(self) -> Var | None:
        """With a parameter."""
        x = self.choose(least=1)
        if x is None:
            return None
        inner, outer = x.shape[-1], self.draw.choice((1, 2, 3, 4, x.shape[-1], x.shape[-1]))
        many, store, n = (*x.shape[:-1], outer), self.store, x.name
        forms: list[Callable[[], tuple[str, Shape]]] = [
            lambda: (f"{n} @ {store.tensor(inner, outer)}", many),
            lambda: (f"torch.matmul({n}, {store.tensor(inner, outer)})", many),
            lambda: (f"F.linear({n}, {store.tensor(outer, inner)}, {store.tensor(outer)})", many),
            lambda: (f"F.linear({n}, {store.tensor(outer, inner)})", many),
            lambda: (f"{store.linear(inner, outer, True)}({n})", many),
            lambda: (f"{store.linear(inner, outer, False)}({n})", many),
            lambda: (f'torch.einsum("...i,ij->...j", {n}, {store.tensor(inner, outer)})', many),
            lambda: (f"{n} * {store.tensor(inner)}", x.shape),
            lambda: (f"{n} + {store.tensor(inner)}", x.shape),
            lambda: (f"{n} * {store.tensor()}", x.shape),
            lambda: (f"{n}.tanh() * {store.tensor(1)}", x.shape),
            lambda: (f"{store.norm(inner)}({n})", x.shape),
            lambda: (f"({n} * {store.tensor(inner)}).sum(-1)", x.shape[:-1]),
            lambda: (f"({n}.unsqueeze(-1) * {store.tensor(inner, outer)}).sum(-2)", many),
            lambda: (f"{n} @ {store.tensor(inner)}", x.shape[:-1]),
        ]
        text, shape = self.draw.choice(forms)()
        tied, free = x.tied or (inner == 1 and "norm" in text), 0 if x.free == 1 and shape == many else x.free
        return self.put(text, shape, x, tied=tied, free=free)

    def shaped(self) -> Var | None:
        """Over or along the dims of features."""
        x = self.choose(least=1, most=3)
        if x is None:
            return None
        text, shape = self.draw.choice(list(_along(x.name, x.shape, self.draw)))
        return self.put(text, shape, x, tied=x.tied or x.shape[-1] == 1 or any(w in text for w in _MAY_TIE))

    def joined(self) -> Var | None:
        a, b = self.choose(least=1), self.choose(least=1)
        if a is None or b is None or a.on != b.on or a.shape[:-1] != b.shape[:-1]:
            return None
        wide = (*a.shape[:-1], a.shape[-1] + b.shape[-1])
        choices = [
            (f"torch.cat([{a.name}, {b.name}], -1)", wide),
            (f"torch.cat(({a.name}, {b.name}, {a.name}), dim=-1)[..., 1:]", (*wide[:-1], wide[-1] + a.shape[-1] - 1)),
        ]
        if a.shape == b.shape:
            choices += [
                (f"torch.stack([{a.name}, {b.name}], -1)", (*a.shape, 2)),
                (f"torch.stack([{a.name}, {b.name}], dim=-2).flatten(-2)", (*a.shape[:-1], 2 * a.shape[-1])),
                (f"({a.name} * {b.name}).sum(-1, keepdim=True)", (*a.shape[:-1], 1)),
                (f'torch.einsum("...i,...i->...", {a.name}, {b.name})', a.shape[:-1]),
                (f"F.cosine_similarity({a.name} + 1.5, {b.name} + 1.5, -1)", a.shape[:-1]),
            ]
        if len(a.shape) == 1:
            choices.append((f"{a.name}.unsqueeze(-1) * {b.name}.unsqueeze(-2)", (*a.shape, *b.shape)))
        text, shape = self.draw.choice(choices)
        tied, free = a.tied or b.tied or "cosine" in text, max(a.free, b.free)
        return self.put(text, shape, a, tied=tied, free=free) if _is_small(shape) else None

    def pieces(self) -> Var | None:
        """One tensor cut in two or three, of which two are used."""
        x = self.choose(least=1)
        if x is None or x.shape[-1] < 2:
            return None
        count = self.draw.choice([n for n in (2, 3) if x.shape[-1] % n == 0] or [x.shape[-1]])
        part = x.shape[-1] // count
        names = [f"{self.first}{self.count}{letter}" for letter in "abcdefgh"[:count]]
        if len(names) < count:
            return None
        cut = self.draw.choice([f"chunk({count}, -1)", f"split({part}, -1)", f"tensor_split({count}, dim=-1)"])
        self.line(f"{', '.join(names)} = {x.name}.{cut}")
        a, b = self.draw.choice(names), self.draw.choice(names)
        return self.put(f"{a} * torch.sigmoid({b})", (*x.shape[:-1], part), x)

    def in_place(self) -> Var | None:
        """A copy of its own, which is written to."""
        x = self.choose(least=1)
        if x is None:
            return None
        made = self.put(self.draw.choice(["{}.clone()", "{} + 0", "{} * 1.5"]).format(x.name), x.shape, x, tied=True)
        if self.draw.random() < 0.2:  # these keep what they gave: a second write would be refused by torch
            self.line(self.draw.choice(["{x}.tanh_()", "torch.relu_({x})", "{x}.sigmoid_()"]).format(x=made.name))
            return made
        for _ in range(self.draw.randrange(1, 4)):
            self.line(self.draw.choice(_WRITES).format(x=made.name, a=x.name, c=self.number()))
        return made

    def of_numbers(self) -> Var | None:
        """Whole numbers and truth values, brought to where they meet others."""
        k = self.choose(kind=self.draw.choice(("int", "bool")))
        if k is None:
            return None
        width, n = self.draw.choice((1, 2, 3)), k.name
        if k.kind == "bool":
            x = self.choose(on=k.on)
            if x is None or x.shape != k.shape:
                return self.put(f"{n}.to(DTYPE)", k.shape, k, kind="float", tied=True)
            text = self.draw.choice(
                ["torch.where({n}, {x}, 0.3)", "{x}.masked_fill({n}, 0.5)", "{x} * {n}", "{x} * ~{n}"]
            )
            return self.put(text.format(n=n, x=x.name), x.shape, x, tied=True)
        made: list[Callable[[], tuple[str, Shape, str]]] = [
            lambda: (f"F.embedding({n} % {NUM_IDS}, {self.store.tensor(NUM_IDS, width)})", (*k.shape, width), "float"),
            lambda: (f"{self.store.tensor(NUM_IDS, width)}[{n} % {NUM_IDS}]", (*k.shape, width), "float"),
            lambda: (f"F.one_hot({n} % {NUM_IDS}, {NUM_IDS}).to(DTYPE)", (*k.shape, NUM_IDS), "float"),
            lambda: (f"{n}.to(DTYPE) / 7", k.shape, "float"),
            lambda: (f"{n} * 2 + 1", k.shape, "int"),
            lambda: (f"{n} // 2", k.shape, "int"),
            lambda: (f"{n} > 2", k.shape, "bool"),
            lambda: (f"{n}.remainder(3) == 0", k.shape, "bool"),
        ]
        text, shape, kind = self.draw.choice(made)()
        return self.put(text, shape, k, kind=kind, tied=True)

    def compared(self) -> Var | None:
        x = self.choose()
        if x is None or x.tied:
            return None
        return self.put(f"{x.name} > {self.number()}", x.shape, x, kind="bool")


RULES: list[Callable[[Writer], Var | None]] = [
    *[Writer.unary] * 5, *[Writer.binary] * 5, *[Writer.product] * 4, *[Writer.shaped] * 4, *[Writer.joined] * 2,
    Writer.pieces, Writer.in_place, *[Writer.of_numbers] * 2, Writer.compared,
]  # fmt: skip
_MAY_TIE = ("softmax", "norm", "mean", "prod", "cumsum", "[..., [", "expand", "repeat", "roll", "pad", "tril", "var")
_WRITES = [
    "{x}.mul_({c})", "{x}[..., 0] = 0.3", "{x} += {a}", "{x}[..., :1] = {a}[..., -1:]", "{x}.add_({a}, alpha={c})",
    "{x}[..., -1] *= {c}", "{x}.masked_fill_({a} > 0.4, {c})", "{x} *= {a}.tanh()", "{x}.copy_({a})",
    "{x}[..., 0].add_({c})", "{x}.clamp_(-1, 1)", "{x}.zero_().add_({a})", "{x} -= {a}[..., :1]", "{x}.sin_()",
]  # fmt: skip


def _is_small(shape: Shape) -> bool:
    return torch.Size(shape).numel() <= 64 and len(shape) <= 3


def _along(x: str, shape: Shape, draw: random.Random) -> Iterator[tuple[str, Shape]]:
    """Texts that work along the dims of features, and the shapes they give."""
    width, outer = shape[-1], shape[:-1]
    yield from ((f"{x}{form}", shape) for form in _KEEPING)
    yield from ((f"{x}{form}", outer) for form in _LOSING)
    yield from ((f"{x}{form}", (*outer, 1)) for form in _NARROWING)
    yield f"F.layer_norm({x}, ({width},))", shape
    yield f"F.normalize({x} + 1.5, dim=-1)", shape
    yield f"F.pad({x}, (1, 0))", (*outer, width + 1)
    yield f"{x}[..., {draw.randrange(width)}]", outer
    few = draw.randrange(1, width + 1)
    yield f"{x}[..., {-few}:]", (*outer, few)
    yield f"{x}[..., :{few}]", (*outer, few)
    picks = [draw.randrange(width) for _ in range(draw.randrange(1, 4))]
    yield f"{x}[..., {picks}]", (*outer, len(picks))
    yield f"{x}.narrow(-1, {width - 1}, 1)", (*outer, 1)
    if len(shape) < 3:
        yield f"{x}.unsqueeze(-1)", (*shape, 1)
        yield f"{x}.unsqueeze(-2)", (*outer, 1, width)
        yield f"{x}.unsqueeze(-1).expand(*{x}.shape, 2)", (*shape, 2)
    if width == 1:
        yield f"{x}.squeeze(-1)", outer
    if width % 2 == 0:
        yield f"F.glu({x}, -1)", (*outer, width // 2)
        yield f"{x}[..., ::2]", (*outer, width // 2)
    if width % 2 == 0 and len(shape) < 3:
        yield f"{x}.unflatten(-1, (2, {width // 2}))", (*outer, 2, width // 2)
        yield f"{x}.reshape(*{x}.shape[:-1], {width // 2}, 2)", (*outer, width // 2, 2)
        yield f"{x}.unflatten(-1, ({width // 2}, 2))", (*outer, width // 2, 2)
    if len(shape) > 1:
        yield from _along_two(x, shape)


def _along_two(x: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """Texts that work along two dims of features."""
    *outer, high, width = shape
    yield f"{x}.transpose(-1, -2)", (*outer, width, high)
    yield f"{x}.mT.contiguous()", (*outer, width, high)
    yield f"{x}.flatten(-2)", (*outer, high * width)
    yield f"{x}.reshape(*{x}.shape[:-2], {high * width})", (*outer, high * width)
    yield f"{x}.sum(-2)", (*outer, width)
    yield f"{x}.mean((-2, -1))", tuple(outer)
    yield f"{x}.amax(-2, keepdim=True)", (*outer, 1, width)
    yield f"{x}.softmax(-2)", shape
    yield f"{x} @ {x}.transpose(-1, -2) / 3", (*outer, high, high)
    yield f"torch.matmul({x}.mT, {x}) / 3", (*outer, width, width)
    yield f"{x}[..., 0, :]", (*outer, width)
    yield f"{x}.unbind(-2)[-1]", (*outer, width)
    yield f"{x}.select(-2, 0)", (*outer, width)


_KEEPING = [
    ".softmax(-1)", ".log_softmax(-1)", ".cumsum(-1)", ".flip(-1)", ".roll(1, -1)", ".sub(0.5).softmax(dim=-1)",
]  # fmt: skip
_LOSING = [
    ".sum(-1)", ".mean(-1)", ".amax(-1)", ".max(-1).values", ".min(-1)[0]", ".logsumexp(-1)", ".tanh().prod(-1)",
    ".var(-1, unbiased=False)", ".square().add(0.1).sum(-1).sqrt()", ".add(2).norm(dim=-1)", ".amin(dim=-1)",
]  # fmt: skip
_NARROWING = [
    ".sum(-1, keepdim=True)", ".mean(-1, True)", ".amax(-1, keepdim=True)", ".logsumexp(-1, keepdim=True)",
    ".max(-1, keepdim=True).values", ".square().mean(-1, keepdim=True).add(0.1).sqrt()", ".sum(dim=-1).unsqueeze(-1)",
]  # fmt: skip


def namespace(store: Store, dtype: torch.dtype) -> dict[str, Any]:
    """What the text of a function finds when it runs; tensors are those of the store, in ``dtype``."""
    things = {name: _converted(thing, dtype) for name, thing in store.things().items()}
    return {"__name__": "__main__", "torch": torch, "F": F, "nn": nn, "Tensor": Tensor, "DTYPE": dtype, **things}


def _converted(thing: Any, dtype: torch.dtype) -> Any:
    if isinstance(thing, nn.Module):
        return copy.deepcopy(thing).to(dtype)
    return nn.Parameter(thing.detach().to(dtype))
