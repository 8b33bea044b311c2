"""Text edge lists: what they may look like, and what every wrong line says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.data import load_edge_list, parse_edge_list
from vgraph.errors import DataError


def test_blanks_commas_comments_and_line_ends() -> None:
    edges = parse_edge_list("# SNAP\n\n 0\t3\r\n1,2 # late\n2 , 0\n")
    assert edges.src.tolist() == [0, 1, 2]
    assert edges.dst.tolist() == [3, 2, 0]
    assert edges.weight is None
    assert edges.num_vertices == 4


def test_weights() -> None:
    weight = parse_edge_list("0 1 0.5\n1,0,-2e1").weight
    assert weight is not None
    assert weight.dtype == np.float32
    assert weight.tolist() == [0.5, -20.0]


@pytest.mark.parametrize(("num_vertices", "expected"), [(None, 0), (7, 7)])
def test_no_edges(num_vertices: int | None, expected: int) -> None:
    edges = parse_edge_list("# nothing\n", num_vertices=num_vertices)
    assert edges.src.shape == edges.dst.shape == (0,)
    assert edges.num_vertices == expected


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("7", "'7' is not an edge"),
        ("0 1 2 3", "'0 1 2 3' is not an edge"),
        ("0 -1", "'-1' is not a vertex id"),
        ("0 1.5", "'1.5' is not a vertex id"),
        ("a b", "'a' is not a vertex id"),
        ("1_0 2", "'1_0' is not a vertex id"),
        ("0 ²", "'²' is not a vertex id"),
        ("0 5", "vertex id 5 is above 4"),
        (f"0 {'9' * 5000}", "vertex id 99"),
        ("0 1 heavy", "'heavy' is not a weight"),
        ("0 1 nan", "'nan' is not a weight"),
        ("0 1 inf", "'inf' is not a weight"),
        ("0 1 1_0", "'1_0' is not a weight"),
    ],
)
def test_wrong_lines(line: str, fact: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_edge_list(f"# edges\n{line}\n", num_vertices=5, path="some.txt")
    assert fact in str(caught.value)
    assert caught.value.line == "some.txt:2"
    assert caught.value.cure


def test_an_id_that_no_count_fits() -> None:
    with pytest.raises(DataError, match="renumber the vertices"):
        parse_edge_list(f"0 {2**63 - 1}")


@pytest.mark.parametrize("text", ["0 1\n1 2 0.5\n", "0 1 0.5\n1 2\n"])
def test_weights_on_some_edges_only(text: str) -> None:
    with pytest.raises(DataError, match="some edges have a weight and some have none") as caught:
        parse_edge_list(text)
    assert caught.value.line == "<text>:2"


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.txt"
    with pytest.raises(DataError, match="cannot read the data file") as caught:
        load_edge_list(path)
    assert caught.value.line == str(path)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"0 1\n# caf\xe9\n")
    with pytest.raises(DataError, match="byte 9 is not UTF-8") as caught:
        load_edge_list(path)
    assert caught.value.line == f"{path}:2"


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.floats(width=32) | st.none())))
def test_round_trip(rows: list[tuple[int, int, float | None]]) -> None:
    finite = [(s, d, w if w is not None and np.isfinite(w) else 0.0) for s, d, w in rows]
    edges = parse_edge_list("".join(f"{s} {d} {w!r}\n" for s, d, w in finite), num_vertices=100)
    weight = [] if edges.weight is None else edges.weight.tolist()
    assert list(zip(edges.src.tolist(), edges.dst.tolist(), weight, strict=True)) == finite


@given(st.text(alphabet="0123456789 ,#\n-.e_x", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        edges = parse_edge_list(text)
    except DataError as error:
        assert error.line
    else:
        assert len(edges.src) == len(edges.dst)


def test_graph(tmp_path: Path) -> None:
    path = tmp_path / "triangle.txt"
    path.write_text("0 1 0.5\n1 2 1\n2 0 2\n", encoding="utf-8")
    graph = load_edge_list(path, num_nodes=4)
    assert (graph.num_nodes(), graph.num_edges()) == (4, 3)
    assert [ends.tolist() for ends in graph.edges()] == [[0, 1, 2], [1, 2, 0]]
    assert torch.equal(graph.edata["weight"], torch.tensor([0.5, 1.0, 2.0]))
