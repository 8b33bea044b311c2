"""Twenty-six models of many kinds, unprepared, each divided among 2, 3, 4 and 8 workers and run.

Of each: how far loss and gradients are from one process's, bytes and memory beside those of data parallel, FSDP and
Megatron, memory as shares of a worker's part of the whole, with the reason where it is more than 1.25 of that.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

import vgraph
from vgraph.api.dense.parallel import Plan
from vgraph.api.dense.plan_hints import NEAR, undivided
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.footprint import whole_footprint
from vgraph.partition.accounting.let_go import keep_within
from vgraph.partition.search.fit import FAIR_SHARE
from vgraph.partition.search.named import named_plans

from . import sequence_models as sequences
from . import vision_models as vision
from .sequence_models import LENGTH, WIDTH, words
from .vision_models import BATCH, images, labels

WORKERS = (2, 3, 4, 8)
Given = tuple[nn.Module, tuple[Tensor, ...]]


def _tokens() -> tuple[Tensor, Tensor]:
    return words(BATCH, LENGTH), words(BATCH, LENGTH)


def _rows(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH)


def _gpt(*, is_tied: bool) -> nn.Module:
    block = sequences.Block(sequences.perceptron(), nn.LayerNorm, is_causal=True)
    return sequences.Language(block, is_tied=is_tied)


def _with(inner: Callable[[], nn.Module], norm: type[nn.Module] = nn.LayerNorm) -> nn.Module:
    return sequences.Language(sequences.Block(inner(), norm, is_causal=True), is_tied=False)


def _ranked() -> tuple[Tensor, ...]:
    numbers, clicked = torch.randn(BATCH, 24), torch.randint(0, 2, (BATCH,)).double()
    return torch.randint(0, 960, (BATCH, 6)), torch.randint(0, 480, (BATCH,)), numbers, clicked


MODELS: Mapping[str, Callable[[], Given]] = {
    "ResNet": lambda: (
        vision.Classes(nn.Sequential(vision.Basic(3, 24, 1), vision.Basic(24, 48, 2)), 48),
        (images(), labels()),
    ),
    "ResNeXt": lambda: (vision.Classes(vision.Basic(3, 48, 2, groups=8), 48), (images(), labels())),
    "depthwise": lambda: (
        vision.Pipe(nn.Conv2d(3, 48, 1), nn.Conv2d(48, 48, 3, 1, 1, groups=48), nn.Conv2d(48, 24, 1)),
        (images(),),
    ),
    "DenseNet": lambda: (
        vision.Classes(nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), vision.Dense()), 96),
        (images(), labels()),
    ),
    "U-Net, interpolated": lambda: (vision.UNet(is_transposed=False), (images(),)),
    "U-Net, transposed": lambda: (vision.UNet(is_transposed=True), (images(),)),
    "generator": lambda: (
        vision.Pipe(
            nn.Linear(WIDTH, 48 * 16),
            nn.Unflatten(1, (48, 4, 4)),
            nn.ConvTranspose2d(48, 24, 4, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 3, 4, 2, 1),
        ),
        (_rows(BATCH),),
    ),
    "critic, spectral norm": lambda: (sequences.Critic(), (_rows(BATCH),)),
    "VAE": lambda: (vision.VAE(), (images(), torch.randn(BATCH, 24))),
    "Mixer": lambda: (vision.Mixer(), (_rows(BATCH, 16),)),
    "ViT": lambda: (vision.ViT(), (images(), labels())),
    "Fourier operator": lambda: (vision.Fourier(), (torch.randn(BATCH, 16, 24),)),
    "nn.TransformerEncoder": lambda: (sequences.Encoder(batch_first=True), (_rows(BATCH, LENGTH),)),
    "the same, time first": lambda: (sequences.Encoder(batch_first=False), (_rows(LENGTH, BATCH),)),
    "encoder by hand": lambda: (
        vision.Pipe(*(sequences.Block(sequences.perceptron(), nn.LayerNorm) for _ in range(2))),
        (_rows(BATCH, LENGTH),),
    ),
    "GPT": lambda: (_gpt(is_tied=False), _tokens()),
    "GPT, tied": lambda: (_gpt(is_tied=True), _tokens()),
    "Llama": lambda: (_with(sequences.Gated, nn.RMSNorm), _tokens()),
    "experts, top-k": lambda: (_with(sequences.Experts), _tokens()),
    "LoRA": lambda: (_with(sequences.Adapted), _tokens()),
    "LSTM": lambda: (sequences.Recurrent(nn.LSTM(WIDTH, WIDTH, 2)), (_rows(4, BATCH),)),
    "GRU": lambda: (sequences.Recurrent(nn.GRU(WIDTH, WIDTH, batch_first=True)), (_rows(BATCH, 4),)),
    "seq2seq": lambda: (sequences.Translation(), (words(BATCH, 4), words(BATCH, 4), words(BATCH, 4))),
    "DLRM, EmbeddingBag": lambda: (sequences.Ranking(), _ranked()),
    "CLIP": lambda: (sequences.Contrast(), (_rows(BATCH), _rows(BATCH))),
    "perceptron": lambda: (
        vision.Pipe(nn.Linear(WIDTH, 96), nn.Dropout(0.0), nn.ReLU(), nn.Linear(96, 24)),
        (_rows(BATCH),),
    ),
}


def listed(name: str) -> Given:
    """A model and its batch in double precision, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, batch = MODELS[name]()
    return model.double(), tuple(x.double() if x.is_floating_point() else x for x in batch)


