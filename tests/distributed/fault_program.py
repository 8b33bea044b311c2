"""What one process of a test of faults does; started by torchrun, or with torchrun's environment: ``WHAT FOLDER ...``.

What it has to say goes into files of the folder, as torchrun ends processes as soon as one has failed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import vgraph.distributed as vd
import vgraph.function as fn
from tests.distributed.sampled_program import step, training
from vgraph.errors import VGraphError
from vgraph.runtime.distributed.ranks import current_ranks

TIMEOUT = 4.0


def slow(folder: Path) -> None:
    """Rank 1 takes longer than others, for 300 steps."""
    for _ in range(300):
        time.sleep(0.01 * (vd.rank() == 1))
        vd.mean(torch.ones(3))


def full(folder: Path) -> None:
    """Full-graph steps without end."""
    g = vd.DistGraph(folder / "homogeneous")
    _endless(folder, lambda: g.update_all(fn.copy_u("feat", "m"), fn.sum("m", "s")))


def sampled(folder: Path) -> None:
    """Minibatches without end; only the loader's exchanges are between ranks."""
    loader, _, _ = training(folder)
    batches = iter(loader)

    def make() -> None:
        nonlocal batches
        if next(batches, None) is None:
            batches = iter(loader)

    _endless(folder, make)


def _endless(folder: Path, make: Callable[[], None]) -> None:
    steps = 0
    while True:
        make()
        steps += 1
        (folder / f"at-{vd.rank()}").write_text(f"{steps} {time.time()}")
        time.sleep(0.02)


def wide(folder: Path) -> None:
    """Twenty exchanges of wide rows; what they sent, by the counters."""
    g = vd.DistGraph(folder / "homogeneous")
    ranks, rows = current_ranks(), torch.ones(g.num_own_nodes(), 4096)
    before = ranks.sent_bytes
    vd.barrier()
    (folder / f"ready-{vd.rank()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    for number in range(20):
        g.ndata["rows"] = rows + number  # other rows at every step: those that stay are sent once
        g.update_all(fn.copy_u("rows", "m"), fn.sum("m", "s"))
    vd.barrier()
    (folder / f"sent-{vd.rank()}").write_text(str(ranks.sent_bytes - before))


def builds(folder: Path) -> None:
    """Each machine has its own build of the partition."""
    vd.DistGraph(folder / f"build-{os.environ['GROUP_RANK']}")


def damaged(folder: Path) -> None:
    """A file of the last rank's part is cut short."""
    vd.DistGraph(folder / "damaged")


def restarted(folder: Path, name: str, dies: str) -> None:
    """Eight steps with a checkpoint after the fourth; in its first life, rank 1 may die in the sixth."""
    loader, model, optimizer = training(folder)
    place, losses = folder / f"{name}-4", list[float]()
    weights, state = get_state_dict(model, optimizer)
    whole = {"model": weights, "optimizer": state, "loader": loader}
    if (folder / f"{name}-is-whole").exists():
        dcp.load(whole, checkpoint_id=place)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    begun = loader.epoch * len(loader) + loader.steps
    while begun + len(losses) < 8:
        for _, _, blocks in loader:
            with vd.lost_workers():
                losses.append(step(model, optimizer, blocks))
            at = begun + len(losses)
            if at == 4:
                weights, state = get_state_dict(model, optimizer)
                dcp.save({"model": weights, "optimizer": state, "loader": loader}, checkpoint_id=place)
                vd.barrier()
                (folder / f"{name}-is-whole").touch()
            if at == 6 and dies == "dies" and vd.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            if at == 8:
                break
    torch.save((begun, losses, [p.detach() for p in model.parameters()]), folder / f"{name}-end-{vd.rank()}.pt")


def main(what: str, folder: str, *rest: str) -> None:
    start = time.time()
    try:
        vd.init(timeout=timedelta(seconds=TIMEOUT if what in ("full", "sampled", "damaged") else 60))
        globals()[what](Path(folder), *rest)
    except VGraphError as error:
        rank = dist.get_rank() if dist.is_initialized() else os.environ["RANK"]
        told = f"{type(error).__name__}|{time.time()}|{time.time() - start}|{error}"
        partial = Path(folder) / f"partial-{rank}"  # it may be ended while it writes
        partial.write_text(told)
        partial.rename(Path(folder) / f"error-{rank}")
        print(f"rank {rank}: {error}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
