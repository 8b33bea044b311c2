"""Checkpoints: all that a stopped training needs in order to go on as if it had not been stopped.

Takes: modules, optimizers, progress. Gives: one file, and all of it back. Runs every few seconds.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from vgraph.atomic_file import atomic_file
from vgraph.cli.checkpoint_checks import check_generators, check_progress, fits_module, fits_optimizer
from vgraph.errors import CheckpointError, DataError
from vgraph.files import read_archive

logger = logging.getLogger("vgraph")

FORMAT = 1
CURE_DAMAGED = "restore the file from a copy, or begin anew with another --checkpoint"
Parts: TypeAlias = Mapping[str, nn.Module | torch.optim.Optimizer]
Identity: TypeAlias = dict[str, str | int | float]


class DamagedCheckpointError(CheckpointError):
    """A checkpoint of which something is missing or changed."""


@dataclass
class Progress:
    """How far a training has come, and what it has measured.

    ``order``: the samples of this epoch as they are visited; ``position``: how many of them are
    done; ``loss_sum``: of these; ``history``: one entry an epoch, of all seeds so far.
    """

    seed: int
    epoch: int = 0
    position: int = 0
    order: list[int] = field(default_factory=list[int])
    loss_sum: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds, checked against the training that it is to continue."""

    path: Path
    progress: Progress
    parts: Mapping[str, Mapping[str, object]]
    random_states: Mapping[str, Any]

    def progress_of(self, seeds: range) -> Progress:
        """The progress; CheckpointError: it is of a seed that is not trained here."""
        if self.progress.seed not in seeds:
            raise _damaged(self.path, f"it is of seed {self.progress.seed}")
        return self.progress

    def restore(self, parts: Parts, num_samples: int) -> None:
        """Puts everything back; CheckpointError, and nothing is changed, where it does not fit."""
        if len(self.progress.order) not in (0, num_samples):
            raise _damaged(self.path, f"its order is of {len(self.progress.order)} samples, of {num_samples}")
        for name, part in parts.items():
            _check_part(self.path, name, part, self.parts.get(name))
        try:
            set_random_states(self.random_states)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise _damaged(self.path, "the random states") from error
        for name, part in parts.items():
            part.load_state_dict(dict(self.parts[name]))


def save_checkpoint(path: Path, identity: Identity, parts: Parts, progress: Progress) -> None:
    """Writes the file as a whole or not at all: a stop while writing leaves the last one.

    The one before is kept as ``NAME.previous``, for the day on which a disk damages the last one.

    Raises:
        CheckpointError: the file cannot be written; the last one is as it was.
    """
    content = {
        "format": FORMAT,
        "identity": identity,
        "progress": asdict(progress),
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "random_states": random_states(),
    }
    try:
        with atomic_file(path, previous=_previous(path)) as file:
            torch.save(content, file)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint cannot be written: {error.strerror or error}",
            line=str(path),
            cure="make room, or free the path; then go on from the last one with --resume",
        ) from error


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def load_checkpoint(path: Path, identity: Identity) -> Checkpoint:
    """Reads a file, or the one before it where the file is damaged (and says so); runs no code from it.

    Raises:
        CheckpointError: it is missing, damaged, or of another model, data or setting.
    """
    previous = _previous(path)
    if not path.exists() and not previous.exists():
        raise CheckpointError("there is no such checkpoint", line=str(path), cure="begin without --resume")
    try:
        return _load(path, identity)
    except DamagedCheckpointError as error:
        if not previous.exists():
            raise
        found = _load(previous, identity)
        logger.warning("%s: %s; the training goes on from the one before, %s", path, error.fact, previous.name)
        return found


def _load(path: Path, identity: Identity) -> Checkpoint:
    try:
        content = read_archive(path)
    except DataError as error:
        if isinstance(error.__cause__, (PermissionError, IsADirectoryError)):
            fact = f"the checkpoint cannot be read: {error.__cause__.strerror}"
            raise CheckpointError(fact, line=str(path), cure="name a file that you may read") from error
        raise _damaged(path, error.fact) from error
    kind = content.get("format") if isinstance(content, dict) else None
    if type(kind) is not int or kind != FORMAT:
        fact, cure = f"this is no checkpoint of vgraph in format {FORMAT}", "name the file that vgraph train wrote"
        if type(kind) is int and kind > FORMAT:
            fact, cure = f"the checkpoint has format {kind}; this vgraph reads {FORMAT}", "resume with a newer vgraph"
        raise CheckpointError(fact, line=str(path), cure=cure)
    try:
        found, states = content["identity"], content["random_states"]
        _check_identity(path, dict(found), identity)
        progress, parts = _read_progress(content["progress"]), dict(content["parts"])
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor is compared
        raise _damaged(path, f"{error} does not fit") from error
    return Checkpoint(path, progress, parts, states)


def random_states() -> dict[str, object]:
    """The states of torch's, Python's and NumPy's generators, in types that load without code."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), position, has_gauss, gauss),
    }


def set_random_states(states: Mapping[str, Any]) -> None:
    """Undoes what has been drawn since ``random_states``; states that do not fit change nothing."""
    check_generators(states["numpy"])
    kind, keys, *rest = states["numpy"]
    numpy_state = (kind, np.asarray(keys, np.uint32), *rest)
    np.random.RandomState().set_state(numpy_state)
    random.Random().setstate(states["python"])
    torch.Generator().set_state(states["torch"])
    # all three fit: the real ones now
    np.random.set_state(numpy_state)
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])


def _read_progress(stored: Mapping[str, Any]) -> Progress:
    names = {item.name for item in fields(Progress)}
    if set(stored) != names:
        raise ValueError(f"progress with {sorted(stored)}")
    check_progress(stored)
    return Progress(**stored)


def _check_identity(path: Path, found: Mapping[str, object], wanted: Identity) -> None:
    wrong = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if wrong:
        there = ", ".join(f"{name}={found.get(name)}" for name in wrong)
        here = ", ".join(f"{name}={wanted.get(name)}" for name in wrong)
        raise CheckpointError(
            f"the checkpoint is of another training: it has {there}, this one {here}",
            line=str(path),
            cure="resume with the arguments it was made with, or name another file",
        )


def _check_part(path: Path, name: str, part: nn.Module | torch.optim.Optimizer, stored: object) -> None:
    if not isinstance(stored, Mapping):
        raise _damaged(path, f"{name} is missing")
    fits = fits_module(part, stored) if isinstance(part, nn.Module) else fits_optimizer(part, stored)
    if not fits:
        raise CheckpointError(
            f"the {name} of the checkpoint has other tensors than this one's",
            line=str(path),
            cure="resume with the model it was made with, or name another file",
        )


def _damaged(path: Path, what: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"the checkpoint is damaged: {what}", line=str(path), cure=CURE_DAMAGED)
