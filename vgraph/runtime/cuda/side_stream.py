"""Beside: phases that run once, on a second stream of a GPU, beside loops over frontiers.

Takes: what every phase reads and makes. Gives: streams that wait for one another where one reads what the other
makes. Runs at every step. Source: Cavs section 3.5 (streaming of eager and lazy operators).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.cuda import Stream

Event: TypeAlias = "torch.cuda.Event | torch.Event"


@dataclass(eq=False)
class SideStream:
    """One call's two streams.

    ``switch``: a context in which work goes to a stream. ``note``: that a stream uses a tensor's memory, though
    another stream gave it.
    """

    main: Stream
    side: Stream
    switch: Callable[[Stream], AbstractContextManager[object]]
    note: Callable[[Tensor, Stream], object]
    made: dict[int, tuple[Stream, Event]] = field(default_factory=dict[int, tuple[Stream, Event]])  # stream and event
    waited: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # stream and event, by id
    last: Event | None = None  # the event behind the last phase beside
    reader: Event | None = None  # ... behind the last one that reads the arena
    begun: Event = field(init=False)  # the event behind what the caller gave, which may still be under way

    def __post_init__(self) -> None:
        self.begun = self.main.record_event()

    @contextmanager
    def phase(
        self, *, is_loop: bool, reads: Iterable[int], makes: Iterable[int], env: Mapping[int, Tensor], arena: set[int]
    ) -> Generator[None]:
        """While it lasts, work goes to the phase's stream, behind all that it reads. ``arena``: ids of what lies there.

        A loop may write to memory of the arena whose earlier content a phase beside still reads: it waits for that.
        """
        stream, reads = self.main if is_loop else self.side, list(reads)
        if not is_loop:  # only now: a stream that waits and gets no work would be left out of a recording's end
            self._wait(self.side, self.begun)
        for i in reads:
            owner, event = self.made.get(i, (self.main, None))
            if owner is not stream:
                self._wait(stream, event)
                if isinstance(tensor := env.get(i), Tensor):
                    self.note(tensor, stream)
        if is_loop:
            self._wait(stream, self.reader)
        with self.switch(stream):
            yield
        event = stream.record_event()
        if not is_loop:
            self.last = event
            self.reader = event if arena.intersection(reads) else self.reader
        self.made.update((i, (stream, event)) for i in makes)

    def finish(self, tensors: Iterable[Tensor]) -> None:
        """The caller's stream waits for all; ``tensors``: what it goes on with."""
        self._wait(self.main, self.last)
        for tensor in tensors:
            self.note(tensor, self.main)

    def _wait(self, stream: Stream, event: Event | None) -> None:
        """Once an event and stream; a later event of a stream stands behind its earlier ones."""
        if event is not None and (id(stream), id(event)) not in self.waited:
            stream.wait_event(event)
            self.waited.add((id(stream), id(event)))
