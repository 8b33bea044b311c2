"""ListOps: nested lists such as [MAX 2 9 [MIN 4 7 ] 0 ] with their values, as trees of operators and digits.

Takes: text. Gives: a Forest of arrays, or a TreeDataset of graphs. Runs once per file.
Source: Nangia and Bowman 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vgraph.arguments import PATH, checked
from vgraph.data.given import TEXT
from vgraph.data.lines import SHOWN, Line, lines_of
from vgraph.data.sst import UNKNOWN, Forest, TreeDataset
from vgraph.errors import DataError
from vgraph.files import read_text

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple(map(str, range(10)))
TOKENS = (UNKNOWN, *OPERATORS, *DIGITS)
NUMBER = {token: i for i, token in enumerate(TOKENS) if i}
EXAMPLE = "write an answer, a tab and the expression, as in 9<tab>[MAX 2 9 [MIN 4 7 ] 0 ]"


@checked(text=TEXT)
def parse_listops(text: str, *, path: str | Path = "<text>") -> Forest:
    """Reads "answer, tab, expression" lines; a vertex for every operator and digit, the whole list's first.

    The feature ``token`` is an index into ``tokens``: the unknown token, the operators [MIN [MAX [MED [SM, the digits.
    An edge leads from each item to the list that holds it. Round brackets, which some files have around every pair,
    mean nothing.

    Args:
        text: the lines; empty ones count for nothing.
        path: what errors call the text.

    Returns:
        A Forest, whose classes are the digits.

    Raises:
        DataError: a line is no digit, tab and expression; a bracket too many or too few, an empty list, a word that
            belongs to no expression.

    Source: Nangia and Bowman 2018.

    Example:
        >>> trees = parse_listops("9\\t[MAX 2 9 [MIN 4 7 ] 0 ]\\n")
        >>> trees.parent.tolist(), trees.label.tolist(), [trees.tokens[i] for i in trees.features["token"]]
        ([-1, 0, 0, 0, 3, 3, 0], [9], ['[MAX', '2', '9', '[MIN', '4', '7', '0'])
    """
    reader = _Reader()
    for line in lines_of(text, path):
        if line.text.strip():
            label, tab, expression = line.text.partition("\t")
            if not tab or label not in DIGITS:
                raise line.wrong(f"{line.text[:SHOWN]!r} is no expression with its answer", EXAMPLE)
            reader.read(expression, line)
            reader.label.append(int(label))
    features = {"token": np.asarray(reader.token, np.int64)}
    ptr, parent, label = (np.asarray(ids, np.int64) for ids in (reader.ptr, reader.parent, reader.label))
    return Forest(ptr, parent, label, features, TOKENS, DIGITS)


@checked(path=PATH)
def load_listops(path: str | Path) -> TreeDataset:
    """The expressions of a file and their answers, with ``ndata["token"]``.

    Args:
        path: the file, as ``parse_listops`` takes it.

    Returns:
        A TreeDataset, whose tokens and classes are the same for every file.

    Raises:
        DataError: the file is missing or malformed.

    Source: Nangia and Bowman 2018.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "lists.tsv")
        ...     _ = path.write_text("9\\t[MAX 2 9 [MIN 4 7 ] 0 ]\\n")
        ...     trees = load_listops(path)
        >>> trees.num_tokens, trees[0].label, trees[0].graph.num_edges()
        (15, 9, 6)
    """
    return TreeDataset(parse_listops(read_text(path), path=path))


@dataclass
class _Reader:
    """What has been read so far; ``stack`` holds the open lists, so depth costs no recursion."""

    ptr: list[int] = field(default_factory=lambda: [0])
    parent: list[int] = field(default_factory=list[int])
    token: list[int] = field(default_factory=list[int])
    label: list[int] = field(default_factory=list[int])
    stack: list[int] = field(default_factory=list[int])

    def read(self, expression: str, line: Line) -> None:
        """One expression."""
        first = self.ptr[-1]
        for word in expression.split():
            is_first = len(self.token) == first
            if word == "]" and self.stack and first + self.stack[-1] < len(self.token) - 1:
                self.stack.pop()
            elif word in NUMBER and (self.stack or is_first):
                self._add(word, first)
            elif word not in ("(", ")"):
                raise self._misplaced(word, line)
        if self.stack or len(self.token) == first:
            fact = f"{len(self.stack)} lists are not closed" if self.stack else "there is no expression"
            raise line.wrong(fact, "close every list, and check that the file is whole")
        self.ptr.append(len(self.token))

    def _add(self, word: str, first: int) -> None:
        self.parent.append(self.stack[-1] if self.stack else -1)
        if word in OPERATORS:
            self.stack.append(len(self.token) - first)
        self.token.append(NUMBER[word])

    def _misplaced(self, word: str, line: Line) -> DataError:
        if word == "]":
            fact = "']' closes an empty list" if self.stack else "']' closes nothing"
        else:
            fact = f"{word[:SHOWN]!r} " + (
                "stands behind the expression" if word in NUMBER else "is no operator or digit"
            )
        return line.wrong(fact, EXAMPLE)
