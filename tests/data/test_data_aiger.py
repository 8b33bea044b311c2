"""Binary AIGER: a round trip, what the bits mean, every damaged file, and the public circuits."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgraph.data import AIG, load_aiger, parse_aiger
from vgraph.errors import DataError

NAND = b"aig 3 2 0 1 1\n7\n\x02\x02i0 a\ni1 b\no0 nand of both\nc\nby hand\n"


@dataclass
class Written:
    """What a file is written from: literals as AIGER counts them."""

    num_inputs: int
    latches: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    fanins: list[tuple[int, int]] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)
    comment: str | None = None

    def first_gate(self) -> int:
        return 1 + self.num_inputs + len(self.latches)


def write_delta(delta: int) -> bytes:
    coded = bytearray()
    while delta > 127:
        coded.append(delta & 127 | 128)
        delta >>= 7
    return bytes([*coded, delta])


def write_aiger(circuit: Written) -> bytes:
    c = circuit
    sizes = (c.num_inputs, len(c.latches), len(c.outputs), len(c.fanins))
    lines = [f"aig {sizes[0] + sizes[1] + sizes[3]} {' '.join(map(str, sizes))}"]
    for k, (literal, reset) in enumerate(c.latches, c.num_inputs + 1):
        lines.append(f"{literal} {2 * k if reset < 0 else reset}" if reset else str(literal))
    text = "\n".join([*lines, *map(str, c.outputs), ""]).encode()
    for gate, (left, right) in enumerate(c.fanins, c.first_gate()):
        text += write_delta(2 * gate - left) + write_delta(left - right)
    text += "".join(f"{place} {name}\n" for place, name in c.symbols.items()).encode()
    return text + (b"" if c.comment is None else b"c\n" + c.comment.encode())


@st.composite
def circuits(draw: st.DrawFn) -> Written:
    num_inputs, num_latches = draw(st.integers(0, 300)), draw(st.integers(0, 3))
    first = 1 + num_inputs + num_latches
    num_gates = draw(st.integers(0, 30))
    fanins: list[tuple[int, int]] = []
    for gate in range(first, first + num_gates):
        pair = st.tuples(st.integers(0, 2 * gate - 1), st.integers(0, 2 * gate - 1))
        small, large = sorted(draw(pair))
        fanins.append((large, small))
    literals = st.integers(0, 2 * (first + num_gates) - 1)
    latches = draw(
        st.lists(
            st.tuples(literals, st.sampled_from([0, 1, -1])),
            min_size=num_latches,
            max_size=num_latches,
        )
    )
    outputs = draw(st.lists(literals, max_size=5))
    places = [*(f"i{i}" for i in range(num_inputs)), *(f"o{i}" for i in range(len(outputs)))]
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1)
    symbols = draw(st.dictionaries(st.sampled_from(places), names, max_size=3)) if places else {}
    comment = draw(st.none() | st.text(st.characters(exclude_categories=["Cs"])))
    return Written(num_inputs, latches, outputs, fanins, symbols, comment)


@given(circuits())
def test_round_trip(written: Written) -> None:
    aig = parse_aiger(write_aiger(written))
    assert aig.num_inputs == written.num_inputs
    assert aig.num_latches == len(written.latches)
    assert aig.num_vertices == written.first_gate() + len(written.fanins)
    fanin = (2 * aig.src + aig.inverted).reshape(-1, 2)
    assert [tuple(pair) for pair in fanin.tolist()] == written.fanins
    gates = np.arange(written.first_gate(), aig.num_vertices)
    assert aig.dst.tolist() == gates.repeat(2).tolist()
    assert (2 * aig.output + aig.output_inverted).tolist() == written.outputs
    latch_next = (2 * aig.latch_next + aig.latch_inverted).tolist()
    assert list(zip(latch_next, aig.latch_reset.tolist(), strict=True)) == written.latches
    assert aig.symbols == written.symbols
    assert aig.comment == (written.comment or "")


def test_arrays() -> None:
    aig = parse_aiger(NAND)
    assert (aig.num_inputs, aig.num_latches, aig.num_ands, aig.num_vertices) == (2, 0, 1, 4)
    assert aig.kinds().tolist() == [0, 1, 1, 3]
    assert (aig.src.tolist(), aig.dst.tolist()) == ([2, 1], [3, 3])
    assert aig.inverted.tolist() == [False, False]
    assert (aig.output.tolist(), aig.output_inverted.tolist()) == ([3], [True])
    assert aig.symbols == {"i0": "a", "i1": "b", "o0": "nand of both"}
    assert aig.comment == "by hand\n"


def test_latches_are_not_edges() -> None:
    toggle = parse_aiger(b"aig 1 0 1 2 0\n3\n2\n3\n")
    assert toggle.kinds().tolist() == [0, 2]
    assert (toggle.latch_next.tolist(), toggle.latch_inverted.tolist()) == ([1], [True])
    assert toggle.latch_reset.tolist() == [0]
    assert len(toggle.src) == 0


@pytest.mark.parametrize(
    ("data", "fact", "byte"),
    [
        (b"", "it starts with b'', not with 'aig '", 0),
        (b"PK\x03\x04", "not with 'aig '", 0),
        (b"aag 1 1 0 0 0\n2\n", "this is ASCII AIGER", 0),
        (b"aig 3 2 0 1 1", "a line does not end", 13),
        (b"aig 3 2 0 1\n", "the header has 4 numbers", 0),
        (b"aig 3 2 0 1 1 0 0 0 0 0\n", "the header has 10 numbers", 0),
        (b"aig 3 2 0 1 1 1\n", "it has properties", 0),
        (b"aig 4 2 0 1 1\n", "the header says 4 variables; I + L + A is 3", 0),
        (b"aig x 2 0 1 1\n", "'x' is no number", 0),
        (b"aig -3 2 0 1 1\n", "'-3' is no number", 0),
        (b"aig 99999999999 2 0 1 1\n", "'99999999999' is no number", 0),
        (b"aig 3 2 0 1 1\n8\n", "'8' is no number up to 7", 14),
        (b"aig 3 2 0 1 1\n6 1\n", "a line has 2 numbers where 1 to 1 belong", 14),
        (b"aig 3 2 0 1 1\n6\n", "it is cut short in gate 0 of 1", 16),
        (b"aig 3 2 0 1 1\n6\n\x02\x82", "it is cut short in gate 0 of 1", 18),
        (b"aig 3 2 0 1 1\n6\n\x00\x02", "the deltas [0, 2] of gate 3 are out of range", 16),
        (b"aig 3 2 0 1 1\n6\n\x07\x00", "the deltas [7, 0] of gate 3 are out of range", 16),
        (b"aig 3 2 0 1 1\n6\n\x02\x05", "the deltas [2, 5] of gate 3 are out of range", 16),
        (b"aig 4 2 0 0 2\n\x02\x02\x02\x09", "the deltas [2, 9] of gate 4", 16),
        (b"aig 3 2 0 1 1\n6\n" + b"\x80" * 9 + b"\x01\x02", "a delta has 10 bytes", 16),
        (b"aig 1 0 1 0 0\n2 3\n", "latch 1 is reset to 3; 0, 1 or 2", 14),
        (b"aig 1 0 1 0 0\n2 0 0\n", "a line has 3 numbers where 1 to 2 belong", 14),
        (b"aig 1 1 0 0 0\ni0 a", "a line does not end", 18),
        (b"aig 1 1 0 0 0\ni1 a\n", "symbol 'i1' names nothing", 14),
        (b"aig 1 1 0 0 0\nx0 a\n", "symbol 'x0' names nothing", 14),
        (b"aig 1 1 0 0 0\ni0\n", "'i0' is no symbol", 14),
        (b"aig 1 1 0 0 0\n\n", "'' is no symbol", 14),
    ],
)
def test_damaged_files(data: bytes, fact: str, byte: int) -> None:
    with pytest.raises(DataError) as caught:
        parse_aiger(data, path="some.aig")
    assert fact in str(caught.value)
    assert caught.value.line == f"some.aig:byte {byte}"
    assert caught.value.cure


@given(st.integers(0, len(NAND) - 1), st.integers(0, 255))
def test_any_bytes_are_read_or_refused(at: int, value: int) -> None:
    for data in (NAND[:at], NAND[:at] + bytes([value]) + NAND[at + 1 :]):
        try:
            aig = parse_aiger(data)
        except DataError as error:
            assert error.line
        else:
            assert (aig.src < aig.dst).all()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the data file") as caught:
        load_aiger(tmp_path / "none.aig")
    assert caught.value.line == str(tmp_path / "none.aig")


def test_graph(tmp_path: Path) -> None:
    path = tmp_path / "nand.aig"
    path.write_bytes(NAND)
    circuit = load_aiger(path)
    assert [ends.tolist() for ends in circuit.graph.edges()] == [[2, 1], [3, 3]]
    assert circuit.graph.ndata["kind"].tolist() == [0, 1, 1, 3]
    assert circuit.graph.edata["inverted"].tolist() == [False, False]
    assert (circuit.output.tolist(), circuit.output_inverted.tolist()) == ([3], [True])
    assert circuit.aig.symbols["o0"] == "nand of both"


def evaluate(aig: AIG, inputs: list[int]) -> list[int]:
    """The outputs of a combinational circuit, gate after gate."""
    value = [0, *inputs]
    pairs = zip(aig.src.reshape(-1, 2).tolist(), aig.inverted.reshape(-1, 2).tolist(), strict=True)
    for (left, right), (not_left, not_right) in pairs:
        value.append((value[left] ^ not_left) & (value[right] ^ not_right))
    outputs = zip(aig.output.tolist(), aig.output_inverted.tolist(), strict=True)
    return [value[vertex] ^ inverted for vertex, inverted in outputs]


def circuit_file(data_dir: Path, name: str) -> Path:
    path = data_dir / "epfl_aig" / f"{name}.aig"
    if not path.exists():
        pytest.skip(f"no circuit at {path}")
    return path


def test_the_adder_adds(data_dir: Path) -> None:
    path = circuit_file(data_dir, "adder")
    aig = parse_aiger(path.read_bytes(), path=path)
    draw = random.Random(0)
    for _ in range(5):
        a, b = draw.getrandbits(128), draw.getrandbits(128)
        value = {f"a[{i}]": a >> i & 1 for i in range(128)}
        value |= {f"b[{i}]": b >> i & 1 for i in range(128)}
        outputs = evaluate(aig, [value[aig.symbols[f"i{i}"]] for i in range(aig.num_inputs)])
        assert sum(bit << i for i, bit in enumerate(outputs)) == a + b


def test_every_circuit(data_dir: Path) -> None:
    folder = circuit_file(data_dir, "adder").parent
    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.aig")):
        aig = parse_aiger(path.read_bytes(), path=path)
        assert (aig.src < aig.dst).all()
        assert len(aig.symbols) == aig.num_inputs + len(aig.output)
        sizes[path.stem] = aig.num_ands
    assert len(sizes) == 20
    assert (sizes["dec"], sizes["ctrl"], sizes["hyp"]) == (304, 174, 214_335)


def test_the_largest_circuit_is_read_fast(data_dir: Path) -> None:
    data = circuit_file(data_dir, "hyp").read_bytes()
    start = time.perf_counter()
    parse_aiger(data)
    assert time.perf_counter() - start < 2
