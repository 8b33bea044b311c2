"""Global batches: which items each step of each epoch has, on all ranks together; where a loader stands.

Takes: a number of items, a batch size, a seed. Gives: places of items, keys, a state to resume from. Runs at every
step. A batch follows from (seed, epoch, number) alone, so that it is the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from vgraph.distributed.sampled.permutation import permuted
from vgraph.errors import CheckpointError
from vgraph.graphs.draw.random_numbers import Array, mix

FORMAT = 1
_MASK = (1 << 64) - 1


class GlobalBatches:
    """Batches of items that all ranks share; an iteration is an epoch, and goes on where a state was loaded.

    ``digest`` tells what the items are. ``steps``: how many batches of ``epoch`` the program was given.
    """

    def __init__(self, count: int, batch_size: int, *, shuffle: bool, seed: int, drop_last: bool, digest: str) -> None:
        self.count, self.batch_size, self.shuffle, self.drop_last = count, batch_size, shuffle, drop_last
        self.seed, self.digest = int(seed), digest  # those of NumPy have as many bits as they have
        self.epoch = self.steps = 0
        self._resumes = False

    def __len__(self) -> int:
        """Batches of an epoch, the same on all ranks."""
        return self.count // self.batch_size if self.drop_last else -(-self.count // self.batch_size)

    def places_of(self, epoch: int, step: int) -> Array:
        """Which items a batch has, in their order: of all ranks together.

        Args:
            epoch: its number, from 0 up.
            step: the batch's number in the epoch, from 0 up.

        Returns:
            (items of the batch,) int64, places among all items of the loader, as a NumPy array.
        """
        places = np.arange(step * self.batch_size, min((step + 1) * self.batch_size, self.count))
        return permuted(self.count, self._key(epoch), places) if self.shuffle else places

    def key_of(self, epoch: int, step: int) -> int:
        """The number from which all that is drawn for a batch follows, on any number of ranks.

        Args:
            epoch: its number, from 0 up.
            step: the batch's number in the epoch, from 0 up.

        Returns:
            A whole number from 0 to 2^64 - 1.
        """
        return mix(self._key(epoch) + mix(step + 1) & _MASK)

    def _key(self, epoch: int) -> int:
        return mix(mix(self.seed & _MASK) + mix(epoch + 1) & _MASK)

    def _begin(self) -> Iterator[int]:
        """The numbers of the batches that an iteration gives; each counts as given when it is taken.

        An epoch that was left early is over, but for one whose state was loaded.
        """
        if self.steps and not self._resumes:
            self.epoch, self.steps = self.epoch + 1, 0
        self._resumes = False
        return self._numbers(self.epoch, self.steps)

    def _numbers(self, epoch: int, first: int) -> Iterator[int]:
        for step in range(first, len(self)):
            self.steps = step + 1
            yield step
        if self.epoch == epoch:
            self.epoch, self.steps = epoch + 1, 0

    # ------------------------------------------------------------ state
    def state_dict(self) -> dict[str, object]:
        """Where the loader stands, the same on all ranks; a loader on another number of ranks goes on from there.

        Returns:
            A dict of numbers, truth values and a text, by name: the epoch, how many of its batches were given, and
            what the batches follow from.
        """
        return {"format": FORMAT, "epoch": self.epoch, "steps": self.steps, **self._identity()}

    def _identity(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "digest": self.digest,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on behind the last batch that was given.

        Args:
            state_dict: what ``state_dict`` gave, of a loader with the same items, batch size, order and seed.

        Raises:
            CheckpointError: the state is of another version, or of a loader of other items, batches or seed.
        """
        if state_dict.get("format") != FORMAT:
            fact = f"the loader's state has format {state_dict.get('format')!r}, and this one reads {FORMAT}"
            raise CheckpointError(fact, cure="load it with the vgraph that saved it")
        for name, mine in self._identity().items():
            if state_dict.get(name) != mine:
                raise CheckpointError(_difference(name, state_dict.get(name), mine), cure=_CURES.get(name, _CURE))
        epoch, steps = state_dict.get("epoch"), state_dict.get("steps")
        if not (isinstance(epoch, int) and isinstance(steps, int) and epoch >= 0 and 0 <= steps <= len(self)):
            fact = f"the loader's state is epoch {epoch!r}, step {steps!r} of {len(self)}"
            raise CheckpointError(fact, cure="load a state that state_dict() gave")
        self.epoch, self.steps, self._resumes = epoch, steps, True


_CURE = "make the loader with the arguments that it had when its state was saved"
_CURES = {"digest": "resume on the graph and the ids that the state was saved for, or begin anew"}


def _difference(name: str, saved: object, mine: object) -> str:
    if name == "digest":
        return "the loader's state is of another graph, or of other ids"
    return f"the loader's state has {name} {saved!r}, and this loader {mine!r}"


def digest_of(*parts: bytes | str) -> str:
    """A short text that other parts would change."""
    found = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()
