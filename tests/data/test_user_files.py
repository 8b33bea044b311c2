"""Files that users bring: each kind is read as it is documented, and what is wrong with one is told with its line."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import io, sparse

import vgraph
from vgraph import data
from vgraph.errors import DataError
from vgraph.files.content import read_lines, read_text

Files = Mapping[str, str | bytes]


def write(folder: Path, files: Files) -> Path:
    """The files in a folder; gives the only one, or the folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / next(iter(files)) if len(files) == 1 else folder


# ---------------------------------------------------------------- what is read
def test_listops(tmp_path: Path) -> None:
    path = write(tmp_path, {"l.tsv": "9\t( ( ( [MAX 2 ) 9 ) ( ( [MIN 4 ) 7 ) ] ) 0 ) ]\r\n\n3\t3\n"})
    trees = data.load_listops(path)
    assert [sample.label for sample in trees] == [9, 3]
    words = [trees.tokens[i] for i in trees[0].graph.ndata["token"]]
    assert words == ["[MAX", "2", "9", "[MIN", "4", "7", "0"]
    assert trees[0].graph.edges()[1].tolist() == [0, 0, 0, 3, 3, 0]
    assert trees[1].graph.num_edges() == 0


def test_listops_as_published(data_dir: Path) -> None:
    lines = (data_dir / "listops" / "test_d20s.tsv").read_text().splitlines()
    forest = data.parse_listops("\n".join(lines[::10]))
    value = np.maximum(forest.features["token"] - 5, 0).tolist()  # digits come behind the unknown token and operators
    below: list[list[int]] = [[] for _ in value]
    found = [lambda own: min(own), lambda own: max(own), lambda own: int(np.median(own)), lambda own: sum(own) % 10]
    first = np.repeat(forest.ptr[:-1], np.diff(forest.ptr))
    for vertex in range(len(value) - 1, -1, -1):  # children have larger numbers
        if below[vertex]:
            value[vertex] = found[forest.features["token"][vertex] - 1](below[vertex])
        if forest.parent[vertex] >= 0:
            below[forest.parent[vertex] + first[vertex]].append(value[vertex])
    assert len(forest) == 1_000
    assert [value[root] for root in forest.ptr[:-1]] == forest.label.tolist()


CONLLU = """\
# sent_id = 1
# polarity = good
1-2\tdámelo\t_\t_\t_\t_\t_\t_\t_\t_
1\tda\tdar\tVERB\t_\t_\t0\troot\t_\t_
2\tme\tyo\tPRON\t_\t_\t1\tiobj\t_\t_
2.1\tque\tque\tPRON\t_\t_\t_\t_\t1:obj\t_
3\tlo\tél\tPRON\t_\t_\t1\tobj\t_\t_

# polarity = bad
1\tno\tno\tINTJ\t_\t_\t0\troot\t_\t_
"""


def test_conllu(tmp_path: Path) -> None:
    path = write(tmp_path, {"s.conllu": "\ufeff" + CONLLU})
    trees = data.load_conllu(path, label="polarity")
    assert (trees.classes, [sample.label for sample in trees]) == (("bad", "good"), [1, 0])
    g = trees[0].graph
    assert [trees.tokens[i] for i in g.ndata["word"]] == ["da", "me", "lo"]
    assert [trees.names["relation"][i] for i in g.ndata["relation"]] == ["root", "iobj", "obj"]
    assert [end.tolist() for end in g.edges()] == [[1, 2], [0, 0]]
    other = write(tmp_path, {"t.conllu": CONLLU.replace("da\t", "di\t").replace("INTJ", "ADV")})
    like = {"vocabulary": trees.tokens, "names": trees.names, "classes": trees.classes}
    found = data.load_conllu(other, label="polarity", **like)
    assert found[0].graph.ndata["word"].tolist() == [0, *g.ndata["word"].tolist()[1:]]
    assert found[1].graph.ndata["tag"].tolist() == [0] and found.names == trees.names
    without = data.load_conllu(path)
    assert without.num_classes == 0 and without[0].label == -1


