"""Syntax trees: what a tree holds and hides, labels, splits, the cache, the standard library."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from vgraph.data import TreeSplits, load_syntax, parse_functions
from vgraph.data.syntax import find_sources, first_word, read_corpus, split_of
from vgraph.errors import ArgumentError, DataError

SOURCE = '''
def _get_size(self, /, *args, size=None, **more):
    """Nothing of this may be seen: get_size."""
    if size is None and not args:
        return self._get_size(*args, _get_size=-1) + get_size[0]
    global get_size
    del self.data["key"]

class Box:
    """A box."""
    def __init__(self):
        def set_up():
            pass
    @property
    async def is_open(self) -> bool:
        return await self.wait()
'''


def test_tree() -> None:
    tree = parse_functions("def f(a):\n    '''doc'''\n    return a.b + 1 < g(a, k=None)")[0]
    assert tree.name == "f"
    assert " ".join(tree.tokens) == (
        "FunctionDef arguments arg:a Return Compare:Lt BinOp:Add Attribute:b Name:a "
        "Constant:int Call Name:g Name:a keyword:k Constant:None"
    )
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3, 4, 5, 6, 5, 4, 9, 9, 9, 12]
    assert tree.parent.dtype == np.int64


def test_functions_nested_methods_and_dunders() -> None:
    names = [tree.name for tree in parse_functions(SOURCE)]
    assert sorted(names) == ["_get_size", "is_open", "set_up"]


def test_a_tree_hides_its_own_name() -> None:
    tree = parse_functions(SOURCE)[0]
    assert tree.name == "_get_size"
    assert not [token for token in tree.tokens if "get_size" in token]
    assert [t for t in tree.tokens if t.endswith("<own name>")] == [
        "Attribute:<own name>",
        "keyword:<own name>",
        "Name:<own name>",
    ]
    dotted = parse_functions("def path():\n    import os.path, sys")[0]
    assert dotted.tokens[3:] == ("alias:<own name>", "alias:sys")


def test_docstrings_are_left_out() -> None:
    tree = parse_functions("def f():\n 'doc'\n def g():\n  'doc'\n class A:\n  'doc'\n 'kept'")[0]
    assert tree.tokens.count("Constant:str") == 1


def test_size_limits() -> None:
    source = "def small(): pass\ndef large(): return [1, 2, 3]"
    assert [len(tree.tokens) for tree in parse_functions(source)] == [3, 7]
    assert [tree.name for tree in parse_functions(source, min_vertices=4)] == ["large"]
    assert [tree.name for tree in parse_functions(source, max_vertices=6)] == ["small"]
    assert len(parse_functions(source, min_vertices=3, max_vertices=7)) == 2


def test_depth_costs_no_recursion() -> None:
    chain = "a" + ".b" * 1500
    (tree,) = parse_functions(f"def f(a): return {chain}", max_vertices=5000)
    assert len(tree.tokens) == 1505


def test_warnings_about_the_source_are_not_ours() -> None:
    assert len(parse_functions(r"def f(): return '\d'")) == 1


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("get", "get"),
        ("__private_name", "private"),
        ("setUp", "set"),
        ("getHTTPHeader", "get"),
        ("HTTPServer", "http"),
        ("utf8_decode", "utf"),
        ("X", "x"),
        ("_1st", None),
        ("é", None),
    ],
)
def test_first_word(name: str, word: str | None) -> None:
    assert first_word(name) == word


def test_splits_depend_on_the_path_only() -> None:
    splits = [split_of(f"package/module_{i}.py") for i in range(2000)]
    shares = [splits.count(name) / len(splits) for name in ("train", "val", "test")]
    assert np.allclose(shares, [0.8, 0.1, 0.1], atol=0.03)
    assert (split_of("ast.py"), split_of("email/parser.py")) == ("train", "train")


def write_library(root: Path) -> Path:
    """Enough small files that every split gets some."""
    for i in range(60):
        text = "".join(
            f"def {word}_{i}(self, x):\n    return self.{word}_field[{i}] + x.part_{i} * {j * ' -x +'} 1\n"
            for j, word in enumerate(["get", "get", "set", "is"])
        )
        (root / f"module_{i}.py").write_text(text, encoding="utf-8")
    (root / "rare.py").write_text("def zap(self): return self.a + self.b", encoding="utf-8")
    (root / "broken.py").write_text("def broken(:\n", encoding="utf-8")
    (root / "binary.py").write_bytes(b"\xff\x00\x01")
    for folder in ("tests", "site-packages/other"):
        (root / folder).mkdir(parents=True)
        (root / folder / "skipped.py").write_text("def get_all(x): return x", encoding="utf-8")
    (root / "dangling.py").symlink_to(root / "nowhere.py")
    return root


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "library"
    root.mkdir()
    return write_library(root)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(left: TreeSplits, right: TreeSplits) -> bool:
    return all(
        (a.tokens, a.classes) == (b.tokens, b.classes)
        and np.array_equal(a.forest.ptr, b.forest.ptr)
        and np.array_equal(a.forest.parent, b.forest.parent)
        and np.array_equal(a.forest.label, b.forest.label)
        and np.array_equal(a.forest.features["token"], b.forest.features["token"])
        for a, b in zip(left, right, strict=True)
    )


def test_files_that_do_not_parse_are_counted(library: Path) -> None:
    corpus = read_corpus(library, find_sources(library))
    assert (corpus.num_files, corpus.num_skipped) == (63, 2)
    assert sum(map(len, corpus.functions.values())) == 241


def test_labels_and_vocabulary_come_from_train(library: Path) -> None:
    splits = load_syntax(folder=library, num_classes=2, cache=False)
    assert splits.train.classes == ("get", "is")  # as many "set" as "is": the letter decides
    assert all(len(part) for part in splits)
    assert {part.tokens for part in splits} == {splits.train.tokens}
    train_ids = splits.train.forest.features["token"]
    assert train_ids.min() >= 1
    # what only other splits hold falls back to the node's type
    test_tokens = {splits.test.tokens[i] for i in splits.test.forest.features["token"]}
    assert "Attribute" in test_tokens
    assert {splits.train.tokens[i] for i in train_ids} > {"FunctionDef", "Attribute:get_field"}


def test_a_small_vocabulary(library: Path) -> None:
    splits = load_syntax(folder=library, max_tokens=3, cache=False)
    assert splits.train.tokens == ("<unknown>", "Attribute", "BinOp")
    assert splits.train.forest.features["token"].max() == 2


def test_repeated_trees_are_dropped(library: Path) -> None:
    before = load_syntax(folder=library, cache=False)
    for i in range(60):
        text = (library / f"module_{i}.py").read_text(encoding="utf-8")
        (library / f"copy_{i}.py").write_text(text, encoding="utf-8")
    after = load_syntax(folder=library, cache=False)
    assert sum(map(len, after)) == sum(map(len, before))


@pytest.mark.usefixtures("cache")
def test_graph(library: Path) -> None:
    sample = load_syntax(folder=library, num_classes=3).train[0]
    assert sample.root == 0
    assert 0 <= sample.label < 3
    n = sample.graph.num_nodes()
    assert sample.graph.edges()[0].tolist() == list(range(1, n))
    assert (sample.graph.edges()[1] < sample.graph.edges()[0]).all()
    assert sample.graph.ndata["token"].shape == (n,)


def test_cache(library: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    fresh = load_syntax(folder=library)
    (path,) = cache.iterdir()
    written = path.stat().st_mtime_ns
    assert same(load_syntax(folder=library), fresh)
    assert same(load_syntax(folder=library, cache=False), fresh)
    assert path.stat().st_mtime_ns == written
    load_syntax(folder=library, max_vertices=30)
    assert len(list(cache.iterdir())) == 2
    with (library / "rare.py").open("a") as file:
        file.write("\n\ndef get_more(self): return self.more\n")
    assert sum(map(len, load_syntax(folder=library))) == sum(map(len, fresh)) + 1
    assert not caplog.records


@pytest.mark.parametrize("damage", ["cut", "empty", "other arrays", "pickles"])
def test_a_damaged_cache_is_rebuilt(library: Path, cache: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    fresh = load_syntax(folder=library)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    if damage == "other arrays":
        np.savez(path, tokens=np.array(["a"]), classes=np.array(["b"]))
    elif damage == "pickles":
        np.savez(path, tokens=np.array([{}], object))
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    assert same(load_syntax(folder=library), fresh)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"rebuilding the damaged cache file {path}" in caplog.text
    caplog.clear()
    assert same(load_syntax(folder=library), fresh)
    assert not caplog.records
    assert list(cache.iterdir()) == [path]


def test_a_cache_that_cannot_be_written(library: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("a file where the folder should be", encoding="utf-8")
    assert len(load_syntax(folder=library).train)
    assert "the syntax trees are not cached" in caplog.text


def test_a_failed_write_leaves_nothing(library: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    load_syntax(folder=library)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"min_vertices": 9, "max_vertices": 8}, "max_vertices is below min_vertices"),
        ({"min_vertices": 5000, "max_vertices": 6000}, "the training files have no function"),
    ],
)
def test_wrong_arguments(library: Path, arguments: dict[str, int], fact: str) -> None:
    with pytest.raises(DataError, match=fact) as caught:
        load_syntax(folder=library, cache=False, **arguments)
    assert caught.value.cure


@pytest.mark.parametrize("name", ["num_classes", "max_tokens", "min_vertices", "max_vertices"])
def test_limits_that_count_nothing(library: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"load_syntax\({name}=0\)"):
        load_syntax(folder=library, cache=False, **{name: 0})
    if name.endswith("vertices"):
        with pytest.raises(ArgumentError, match=rf"parse_functions\({name}='3'\)"):
            parse_functions("", **{name: "3"})


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder") as caught:
        load_syntax(folder=tmp_path / "none")
    assert caught.value.line == str(tmp_path / "none")


def test_standard_library() -> None:
    splits = load_syntax()
    sizes = [len(part) for part in splits]
    assert sizes[0] > 1000
    assert min(sizes) > 100
    assert splits.train.num_classes == 12
    assert splits.train.num_tokens <= 4000
    for part in splits:
        forest = part.forest
        vertices = np.diff(forest.ptr)
        assert (vertices.min() >= 4, vertices.max() <= 200) == (True, True)
        own = np.arange(forest.num_vertices) - np.repeat(forest.ptr[:-1], vertices)
        assert (forest.parent < own).all()
        assert (forest.parent[forest.ptr[:-1]] == -1).all()
        # guessing the commonest label has to leave something to learn
        assert np.bincount(forest.label).max() / len(part) < 0.5
