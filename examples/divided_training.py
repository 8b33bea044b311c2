"""A model that one process has no memory for, trained by several: its step is divided, its parameters lie in shards.

    torchrun --nproc-per-node 4 examples/divided_training.py          each may hold 0.6 of what one would need
    torchrun --nproc-per-node 4 examples/divided_training.py          again: goes on from the checkpoint
    python examples/divided_training.py --smoke                       the same in one process, without a limit

The loop is an ordinary one: gradients of two batches add up, are clipped, and step at a falling rate; the last batch
of an epoch is short; every epoch ends with an evaluation and a checkpoint. Source: Wang, Huang and Li 2019 (Tofu).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph


class Net(nn.Module):
    """Returns its loss, or logits where there are no labels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.norm, self.dropout = nn.Linear(32, width), nn.BatchNorm1d(width), nn.Dropout(0.1)
        self.second, self.out = nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        h = self.dropout(torch.relu(self.norm(self.first(x))))
        logits = self.out(torch.relu(self.second(h)))
        return logits if y is None else F.cross_entropy(logits, y)


def drawn(num_rows: int) -> tuple[Tensor, Tensor]:
    """Points around four centres."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (num_rows,), generator=draw)
    centres = torch.randn(4, 32, generator=draw)
    return centres[y] + torch.randn(num_rows, 32, generator=draw), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, help="a folder that all processes see (a temporary one)")
    parser.add_argument("--epochs", type=int, default=3, help="how many more")
    parser.add_argument("--smoke", action="store_true", help="small, one epoch")
    options = parser.parse_args()
    torch.manual_seed(0)
    workers, size = int(os.environ.get("WORLD_SIZE", "1")), 64
    folder = options.checkpoint or Path(tempfile.gettempdir()) / f"vgraph-divided-{os.getuid()}-{workers}"
    x, y = drawn(5 * size + 24)  # the last batch is short
    model, batch = Net(64 if options.smoke else 1024), (x[:size], y[:size])
    limit = 0.6 * vgraph.parallelize(model, batch, 1).memory_per_worker if workers > 1 else None
    plan = vgraph.parallelize(model, batch, workers, memory_limit=limit)
    worker = plan.worker()
    optimizer = torch.optim.Adam(worker.parameters(), lr=1e-3)
    done = 0
    if not options.smoke and folder.exists():
        worker.load(folder, optimizer)
        done = int(next(iter(optimizer.state.values()))["step"])
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.98**step, last_epoch=done - 1)
    for _ in range(1 if options.smoke else options.epochs):
        worker.train()
        for number, start in enumerate(range(0, len(x), size), 1):
            loss = worker(x[start : start + size], y[start : start + size])  # leaves gradients, which add up
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(worker.parameters(), 1.0)  # over all workers
                optimizer.step()
                rates.step()
                optimizer.zero_grad()
        right = (worker.eval()(x).argmax(1) == y).float().mean()
        if not options.smoke:
            worker.save(folder, optimizer)
        if worker.rank == 0:
            print(f"step {int(rates.last_epoch)}: loss {loss:.4f}, right {100 * right:.1f} %", flush=True)


if __name__ == "__main__":
    main()
