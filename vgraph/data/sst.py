"""Trees in the Penn Treebank's notation, with a label at every vertex: ``(3 (2 It) (4 ...))``.

Takes: text. Gives: a Forest of arrays, or a TreeDataset of graphs. Runs once per file.
Source: Socher et al. 2013 (Stanford Sentiment Treebank), Marcus et al. 1993 (the notation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import COUNT, PATH, Bound, checked
from vgraph.data.given import TEXT, WORDS
from vgraph.data.samples import Samples
from vgraph.errors import DataError
from vgraph.files import read_text

UNKNOWN = "<unknown>"
SENTIMENTS = ("0", "1", "2", "3", "4")
# ASCII blanks only: a no-break space may stand inside a word
PIECE = re.compile(r"\([ \t\r]*[^() \t\r]*|\)|[^() \t\r]+")


@dataclass(frozen=True, eq=False)
class Forest:
    """Many trees packed into flat arrays; tree t owns vertices ``ptr[t]:ptr[t + 1]``, root first.

    Attributes:
        ptr: int64 (num_trees + 1,), where each tree begins.
        parent: int64 (num_vertices,), numbered within the tree: -1 at its root, else smaller than the vertex's own
            number.
        label: int64 (num_trees,).
        features: int64 (num_vertices,) by name.
        tokens: what the ids of the feature "word" or "token" mean.
        classes: the names of the labels; none, and each label -1, where the file has no labels.
        names: what the ids of further features mean, by feature.

    Source: none (a forest as compressed rows).

    Example:
        >>> forest = parse_ptb("(1 (0 bad) (1 good))(0 bad)")
        >>> len(forest), forest.num_vertices, forest.ptr.tolist()
        (2, 4, [0, 3, 4])
    """

    ptr: NDArray[np.int64]
    parent: NDArray[np.int64]
    label: NDArray[np.int64]
    features: Mapping[str, NDArray[np.int64]]
    tokens: tuple[str, ...]
    classes: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def num_vertices(self) -> int:
        """The number of vertices of all trees."""
        return len(self.parent)

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, eq=False)
class TreeSample:
    """One tree and its label.

    Attributes:
        graph: the tree, its edges from child to parent; ``ndata`` are the features of the forest, int64 (vertices,).
        label: a number below the number of classes; -1 where there are none.
        root: the vertex without a parent.

    Source: none (what a ``TreeDataset`` is made of).

    Example:
        >>> sample = TreeDataset(parse_ptb("(1 (0 bad) (1 good))"))[0]
        >>> sample.label, sample.root, sample.graph.edges()
        (1, 0, (tensor([1, 2]), tensor([0, 0])))
    """

    graph: vgraph.Graph
    label: int
    root: int


class TreeDataset(Samples[TreeSample]):
    """The trees of a Forest as graphs, each built when first asked for and then kept.

    Kept, so that what is computed once for a graph serves every epoch. Their features are views of all trees' as
    one batch: a batch of some is a few ranges of that.

    Args:
        forest: the trees.

    Source: torch's ``torch.utils.data.Dataset`` (its items by number).

    Example:
        >>> trees = TreeDataset(parse_ptb("(1 (0 bad) (1 good))(0 bad)"))
        >>> len(trees), trees.classes, trees[0].label, trees[0].graph.ndata["word"].tolist()
        (2, ('0', '1'), 1, [-1, 0, 1])
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self._built: list[TreeSample | None] = [None] * len(forest)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels, by label."""
        return self.forest.classes

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary, by token id; 0 is the unknown token."""
        return self.forest.tokens

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """What the ids of features other than words mean, by feature and id."""
        return self.forest.names

    @property
    def num_classes(self) -> int:
        """The number of labels."""
        return len(self.forest.classes)

    @property
    def num_tokens(self) -> int:
        """The size of the vocabulary, the unknown token included."""
        return len(self.forest.tokens)

    def __len__(self) -> int:
        return len(self._built)

    def __repr__(self) -> str:
        return (
            f"TreeDataset({len(self)} trees, {self.forest.num_vertices} vertices, "
            f"{self.num_tokens} tokens, {self.num_classes} classes)"
        )

    def _sample(self, index: int) -> TreeSample:
        sample = self._built[index]
        if sample is None:
            graph = vgraph.slice_batch(self._whole, index)
            sample = self._built[index] = TreeSample(graph, int(self.forest.label[index]), root=0)
        return sample

    @cached_property
    def _whole(self) -> vgraph.Graph:
        """All trees as one batch, of which samples are views: batches of those are ranges of it."""
        forest = self.forest
        sizes = np.diff(forest.ptr)
        is_kid, first = forest.parent >= 0, np.repeat(forest.ptr[:-1], sizes)
        ends = np.flatnonzero(is_kid), (forest.parent + first)[is_kid]
        whole = vgraph.graph((torch.from_numpy(ends[0]), torch.from_numpy(ends[1])), num_nodes=forest.num_vertices)
        for name, values in forest.features.items():
            whole.ndata[name] = torch.tensor(values)  # copied: a caller may write to it
        whole.set_batch_num_nodes(sizes.tolist())
        return whole