@dataclass(frozen=True)
class Named:
    """What a named plan moves and holds, by the books; copies are let go where a worker would hold too many."""

    moved: float
    shares: float

    @property
    def fits(self) -> bool:
        """Whether a plan may hold as much without a limit."""
        return self.shares <= FAIR_SHARE


@dataclass(frozen=True)
class Outcome:
    """How a plan did: ``error`` of loss and gradients; bytes; shares of memory; why, where they are many."""

    error: float
    moved: int
    named: Mapping[str, Named]
    shares: float
    reason: str

    @property
    def best_named(self) -> float:
        """Bytes of the best named plan that fits; infinite: none does."""
        return min((each.moved for each in self.named.values() if each.fits), default=math.inf)


def outcome(model: nn.Module, batch: tuple[Tensor, ...], workers: int) -> Outcome:
    """Divides a step, runs it in this process, and compares."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    plan = vgraph.parallelize(model, batch, workers)
    found = plan.run_in_process(*batch)
    model.load_state_dict(state)  # spectral norm's vectors
    trained = [p for p in model.parameters() if p.requires_grad]
    loss = model(*batch)
    grads = torch.autograd.grad(loss, trained, allow_unused=True)
    got = [g for g, p in zip(found.grads, model.parameters(), strict=True) if p.requires_grad]
    pairs = [
        (found.loss, loss.detach()),
        *((a, b) for a, b in zip(got, grads, strict=True) if a is not None and b is not None),
    ]
    error = max(float((a - b).abs().max() / b.abs().max().clamp(min=1.0)) for a, b in pairs)
    share = whole_footprint(plan.step).total / workers
    shares = plan.memory_per_worker / share
    return Outcome(
        error,
        plan.communicated_bytes,
        dict(named_of(plan)),
        shares,
        "; ".join(_reasons(plan, share)) if shares > NEAR else "",
    )


def named_of(plan: Plan) -> Iterator[tuple[str, Named]]:
    """The named plans that the step has."""
    step, workers = plan.step, plan.num_workers
    share = whole_footprint(step).total / workers
    for name, other in named_plans(step, workers).items():
        kept, need = keep_within(account(step, other), FAIR_SHARE * share)
        yield name, Named(account(step, kept).total_bytes, need / share)


def _reasons(plan: Plan, share: float) -> Iterator[str]:
    for line in undivided(plan.book, share):
        yield line.strip()


def section_models(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a model and number of workers."""
    for name in tqdm(options.models or (["perceptron"] if options.smoke else list(MODELS)), disable=None):
        for workers in WORKERS[:1] if options.smoke else WORKERS:
            found = outcome(*listed(name), workers)
            named = {f"{title}, kB": each.moved / 1e3 for title, each in found.named.items()}
            named |= {f"{title}, shares": each.shares for title, each in found.named.items()}
            yield {
                "model": name, "method": str(workers), "error": found.error, "kB moved": found.moved / 1e3,
                "shares": found.shares, **named, "reason": found.reason,
            }  # fmt: skip
