"""RDF: what is read as a typed graph, published splits, and what every refusal says."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from vgraph.data import load_rdf, load_rdf_task, parse_ntriples
from vgraph.errors import DataError

TEXT = """# people
<http://x/p#ann> <http://x/r#knows> <http://x/p#bob> .
<http://x/p#ann> <http://x/r#knows> <http://x/p#bob> .
_:someone <http://x/r#knows> <http://x/p#ann> . # said twice above

<http://x/p#bob> <http://x/r#says> "a \\"b\\" <c> ."@en .
<http://x/p#bob> <http://x/r#age> "7"^^<http://x/int> .
"""


def test_types_names_and_inverses() -> None:
    data = parse_ntriples(TEXT)
    g = data.graph
    forward = {("entity", "knows", "entity"), ("entity", "says", "literal"), ("entity", "age", "literal")}
    backward = {(dst, f"inverse-{name}", src) for src, name, dst in forward}
    assert len(g.canonical_etypes) == 6 and set(g.canonical_etypes) == forward | backward
    assert data.names["entity"] == ["http://x/p#ann", "http://x/p#bob", "_:someone"]
    assert data.names["literal"] == ['"a \\"b\\" <c> ."@en', '"7"^^<http://x/int>']
    assert [end.tolist() for end in g.edges(etype="knows")] == [[0, 2], [1, 0]]  # what is stated twice counts once
    assert [end.tolist() for end in g.edges(etype="inverse-knows")] == [[1, 0], [0, 2]]
    assert data.relations == {"knows": "http://x/r#knows", "says": "http://x/r#says", "age": "http://x/r#age"}
    assert len(parse_ntriples(TEXT, inverse=False).graph.canonical_etypes) == 3


def test_short_names_tell_relations_apart() -> None:
    data = parse_ntriples("<a> <x#r> <b> .\n<a> <y#r> <b> .\n<a> <z/s> <b> .")
    assert list(data.relations) == ["x#r", "y#r", "s"]


def test_a_relation_to_entities_and_literals_is_two_types_of_edges() -> None:
    g = parse_ntriples('<a> <r> <b> .\n<a> <r> "b" .').graph
    assert {("entity", "r", "entity"), ("entity", "r", "literal")} <= set(g.canonical_etypes)


@pytest.mark.parametrize("line", ["<a> <b> <c>", "<a> b <c> .", '"a" <b> <c> .', "<a> <b> c .", '<a> <b> "c .'])
def test_what_is_no_triple(line: str) -> None:
    with pytest.raises(DataError, match="is no triple") as caught:
        parse_ntriples("<a> <b> <c> .\n" + line, path="x.nt")
    assert "x.nt:2" in str(caught.value)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "x.nt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert load_rdf(tmp_path / "x.nt.gz").graph.num_edges("knows") == 2
    (tmp_path / "y.nt.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="not a readable"):
        load_rdf(tmp_path / "y.nt.gz")
    with pytest.raises(DataError, match="cannot read the data file"):
        load_rdf(tmp_path / "z.nt")


def tables(folder: Path, train: str, test: str) -> tuple[Path, Path]:
    (folder / "train.tsv").write_text(train)
    (folder / "test.tsv").write_text(test)
    return folder / "train.tsv", folder / "test.tsv"


def test_a_task(tmp_path: Path) -> None:
    paths = tables(tmp_path, "id\twho\tkind\n1\thttp://x/p#bob\t1.0\n", "who\tkind\nhttp://x/p#ann\t0\n")
    task = load_rdf_task(parse_ntriples(TEXT), *paths, entity="who", label="kind")
    assert (task.train_ids.tolist(), task.train_labels.tolist()) == ([1], [1])
    assert (task.test_ids.tolist(), task.test_labels.tolist(), task.num_classes) == ([0], [0], 2)


@pytest.mark.parametrize(
    ("train", "test", "fact"),
    [
        ("who\n_:someone\n", "who\tkind\n", "there is no column 'kind'"),
        ("who\tkind\n_:someone\n", "who\tkind\n", "1 cells under 2 columns"),
        ("who\tkind\neve\t1\n", "who\tkind\n", "eve is not in the graph"),
        ("who\tkind\n_:someone\t1\n", "who\tkind\n_:someone\t1\n", "_:someone is in train and in test"),
        ("who\tkind\n_:someone\t1\n_:someone\t2\n", "who\tkind\n", "_:someone is labelled 2, and 1 before"),
    ],
)
def test_refusals_of_tasks(tmp_path: Path, train: str, test: str, fact: str) -> None:
    with pytest.raises(DataError, match=fact):
        load_rdf_task(parse_ntriples(TEXT), *tables(tmp_path, train, test), entity="who", label="kind")


def test_mutag_as_published(data_dir: Path) -> None:
    folder = data_dir / "rdf" / "mutag"
    data = load_rdf(folder / "mutag_stripped.nt.gz")
    assert sum(map(len, data.names.values())) == 23_644 and data.graph.num_edges() == 2 * 74_227
    assert len(data.relations) == 23
    task = load_rdf_task(
        data, folder / "trainingSet.tsv", folder / "testSet.tsv", entity="bond", label="label_mutagenic"
    )
    assert (len(task.train_ids), len(task.test_ids), task.num_classes) == (272, 68, 2)