PAIR = {"a.toks": "a dog barks\nyes\n", "a.parents": "2 3 0\n0\n", "a.rels": "det nsubj root\nroot\n"}
PAIR |= {"b.toks": "barks\nno\n", "b.parents": "0\n0\n", "b.rels": "root\nroot\n", "sim.txt": "4.5\n1\n"}


def test_pairs(tmp_path: Path) -> None:
    pairs = data.load_pairs(write(tmp_path, PAIR))
    left = pairs[0].left
    assert [pairs.tokens[i] for i in left.ndata["word"]] == ["barks", "dog", "a"]
    assert [pairs.names["relation"][i] for i in left.ndata["relation"]] == ["root", "nsubj", "det"]
    assert left.ndata["position"].tolist() == [2, 1, 0] and left.edges()[1].tolist() == [0, 1]
    a, b, similarity = vgraph.collate(pairs[0:2])
    assert (a.batch_num_nodes().tolist(), b.num_nodes(), similarity.tolist()) == ([3, 1], 2, [4.5, 1.0])


def test_sick_has_one_vocabulary(tmp_path: Path) -> None:
    parts = {f"{part}/{name}": text for part in ("train", "dev", "test") for name, text in PAIR.items()}
    splits = data.load_sick(write(tmp_path, parts | {"dev/a.toks": "a cat barks\nyes\n"}))
    assert splits.val.tokens == splits.train.tokens == splits.test.tokens
    assert splits.val[0].left.ndata["word"].tolist()[1] == 0
    assert splits.test.left.forest.label.tolist() == [-1, -1]


def test_dags(tmp_path: Path) -> None:
    items = [
        '{"nodes": ["in", "conv", 3], "edges": [[0, 1, "x"], [0, 2, "y"], [1, 2, "x"]], "label": 7, "score": 1e-1}',
        '{"nodes": [], "edges": []}',
    ]
    for name, text in (("d.json", "[\n" + ",\n".join(items) + "\n]\n"), ("d.jsonl", "\n".join(items))):
        found = data.load_dags(write(tmp_path, {name: text}))
        assert (found.kinds, found.edge_kinds) == (("<unknown>", "3", "conv", "in"), ("<unknown>", "x", "y"))
        assert found.graphs[0].ndata["kind"].tolist() == [3, 2, 1]
        assert found.graphs[0].edata["kind"].tolist() == [1, 2, 1]
        assert (found.classes, found.labels.tolist(), found.graphs[1].num_nodes()) == (("7",), [0, -1], 0)
        assert torch.equal(found.scores.isnan(), torch.tensor([False, True]))
    again = data.load_dags(tmp_path / "d.json", kinds=("<unknown>", "in"), edge_kinds=(), classes=("6", "7"))
    assert again.graphs[0].ndata["kind"].tolist() == [1, 0, 0] and again.labels.tolist() == [1, -1]
    assert "kind" not in again.graphs[0].edata


def test_dags_of_a_table(tmp_path: Path) -> None:
    text = 'graph,node,kind,parents,score,label\nx,0,"in, or out",2,0.5,a\nx,1,b,,,\nx,2,b,1 1,,\n\ny,0,b,,,\n'
    found = data.load_dags(write(tmp_path, {"d.csv": text}))
    assert [end.tolist() for end in found.graphs[0].edges()] == [[2, 1, 1], [0, 2, 2]]
    assert (found.kinds, found.labels.tolist()) == (("<unknown>", "b", "in, or out"), [0, -1])


MUSAE = {
    "w_edges.csv": "id1,id2\n0,1\n1,2\n",
    "w_target.csv": "id,days,new_id,mature\n9,3,1,True\n8,2,0,False\n7,2,2,True\n",
}
MUSAE |= {"w_features.json": '{"1": [0, 2], "0": [1]}'}


