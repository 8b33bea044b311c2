"""Labelled graphs from text: what is read, and what every refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgraph.data import load_tu, parse_tu
from vgraph.errors import DataError

TEXT = "2\n3 -1\n4 2 1 2\n9 1 0\n4 1 0\n1 1\n9 0\n"


def test_graphs_tags_and_labels() -> None:
    data = parse_tu(TEXT)
    assert [g.num_nodes() for g in data.graphs] == [3, 1]
    assert [end.tolist() for end in data.graphs[0].edges()] == [[1, 2, 0, 0], [0, 0, 1, 2]]
    assert data.graphs[0].ndata["tag"].tolist() == [0, 1, 0]
    assert (data.labels.tolist(), data.num_classes, data.num_tags) == ([0, 1], 2, 2)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("2\n1 0\n0 0\n", "there are 0 numbers where 2 are needed"),
        ("1\n1 0", "the file ends too early"),
        ("1\n1 x\n", "is no list of whole numbers"),
        ("1\n1 0\n0 1 1\n", "vertex 0 of 1 has no 1 neighbours there"),
        ("1\n1 0\n0 2 0\n", "vertex 0 of 1 has no 2 neighbours there"),
        ("1\n1 0\n0 -1 0\n", "vertex 0 of 1 has no -1 neighbours there"),
        ("1\n-1 0\n", "a graph of -1 vertices"),
        ("-1\n", "a file of -1 graphs"),
        ("inf\n", "'inf' is no list of whole numbers"),
        ("nan\n", "is no list of whole numbers"),
        ("1\n1 0.5\n", "is no list of whole numbers"),
        ("1\n1 1_0\n", "is no list of whole numbers"),
        ("1 2\n1 0\n0 0\n", "there are 2 numbers where 1 are needed"),
        ("1\n1 0 0\n0 0\n", "there are 3 numbers where 2 are needed"),
        ("1\n1 0\n0 0\n\n1 0\n0 0\n", r"'1 0' follows the last vertex of the last graph of 1(.|\n)*x\.txt:5"),
        ("0\n1 0\n", "'1 0' follows the last vertex of the last graph of 0"),
        ("2\n1 0\n0 0\n0 0\n1 0\n0 0\n", "'1 0' follows"),
        (f"{'9' * 5000}\n", "is no list of whole numbers"),
    ],
)
def test_refusals(text: str, fact: str) -> None:
    with pytest.raises(DataError, match=fact):
        parse_tu(text, path="x.txt")


def test_numbers_of_any_size() -> None:
    tags = [2**53, 2**53 + 1, 2**53, 10**30, 10**30 + 1]
    lines = "\n".join(f"{tag} 0" for tag in tags)
    data = parse_tu(f"1.0\n5 {2**64 + 1}\n{lines}\n")
    assert data.graphs[0].ndata["tag"].tolist() == [0, 1, 0, 2, 3]
    assert data.labels.tolist() == [0]


@pytest.mark.parametrize(("name", "count", "classes", "tags"), [("MUTAG", 188, 2, 7), ("PROTEINS", 1113, 2, 3)])
def test_public_data(data_dir: Path, name: str, count: int, classes: int, tags: int) -> None:
    path = data_dir / "tu" / f"{name}.txt"
    if not path.exists():
        pytest.skip(f"no {path.name}")
    data = load_tu(path)
    assert (len(data.graphs), data.num_classes, data.num_tags) == (count, classes, tags)
    g = data.graphs[0]
    assert g.has_edges_between(*g.edges()[::-1]).all()
