"""Random functions of wide rows, beside plain torch, where kernels take some features of all rows at a time.

Rows of several tiles in every dtype and shape of features, graphs with hubs, without edges, sorted and not; forward,
backward and double backward as the fuzzer of messages. Then what is taken in tiles has the bits of whole rows.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tests.campaign.drawn_messages import SPECS, Case, Data, Shapes, draw_data, functions_text
from tests.campaign.grammar import Shape, Store, Var, Writer
from tests.campaign.judging import Way, differentiated
from tests.campaign.limits import small_limits
from tests.campaign.messages import check_case, found_by, told
from vgraph.ir.row_tiles import TILE_BYTES
from vgraph.runtime.cpu import kernels

FULL_COUNT = 2_000
SHORT_COUNT = 1  # most of the time is that of the compiler

ENTRIES = "update update update apply bipartite block batch several pull push send".split()
DTYPES = {torch.float64: 3, torch.float32: 4, torch.bfloat16: 1.5, torch.float16: 1}
SIZES = [(1, 0), (1, 3), (2, 40), (9, 12), (9, 200), (30, 600), (30, 20), (50, 900)]  # nodes and edges
TILED = {"runtime.cpu.kernels._MOST_WHOLE": 0, "runtime.cpu.kernels._EDGES_A_COPY": 0}
EDGES = [  # of a row x at the far end, another y, one number s of the edge or of its end
    "{x}", "{x}", "{x} * {s}", "{s} * {x}", "{x} * {s}", "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} + {s}",
    "{x}.relu()", "({x} + {y}).relu()", "torch.tanh({x})", "{x}.abs()", "-{x}", "{x} * 0.5", "{x} / ({s} * {s} + 1)",
    "torch.where({s} > 0.1, {x}, {y})", "torch.maximum({x}, {y})", "torch.addcmul({y}, {x}, {s}, value=0.5)",
    "{x}.clamp(max=0.7) * {s}.sigmoid()", "{x} * ({s} > 0)", "torch.lerp({x}, {y}, 0.25)", "{x}.detach() * {s}",
    "{x}.float().to(DTYPE)", "F.leaky_relu({x} + {y}, 0.2)", "{x}.square()", "({x} > 0.2).to(DTYPE)",
]  # fmt: skip
VERTICES = [  # of a row r of the vertex, another x and a number s
    "{r} + {x}", "{r} * {s}", "{r} / (1 + {s}.abs())", "{r}.tanh()", "{r}.relu()", "{r} * {w}", "{r} + {w}",
    "torch.cat([{r}, {x}], -1)", "torch.cat([{r}, {r} * {s}, {x}], -1)", "torch.cat([{x}, {r}.tanh()], -1)",
    "torch.stack([{r}, {x}], -1)", "torch.stack([{r}, {x}], -2)", "{r}.flip(-1)", "{r} - {r}.mean(-1, keepdim=True)",
    "F.layer_norm({r}, ({n},))", "{r}[..., 1:]", "{r}[..., 1:] * {r}[..., :-1]", "{r} @ {m}",
    "1.5 * {r}",
]  # fmt: skip
AGGREGATIONS = [  # the last pick one of several numbers
    "{m}.sum(1)", "{m}.sum(1)", "{m}.mean(1)", "{m}.logsumexp(1)", "{m}.var(1, unbiased=False)", "{m}.tanh().prod(1)",
    "{m}.softmax(1).mul({m}).sum(1)", "{m}.square().mean(1)", "({m}.mean(1) - {m}.sum(1))", "{m}.nansum(1)",
    "{m}.amax(1)", "{m}.max(1).values", "{m}.amin(1)", "{m}.amax(1) - {m}.amin(1)",
]  # fmt: skip
PICK = ("max", "min")
EQUAL = ("relu", "clamp", "maximum", ">", "where", "abs")  # what may give equal numbers of different ones


def check(seed: int) -> str | None:
    """What is wrong with the case of a seed."""
    case, draw = make_case(seed), random.Random(f"limits of {seed}")
    with small_limits(draw, draw.choice((0.0, 0.1, 0.3)), TILED) as limits:
        failure = check_case(seed, case, 1.0) or _by_bits(seed, case)
    return failure and f"{failure}with {limits}\n"


def _by_bits(seed: int, case: Case) -> str | None:
    """The same kernels take features in tiles, and then all of a row."""
    way = Way(kernels=True, threads=random.Random(f"bits of {seed}").choice((1, 2, 3)))
    with way.running():
        names = case.functions(case.dtype, reference=False)
        for number, data in enumerate(case.data):
            try:
                wrong = _other_bits(case, data, names)
            except Exception:
                wrong = [traceback.format_exc(limit=-4)]
            if wrong:
                return told(seed, case, f"bits, {way}, graph {number}", wrong)
    return None


def _other_bits(case: Case, data: Data, names: Mapping[str, Any]) -> list[str]:
    leaves = [*data.leaves(), *names["parameters"]]
    in_tiles = differentiated(lambda: found_by(case, data, names), leaves, 1).all()
    with mock.patch.object(kernels, "_MOST_WHOLE", 1 << 62):
        whole = differentiated(lambda: found_by(case, data, names), leaves, 1).all()
    pairs = zip(in_tiles, whole, strict=True)
    return [f"{name} has other bits" for (name, one), (_, two) in pairs if not _has_bits_of(one, two)]


def _has_bits_of(one: Tensor, two: Tensor) -> bool:
    return one.dtype == two.dtype and torch.equal(one.isnan(), two.isnan()) and torch.equal(
        one.nan_to_num(7), two.nan_to_num(7)
    )  # fmt: skip


# ---------------------------------------------------------------- a case
def make_case(seed: int) -> Case:
    draw = random.Random(f"row tiles {seed}")
    entry = draw.choice(ENTRIES)
    dtype = draw.choices(list(DTYPES), list(DTYPES.values()))[0]
    store, shapes = Store(draw, "", dtype), _draw_shapes(draw, dtype)
    data = [_sorted(draw, draw_data(draw, entry, shapes, dtype, *size)) for size in draw.sample(SIZES, 2)]
    text = _draw_text(draw, store, shapes, entry)
    return Case(entry, text, text, store, "", data, dtype, frozen=0.3 if draw.random() < 0.3 else 0.0)


def _draw_shapes(draw: random.Random, dtype: torch.dtype) -> dict[str, tuple[Shape, str]]:
    """Rows of several tiles; now and then one that is none, or rows of two shapes."""
    tile = TILE_BYTES // dtype.itemsize
    size = tile * draw.choice((2, 2, 2, 3, 3, 4, 5)) + (draw.choice((-1, 1, 8)) if draw.random() < 0.04 else 0)
    heads = [(heads, size // heads) for heads in (2, 3, 4, 8) if size % heads == 0]
    wide = draw.choice([(size,), (size,), *heads])
    other = draw.choice([(size,), *heads]) if draw.random() < 0.2 else wide
    single = draw.choice([(1,) * len(wide), (1,) * len(wide), (), (*wide[:-1], 1)])
    drawn: dict[str, Shape] = {"a": wide, "b": draw.choice((wide, wide, other)), "s": single, "z": wide}
    drawn |= {"w": draw.choice((single, single, single, wide)), "x": single, "y": single}
    return {f"{kind}:{name}": (drawn.get(name, ()), what) for kind, specs in SPECS.items() for name, what in specs}


def _sorted(draw: random.Random, data: Data) -> Data:
    """Edges as they come, or sorted by one of their ends."""
    by = draw.choice((None, None, data.src, data.dst))
    if by is None:
        return data
    order = by.long().argsort(stable=True)
    return replace(data, src=data.src[order], dst=data.dst[order])


def _draw_text(draw: random.Random, store: Store, shapes: Shapes, entry: str) -> str:
    message, reduce, apply = Writer(draw, store), Writer(draw, store, first="u"), Writer(draw, store, first="r")
    sent = {f"m{i}": _sent(message, shapes) for i in range(draw.choice((1, 1, 1, 2)))}
    for name, v in sent.items():
        reduce.put(f'nodes.mailbox["{name}"]', v.shape, on="slot", tied=v.tied)
    boxes = list(reduce.known)
    rows = [_reduced(reduce, draw.choice(boxes)) for _ in range(draw.choice((1, 1, 2, 3)))]
    rows = [_on_vertices(reduce, row, shapes) for row in rows]
    found = dict(zip("opt", rows, strict=False))
    first = apply.put('nodes.data["o"]', rows[0].shape) if entry == "apply" else _node(apply, "a", shapes)
    last = {"v": _on_vertices(apply, first, shapes)}
    return functions_text([
        ("message", "edges", message, sent), ("reduce", "nodes", reduce, found), ("apply", "nodes", apply, last),
    ])  # fmt: skip


def _sent(writer: Writer, shapes: Shapes) -> Var:
    draw = writer.draw
    v = writer.put('edges.src["a"]', shapes["node:a"][0])
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3))):
        end, name = draw.choice([("dst", "b"), ("src", "b"), ("src", "a"), ("src", "z")])
        other = f'edges.{end}["{name}"]' + (".to(DTYPE)" if name == "z" else "")
        if shapes[f"node:{name}"][0] != v.shape:
            other += f".reshape({v.name}.shape)"
        where, name = draw.choice([("data", "w"), ("data", "x"), ("src", "s"), ("dst", "s")])
        shape, _ = shapes[f"{'edge' if where == 'data' else 'node'}:{name}"]
        single = f'edges.{where}["{name}"]' + "[..., None]" * (len(v.shape) - len(shape))
        text = draw.choice(EDGES)
        tied = v.tied or any(word in text for word in EQUAL)
        v = writer.put(text.format(x=v.name, y=other, s=single), v.shape, tied=tied)
    return v


def _reduced(writer: Writer, m: Var) -> Var:
    """In 16 bits without products, whose second derivative has no correct digits there (docs/limits.md)."""
    left_out = (*(PICK if m.tied else ()), *(("prod",) if writer.store.rounded.itemsize == 2 else ()))
    usual = [text for text in AGGREGATIONS if not any(word in text for word in left_out)]
    return writer.put(writer.draw.choice(usual).format(m=m.name), m.shape, tied=True)


def _node(writer: Writer, name: str, shapes: Shapes, shape: Shape | None = None) -> Var:
    own = shapes[f"node:{name}"][0]
    text = f'nodes.data["{name}"]' + (f".reshape(-1, *{shape})" if shape not in (None, own) else "")
    return writer.put(text, own if shape is None else shape)


def _on_vertices(writer: Writer, row: Var, shapes: Shapes) -> Var:
    """Statements about a vertex's row, as long as it has the shape of a feature."""
    draw, wide = writer.draw, row.shape
    for _ in range(draw.choice((0, 0, 0, 1, 2))):
        if row.shape != wide:
            return row
        name, n = draw.choice("ab"), wide[-1]
        x = _node(writer, name, shapes, wide) if prod(shapes[f"node:{name}"][0]) == prod(wide) else row
        s = 'nodes.data["s"]' + "[..., None]" * (len(wide) - len(shapes["node:s"][0]))
        w, m = writer.store.tensor(n), writer.store.tensor(n, 16)
        text = draw.choice(VERTICES)
        shape = _shape_of(text, wide)
        row = writer.put(text.format(r=row.name, x=x.name, s=s, w=w, m=m, n=n), shape)
    return row


def _shape_of(text: str, wide: Shape) -> Shape:
    """Only whether it is the row's own matters to what follows."""
    grows: Sequence[tuple[str, Callable[[Shape], Shape]]] = [
        ("cat", lambda s: (*s[:-1], s[-1] * (3 if "r} * {s" in text else 2))), ("stack", lambda s: (*s, 2)),
        ("1:]", lambda s: (*s[:-1], s[-1] - 1)), ("@", lambda s: (*s[:-1], 16)),
    ]  # fmt: skip
    return next((made(wide) for word, made in grows if word in text), wide)


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    return [found for case in range(seed, seed + count) if (found := check(case)) is not None]
