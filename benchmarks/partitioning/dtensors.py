"""The twenty-six models as DTensors: bytes of a step, of the plan as it holds its own state, of the plans with a name.

Nothing runs: ``dtensor_layout()`` says what a step of ``as_dtensor`` moves; tests compare it with what processes send.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

import vgraph

from .listed import MODELS, listed, named_of

WORKERS = (2, 4)


def section_dtensors(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row a model and number of processes; ``moved``: parameters that are moved at every step."""
    for name in tqdm(options.models or (["perceptron"] if options.smoke else list(MODELS)), disable=None):
        for workers in WORKERS[:1] if options.smoke else WORKERS:
            plan = vgraph.parallelize(*listed(name), workers)
            layout = plan.dtensor_layout()
            named = {f"{title}, kB": each.moved / 1e3 for title, each in named_of(plan)}
            named |= {f"{title}, shares": each.shares for title, each in named_of(plan)}
            yield {
                "model": name, "method": str(workers), "kB moved": layout.communicated_bytes / 1e3,
                "kB planned": layout.planned_bytes / 1e3, "kB of the plan": plan.communicated_bytes / 1e3,
                "moved": len(layout.planned), "in its place": layout.name, **named,
            }  # fmt: skip