class TreeSplits(NamedTuple):
    """The three parts of a data set, with one vocabulary and one list of classes.

    Attributes:
        train: what is trained on.
        val: what settings are chosen by.
        test: what is reported.

    Source: none (the usual three parts).

    Example:
        >>> parts = TreeSplits(*(TreeDataset(parse_ptb("(0 word)")) for _ in range(3)))
        >>> len(parts.train)
        1
    """

    train: TreeDataset
    val: TreeDataset
    test: TreeDataset


_FOREST = Bound("a Forest, as parse_ptb gives it", lambda given: isinstance(given, Forest))
_TREES = Bound("a TreeDataset, as load_ptb gives it", lambda given: isinstance(given, TreeDataset))


@checked(text=TEXT, classes=WORDS.or_none())
def parse_ptb(text: str, *, classes: Sequence[str] | None = None, path: str | Path = "<text>") -> Forest:
    """Reads bracketed trees; vertices are numbered as they are opened, so the root is 0.

    Features: ``label`` (index into ``classes``) and ``word`` (index into ``tokens``, the words in order of
    appearance; -1 at inner vertices). A tree's label is its root's. Blanks and line ends between the brackets mean
    nothing.

    Args:
        text: the trees.
        classes: the labels, in the order of their numbers; None: those that are found, sorted.
        path: what errors call the text.

    Returns:
        A Forest.

    Raises:
        DataError: unbalanced brackets, a label not among ``classes``, a vertex that holds no word
            and no children, several words, or both.

    Source: Marcus et al. 1993 (the notation); Socher et al. 2013, section 3 (labels at every vertex).

    Example:
        >>> trees = parse_ptb("(3 (2 good) (4 (2 old) (2 film)))")
        >>> trees.parent.tolist(), trees.features["word"].tolist(), trees.tokens
        ([-1, 0, 0, 2, 2], [-1, 0, -1, 1, 2], ('good', 'old', 'film'))
    """
    reader = _Reader(None if classes is None else tuple(classes), path)
    for reader.line, line in enumerate(text.split("\n"), 1):
        for piece in PIECE.findall(line):
            reader.read(piece)
    return reader.finish()


