"""Trees in brackets: notation, vocabulary, every malformed tree, and the public data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.data import (
    Forest,
    TreeDataset,
    build_vocabulary,
    load_ptb,
    load_sst,
    parse_ptb,
    renumber_words,
)
from vgraph.data.sst import flatten_forests, restore_forests
from vgraph.errors import DataError

TREE = "(3 (2 It) (4 (4 (2 's) (4 fine)) (2 .)))"

Tree = tuple[str, "str | list[Tree]"]


def write_ptb(tree: Tree) -> str:
    label, inside = tree
    if isinstance(inside, str):
        return f"({label} {inside})"
    return f"({label} {' '.join(map(write_ptb, inside))})"


def read_back(forest: Forest, index: int) -> Tree:
    """The tree as nested tuples, by the documented meaning of the arrays."""
    start, stop = forest.ptr[index], forest.ptr[index + 1]
    word, label = (forest.features[name][start:stop] for name in ("word", "label"))
    trees: list[Tree] = []
    for vertex in range(stop - start):
        inside: str | list[Tree] = [] if word[vertex] < 0 else forest.tokens[word[vertex]]
        trees.append((forest.classes[label[vertex]], inside))
        above = forest.parent[start + vertex]
        if above >= 0:
            siblings = trees[above][1]
            assert isinstance(siblings, list)
            siblings.append(trees[vertex])
    return trees[0]


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n()"), min_size=1)
LEAVES: st.SearchStrategy[Tree] = st.tuples(st.sampled_from("01234"), WORDS)
TREES: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from("01234"), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=20,
)


@given(st.lists(TREES, max_size=4), st.sampled_from(["\n", " ", "", "\r\n\n"]))
def test_round_trip(trees: list[Tree], between: str) -> None:
    forest = parse_ptb(between.join(map(write_ptb, trees)), classes=tuple("01234"))
    assert [read_back(forest, i) for i in range(len(forest))] == trees
    assert forest.label.tolist() == [int(label) for label, _ in trees]


def test_arrays() -> None:
    forest = parse_ptb(TREE + "\n(0 bad)", classes=tuple("01234"))
    assert forest.ptr.tolist() == [0, 7, 8]
    assert forest.parent.tolist() == [-1, 0, 0, 2, 3, 3, 2, -1]
    assert forest.features["label"].tolist() == [3, 2, 4, 4, 2, 4, 2, 0]
    assert forest.features["word"].tolist() == [-1, 0, -1, -1, 1, 2, 3, 4]
    assert forest.tokens == ("It", "'s", "fine", ".", "bad")
    assert {a.dtype for a in (forest.ptr, forest.parent, forest.label)} == {np.dtype(np.int64)}


def test_labels_of_any_kind_and_trees_over_several_lines() -> None:
    forest = parse_ptb("( (S\n    (NP-SBJ (PRP It))\n    (VP\n (VBZ works) )))\n")
    assert forest.classes == ("", "NP-SBJ", "PRP", "S", "VBZ", "VP")
    assert forest.parent.tolist() == [-1, 0, 1, 2, 1, 4]


def test_a_no_break_space_is_part_of_its_word() -> None:
    assert parse_ptb("(2 (2 8\u00a01/2) (2 \u2003))").tokens == ("8\u00a01/2", "\u2003")


def test_depth_costs_no_recursion() -> None:
    depth = 20_000
    forest = parse_ptb("(1 " * depth + "deep" + ")" * depth)
    assert forest.num_vertices == depth
    assert forest.parent[-1] == depth - 2


@pytest.mark.parametrize(
    ("text", "fact", "line"),
    [
        ("(1 a)\n(2 (1 b)\n(1 c)", "the tree is not closed: 1 ')' missing", 2),
        ("(1 a)\n(2 (1 (0", "the tree is not closed: 3 ')' missing", 2),
        ("(1 a)\n(1 b))", "')' closes nothing", 2),
        ("(1 a)\n\n(7 b)", "label '7' is none of 0, 1, 2", 3),
        ("( (1 a))", "label '' is none of 0, 1, 2", 1),
        ("(1 a)\nloose", "word 'loose' stands outside a tree", 2),
        ("(1 a)(2)", "vertex '(2)' has no word and no children", 1),
        ("(1 a b)", "a vertex holds more than one word", 1),
        ("(1 a (2 b))", "a vertex holds more than one word", 1),
        ("(1 (2 b)\n a)", "a vertex holds more than one word", 2),
    ],
)
def test_malformed_trees(text: str, fact: str, line: int) -> None:
    with pytest.raises(DataError) as caught:
        parse_ptb(text, classes=tuple("012"), path="trees.txt")
    assert fact in str(caught.value)
    assert caught.value.line == f"trees.txt:{line}"
    assert caught.value.cure


@given(st.text(alphabet="() 019ab\n", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        forest = parse_ptb(text, classes=tuple("01"))
    except DataError as error:
        assert error.line
    else:
        assert text.count("(") == forest.num_vertices


def test_vocabulary_by_count_then_by_letter() -> None:
    forest = parse_ptb("(1 (1 b) (1 a) (1 c) (1 a) (1 <unknown>))")
    assert build_vocabulary(forest) == ("<unknown>", "a", "b", "c")
    assert build_vocabulary(forest, min_count=2) == ("<unknown>", "a")
    renumbered = renumber_words(forest, ("<unknown>", "a", "z"))
    assert renumbered.features["word"].tolist() == [-1, 0, 1, 0, 1, 0]
    assert renumbered.tokens == ("<unknown>", "a", "z")


def test_forests_survive_being_flattened(tmp_path: Path) -> None:
    forest = parse_ptb(TREE)
    arrays = flatten_forests(["only"], [forest])
    (again,) = restore_forests(["only"], arrays, tmp_path)
    assert flatten_forests(["only"], [again]).keys() == arrays.keys()
    assert read_back(again, 0) == read_back(forest, 0)
    with pytest.raises(DataError, match=r"not the arrays of a forest: 'other\.ptr'"):
        restore_forests(["other"], arrays, tmp_path)
    with pytest.raises(DataError, match="the arrays of only do not fit together"):
        restore_forests(["only"], {**arrays, "only.parent": np.zeros(3)}, tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the data file") as caught:
        load_sst(tmp_path)
    assert caught.value.line == str(tmp_path / "train.txt")


def test_dataset_of_graphs(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_text(f"{TREE}\n(1 bad)\n", encoding="utf-8")
    trees = load_ptb(path, classes=tuple("01234"), vocabulary=("<unknown>", "It", "bad"))
    assert (len(trees), trees.num_tokens, trees.num_classes) == (2, 3, 5)
    assert (trees.classes, trees.tokens) == (tuple("01234"), ("<unknown>", "It", "bad"))
    assert repr(trees) == "TreeDataset(2 trees, 8 vertices, 3 tokens, 5 classes)"
    sample = trees[0]
    assert (sample.label, sample.root) == (3, 0)
    assert sample.graph.num_nodes() == 7
    assert [ends.tolist() for ends in sample.graph.edges()] == [
        [1, 2, 3, 4, 5, 6],
        [0, 0, 2, 3, 3, 2],
    ]
    assert sample.graph.ndata["word"].tolist() == [-1, 1, -1, -1, 0, 0, 0]
    assert sample.graph.ndata["word"].dtype == torch.int64
    assert sample.graph.ndata["label"].tolist() == [3, 2, 4, 4, 2, 4, 2]


def test_dataset_is_a_sequence_that_keeps_its_graphs() -> None:
    trees = TreeDataset(parse_ptb("(0 a)(1 b)(2 c)"))
    assert trees[0] is trees[-3] is next(iter(trees))
    assert [sample.label for sample in trees[1:]] == [1, 2]
    assert trees[1].graph.num_nodes() == 1
    with pytest.raises(IndexError):
        trees[3]


def test_samples_share_no_memory_with_the_forest() -> None:
    trees = TreeDataset(parse_ptb("(0 a)"))
    trees[0].graph.ndata["word"][:] = 9
    assert trees.forest.features["word"].tolist() == [0]


def test_sentiment_treebank(data_dir: Path) -> None:
    folder = data_dir / "sst" / "trees"
    if not folder.is_dir():
        pytest.skip(f"no Stanford Sentiment Treebank at {folder}")
    splits = load_sst(folder)
    assert [len(part) for part in splits] == [8544, 1101, 2210]
    train = splits.train.forest
    assert train.num_vertices == 318_582
    assert splits.train.num_classes == 5
    assert {part.tokens for part in splits} == {splits.train.tokens}
    # binary trees: every inner vertex has two children
    children = np.bincount((train.parent + np.repeat(train.ptr[:-1], np.diff(train.ptr)))[1:])
    word = train.features["word"]
    assert (word >= 0).sum() == (train.num_vertices + len(train)) // 2
    assert word.min() == -1
    assert word[word >= 0].min() == 1  # nothing in train is unknown to its own vocabulary
    assert children.max() == 2
    assert any("\u00a0" in token for token in splits.train.tokens)
    assert load_sst(folder, min_count=2).test.num_tokens < splits.test.num_tokens