def test_musae(tmp_path: Path) -> None:
    found = data.load_musae(write(tmp_path, MUSAE))
    assert found.graph.ndata["label"].tolist() == [0, 1, 1] and found.classes == ("False", "True")
    assert found.graph.ndata["feat"].tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert [end.tolist() for end in found.graph.edges()] == [[0, 1, 1, 2], [1, 2, 0, 1]]
    masks = sum(found.graph.ndata[f"{part}_mask"].int() for part in ("train", "val", "test"))
    assert masks.tolist() == [1, 1, 1]
    assert data.load_musae(tmp_path, target="days").classes == ("2", "3")


def test_matrices(tmp_path: Path) -> None:
    matrix = sparse.coo_matrix(([1.0, 2.0], ([0, 2], [1, 0])), (3, 3))
    io.mmwrite(tmp_path / "g.mtx", matrix)
    io.savemat(tmp_path / "g.mat", {"network": matrix, "group": np.eye(3)})
    io.savemat(tmp_path / "two.mat", {"a": matrix, "b": 2 * matrix})
    for g in (data.load_matrix(tmp_path / "g.mtx"), data.load_matrix(tmp_path / "g.mat")):
        edges = sorted(zip(*(end.tolist() for end in g.edges()), g.edata["weight"].tolist(), strict=True))
        assert edges == [(0, 1, 1.0), (2, 0, 2.0)]
    assert data.load_matrix(tmp_path / "two.mat", "b").edata["weight"].sum() == 6
    half = "%%MatrixMarket matrix coordinate pattern symmetric\n% half of it\n2 2 1\n2 1\n"
    assert data.load_matrix(write(tmp_path, {"s.mtx": half})).num_edges() == 2


@pytest.mark.parametrize("value", [1e300, np.nan])
def test_values_that_float32_does_not_hold_are_refused_of_matlab_too(value: float, tmp_path: Path) -> None:
    """As they are in a file of Matrix Market; they were infinite."""
    io.savemat(tmp_path / "g.mat", {"network": sparse.csc_matrix([[0.0, value], [1, 0]])})
    with pytest.raises(DataError, match="'network' has the value"):
        data.load_matrix(tmp_path / "g.mat")


# ---------------------------------------------------------------- what is refused
def word(line: str) -> str:
    """A line of CoNLL-U of an id, a head and, if there is more, the number of further columns."""
    number, head, *more = line.split()
    return "\t".join([number, "w", "_", "X", "_", "_", head, "dep", "_", *(["_"] * int(more[0] if more else 1))]) + "\n"


def sentence(*lines: str) -> Files:
    return {"s.conllu": "# text = w\n" + "".join(map(word, lines))}


def dag(item: str) -> Files:
    return {"d.json": f'[\n{{"nodes": ["a"], "edges": []}},\n{item}\n]\n'}


def table(*rows: str) -> Files:
    return {"d.csv": "graph,node,kind,parents\n" + "".join(f"{row}\n" for row in rows)}


SKEW = "%%MatrixMarket matrix coordinate real skew-symmetric"


def market(text: str, banner: str = "%%MatrixMarket matrix coordinate real general") -> Files:
    return {"g.mtx": f"{banner}\n{text}"}