@checked(forest=_FOREST, min_count=COUNT)
def build_vocabulary(forest: Forest, *, min_count: int = 1) -> tuple[str, ...]:
    """The words of a forest, commonest first, after the unknown word at 0.

    Args:
        forest: trees with the feature "word".
        min_count: how often a word must occur.

    Returns:
        The words by id; those that occur as often are sorted.

    Raises:
        ArgumentError: ``min_count`` is no whole number from 0 up.

    Source: none (counting).

    Example:
        >>> build_vocabulary(parse_ptb("(1 (0 a) (1 b))(1 b)"))
        ('<unknown>', 'b', 'a')
    """
    ids = forest.features["word"]
    counts = np.bincount(ids[ids >= 0], minlength=len(forest.tokens)).tolist()
    ranked = sorted(zip(forest.tokens, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
    kept = [word for word, count in ranked if count >= min_count and word != UNKNOWN]
    return (UNKNOWN, *kept)


@checked(forest=_FOREST, vocabulary=WORDS)
def renumber_words(forest: Forest, vocabulary: Sequence[str]) -> Forest:
    """The same trees with word ids from ``vocabulary``, whose 0 stands for words that it lacks.

    Args:
        forest: trees with the feature "word".
        vocabulary: the words by new id.

    Returns:
        A Forest, whose "word" stays -1 where there is none.

    Source: none (a look-up).

    Example:
        >>> renumber_words(parse_ptb("(1 (0 a) (1 b))"), ("<unknown>", "b")).features["word"].tolist()
        [-1, 0, 1]
    """
    known = {word: i for i, word in enumerate(vocabulary)}
    # the last entry is what -1, "no word", indexes
    new = np.asarray([*(known.get(word, 0) for word in forest.tokens), -1], np.int64)
    features = {**forest.features, "word": new[forest.features["word"]]}
    return replace(forest, features=features, tokens=tuple(vocabulary))


@checked(path=PATH, classes=WORDS.or_none(), vocabulary=WORDS.or_none())
def load_ptb(
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    vocabulary: Sequence[str] | None = None,
) -> TreeDataset:
    """The trees of one file, with ``ndata["word"]`` (-1 at inner vertices) and ``ndata["label"]``.

    ``vocabulary`` and ``classes`` are those of the training set; without them the file's own.

    Args:
        path: the file.
        classes: the labels, as of the training set; None: the file's own.
        vocabulary: the words by id, as of the training set; None: the file's own.

    Returns:
        A TreeDataset.

    Raises:
        DataError: the file is missing or malformed.

    Source: Marcus et al. 1993 (the notation).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tree.txt")
        ...     _ = path.write_text("(1 (0 bad) (1 film))")
        ...     trees = load_ptb(path)
        >>> trees.tokens, trees[0].graph.ndata["word"].tolist()
        (('<unknown>', 'bad', 'film'), [-1, 1, 2])
    """
    forest = parse_ptb(read_text(path), classes=classes, path=path)
    if vocabulary is None:
        vocabulary = build_vocabulary(forest)
    return TreeDataset(renumber_words(forest, vocabulary))


@checked(folder=PATH, classes=WORDS, min_count=COUNT)
def load_sst(folder: str | Path, *, min_count: int = 1, classes: Sequence[str] = SENTIMENTS) -> TreeSplits:
    """The Stanford Sentiment Treebank from ``train.txt``, ``dev.txt`` and ``test.txt`` in a folder.

    Args:
        folder: the folder.
        min_count: words seen fewer times in train, or never, have id 0.
        classes: the labels, in the order of their numbers.

    Returns:
        TreeSplits.

    Raises:
        ArgumentError: ``min_count`` is no whole number from 0 up.
        DataError: a file is missing or malformed.

    Source: Socher et al. 2013, section 3.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("train", "dev", "test"):
        ...         _ = Path(folder, f"{name}.txt").write_text("(3 (2 good) (4 film))")
        ...     splits = load_sst(folder)
        >>> splits.train.tokens, splits.test[0].label
        (('<unknown>', 'film', 'good'), 3)
    """
    paths = [Path(folder) / f"{name}.txt" for name in ("train", "dev", "test")]
    parts = [parse_ptb(read_text(path), classes=classes, path=path) for path in paths]
    vocabulary = build_vocabulary(parts[0], min_count=min_count)
    return TreeSplits(*(TreeDataset(renumber_words(part, vocabulary)) for part in parts))


@checked(trees=_TREES)
def split_trees(trees: TreeDataset) -> TreeSplits:
    """Three parts of trees that have none: of each ten, in their order, eight to train, one to validate, one to test.

    Args:
        trees: ten or more, for each part to have some.

    Returns:
        TreeSplits, with the vocabulary and the classes of ``trees``.

    Source: none (a tenth is left out for each purpose).

    Example:
        >>> splits = split_trees(TreeDataset(parse_ptb("(0 a)(1 b)" * 10)))
        >>> len(splits.train), len(splits.val), len(splits.test)
        (16, 2, 2)
    """
    place = np.arange(len(trees)) % 10
    parts = (place < 8, place == 8, place == 9)
    return TreeSplits(*(TreeDataset(some_trees(trees.forest, part)) for part in parts))


def some_trees(forest: Forest, is_chosen: NDArray[np.bool_]) -> Forest:
    """The trees for which the array, one entry a tree, says so."""
    sizes = np.diff(forest.ptr)
    rows = np.repeat(is_chosen, sizes)
    return replace(
        forest,
        ptr=np.concatenate([[0], np.cumsum(sizes[is_chosen])]).astype(np.int64),
        parent=forest.parent[rows],
        label=forest.label[is_chosen],
        features={name: values[rows] for name, values in forest.features.items()},
    )


def flatten_forests(names: Sequence[str], forests: Sequence[Forest]) -> dict[str, NDArray[np.int64] | NDArray[np.str_]]:
    """Forests that share tokens and classes, as plain arrays for an .npz."""
    arrays: dict[str, NDArray[np.int64] | NDArray[np.str_]] = {
        "tokens": np.asarray(forests[0].tokens, np.str_),
        "classes": np.asarray(forests[0].classes, np.str_),
    }
    for name, forest in zip(names, forests, strict=True):
        arrays |= {f"{name}.ptr": forest.ptr, f"{name}.parent": forest.parent}
        arrays |= {f"{name}.label": forest.label}
        arrays |= {f"{name}.features.{key}": value for key, value in forest.features.items()}
    return arrays


def restore_forests(names: Sequence[str], arrays: Mapping[str, NDArray[np.generic]], path: str | Path) -> list[Forest]:
    """What ``flatten_forests`` was given; DataError where the arrays do not fit together."""
    cure = "delete the file"
    try:
        tokens, classes = (tuple(map(str, arrays[name])) for name in ("tokens", "classes"))
        forests = [_restore_forest(arrays, name, tokens, classes) for name in names]
    except (KeyError, ValueError) as error:
        raise DataError(f"not the arrays of a forest: {error}", line=str(path), cure=cure) from error
    for name, forest in zip(names, forests, strict=True):
        if not _fits(forest):
            fact = f"the arrays of {name} do not fit together"
            raise DataError(fact, line=f"{path}:{name}", cure=cure)
    return forests


def _fits(forest: Forest) -> bool:
    """Whether trees have a root each, which comes first, parents before children, and labels and tokens that exist."""
    arrays = (forest.ptr, forest.parent, forest.label, *forest.features.values())
    ptr, count = forest.ptr, len(forest.parent)
    if any(array.ndim != 1 for array in arrays) or any(len(rows) != count for rows in forest.features.values()):
        return False
    if len(ptr) != len(forest) + 1 or ptr[0] != 0 or ptr[-1] != count or (ptr[1:] <= ptr[:-1]).any():
        return False
    own = np.arange(count) - np.repeat(ptr[:-1], ptr[1:] - ptr[:-1])
    ids = [(forest.label, 0, len(forest.classes))]
    ids += [(rows, -1, max(len(forest.tokens), len(forest.classes))) for rows in forest.features.values()]
    return bool((forest.parent < own).all() and ((forest.parent >= 0) == (own > 0)).all()) and all(
        not rows.size or (rows.min() >= low and rows.max() < high) for rows, low, high in ids
    )


def _restore_forest(
    arrays: Mapping[str, NDArray[np.generic]], name: str, tokens: tuple[str, ...], classes: tuple[str, ...]
) -> Forest:
    ptr, parent, label = (arrays[f"{name}.{key}"].astype(np.int64) for key in ("ptr", "parent", "label"))
    prefix = f"{name}.features."
    features = {
        key.removeprefix(prefix): value.astype(np.int64) for key, value in arrays.items() if key.startswith(prefix)
    }
    return Forest(ptr, parent, label, features, tokens, classes)


@dataclass
class _Reader:
    """What has been read so far; ``stack`` holds the open vertices, so depth costs no recursion."""

    classes: tuple[str, ...] | None
    path: str | Path
    line: int = 0
    first_line: int = 0
    ptr: list[int] = field(default_factory=lambda: [0])
    parent: list[int] = field(default_factory=list[int])
    label: list[str] = field(default_factory=list[str])
    word: list[int] = field(default_factory=list[int])
    words: dict[str, int] = field(default_factory=dict[str, int])
    stack: list[int] = field(default_factory=list[int])

    def read(self, piece: str) -> None:
        if piece[0] == "(":
            self._open(piece[1:].lstrip(" \t\r"))
        elif piece == ")":
            self._close()
        else:
            self._add_word(piece)

    def finish(self) -> Forest:
        if self.stack:
            fact = f"the tree is not closed: {len(self.stack)} ')' missing"
            raise self._fail(fact, "check that the file is whole", self.first_line)
        classes = tuple(sorted(set(self.label))) if self.classes is None else self.classes
        number = {name: i for i, name in enumerate(classes)}
        label = np.asarray([number[name] for name in self.label], np.int64)
        ptr, word = np.asarray(self.ptr, np.int64), np.asarray(self.word, np.int64)
        features = {"label": label, "word": word}
        parent = np.asarray(self.parent, np.int64)
        return Forest(ptr, parent, label[ptr[:-1]], features, tuple(self.words), classes)

    def _open(self, label: str) -> None:
        if self.classes is not None and label not in self.classes:
            known = ", ".join(self.classes)
            raise self._fail(f"label {label!r} is none of {known}", "pass the labels as classes")
        if not self.stack:
            self.first_line = self.line
        elif self.word[self.stack[-1]] >= 0:
            raise self._mixed()
        self.parent.append(self.stack[-1] - self.ptr[-1] if self.stack else -1)
        self.stack.append(len(self.label))
        self.label.append(label)
        self.word.append(-1)

    def _close(self) -> None:
        if not self.stack:
            raise self._fail("')' closes nothing", "remove it, or add the '(' that it closes")
        vertex = self.stack.pop()
        if self.word[vertex] < 0 and vertex == len(self.label) - 1:
            fact = f"vertex '({self.label[vertex]})' has no word and no children"
            raise self._fail(fact, 'write "(label word)" or "(label child child ...)"')
        if not self.stack:
            self.ptr.append(len(self.label))

    def _add_word(self, word: str) -> None:
        if not self.stack:
            raise self._fail(f"word {word[:80]!r} stands outside a tree", "put it in brackets")
        vertex = self.stack[-1]
        if self.word[vertex] >= 0 or vertex != len(self.label) - 1:
            raise self._mixed()
        self.word[vertex] = self.words.setdefault(word, len(self.words))

    def _mixed(self) -> DataError:
        fact = "a vertex holds more than one word, or words and children"
        return self._fail(fact, "give every word a vertex of its own: (label word)")

    def _fail(self, fact: str, cure: str, line: int | None = None) -> DataError:
        return DataError(fact, line=f"{self.path}:{line or self.line}", cure=cure)
