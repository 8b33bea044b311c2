"""Two streams, by a stand-in that notes what is asked of them: nothing is read before the stream knows it is made."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.runtime.engine_models import GRAPHS, MODELS, features, outcome
from vgraph.capture import capture
from vgraph.runtime.cuda import driver as cuda
from vgraph.runtime.cuda.side_stream import SideStream

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    capture.forget()
    yield
    capture.forget()


@dataclass(eq=False)
class Event:
    """How much of each stream has run when it happens."""

    knows: dict[str, int]


@dataclass(eq=False)
class Stream:
    name: str
    count: int = 0
    knows: dict[str, int] = field(default_factory=dict[str, int])  # of other streams: how much this one has waited for

    def record_event(self) -> Event:
        return Event({**self.knows, self.name: self.count})

    def wait_event(self, event: Event) -> None:
        for name, count in event.knows.items():
            self.knows[name] = max(self.knows.get(name, 0), count)


@dataclass(eq=False)
class Room:
    """Two streams, and by id of a value: the stream that made it and when."""

    current: list[Stream]
    made: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    noted: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    used: list[str] = field(default_factory=list[str])

    @contextmanager
    def switch(self, stream: Stream) -> Generator[None]:
        self.current.append(stream)
        yield
        self.current.pop()

    def note(self, tensor: Tensor, stream: Stream) -> None:
        self.noted.append((id(tensor), stream.name))


class Watched(SideStream):
    """Checks each phase where it runs."""

    room: Room

    @contextmanager
    def phase(self, *, is_loop: bool, reads: Any, makes: Any, env: Any, arena: Any) -> Generator[None]:
        with super().phase(is_loop=is_loop, reads=reads, makes=makes, env=env, arena=arena):
            stream = self.room.current[-1]
            self.room.used.append(stream.name)
            for i in reads:
                owner, when = self.room.made.get(i, ("main", 0))
                assert owner == stream.name or stream.knows.get(owner, -1) >= when, "read before it is made"
                foreign = owner != stream.name and i in env
                assert not foreign or (id(env[i]), stream.name) in self.room.noted, "memory that may be given away"
            stream.count += 1
            yield
        self.room.made.update((i, (stream.name, stream.count)) for i in makes)


@pytest.mark.parametrize("name", ["gru", "child-sum", "attentive"])
def test_every_phase_waits_for_what_it_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, g = MODELS[name]().double(), GRAPHS["trees"]()
    x = features(g)
    wanted = outcome(model, g, x)
    rooms: list[tuple[Room, Stream, Stream]] = []

    def two_streams(device: torch.device) -> SideStream:
        assert device == CPU
        main, side = Stream("main"), Stream("side")
        room = Room([main])
        found = Watched(main, side, room.switch, room.note)
        found.room = room
        rooms.append((room, main, side))
        return found

    monkeypatch.setattr(cuda, "two_streams", two_streams)
    found = outcome(model, g, x)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(rooms) == 2, "forward and backward"
    for room, main, side in rooms:
        assert {"main", "side"} == set(room.used), "loops on one, the rest on the other"
        assert main.knows["side"] == side.count, "the caller's stream waits for all in the end"


def test_a_loop_waits_for_readers_of_the_memory_that_it_may_write_to() -> None:
    main, side = Stream("main"), Stream("side")
    room = Room([main])
    streams = SideStream(main, side, room.switch, room.note)
    rows = torch.ones(2)
    with streams.phase(is_loop=True, reads=[], makes=[1], env={}, arena={1}):
        main.count += 1
    with streams.phase(is_loop=False, reads=[1], makes=[2], env={1: rows}, arena={1}):
        side.count += 1
    assert side.knows["main"] == 1 and room.noted == [(id(rows), "side")]
    with streams.phase(is_loop=True, reads=[], makes=[3], env={}, arena={1, 3}):
        assert main.knows["side"] == 1


def test_a_stream_without_work_waits_for_nothing() -> None:
    """It would be left open where a recording ends; with work it waits for what the caller gave, and for no loop."""
    main, side = Stream("main", count=3), Stream("side")
    room = Room([main])
    streams = SideStream(main, side, room.switch, room.note)
    with streams.phase(is_loop=True, reads=[], makes=[1], env={}, arena=set()):
        main.count += 1
    assert side.knows == {}
    with streams.phase(is_loop=False, reads=[], makes=[2], env={}, arena=set()):
        assert side.knows == {"main": 3}


def test_one_stream_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda.two_streams(CPU) is None and cuda.two_streams(torch.device("cuda", 0)) is None
