"""What a plan does layer by layer: how weights and results are cut, which bytes move, what a worker holds.

docs/pictures/make.py draws the rows that are kept of the section: a wide ResNet, a GPT and a U-Net on four workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from models.resnet import WideResNet
from models.transformer import GPT
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from vgraph.api.dense.plan_report import HEAVY
from vgraph.ir.buffers import shared_operand
from vgraph.ir.program import Value, op_name
from vgraph.ir.sharding import ShardingPlan, Split, shard_region
from vgraph.ir.step import BACKWARD, FORWARD, TrainingStep
from vgraph.partition.accounting.account import Account, account
from vgraph.partition.search.fit import search_best

from .workloads import captured

WORKERS = 4
Given = tuple[nn.Module, tuple[Tensor, ...]]


class UNet(nn.Module):
    """Three levels of two convolutions each, down and up again, with what was found on the way down beside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip((3, *wide[:-1]), wide, strict=True))
        self.middle = _twice(wide[-1], 2 * wide[-1])
        self.raise_ = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(wide))
        self.up = nn.ModuleList(_twice(2 * w, w) for w in reversed(wide))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor, masks: Tensor) -> Tensor:
        found: list[Tensor] = []
        h = images
        for block in self.down:
            h = block(h)
            found.append(h)
            h = F.max_pool2d(h, 2)
        h = self.middle(h)
        for raised, block in zip(self.raise_, self.up, strict=True):
            h = block(torch.cat([raised(h), found.pop()], 1))
        return F.binary_cross_entropy_with_logits(self.out(h), masks)


def _twice(given: int, made: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(given, made, 3, padding=1), nn.ReLU(), nn.Conv2d(made, made, 3, padding=1), nn.ReLU()
    )


def _wresnet() -> Given:
    return WideResNet(50, 6, 1000, (1, 1, 1, 1)), (torch.zeros(8, 3, 224, 224), torch.zeros(8, dtype=torch.long))


def _gpt() -> Given:
    ids = torch.zeros(2, 1024, dtype=torch.long)
    return GPT(50304, 1536, 16, 2), (ids, ids)


def _unet() -> Given:
    return UNet(64), (torch.zeros(2, 3, 512, 512), torch.zeros(2, 1, 512, 512))


MODELS: Mapping[str, Callable[[], Given]] = {"wresnet": _wresnet, "gpt": _gpt, "unet": _unet}


def section_layers(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row a layer, in the order of the step; layers without products count with the one before."""
    for name in tqdm(options.models or list(MODELS)[: 1 if options.smoke else None], disable=None):
        with torch.device("meta"):
            model, inputs = MODELS[name]()
        step = captured(model, inputs)
        yield {"model": name, "layers": list(rows(account(step, search_best(step, WORKERS).plan)))}


def rows(book: Account) -> Iterator[dict[str, Any]]:
    """``moved``: bytes of forward and of backward and update; ``held``: bytes of a worker, weights with gradient and
    momentum, and results that the backward reads; ``weight``, ``result``: shape, dims cut, a tile for each worker.
    """
    step, plan = book.step, book.plan
    layer_of, names = _layers(step)
    moved = {name: [0.0, 0.0] for name in names}
    kept = dict.fromkeys(names, 0.0)
    made: dict[str, Value] = {}
    cuts: dict[str, dict[str, None]] = {name: {} for name in names}
    for number, (op, note) in enumerate(zip(step.ops, step.notes, strict=True)):
        name = layer_of[number]
        moved[name][note.phase != FORWARD] += sum(book.fetched[number]) + sum(book.kept[number])
        if note.phase == FORWARD and op_name(op.target) in HEAVY:
            made[name] = op.results[0]
            cuts[name][".".join(s.index or "all" for s in plan.strategies[number])] = None
    for value, number in _read_again(step).items():
        kept[layer_of[number]] += book.held_bytes(value)
    for name in names:
        weights = {key: v for key, v in step.parameters.items() if _owner(key, names) == name}
        largest = max(weights.values(), key=lambda v: v.row_bytes, default=None)
        yield {
            "layer": name, "cuts": ", ".join(cuts[name]), "moved": moved[name],
            "held": [3 * sum(map(book.held_bytes, weights.values())), kept[name]],
            "weight": tiles(largest, book, plan) if largest is not None else None,
            "result": tiles(made[name], book, plan) if name in made else None,
        }  # fmt: skip


def _layers(step: TrainingStep) -> tuple[list[str], list[str]]:
    """The layer of every op, and layers in order: modules that have products, and what follows each until the next."""
    heavy = dict.fromkeys(
        note.module for op, note in zip(step.ops, step.notes, strict=True)
        if note.phase == FORWARD and op_name(op.target) in HEAVY
    )  # fmt: skip
    before: dict[str, str] = {}
    last = next(iter(heavy))
    found: list[str] = []
    for note in step.notes:
        if note.phase == FORWARD:
            last = note.module if note.module in heavy else last
            before.setdefault(note.module, last)
        found.append(last if note.phase == FORWARD else before.get(note.module, last))
    return found, list(heavy)


def _owner(parameter: str, names: list[str]) -> str:
    """The layer that a parameter counts with: its module, or the last one before that by name."""
    module = parameter.rpartition(".")[0]
    return module if module in names else ""


def _read_again(step: TrainingStep) -> dict[Value, int]:
    """Results of the forward that the backward reads, and which op made each."""
    base: dict[int, Value] = {}
    maker: dict[int, int] = {}
    found: dict[Value, int] = {}
    for number, (op, note) in enumerate(zip(step.ops, step.notes, strict=True)):
        shared = shared_operand(op)
        for value in op.results:
            base[value.id] = base.get(shared.id, shared) if shared is not None else value
            if note.phase == FORWARD and shared is None:
                maker[value.id] = number
        if note.phase == BACKWARD:
            for value in op.operands():
                first = base.get(value.id, value)
                if first.id in maker:
                    found[first] = maker[first.id]
    return found


def tiles(value: Value, book: Account, plan: ShardingPlan) -> dict[str, Any]:
    """A tensor as a square of the two dims that are cut most: each worker's boxes, as left, top, width, height."""
    homes, shape = book.homes[value.id], value.row_shape
    cut = [placement.dim for placement in homes if isinstance(placement, Split)]
    dims = sorted(sorted(range(len(shape)), key=lambda d: (-cut.count(d), d))[:2])
    parts: list[str] = []
    for worker in range(plan.num_workers):
        region = shard_region(shape, homes, plan.axes, plan.digits(worker))
        runs = [[(a / shape[d], b / shape[d]) for a, b in region[d].runs] for d in dims] if region is not None else []
        down, across = (*runs, [(0.0, 1.0)])[:2] if runs else ([], [])
        boxes = [(left, top, right - left, bottom - top) for top, bottom in down for left, right in across]
        parts.append("; ".join(" ".join(f"{number:g}" for number in box) for box in boxes))
    return {"shape": " x ".join(map(str, shape)), "homes": " ".join(map(str, homes)), "tiles": parts}
