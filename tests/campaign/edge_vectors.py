"""Random attentions by single numbers of edges, beside plain torch, where kernels take eight edges at a time.

Scores made in many ways, reduced in several ways at once, on vertices with as many in-edges as make whole blocks and as
do not; forward, backward and double backward as the fuzzer of messages. What a block of edges hands from loop to loop
is NaN until it is made, so that what is read of no edge shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import torch

from tests.campaign.drawn_messages import SPECS, Case, Data, Shapes, draw_data, functions_text
from tests.campaign.grammar import Shape, Store, Var, Writer
from tests.campaign.limits import small_limits
from tests.campaign.messages import check_case
from vgraph.fusion.cpu.edge_vectors import EdgeVectors
from vgraph.fusion.text import block

FULL_COUNT = 2_000
SHORT_COUNT = 1  # most of the time is that of the compiler

ENTRIES = "update update update update bipartite block batch apply several pull push send".split()
DTYPES = {torch.float64: 6, torch.float32: 3, torch.bfloat16: 1, torch.float16: 0.5}
DEGREES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33)  # around the edges of a block
LONG = (127, 128, 129, 150)  # and of a chain
SCORES = [  # of rows x and y at the far end, z at the near one, single numbers s and t
    "({x} * {z}).sum(-1, keepdim=True)", "({x} * {z}).sum(-1, keepdim=True) / 2", "({x} * {z}).mean(-1, keepdim=True)",
    "({x} - {z}).square().sum(-1, keepdim=True)", "({x} * {z}).sum(-1, keepdim=True) + {s}", "{s} + {t}", "{s} * {t}",
    "{x}[..., :1] + {z}[..., -1:]", "{x}[..., :1] * {s}", "(({x} + {y}).tanh() * {z}).sum(-1, keepdim=True)",
    "({x} * {s}).sum(-1, keepdim=True)", "{x} @ {m}", "({x} + {z}) @ {m}", "F.leaky_relu({x} + {z}, 0.2) @ {m}",
    "({x} * {v}).sum(-1, keepdim=True) + ({z} * {v}).sum(-1, keepdim=True)", "{x}.amax(-1, keepdim=True) + {t}",
    "({x} * {z}).sum(-1, keepdim=True).detach() + {s}", "{s}", "torch.maximum({s}, {t})",
]  # fmt: skip
ON_SCORES = [
    "F.leaky_relu({x}, 0.2)", "{x}.tanh()", "{x}.sigmoid()", "F.softplus({x})", "{x}.tanh().exp()", "{x} * 0.5", "-{x}",
    "torch.where({x} > 0.1, {x}, 0.3 * {s})", "{x}.clamp(max=1.2)", "({x} * {x} + 1).log()", "{x} * ({s} > 0)",
    "torch.exp(-{x} * {x})", "{x} * {s}.tanh()", "F.dropout({x}, 0.5, training=False)", "{x}.float().to(DTYPE)",
]  # fmt: skip
KEPT = [  # numbers of slots s, another t: of as many numbers as s
    "{s}.softmax(1)", "({s} - {s}.amax(1, keepdim=True)).exp()", "({s} - {s}.amin(1, keepdim=True) + 0.1).log()",
    "torch.exp({s} - {s}.logsumexp(1, keepdim=True))", "{s}.log_softmax(1)", "(-{s}).softmax(1)", "{s}.sigmoid()",
    "({s} - {s}.mean(1, keepdim=True)).tanh()", "{s}.softmax(1) * {t}", "({s} * {t}).softmax(1)",
    "{s}.softmax(1) + {t}.softmax(1)", "({s}.softmax(1) * 2).exp()", "{s} / (1 + {t}.abs().sum(1, keepdim=True))",
    "({s} - {s}.amax(1, keepdim=True)).exp() / ({s}.exp().sum(1, keepdim=True) + 1)",
    "torch.where({s} > {t}, {s}, {t}).softmax(1)", "{s}.exp() / (1e-3 + {s}.exp().sum(1, keepdim=True))",
]  # fmt: skip
REDUCED = [  # of numbers e of slots
    "{e}.sum(1)", "{e}.mean(1)", "{e}.amax(1)", "{e}.amin(1)", "{e}.max(1).values", "{e}.min(1)[0]", "{e}.logsumexp(1)",
    "{e}.sum(1).clamp(min=1.4)", "{e}.square().sum(1)", "{e}.var(1, unbiased=False)", "{e}.tanh().prod(1)",
    "{e}.nansum(1)", "({e} > 0.3).sum(1).to(DTYPE)", "({e}.var(1, correction=0) + 0.1).sqrt()", "{e}.median(1).values",
    "{e}.amax(1) - {e}.amin(1)", "{e}.amax(1) + {e}.sum(1)", "{e}.max(1).indices.to(DTYPE)", "{e}.sum(1) + {e}[:, 0]",
]  # fmt: skip
WEIGHED = [  # rows m of slots by numbers e of slots
    "({e} * {m}).sum(1)", "({e} * {m}).mean(1)", "({e} * {m}).sum(1) / {e}.sum(1).clamp(min=1)",
    "({e} * {m}).amax(1)", "({e} * {m}).sum(1) / ({e}.abs().sum(1) + 0.5)", "(({e} * {m}).tanh()).sum(1)",
    "({e} * {m}).sum(1) + {e}.amax(1)", "torch.where({e} > 0.2, {m}, {e}).sum(1)", "({e} + {m}).logsumexp(1)",
    "({e} * {m}).square().sum(1)", "({e} * {m}).sum(1).relu() - {e}.logsumexp(1)",
]  # fmt: skip
PICK = ("max", "min", "median")
EQUAL = ("where", "clamp", ">", "amax", "maximum")  # what may give equal numbers of different ones


def check(seed: int) -> str | None:
    """What is wrong with the case of a seed."""
    case, draw = make_case(seed), random.Random(f"limits of {seed}")
    with small_limits(draw, draw.choice((0.0, 0.1, 0.3))) as limits, _unmade_is_nan():
        failure = check_case(seed, case, 1.0)
    return failure and f"{failure}with {limits}\n"


def _unmade_is_nan() -> AbstractContextManager[object]:
    """Kernels whose arrays of some edges hold NaN ahead of every block of edges."""
    text = EdgeVectors.text

    def poisoned(some: EdgeVectors, named: Callable[[Sequence[int]], str], ahead: str) -> str:
        written = text(some, named, ahead)
        head, opened, rest = written.partition("int32_t far[")
        return block(
            head,
            *(f'for (int z = 0; z < {a.size}; ++z) {a.name}[z] = __builtin_nan("");' for a in some.arrays()),
            opened + rest,
        )

    return mock.patch.object(EdgeVectors, "text", poisoned)


# ---------------------------------------------------------------- a case
def make_case(seed: int) -> Case:
    draw = random.Random(f"edge vectors {seed}")
    entry = draw.choice(ENTRIES)
    dtype = draw.choices(list(DTYPES), list(DTYPES.values()))[0]
    store, shapes = Store(draw, "", dtype), _draw_shapes(draw)
    data = [_draw_data(draw, entry, shapes, dtype) for _ in range(2)]
    text = _draw_text(draw, store, shapes, entry)
    return Case(entry, text, text, store, "", data, dtype, frozen=0.3 if draw.random() < 0.3 else 0.0)


def _draw_shapes(draw: random.Random) -> dict[str, tuple[Shape, str]]:
    """Rows, and single numbers; now and then of two heads."""
    width = draw.choice((1, 2, 3, 4, 8, 10, 16, 17))
    heads: Shape = draw.choice([(), (), (), (1,), (2,)])
    wide, single = (*heads, width), (*heads, 1)
    drawn: dict[str, Shape] = {"a": wide, "b": wide, "z": wide, "w": single, "x": single, "s": single}
    return {f"{kind}:{name}": (drawn.get(name, ()), what) for kind, specs in SPECS.items() for name, what in specs}


def _draw_data(draw: random.Random, entry: str, shapes: Shapes, dtype: torch.dtype) -> Data:
    """Edges in the order of their destinations, of their sources, or in none."""
    degrees = draw.choices(DEGREES, k=draw.choice((1, 3, 6, 12))) + draw.choices(LONG, k=draw.choice((0, 0, 0, 1)))
    draw.shuffle(degrees)
    degrees[draw.randrange(len(degrees))] += sum(degrees) == 0
    data = draw_data(draw, entry, shapes, dtype, len(degrees), sum(degrees))
    data = replace(data, dst=torch.arange(len(degrees)).repeat_interleave(torch.tensor(degrees)).to(data.dst.dtype))
    order = draw.choice((torch.arange(len(data.dst)), data.src.long().argsort(), torch.randperm(len(data.dst))))
    return replace(data, src=data.src[order], dst=data.dst[order])


def _draw_text(draw: random.Random, store: Store, shapes: Shapes, entry: str) -> str:
    message, reduce, apply = Writer(draw, store), Writer(draw, store, first="u"), Writer(draw, store, first="r")
    wide = shapes["node:a"][0]
    x, y, z = (
        message.put(f'edges.{end}["{name}"]', wide)
        for end, name in (("src", "a"), ("src", "b"), ("dst", draw.choice("ab")))
    )
    sent = {"m": draw.choice((x, x, y))} | {name: _score(message, x, y, z) for name in draw.choice(("s", "s", "st"))}
    m, *scores = (reduce.put(f'nodes.mailbox["{name}"]', v.shape, on="slot", tied=v.tied) for name, v in sent.items())
    rows = [_reduced(reduce, m, scores) for _ in range(draw.choice((1, 2, 2, 3)))]
    found = dict(zip("opt", rows, strict=False))
    first = apply.put('nodes.data["o"]', rows[0].shape) if entry == "apply" else apply.put('nodes.data["a"]', wide)
    return functions_text([
        ("message", "edges", message, sent), ("reduce", "nodes", reduce, found),
        ("apply", "nodes", apply, {"v": apply.put(f"{first.name}.tanh()", first.shape)}),
    ])  # fmt: skip


def _score(writer: Writer, x: Var, y: Var, z: Var) -> Var:
    draw, single = writer.draw, (*x.shape[:-1], 1)
    numbers = [("src", "s"), ("dst", "s"), ("data", "w"), ("data", "x")]
    s, t = (f'edges.{end}["{name}"]' for end, name in draw.sample(numbers, 2))
    m, v = writer.store.tensor(x.shape[-1], 1), writer.store.tensor(x.shape[-1])
    text = draw.choice(SCORES)
    given = {"x": x.name, "y": y.name, "z": z.name, "s": s, "t": t, "m": m, "v": v}
    score = writer.put(text.format(**given), single, tied=any(word in text for word in EQUAL))
    for _ in range(draw.choice((0, 0, 1, 2))):
        text = draw.choice(ON_SCORES)
        score = writer.put(
            text.format(x=score.name, s=s), single, tied=score.tied or any(word in text for word in EQUAL)
        )
    return score


def _reduced(writer: Writer, m: Var, scores: Sequence[Var]) -> Var:
    """In 16 bits without products, whose second derivative has no correct digits there (docs/limits.md)."""
    draw, s, t = writer.draw, writer.draw.choice(scores), scores[-1]
    text = draw.choice(KEPT)
    tied = s.tied or t.tied or any(word in text for word in EQUAL)
    e = s if draw.random() < 0.25 else writer.put(text.format(s=s.name, t=t.name), s.shape, on="slot", tied=tied)
    left_out = (*(PICK if e.tied else ()), *(("prod",) if writer.store.rounded.itemsize == 2 else ()))
    usual = [text for text in (*REDUCED, *WEIGHED) if not any(word in text for word in left_out)]
    text = draw.choice(usual)
    return writer.put(text.format(e=e.name, m=m.name), m.shape if "{m}" in text else s.shape, tied=True)


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    return [found for case in range(seed, seed + count) if (found := check(case)) is not None]
