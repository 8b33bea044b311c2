"""Dependency trees from CoNLL-U, the format of Universal Dependencies.

Takes: text. Gives: a Forest of arrays, or a TreeDataset of graphs. Runs once per file.
Source: Nivre et al. 2016 (Universal Dependencies), https://universaldependencies.org/format.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgraph.arguments import NAME, PATH, checked
from vgraph.data.given import TEXT, WORDS, WORDS_BY_NAME
from vgraph.data.lines import SHOWN, Line, lines_of
from vgraph.data.rooted import ForestBuilder, with_names
from vgraph.data.sst import Forest, TreeDataset
from vgraph.files import read_text

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
MOST_WORDS = 1 << 24  # of a sentence
NUMBERED = "number the words of a sentence 1, 2, 3, ..."


@checked(text=TEXT, label=NAME.or_none(), classes=WORDS.or_none())
def parse_conllu(
    text: str, *, label: str | None = None, classes: Sequence[str] | None = None, path: str | Path = "<text>"
) -> Forest:
    """Reads sentences of ten columns, separated by tabs, a word a line, with an empty line after each sentence.

    Each word is a vertex, and an edge leads from it to its head; the root is vertex 0. Features, int64 (vertices,):
    ``word`` (FORM, an index into ``tokens``), ``tag`` (UPOS) and ``relation`` (DEPREL), which index ``names["tag"]``
    and ``names["relation"]``, and ``position``, the word's place in its sentence from 0. Multiword tokens (lines "3-4")
    and empty nodes ("3.1") are no words of the tree: they are checked and left out, as enhanced dependencies are.

    Args:
        text: the sentences.
        label: the name of the comment that gives each sentence's label: "polarity" for "# polarity = good"; None:
            sentences have no labels.
        classes: the labels, in the order of their numbers; None: those that are found, sorted.
        path: what errors call the text.

    Returns:
        A Forest; without ``label`` its labels are -1, and it has no classes.

    Raises:
        DataError: a line has other than ten columns, words are not numbered in order, a head does not exist, heads make
            a cycle or have several roots, a sentence lacks its label, has it twice, or one that ``classes`` lack.

    Source: Nivre et al. 2016 (Universal Dependencies).

    Example:
        >>> rows = "1 dogs dog NOUN _ _ 2 nsubj _ _", "2 bark bark VERB _ _ 0 root _ _"
        >>> trees = parse_conllu("# tone = calm\\n" + "\\n".join(rows).replace(" ", "\\t") + "\\n\\n", label="tone")
        >>> trees.parent.tolist(), trees.features["position"].tolist(), trees.names["tag"], trees.classes
        ([-1, 0], [1, 0], ('VERB', 'NOUN'), ('calm',))
    """
    reader = _Reader(ForestBuilder(("tag", "relation")), label, None if classes is None else frozenset(classes))
    line = Line("", path, 1)
    for line in lines_of(text, path):
        reader.read(line)
    reader.end_sentence(line)
    known = sorted(set(reader.builder.labels)) if classes is None else classes
    return reader.builder.forest(() if label is None else known)


@checked(
    path=PATH, label=NAME.or_none(), classes=WORDS.or_none(), vocabulary=WORDS.or_none(), names=WORDS_BY_NAME.or_none()
)
def load_conllu(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    vocabulary: Sequence[str] | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> TreeDataset:
    """The sentences of one file, with ``ndata`` word, tag, relation and position.

    ``classes``, ``vocabulary`` and ``names`` are those of the training set; without them the file's own. Of words, tags
    and relations id 0 is what they lack.

    Args:
        path: the file.
        label: the comment that gives each sentence's label; None: there are no labels.
        classes: the labels, as of the training set.
        vocabulary: the words by id, as of the training set (``tokens``).
        names: the tags and relations by id, as of the training set (``names``).

    Returns:
        A TreeDataset.

    Raises:
        DataError: the file is missing or malformed.

    Source: Nivre et al. 2016 (Universal Dependencies).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "one.conllu")
        ...     _ = path.write_text("1\\tGo\\tgo\\tVERB\\t_\\t_\\t0\\troot\\t_\\t_\\n\\n")
        ...     trees = load_conllu(path)
        >>> trees.tokens, trees.names["tag"], trees[0].graph.ndata["tag"].tolist()
        (('<unknown>', 'Go'), ('<unknown>', 'VERB'), [1])
    """
    return with_names(parse_conllu(read_text(path), label=label, classes=classes, path=path), vocabulary, names)


@dataclass
class _Reader:
    """What has been read, and the words of the sentence that is being read."""

    builder: ForestBuilder
    label: str | None
    classes: frozenset[str] | None
    heads: list[int] = field(default_factory=list[int])
    columns: dict[str, list[str]] = field(default_factory=lambda: {"word": [], "tag": [], "relation": []})
    given: str | None = None
    lines: list[Line] = field(default_factory=list[Line])
    reaches: int = 0  # the last word of the last multiword token

    def read(self, line: Line) -> None:
        if not line.text.strip():
            self.end_sentence(line)
        elif line.text.startswith("#"):
            self._read_comment(line)
        else:
            self._read_columns(line)

    def _read_comment(self, line: Line) -> None:
        name, equals, value = line.text[1:].partition("=")
        if not equals or name.strip() != self.label:
            return
        if self.given is not None:
            raise line.wrong(f"a second comment gives {self.label!r} of one sentence", "end sentences by an empty line")
        self.given = value.strip()
        if self.classes is not None and self.given not in self.classes:
            known = ", ".join(sorted(self.classes))[:SHOWN]
            raise line.wrong(f"label {self.given[:SHOWN]!r} is none of {known}", "pass the labels as classes")

    def _read_columns(self, line: Line) -> None:
        fields = line.text.split("\t")
        if len(fields) != len(COLUMNS):
            cure = f"separate {' '.join(COLUMNS)} by tabs, with _ for what is not known"
            raise line.wrong(f"there are {len(fields)} columns where 10 are needed", cure)
        first, dash, last = fields[0].partition("-")
        before, point, minor = fields[0].partition(".")
        if dash:
            self._check_multiword(first, last, line)
        elif point:
            line.whole(minor, "number of an empty node", MOST_WORDS, NUMBERED)
            self._check_id(before, len(self.heads), "empty node", line)
        else:
            self._add(fields, line)

    def _add(self, fields: list[str], line: Line) -> None:
        self._check_id(fields[0], len(self.heads) + 1, "word", line)
        cure = "write 0 for the root, else the number of the head"
        head = line.whole(fields[6], "head", MOST_WORDS, cure, cure)
        self.heads.append(head - 1)
        self.lines.append(line)
        for name, place in (("word", 1), ("tag", 3), ("relation", 7)):
            if not fields[place]:
                raise line.wrong(f"the column {COLUMNS[place]} is empty", "write _ for what is not known")
            self.columns[name].append(fields[place])

    def _check_id(self, word: str, wanted: int, what: str, line: Line) -> None:
        found = line.whole(word, "number of a word", MOST_WORDS, NUMBERED, NUMBERED)
        if found != wanted:
            raise line.wrong(f"{what} {word[:SHOWN]} stands where {wanted} belongs", NUMBERED)

    def _check_multiword(self, first: str, last: str, line: Line) -> None:
        self._check_id(first, len(self.heads) + 1, "multiword token", line)
        end = line.whole(last, "number of a word", MOST_WORDS, NUMBERED, NUMBERED)
        if end <= len(self.heads) or len(self.heads) < self.reaches:
            fact = f"multiword token {first[:SHOWN]}-{last[:SHOWN]} ends before it begins, or begins within another"
            raise line.wrong(fact, "let each cover words of its own, as in 3-4")
        self.reaches = end

    def end_sentence(self, line: Line) -> None:
        """What an empty line, or the end of the file, completes."""
        if self.heads:
            self._check_sentence(line)
            self.builder.add(self.heads, self.columns, self.lines[0])
            self.builder.labels.append(self.given or "")
        elif self.reaches:
            raise line.wrong("a multiword token without words", NUMBERED)
        self.heads, self.lines, self.given, self.reaches = [], [], None, 0
        self.columns = {name: [] for name in self.columns}

    def _check_sentence(self, line: Line) -> None:
        count = len(self.heads)
        if self.reaches > count:
            raise line.wrong(f"a multiword token reaches to word {self.reaches} of {count}", NUMBERED)
        if self.label is not None and self.given is None:
            cure = f"write '# {self.label} = ...' above each sentence, or pass no label"
            raise self.lines[0].wrong(f"the sentence has no comment '# {self.label} = ...'", cure)
        for head, own in zip(self.heads, self.lines, strict=True):
            if head >= count:
                raise own.wrong(f"head {head + 1} is above {count}, the last word", "check that the sentence is whole")
