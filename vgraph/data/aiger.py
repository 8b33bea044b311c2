"""Circuits in binary AIGER: and-inverter graphs, deep DAGs of two-input gates.

Takes: the bytes of an .aig. Gives: an AIG of arrays, or a Circuit. Runs once per file.
Source: Biere 2007 (the format), Biere, Heljanko and Wieringa 2011 (reset values of latches).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import PATH, checked
from vgraph.data.given import BYTES
from vgraph.errors import DataError
from vgraph.files import check_vertices, read_bytes

CONSTANT, INPUT, LATCH, AND = range(4)
MAX_VARIABLE = 2**31 - 1
LONGEST_DELTA = 9  # bytes of seven bits: what int64 holds
WHOLE = "check that the file is whole and in binary AIGER"


@dataclass(frozen=True, eq=False)
class AIG:
    """An and-inverter graph: the constant false 0, then inputs, latches, AND gates, one vertex each.

    Attributes:
        num_inputs: how many inputs.
        num_latches: how many latches.
        num_ands: how many AND gates.
        src: int64 (2 * num_ands,), the fanins, a gate's two edges side by side.
        dst: int64 (2 * num_ands,), the gates.
        inverted: bool (2 * num_ands,), true where the fanin is negated.
        output: int64 (num_outputs,), the vertices of the outputs.
        output_inverted: bool (num_outputs,), true where an output is negated.
        latch_next: int64 (num_latches,), what each latch holds next; kept apart from the edges, which so stay
            acyclic.
        latch_inverted: bool (num_latches,), true where that is negated.
        latch_reset: int64 (num_latches,): 0, 1, or -1 for a latch that starts with any value.
        symbols: names by "i0", "l0", "o0" ...
        comment: the text at the end of the file.

    Source: Biere 2007; Biere, Heljanko and Wieringa 2011 (reset values).

    Example:
        >>> aig = parse_aiger(b"aig 3 2 0 1 1\\n7\\n\\x02\\x02")
        >>> aig.num_vertices, aig.kinds().tolist()
        (4, [0, 1, 1, 3])
    """

    num_inputs: int
    num_latches: int
    num_ands: int
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    inverted: NDArray[np.bool_]
    output: NDArray[np.int64]
    output_inverted: NDArray[np.bool_]
    latch_next: NDArray[np.int64]
    latch_inverted: NDArray[np.bool_]
    latch_reset: NDArray[np.int64]
    symbols: Mapping[str, str]
    comment: str

    @property
    def num_vertices(self) -> int:
        """The number of vertices, the constant among them."""
        return 1 + self.num_inputs + self.num_latches + self.num_ands

    def kinds(self) -> NDArray[np.int64]:
        """What every vertex is: 0 for the constant, 1 for an input, 2 for a latch, 3 for an AND gate.

        Returns:
            int64 (num_vertices,).
        """
        counts = (1, self.num_inputs, self.num_latches, self.num_ands)
        return np.repeat(np.arange(4, dtype=np.int64), counts)


@dataclass(frozen=True, eq=False)
class Circuit:
    """A circuit as a graph.

    Attributes:
        graph: the gates and their fanins, with ``ndata["kind"]``, int64 (num_vertices,), as ``AIG.kinds`` gives it,
            and ``edata["inverted"]``, bool (edges,).
        output: int64 (num_outputs,), the vertices of the outputs.
        output_inverted: bool (num_outputs,), true where an output is negated.
        aig: all that the file holds.

    Source: Biere 2007.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "nand.aig")
        ...     _ = path.write_bytes(b"aig 3 2 0 1 1\\n7\\n\\x02\\x02")
        ...     circuit = load_aiger(path)
        >>> circuit.graph.num_edges(), circuit.aig.num_ands
        (2, 1)
    """

    graph: vgraph.Graph
    output: torch.Tensor
    output_inverted: torch.Tensor
    aig: AIG


@checked(data=BYTES)
def parse_aiger(data: bytes, *, path: str | Path = "<bytes>") -> AIG:
    """Reads a binary AIGER file with the sections M I L O A, symbols and comments.

    Args:
        data: the bytes of the file.
        path: what errors call the file.

    Returns:
        An AIG.

    Raises:
        DataError: no AIGER, cut short, a literal or delta out of range, sections of AIGER 1.9
            (bad states, constraints, justice, fairness).

    Source: Biere 2007; Biere, Heljanko and Wieringa 2011 (reset values).

    Example:
        >>> aig = parse_aiger(b"aig 3 2 0 1 1\\n7\\n\\x02\\x02o0 nand\\n")
        >>> aig.src.tolist(), aig.dst.tolist(), aig.output.tolist(), aig.output_inverted.tolist()
        ([2, 1], [3, 3], [3], [True])
    """
    reader = _Reader(data, path)
    num_inputs, num_latches, num_outputs, num_ands = reader.read_header()
    largest = 2 * (num_inputs + num_latches + num_ands) + 1
    latches = [reader.read_latch(num_inputs + 1 + k, largest) for k in range(num_latches)]
    outputs = [reader.read_literals(1, largest) for _ in range(num_outputs)]
    latch, output = _as_table(latches, 2), _as_table(outputs, 1)
    dst, fanin = reader.read_ands(1 + num_inputs + num_latches, num_ands)
    symbols = reader.read_symbols({"i": num_inputs, "l": num_latches, "o": num_outputs})
    return AIG(
        num_inputs=num_inputs,
        num_latches=num_latches,
        num_ands=num_ands,
        src=fanin >> 1,
        dst=dst.repeat(2),
        inverted=_is_odd(fanin),
        output=output[:, 0] >> 1,
        output_inverted=_is_odd(output[:, 0]),
        latch_next=latch[:, 0] >> 1,
        latch_inverted=_is_odd(latch[:, 0]),
        latch_reset=latch[:, 1],
        symbols=symbols,
        comment=data[reader.at :].decode("utf-8", "replace"),
    )


@checked(path=PATH)
def load_aiger(path: str | Path) -> Circuit:
    """The circuit of a binary AIGER file; edges run from fanin to gate.

    Args:
        path: the file.

    Returns:
        A Circuit.

    Raises:
        DataError: the file is missing or malformed.

    Source: Biere 2007.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "nand.aig")
        ...     _ = path.write_bytes(b"aig 3 2 0 1 1\\n7\\n\\x02\\x02")
        ...     circuit = load_aiger(path)
        >>> circuit.graph.ndata["kind"].tolist(), circuit.output.tolist(), circuit.output_inverted.tolist()
        ([0, 1, 1, 3], [3], [True])
    """
    aig = parse_aiger(read_bytes(path), path=path)
    ends = (torch.from_numpy(aig.src), torch.from_numpy(aig.dst))
    graph = vgraph.graph(ends, num_nodes=aig.num_vertices)
    graph.ndata["kind"] = torch.from_numpy(aig.kinds())
    graph.edata["inverted"] = torch.from_numpy(aig.inverted)
    output, inverted = torch.from_numpy(aig.output), torch.from_numpy(aig.output_inverted)
    return Circuit(graph, output, inverted, aig)


def _is_odd(literals: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (literals & 1).astype(np.bool_)


def _as_table(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.asarray(rows, np.int64).reshape(-1, width)


@dataclass
class _Reader:
    """The bytes and the position of the next one that is to be read."""

    data: bytes
    path: str | Path
    at: int = 0

    def read_header(self) -> tuple[int, int, int, int]:
        """The numbers of inputs, latches, outputs and AND gates."""
        if self.data[:4] == b"aag ":
            raise self._fail("this is ASCII AIGER", "convert it: aigtoaig in.aag out.aig", 0)
        if self.data[:4] != b"aig ":
            raise self._fail(f"it starts with {self.data[:4]!r}, not with 'aig '", WHOLE, 0)
        counts = self._read_numbers(MAX_VARIABLE, skip=1)
        if not 5 <= len(counts) <= 9:
            raise self._fail(f"the header has {len(counts)} numbers, not M I L O A", WHOLE, 0)
        if any(counts[5:]):
            cure = "keep only outputs"
            raise self._fail("it has properties (sections B C J F of AIGER 1.9)", cure, 0)
        maximum, inputs, latches, outputs, ands = counts[:5]
        if maximum != inputs + latches + ands:
            fact = f"the header says {maximum} variables; I + L + A is {inputs + latches + ands}"
            raise self._fail(fact, WHOLE, 0)
        # inputs have no bytes of their own; of latches, outputs and gates no more are read than there are
        check_vertices(1 + maximum, len(self.data), f"{self.path}:byte 0", WHOLE)
        return inputs, latches, outputs, ands

    def read_literals(self, at_most: int, largest: int) -> list[int]:
        """One line of 1 to ``at_most`` literals."""
        start = self.at
        numbers = self._read_numbers(largest)
        if not 1 <= len(numbers) <= at_most:
            fact = f"a line has {len(numbers)} numbers where 1 to {at_most} belong"
            raise self._fail(fact, WHOLE, start)
        return numbers

    def read_latch(self, variable: int, largest: int) -> list[int]:
        """The literal of a latch's next state, and its reset value (-1: any)."""
        start = self.at
        literal, reset, *_ = [*self.read_literals(2, largest), 0]
        if reset not in (0, 1, 2 * variable):
            fact = f"latch {variable} is reset to {reset}; 0, 1 or {2 * variable} may stand there"
            raise self._fail(fact, WHOLE, start)
        return [literal, -1 if reset > 1 else reset]

    def read_ands(self, start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The gates (count,), and two fanin literals of each (2 * count,), the larger of each pair first."""
        first, delta = self._read_deltas(2 * count)
        gates = np.arange(start, start + count, dtype=np.int64)
        delta = delta.reshape(-1, 2)
        left = 2 * gates - delta[:, 0]
        right = left - delta[:, 1]
        wrong = np.flatnonzero((delta[:, 0] < 1) | (left < 0) | (right < 0))
        if len(wrong):
            gate = int(wrong[0])
            fact = f"the deltas {delta[gate].tolist()} of gate {gates[gate]} are out of range"
            raise self._fail(fact, WHOLE, int(first[2 * gate]))
        return gates, np.stack((left, right), 1).reshape(-1)

    def read_symbols(self, counts: Mapping[str, int]) -> dict[str, str]:
        """The symbol table; leaves ``at`` behind the "c" line that starts the comment."""
        symbols: dict[str, str] = {}
        while self.at < len(self.data):
            start = self.at
            line = self._read_line().decode("utf-8", "replace")
            if line == "c":
                break
            place, _, name = line.partition(" ")
            number = place[1:]
            if not (name and number.isascii() and number.isdigit() and len(number) < 11):
                raise self._fail(f"{line[:80]!r} is no symbol", WHOLE, start)
            if int(number) >= counts.get(place[0], 0):
                raise self._fail(f"symbol {place!r} names nothing", WHOLE, start)
            symbols[place] = name
        return symbols

    def _read_deltas(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``count`` numbers of seven bits a byte, low bits first: their offsets and values."""
        raw = np.frombuffer(self.data, np.uint8)[self.at :]
        last = np.flatnonzero(raw < 128)[:count]  # the high bit says that more follows
        if len(last) < count:
            fact = f"it is cut short in gate {len(last) // 2} of {count // 2}"
            raise self._fail(fact, WHOLE, len(self.data))
        first = np.concatenate((last[:0], [0], last[:-1] + 1))[:count]
        length = last - first + 1
        if length.max(initial=0) > LONGEST_DELTA:
            at = self.at + int(first[length.argmax()])
            raise self._fail(f"a delta has {length.max()} bytes", WHOLE, at)
        value = np.zeros(count, np.int64)
        for k in range(int(length.max(initial=0))):
            more = np.flatnonzero(length > k)
            value[more] |= (raw[first[more] + k] & 127).astype(np.int64) << (7 * k)
        first += self.at
        self.at += int(last[-1]) + 1 if count else 0
        return first, value

    def _read_numbers(self, largest: int, skip: int = 0) -> list[int]:
        start = self.at
        words = self._read_line().split(b" ")[skip:]
        for word in words:
            if not word.isdigit() or len(word) > 11 or int(word) > largest:
                shown = word[:20].decode("ascii", "replace")
                raise self._fail(f"{shown!r} is no number up to {largest}", WHOLE, start)
        return [int(word) for word in words]

    def _read_line(self) -> bytes:
        start, end = self.at, self.data.find(b"\n", self.at)
        if end < 0:
            raise self._fail("it is cut short: a line does not end", WHOLE, len(self.data))
        self.at = end + 1
        return self.data[start:end]

    def _fail(self, fact: str, cure: str, at: int) -> DataError:
        return DataError(fact, line=f"{self.path}:byte {at}", cure=cure)
