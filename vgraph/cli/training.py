"""The training loop: epochs of steps, measured, kept, stopped and resumed.

Takes: a Task for every seed. Gives: what was measured in every epoch. Runs at every step.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from vgraph.cli.checkpoint import Checkpoint, Identity, Parts, Progress, save_checkpoint
from vgraph.errors import TrainingError

SECONDS_BETWEEN_SAVES = 10.0


class Task(Protocol):
    """A model, its data and how it is measured.

    ``parts``: all that changes in training, by name. ``evaluate``: figures "val" and "test", of which the
    largest is best, and others; it draws no random numbers, so that it may be repeated.
    """

    num_samples: int
    batch_size: int

    @property
    def parts(self) -> Parts: ...
    def step(self, ids: list[int]) -> float: ...
    def evaluate(self) -> dict[str, float]: ...


class Stopped(Exception):
    """The user asked to stop; what was done is kept, where a checkpoint was asked for."""


class Diverged(Exception):
    """The loss or its gradient is no finite number; the parameters are those from before the step."""


class StopRequest:
    """Ctrl-C and SIGTERM as a request that is granted between two steps, never within one."""

    def __init__(self) -> None:
        self.is_made = False

    @contextmanager
    def heard(self) -> Generator[None, None, None]:
        """Listens to signals, where this is the main thread; others cannot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._make) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _make(self, number: int, frame: FrameType | None) -> None:
        if self.is_made:  # the second time: at once
            raise KeyboardInterrupt
        self.is_made = True


@dataclass
class Trainer:
    """Trains one Task a seed and keeps what a stopped training needs.

    ``make_task(seed)`` seeds the generators and builds; ``on_save(history)`` is called whenever the
    checkpoint would be written, ``on_epoch(entry)`` after every epoch.
    """

    make_task: Callable[[int], Task]
    seeds: range
    epochs: int
    identity: Identity
    path: Path | None = None
    on_save: Callable[[list[dict[str, float]]], None] = lambda history: None
    on_epoch: Callable[[dict[str, float]], None] = lambda entry: None
    stop: StopRequest = field(default_factory=StopRequest)
    _saved_at: float = 0.0

    def run(self, resumed: Checkpoint | None = None) -> list[dict[str, float]]:
        """Everything that is left to do; gives the history of all seeds.

        Raises:
            Stopped: a signal asked for it; the checkpoint holds all that was done.
            TrainingError: a loss or a gradient is no finite number; the checkpoint is as it was last saved.
        """
        self._saved_at = time.monotonic()
        progress = Progress(self.seeds[0]) if resumed is None else resumed.progress_of(self.seeds)
        with self.stop.heard():
            for seed in range(progress.seed, self.seeds.stop):
                if seed != progress.seed:
                    progress = Progress(seed, history=progress.history)
                task = self.make_task(seed)
                if resumed is not None:
                    resumed.restore(task.parts, task.num_samples)
                    resumed = None
                self._train(task, progress)
        return progress.history

    def _train(self, task: Task, progress: Progress) -> None:
        one_step = task.num_samples <= task.batch_size
        first = progress.epoch
        bar = tqdm(
            desc=f"seed {progress.seed}",
            total=self.epochs,
            initial=first,
            unit="epoch",
            disable=None if one_step else True,
            leave=False,
        )
        with bar:
            while progress.epoch < self.epochs:
                self._train_epoch(task, progress, one_step)
                self.on_epoch(progress.history[-1])
                bar.update()
        self._save(task, progress)

    def _train_epoch(self, task: Task, progress: Progress, is_quiet: bool) -> None:
        """The rest of an epoch, and its measurement."""
        if not progress.order:
            progress.order = torch.randperm(task.num_samples).tolist()
        bar = tqdm(
            desc=f"epoch {progress.epoch + 1}",
            total=task.num_samples,
            unit="sample",
            initial=progress.position,
            disable=True if is_quiet else None,
            leave=False,
        )
        with bar:
            while progress.position < task.num_samples:
                self._take_step(task, progress)
                bar.update(progress.position - bar.n)
                bar.set_postfix(loss=progress.loss_sum / progress.position, refresh=False)
                self._save_if_due(task, progress)
        self._measure(task, progress)

    def _take_step(self, task: Task, progress: Progress) -> None:
        began = time.perf_counter()
        ids = progress.order[progress.position : progress.position + task.batch_size]
        try:
            progress.loss_sum += task.step(ids) * len(ids)
        except Diverged as found:
            raise self._diverged(task, progress, found) from None
        progress.position += len(ids)
        progress.seconds += time.perf_counter() - began

    def _diverged(self, task: Task, progress: Progress, found: Diverged) -> TrainingError:
        step, last = progress.position // task.batch_size + 1, -(-task.num_samples // task.batch_size)
        fact = f"{found} in seed {progress.seed}, epoch {progress.epoch + 1}, step {step} of {last}"
        kept = f"; {self.path}, if it is there, holds what was last saved" if self.path is not None else ""
        cure = "train with a smaller --lr, and see that the data and the model give finite numbers"
        return TrainingError(fact, line="", cure=cure + kept)

    def _measure(self, task: Task, progress: Progress) -> None:
        """Enters the epoch into the history and begins the next one."""
        progress.history.append(
            {
                "seed": progress.seed,
                "epoch": progress.epoch + 1,
                "loss": progress.loss_sum / task.num_samples,
                **task.evaluate(),
                "seconds": round(progress.seconds, 3),
            }
        )
        progress.epoch += 1
        progress.position, progress.order, progress.loss_sum = 0, [], 0.0
        progress.seconds = 0.0

    def _save_if_due(self, task: Task, progress: Progress) -> None:
        if self.stop.is_made:
            self._save(task, progress)
            done = f"epoch {progress.epoch + 1}, sample {progress.position} of {task.num_samples}"
            raise Stopped(f"stopped in {done}")
        if time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES:
            self._save(task, progress)

    def _save(self, task: Task, progress: Progress) -> None:
        if self.path is not None:
            save_checkpoint(self.path, self.identity, task.parts, progress)
        self.on_save(progress.history)
        self._saved_at = time.monotonic()


def descend(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, most: float = 5.0) -> float:
    """One step along the gradient, whose norm is cut at ``most``; gives the loss.

    Raises:
        Diverged: the loss or the norm is no finite number; no step is taken.
    """
    found = float(loss.detach())
    if not math.isfinite(found):
        raise Diverged(f"the loss is {found}")
    optimizer.zero_grad()
    loss.backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), most))
    if not math.isfinite(norm):
        raise Diverged(f"the loss is {found}, and the norm of its gradient {norm},")
    optimizer.step()
    return found
