"""Checkpoints: all that a stopped training needs in order to go on as if it had not been stopped.

Takes: modules, optimizers, progress. Gives: one file, and all of it back; tempo: every few seconds.
"""

from __future__ import annotations

import os
import random
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from vgraph.errors import CheckpointError

FORMAT = 1
CURE_DAMAGED = "restore the file from a copy, or begin anew with another --checkpoint"
Parts: TypeAlias = Mapping[str, nn.Module | torch.optim.Optimizer]
Identity: TypeAlias = dict[str, str | int | float]


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
    parts: Mapping[str, Mapping[str, Any]]
    random_states: Mapping[str, Any]

    def restore(self, parts: Parts) -> None:
        """Puts everything back; CheckpointError, and nothing is changed, where it does not fit."""
        for name, part in parts.items():
            _check_part(self.path, name, part, self.parts.get(name))
        try:
            set_random_states(self.random_states)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise _damaged(self.path, "the random states") from error
        for name, part in parts.items():
            part.load_state_dict(dict(self.parts[name]))


def save_checkpoint(path: Path, identity: Identity, parts: Parts, progress: Progress) -> None:
    """Writes the file as a whole or not at all: a stop while writing leaves the last one."""
    content = {
        "format": FORMAT,
        "identity": identity,
        "progress": asdict(progress),
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "random_states": random_states(),
    }
    handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load_checkpoint(path: Path, identity: Identity) -> Checkpoint:
    """Reads a file; runs no code from it.

    Raises:
        CheckpointError: it is missing, damaged, or of another model, data or setting.
    """
    if not path.exists():
        raise CheckpointError("there is no such checkpoint", line=str(path), cure="begin without --resume")
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums
            wrong = archive.testzip()
        if wrong:
            raise zipfile.BadZipFile(f"the checksum of {wrong} does not fit")
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged archive makes torch raise, it is damaged
        raise _damaged(path, str(error).partition("\n")[0]) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        fact = f"this is no checkpoint of vgraph in format {FORMAT}"
        raise CheckpointError(fact, line=str(path), cure="name the file that vgraph train wrote")
    try:
        found, states = content["identity"], content["random_states"]
        progress, parts = _read_progress(content["progress"]), dict(content["parts"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{error} does not fit") from error
    _check_identity(path, dict(found), identity)
    return Checkpoint(path, progress, parts, states)


def random_states() -> dict[str, Any]:
    """The states of torch's, Python's and NumPy's generators, in types that load without code."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), position, has_gauss, gauss),
    }


def set_random_states(states: Mapping[str, Any]) -> None:
    """Undoes what has been drawn since ``random_states``; states that do not fit change nothing."""
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
    return Progress(**stored)


def _check_identity(path: Path, found: Mapping[str, Any], wanted: Identity) -> None:
    wrong = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if wrong:
        there = ", ".join(f"{name}={found.get(name)}" for name in wrong)
        here = ", ".join(f"{name}={wanted.get(name)}" for name in wrong)
        raise CheckpointError(
            f"the checkpoint is of another training: it has {there}, this one {here}",
            line=str(path), cure="resume with the arguments it was made with, or name another file",
        )  # fmt: skip


def _check_part(path: Path, name: str, part: nn.Module | torch.optim.Optimizer, stored: Any) -> None:
    if not isinstance(stored, Mapping):
        raise _damaged(path, f"{name} is missing")
    if isinstance(part, nn.Module):
        fits = _shapes(part.state_dict()) == _shapes(stored)
    else:
        fits = _fits_optimizer(part, stored)
    if not fits:
        raise CheckpointError(
            f"the {name} of the checkpoint has other tensors than this one's",
            line=str(path), cure="resume with the model it was made with, or name another file",
        )  # fmt: skip


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    return {k: (t.shape, t.dtype) if isinstance(t, Tensor) else None for k, t in state.items()}


def _fits_optimizer(optimizer: torch.optim.Optimizer, stored: Mapping[str, Any]) -> bool:
    """Whether groups have as many parameters, and what is kept of each has its shape."""
    groups = stored.get("param_groups", [])
    own = [group["params"] for group in optimizer.param_groups]
    if [len(group.get("params", ())) for group in groups] != [len(group) for group in own]:
        return False
    numbers = [number for group in groups for number in group["params"]]
    parameters = [parameter for group in own for parameter in group]
    shapes = {n: p.shape for n, p in zip(numbers, parameters, strict=True)}
    kept = stored.get("state", {})
    return all(
        number in shapes and (not t.dim() or t.shape == shapes[number])
        for number, slots in kept.items()
        for t in slots.values()
        if isinstance(t, Tensor)
    )


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint is damaged: {what}", line=str(path), cure=CURE_DAMAGED)
