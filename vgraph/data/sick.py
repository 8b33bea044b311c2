"""Pairs of sentences with their similarity, as two dependency trees each: SICK as Tree-LSTMs are trained on it.

Takes: a folder of a.toks, a.parents, b.toks, b.parents and sim.txt. Gives: a dataset of pairs. Runs once per folder.
Source: Marelli et al. 2014 (SICK); Tai, Socher and Manning 2015, section 4.2 (the files).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import vgraph
from vgraph.arguments import COUNT, PATH, checked
from vgraph.data.given import WORDS, WORDS_BY_NAME
from vgraph.data.lines import Line, lines_of
from vgraph.data.rooted import ForestBuilder, with_names
from vgraph.data.samples import Samples
from vgraph.data.sst import Forest, TreeDataset, build_vocabulary, some_trees
from vgraph.files import read_text

SIDES = ("a", "b")
MOST_WORDS = 1 << 24
PARALLEL = "write one sentence a line, the same in each of the files"


class PairSample(NamedTuple):
    """Two sentences and how similar they are; ``vgraph.collate`` makes two batches and a tensor of several.

    Attributes:
        left: the tree of the first sentence, its edges from word to head; ``ndata`` are word, position and, where the
            files have it, relation, int64 (words,).
        right: that of the second.
        similarity: float32 ().

    Source: Marelli et al. 2014.

    Example:
        >>> tree = vgraph.graph(([1], [0]))
        >>> PairSample(tree, tree, torch.tensor(4.5)).left.num_nodes()
        2
    """

    left: vgraph.Graph
    right: vgraph.Graph
    similarity: Tensor


@dataclass(frozen=True, eq=False)
class PairDataset(Samples[PairSample]):
    """Pairs of sentences by number; both sides have one vocabulary.

    Attributes:
        left: the first sentences.
        right: the second sentences.
        similarity: float32 (pairs,).

    Source: torch's ``torch.utils.data.Dataset`` (its items by number).

    Example:
        >>> from vgraph.data import TreeDataset, parse_ptb
        >>> side = TreeDataset(parse_ptb("(0 yes)(0 no)"))
        >>> pairs = PairDataset(side, side, torch.tensor([5.0, 1.0]))
        >>> len(pairs), pairs[1].similarity.item()
        (2, 1.0)
    """

    left: TreeDataset
    right: TreeDataset
    similarity: Tensor

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words by id; 0 is the unknown word."""
        return self.left.tokens

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """What the ids of ``ndata["relation"]`` mean, where the files have relations."""
        return self.left.names

    def __len__(self) -> int:
        return len(self.similarity)

    def _sample(self, index: int) -> PairSample:
        return PairSample(self.left[index].graph, self.right[index].graph, self.similarity[index])


class PairSplits(NamedTuple):
    """The three parts of a data set of pairs, with one vocabulary.

    Attributes:
        train: what is trained on.
        val: what settings are chosen by.
        test: what is reported.

    Source: none (the usual three parts).

    Example:
        >>> from vgraph.data import TreeDataset, parse_ptb
        >>> side = TreeDataset(parse_ptb("(0 yes)"))
        >>> parts = PairSplits(*[PairDataset(side, side, torch.tensor([5.0]))] * 3)
        >>> len(parts.train)
        1
    """

    train: PairDataset
    val: PairDataset
    test: PairDataset


