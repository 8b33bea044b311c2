"""Choices: which of several ways of doing the same is the fastest on this machine: measured once, kept on disk.

Takes: ways as functions, what they are for in words. Gives: the name of one. Measures once a machine and situation.
Source: Whaley, Petitet and Dongarra 2001 (ATLAS: what is fast is measured, not derived from the processor's make);
Frigo and Johnson 2005 (FFTW: what was found is kept, and read by later processes). ADR 0035.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from vgraph import config
from vgraph.atomic_file import atomic_file

logger = logging.getLogger("vgraph")
ROUNDS = 6  # in which every way runs once, after one that nobody times: the best of them counts
CLEARLY = 0.9  # of the default's time, which a way must stay under to take its place
OWN_TIME = 0.9  # of a turn, for which threads of this process must have run; else other work had the processor
MOST_SECONDS = 2.0  # that a process spends on measuring
_MOST_BYTES = 1 << 20  # of a file that is read
_FORMAT = "vgraph choices 1"
_PROCESSOR = "vendor_id,model name,cpu family,model,stepping,flags,CPU implementer,CPU part,Features".split(",")

Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Choice:
    """One row of the table of what is chosen.

    ``candidates``: names of its ways; ``default``: the one that is taken where nothing was measured.
    ``how``: on what it is measured.
    """

    name: str
    candidates: tuple[str, ...]
    default: Callable[[], str]
    how: str

    def __str__(self) -> str:
        return f"{self.name}: {' or '.join(self.candidates)}, {self.default()} if not measured; {self.how}"


@dataclass(frozen=True)
class Decision:
    """A candidate, and the best time of each in seconds."""

    taken: str
    seconds: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        times = (f"{name} {1e3 * seconds:.3g} ms" for name, seconds in self.seconds)
        return f"{self.taken} ({', '.join(times)})"


@dataclass(eq=False)
class Choices:
    """What was decided on one machine with one number of threads: ``identity``, a line each.

    ``folder``: where it is kept.
    """

    folder: Path
    identity: tuple[str, ...]
    clock: Callable[[], float] = time.perf_counter
    processor_clock: Callable[[], float] = time.process_time
    spent: float = 0.0
    _known: dict[tuple[str, str], Decision] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def path(self) -> Path:
        """The file of this machine."""
        return self.folder / f"{hashlib.sha256(_joined(self.identity)).hexdigest()[:16]}.txt"

    def known(self, choice: Choice, situation: str) -> Decision | None:
        """What was decided before, here or in another process."""
        return self._table().get((choice.name, situation))

    def decide(self, choice: Choice, situation: str, make_ways: Callable[[], Ways] | None) -> str:
        """The way to take; ``make_ways``: gives a function for each candidate. None: nothing is measured now."""
        with self._lock:
            found = self.known(choice, situation)
            if found is None and make_ways is not None and self.spent < MOST_SECONDS:
                measured = self._measure(make_ways(), choice.default())
                if measured is None:
                    logger.info("%s, %s: not measured, since other work had the processor", choice.name, situation)
                else:
                    found = self._keep(choice, situation, measured)
        return choice.default() if found is None else found.taken

    def lines(self) -> Iterator[str]:
        """One for each decision, for people."""
        for (name, situation), decision in sorted(self._table().items()):
            yield f"{name}, {situation}: {decision}"

    # ------------------------------------------------------------ measured
    def _measure(self, ways: Ways, default: str) -> Decision | None:
        """Ways by turns, so that whatever else the machine does meets all of them; None where it left them too little.

        A turn in which threads of this process did not run all the time tells of other work, not of the way.
        """
        own: dict[str, list[float]] = {name: [] for name in ways}
        began = self.clock()
        for number in range(1 + ROUNDS):
            for name, run in ways.items():
                start, ran = self.clock(), self.processor_clock()
                run()
                took = self.clock() - start
                if number and self.processor_clock() - ran >= OWN_TIME * took:
                    own[name].append(took)
        self.spent += self.clock() - began
        if any(len(times) < ROUNDS // 2 for times in own.values()):
            return None
        best = {name: min(times) for name, times in own.items()}
        fastest = min(best, key=lambda name: best[name])
        taken = fastest if best[fastest] < CLEARLY * best[default] else default
        return Decision(taken, tuple(best.items()))

    # ------------------------------------------------------------ kept
    def _table(self) -> dict[tuple[str, str], Decision]:
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._known

    def _keep(self, choice: Choice, situation: str, decision: Decision) -> Decision:
        """What another process has decided meanwhile holds: it may run with those numbers now."""
        known, key = {**self._table(), **self._read()}, (choice.name, situation)
        self._known, is_new = known, key not in known
        kept = known.setdefault(key, decision)
        logger.info("%s, %s: %s", *key, kept)
        if is_new:
            self._write(known)
        return kept

    def _write(self, known: Mapping[tuple[str, str], Decision]) -> None:
        rows = ["\t".join([*key, found.taken, *_words(found)]) for key, found in sorted(known.items())]
        content = _joined([_FORMAT, *self.identity, "", *rows])
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path, durable=False) as file:
                file.write(content + b"\n" + _digest(content))
        except OSError as error:
            _say(
                f"what was measured is kept for this process alone: {self.folder} cannot be written ({error.strerror})"
            )

    def _read(self) -> dict[tuple[str, str], Decision]:
        """What the file says of this machine; nothing, if it is damaged or of another format."""
        try:
            if self.path.stat().st_size > _MOST_BYTES:
                raise ValueError("too long")
            content, _, digest = self.path.read_bytes().rpartition(b"\n")
            head = _joined([_FORMAT, *self.identity, ""]) + b"\n"
            if digest != _digest(content) or not content.startswith(head):
                raise ValueError("damaged")
            return dict(map(_row, content[len(head) :].decode().split("\n")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _say(f"choices are made anew: {self.path} cannot be read ({error})")
            return {}


def _joined(lines: Iterable[str]) -> bytes:
    return "\n".join(lines).encode()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _words(found: Decision) -> list[str]:
    return [word for name, seconds in found.seconds for word in (name, repr(seconds))]


def _row(line: str) -> tuple[tuple[str, str], Decision]:
    """A decision as it is written; ValueError: it is none."""
    name, situation, taken, *words = line.split("\t")
    seconds = tuple(zip(words[::2], map(float, words[1::2]), strict=True))
    if taken not in dict(seconds):
        raise ValueError(f"{taken} was not measured")
    return (name, situation), Decision(taken, seconds)


@cache
def _say(line: str) -> None:
    """Each line once: what ails one choice ails them all."""
    logger.info("%s", line)


# ---------------------------------------------------------------- this machine
@cache
def processor() -> str:
    """The make and model of the processor, as the system tells it, and a digest of all that it can do."""
    told = dict[str, str]()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines():
            name, _, value = line.partition(":")
            told[name.strip()] = value.strip()
    words = [f"{name} {told[name]}" for name in _PROCESSOR if name in told]
    able = hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
    return f"{told.get('model name', 'unnamed')} ({able})"


def of_machine(version: str) -> Choices:
    """Of this machine with torch's number of threads; ``version``: of vgraph's native code."""
    words = (f"threads {torch.get_num_threads()}", f"torch {torch.__version__}", f"native code {version}")
    return _of(config.cache_dir() / "choices", (f"processor {processor()}", *words))


_of = cache(Choices)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_of.cache_clear)  # another thread of the parent may hold a lock of theirs