MANY = "9" * 5000
WRONG: list[tuple[Callable[..., Any], Files, str, str]] = [
    (data.load_listops, {"l.tsv": "9\t9\n12\t[MAX 1 2 ]\n"}, "l.tsv:2", "no expression with its answer"),
    (data.load_listops, {"l.tsv": "9\t[MAX 1 2\n"}, "l.tsv:1", "1 lists are not closed"),
    (data.load_listops, {"l.tsv": "9\t[MAX 1 ] ]\n"}, "l.tsv:1", "']' closes nothing"),
    (data.load_listops, {"l.tsv": "9\t[MAX ]\n"}, "l.tsv:1", "closes an empty list"),
    (data.load_listops, {"l.tsv": "9\t1 2\n"}, "l.tsv:1", "'2' stands behind the expression"),
    (data.load_listops, {"l.tsv": "9\t[AVG 1 2 ]\n"}, "l.tsv:1", "'[AVG' is no operator"),
    (data.load_listops, {"l.tsv": "9\t\n"}, "l.tsv:1", "there is no expression"),
    (data.load_listops, {"l.tsv": b"9\t9\n\xff\n"}, "l.tsv:2", "not UTF-8"),
    (data.load_conllu, sentence("1 0", "2 1 0"), "s.conllu:3", "there are 9 columns where 10"),
    (data.load_conllu, sentence("1 0", "3 1"), "s.conllu:3", "word 3 stands where 2 belongs"),
    (data.load_conllu, sentence("1 0", "2 7"), "s.conllu:3", "head 7 is above 2"),
    (data.load_conllu, sentence("1 0", "2 -1"), "s.conllu:3", "'-1' is not a head"),
    (data.load_conllu, sentence("1 0", f"2 {MANY}"), "s.conllu:3", "head 999"),
    (data.load_conllu, sentence("1 0", "2 3", "3 2"), "s.conllu:2", "words 2, 3 lie on a cycle"),
    (data.load_conllu, sentence("1 0", "2 0"), "s.conllu:2", "words 1 and 2 are roots"),
    (data.load_conllu, sentence("1 1"), "s.conllu:2", "no word is the root"),
    (data.load_conllu, sentence("1-3 _", "1 0", "2 1"), "s.conllu:5", "reaches to word 3 of 2"),
    (data.load_conllu, sentence("2-3 _", "1 0"), "s.conllu:2", "multiword token 2 stands where 1 belongs"),
    (data.load_conllu, sentence("1-2 _", "1 0", "2-3 _"), "s.conllu:4", "begins within another"),
    (data.load_conllu, sentence("1 0", "3.1 _"), "s.conllu:3", "empty node 3 stands where 1 belongs"),
    (data.load_conllu, {"s.conllu": b"# caf\xe9\n"}, "s.conllu:1", "not UTF-8"),
    (lambda path: data.load_conllu(path, label="tone"), sentence("1 0"), "s.conllu:2", "no comment '# tone"),
    (
        lambda path: data.load_conllu(path, label="polarity", classes=("x",)),
        {"s.conllu": CONLLU},
        "s.conllu:2",
        "none of x",
    ),
    (
        lambda path: data.load_conllu(path, label="t"),
        {"s.conllu": "# t = 1\n# t = 2\n"},
        "s.conllu:2",
        "a second comment",
    ),
    (data.load_pairs, PAIR | {"a.parents": "2 3 0\n"}, "a.parents:1", "ends here, and a.toks has 2 lines"),
    (data.load_pairs, PAIR | {"a.parents": "2 3\n0\n"}, "a.parents:1", "2 entries, and a.toks has 3 words"),
    (data.load_pairs, PAIR | {"a.parents": "2 1 0\n0\n"}, "a.parents:1", "words 1, 2 lie on a cycle"),
    (data.load_pairs, PAIR | {"b.parents": "0\n2\n"}, "b.parents:2", "head 2 is above 1"),
    (data.load_pairs, PAIR | {"b.rels": "root\n\n"}, "b.rels:1", "ends here"),
    (data.load_pairs, PAIR | {"sim.txt": "4.5\nhigh\n"}, "sim.txt:2", "'high' is not a similarity"),
    (data.load_pairs, PAIR | {"sim.txt": "1e99\n1\n"}, "sim.txt:1", "'1e99' is not a similarity"),
    (data.load_pairs, {"a.toks": "a\n", "b.toks": "b\n"}, "a.parents", "cannot read the data file"),
    (data.load_dags, dag('{"nodes": ["a"], "edges": [[0, 1]]}'), "d.json:3", "names no node of 1"),
    (data.load_dags, dag('{"nodes": ["a", "b"], "edges": [[0, 1], [1, 0]]}'), "d.json:3", "edges lead from node 0, 1"),
    (data.load_dags, dag('{"nodes": ["a"], "edges": [[0, 0]]}'), "d.json:3", "edges lead from node 0 back"),
    (data.load_dags, dag('{"nodes": ["a"], "edges": [[0, true]]}'), "d.json:3", "names no node"),
    (data.load_dags, dag('{"nodes": ["a"], "edges": [[0]]}'), "d.json:3", "is no edge"),
    (data.load_dags, dag('{"nodes": [0.5], "edges": []}'), "d.json:3", "0.5 is no kind of a node"),
    (data.load_dags, dag('{"nodes": 3, "edges": []}'), "d.json:3", "'nodes' is a list"),
    (data.load_dags, dag('{"nodes": ["a"]}'), "d.json:3", "lacks 'edges'"),
    (data.load_dags, dag('{"nodes": [], "nodes": [], "edges": []}'), "d.json:3", "the key 'nodes' stands twice"),
    (data.load_dags, dag('{"nodes": [], "edges": [], "lable": 1}'), "d.json:3", "has no 'lable'"),
    (data.load_dags, dag('{"nodes": [], "edges": [], "score": "1"}'), "d.json:3", "'1' is no score"),
    (data.load_dags, dag('{"nodes": [], "edges": [], "score": 1e999}'), "d.json:3", "1e999 is not finite"),
    (data.load_dags, dag('{"nodes": [], "edges": [], "score": NaN}'), "d.json:3", "NaN is not finite"),
    (data.load_dags, dag(f'{{"nodes": [{MANY}], "edges": []}}'), "d.json:3", "beyond 64 bits"),
    (data.load_dags, dag("[" * 100_000), "d.json:3", "nested too deeply"),
    (data.load_dags, dag('{"nodes": ["a"], "edges": [[0,'), "d.json:4", "no JSON"),
    (data.load_dags, dag('{"nodes": [], "edges": []} {"nodes": [], "edges": []}'), "d.json:3", "lacks a comma"),
    (data.load_dags, {"d.json": '[{"nodes": [], "edges": []},\n'}, "d.json:2", "no JSON"),
    (data.load_dags, {"d.json": "[] []"}, "d.json:1", "something follows"),
    (data.load_dags, {"d.json": "[]"}, "d.json:1", "there are no graphs"),
    (data.load_dags, {"d.jsonl": '{"nodes": [], "edges": []}\n7\n'}, "d.jsonl:2", "a graph is an object, not 7"),
    (
        lambda path: data.load_dags(path, classes=()),
        dag('{"nodes": [], "edges": [], "label": 1}'),
        "d.json:3",
        "none of",
    ),
    (data.load_dags, table("x,0,a,", "x,2,a,0"), "d.csv:3", "node 2 stands where 1 belongs"),
    (data.load_dags, table("x,0,a,", "x,1,a,2"), "d.csv:3", "parent 2 is above 1"),
    (data.load_dags, table("x,0,a,1", "x,1,a,0"), "d.csv:2", "edges lead from node 0, 1"),
    (data.load_dags, table("x,0,a,", "y,0,a,", "x,1,a,"), "d.csv:4", "'x' goes on after another"),
    (data.load_dags, table("x,0,a"), "d.csv:2", "there are 3 fields, and the header names 4"),
    (data.load_dags, table('x,0,"a,'), "d.csv:2", "no comma-separated text"),
    (data.load_dags, {"d.csv": "graph,node,kind\n"}, "d.csv:1", "no column 'parents'"),
    (data.load_dags, {"d.csv": "graph,node,kind,parents,kind\n"}, "d.csv:1", "names 'kind' more than once"),
    (data.load_dags, {"d.csv": ""}, "d.csv:1", "the file is empty"),
    (data.load_musae, MUSAE | {"w_edges.csv": "a,b\n0,3\n"}, "w_edges.csv:2", "node id 3 is above 2"),
    (data.load_musae, MUSAE | {"w_edges.csv": "a,b,c\n0,1,1\n"}, "w_edges.csv:2", "there are 3 columns"),
    (data.load_musae, MUSAE | {"w_target.csv": "id,target\n0,a\n0,b\n"}, "w_target.csv:3", "node 0 has a second line"),
    (data.load_musae, MUSAE | {"w_target.csv": "id,target\n"}, "w_target.csv:1", "no nodes below the header"),
    (data.load_musae, MUSAE | {"w_target.csv": "id,name\n0,b\n"}, "w_target.csv:1", "no column target or ml_target"),
    (data.load_musae, MUSAE | {"w_features.json": '{"0": [1], "0": [2]}'}, "w_features.json:1", "'0' stands twice"),
    (data.load_musae, MUSAE | {"w_features.json": '{"3": [1]}'}, "w_features.json:1", "node id 3 is above 2"),
    (data.load_musae, MUSAE | {"w_features.json": '{"0": [-1]}'}, "w_features.json:1", "lists no features"),
    (data.load_musae, MUSAE | {"w_features.json": '{"0": [16777215]}'}, "w_features.json:1", "bytes make features of"),
    (data.load_musae, MUSAE | {"more_edges.csv": ""}, "", "one file *edges.csv is needed"),
    (data.load_matrix, market("2 2 1\n3 1 1.0\n"), "g.mtx:3", "row 3 is above 2"),
    (data.load_matrix, market("2 2 3\n1 1 1.0\n2 2 1.0\n"), "g.mtx:4", "3 entries are promised, and 2"),
    (data.load_matrix, market("2 2 999999999\n1 1 1.0\n"), "g.mtx:3", "999999999 entries are promised"),
    (data.load_matrix, market("99999999999 99999999999 1\n1 1 1.0\n"), "g.mtx:2", "vertices; so few may name"),
    (data.load_matrix, market("2 2 1\n0 1 1.0\n"), "g.mtx:3", "row 0"),
    (data.load_matrix, market("2 2 1\n1 1 5\n", SKEW), "g.mtx:3", "5.0 on the diagonal of a skew-symmetric matrix"),
    (data.load_matrix, market("2 2 1\n1 1 1e99\n"), "g.mtx:3", "'1e99' is not a value"),
    (data.load_matrix, market("2 2 1\n1 1\n"), "g.mtx:3", "no entry of kind real"),
    (data.load_matrix, market("2 2 0\n\n1 1 1.0\n"), "g.mtx:4", "more behind the 0 entries"),
    (data.load_matrix, {"g.mtx": ""}, "g.mtx:1", "begins no sparse matrix"),
    (data.load_matrix, market("2 3 1\n1 1 1.0\n"), "g.mtx", "2 rows and 3 columns"),
    (data.load_matrix, market("2 2\n"), "g.mtx:2", "is not 'rows columns entries'"),
    (
        data.load_matrix,
        market("1 1 1\n", "%%MatrixMarket matrix array real general"),
        "g.mtx:1",
        "begins no sparse matrix",
    ),
    (
        data.load_matrix,
        market("1 1 1\n", "%%MatrixMarket matrix coordinate complex general"),
        "g.mtx:1",
        "begins no sparse matrix",
    ),
    (data.load_matrix, {"g.mat": b"MATLAB 5.0"}, "g.mat", "not a readable .mat"),
    (
        lambda path: data.load_matrix(path, "b"),
        {"g.mat": bytes(124) + b"\0\1IM"},
        "g.mat",
        "the file has no sparse matrix",
    ),
]


@pytest.mark.parametrize(("load", "files", "place", "fact"), WRONG, ids=[f"{row[2]}-{row[3]}" for row in WRONG])
def test_what_is_wrong_is_told(
    load: Callable[[Path], Any], files: Files, place: str, fact: str, tmp_path: Path
) -> None:
    path = write(tmp_path, files)
    with pytest.raises(DataError) as caught:
        load(path)
    assert fact in caught.value.fact
    assert caught.value.line == str(tmp_path / place) and caught.value.cure


def test_a_byte_order_mark_is_no_part_of_any_text(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain.txt", tmp_path / "marked.txt.gz"
    plain.write_bytes(b"\xef\xbb\xbf(3 (2 good) (2 film))\n")
    marked.write_bytes(gzip.compress(b"\xef\xbb\xbffirst\nsecond\n"))
    assert read_text(plain).startswith("(3")
    assert list(read_lines(marked)) == ["first", "second"]


def test_a_compressed_file_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_bytes(gzip.compress(b"(3 (2 good) (2 film))\n"))
    with pytest.raises(DataError, match="compressed with gzip") as told:
        read_text(path)
    assert told.value.cure == "expand it: gunzip"