@checked(folder=PATH, vocabulary=WORDS.or_none(), names=WORDS_BY_NAME.or_none())
def load_pairs(
    folder: str | Path,
    *,
    vocabulary: Sequence[str] | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> PairDataset:
    """The pairs in one folder: ``a.toks``, ``a.parents``, ``b.toks``, ``b.parents``, ``sim.txt``, of a line a pair.

    ``toks`` has the words, with blanks between them, and ``parents`` the number of each word's head, from 1; 0 is the
    root's. ``sim.txt`` has one number. Where ``a.rels`` and ``b.rels`` are there, they have each word's relation.

    Args:
        folder: the folder.
        vocabulary: the words by id, as of the training set (``tokens``); None: the folder's own.
        names: the relations by id, as of the training set (``names``); None: the folder's own.

    Returns:
        A PairDataset.

    Raises:
        DataError: a file is missing or has fewer lines than another, a line has fewer numbers than words, a head does
            not exist, heads make no tree, or a similarity is no number.

    Source: Tai, Socher and Manning 2015, section 4.2.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for side in "ab":
        ...         _ = Path(folder, f"{side}.toks").write_text("dogs bark\\n")
        ...         _ = Path(folder, f"{side}.parents").write_text("2 0\\n")
        ...     _ = Path(folder, "sim.txt").write_text("5\\n")
        ...     pairs = load_pairs(folder)
        >>> pairs[0].left.edges(), pairs[0].left.ndata["position"].tolist(), pairs.tokens
        ((tensor([1]), tensor([0])), [1, 0], ('<unknown>', 'bark', 'dogs'))
    """
    return _dataset(*_read(Path(folder)), vocabulary, names)


@checked(folder=PATH, min_count=COUNT)
def load_sick(folder: str | Path, *, min_count: int = 1) -> PairSplits:
    """SICK from the folders ``train``, ``dev`` and ``test`` in a folder, each as ``load_pairs`` takes it.

    Args:
        folder: the folder.
        min_count: words seen fewer times in train, or never, have id 0.

    Returns:
        PairSplits.

    Raises:
        ArgumentError: ``min_count`` is no whole number from 0 up.
        DataError: a file is missing or malformed.

    Source: Marelli et al. 2014; Tai, Socher and Manning 2015, section 4.2.

    Example:
        >>> import tempfile
        >>> files = {"a.toks": "dogs bark", "a.parents": "2 0", "b.toks": "bark", "b.parents": "0", "sim.txt": "3.5"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in ("train", "dev", "test"):
        ...         Path(folder, part).mkdir()
        ...         for name, text in files.items():
        ...             _ = Path(folder, part, name).write_text(f"{text}\\n")
        ...     splits = load_sick(folder)
        >>> len(splits.train), splits.test[0].similarity.item()
        (1, 3.5)
    """
    parts = [_read(Path(folder) / part) for part in ("train", "dev", "test")]
    both, _ = parts[0]
    vocabulary = build_vocabulary(both, min_count=min_count)
    train = _dataset(*parts[0], vocabulary, None)
    return PairSplits(train, *(_dataset(*part, vocabulary, train.names) for part in parts[1:]))


def _dataset(
    both: Forest, similarity: list[float], vocabulary: Sequence[str] | None, names: Mapping[str, tuple[str, ...]] | None
) -> PairDataset:
    """Pairs of trees, of which ``both`` has first all left ones."""
    whole = with_names(both, vocabulary, names).forest
    is_left = np.arange(len(whole)) < len(similarity)
    left, right = (TreeDataset(some_trees(whole, side)) for side in (is_left, ~is_left))
    return PairDataset(left, right, torch.tensor(similarity, dtype=torch.float32))


def _read(folder: Path) -> tuple[Forest, list[float]]:
    """The trees of both sides, and the similarities."""
    kinds = ["toks", "parents", *(["rels"] if any((folder / f"{side}.rels").exists() for side in SIDES) else [])]
    names = [f"{side}.{kind}" for side in SIDES for kind in kinds]
    rows = list(_rows([folder / name for name in (*names, "sim.txt")]))
    builder = ForestBuilder(["relation"] if "rels" in kinds else [])
    for first in (0, len(kinds)):
        for row in rows:
            _add_tree(builder, row[first : first + len(kinds)])
    return builder.forest(), [row[-1].real(row[-1].text.strip(), "similarity") for row in rows]


def _rows(paths: Sequence[Path]) -> Iterator[list[Line]]:
    """Line by line, that of each file; DataError: one has fewer lines than another."""
    files = [list(lines_of(read_text(path).rstrip("\n"), path)) for path in paths]
    longest = max(files, key=len)
    for lines in files:
        if len(lines) < len(longest):
            fact = f"the file ends here, and {Path(longest[0].path).name} has {len(longest)} lines"
            raise lines[-1].wrong(fact, PARALLEL)
    yield from map(list, zip(*files, strict=True))


def _add_tree(builder: ForestBuilder, lines: Sequence[Line]) -> None:
    words, heads, *relations = (line.text.split() for line in lines)
    if not words:
        raise lines[0].wrong("a sentence without words", PARALLEL)
    for line, found in zip(lines, (words, heads, *relations), strict=True):
        if len(found) != len(words):
            fact = f"there are {len(found)} entries, and {Path(lines[0].path).name} has {len(words)} words there"
            raise line.wrong(fact, "write one entry for each word")
    cure = "number the words of a sentence 1, 2, 3, ..., and write 0 for the root's head"
    parents = [lines[1].whole(word, "head", len(words), cure, cure) - 1 for word in heads]
    builder.add(parents, {"word": words, **({"relation": relations[0]} if relations else {})}, lines[1])
