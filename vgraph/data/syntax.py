"""Trees that every machine has: the functions of Python's standard library, to be named.

Takes: Python source. Gives: one syntax tree a function, labelled with the first word of its name. Runs once per
Python, then from a cache. Source: after Allamanis et al. 2015 (method naming).
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import logging
import os
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from vgraph.arguments import COUNT, PATH, POSITIVE, Bound, checked
from vgraph.atomic_file import atomic_file
from vgraph.config import cache_dir
from vgraph.data.sst import (
    UNKNOWN,
    Forest,
    TreeDataset,
    TreeSplits,
    flatten_forests,
    restore_forests,
)
from vgraph.errors import DataError
from vgraph.files import read_arrays

FORMAT = 1  # raise it when the trees, the tokens or the cached arrays change
SPLITS = ("train", "val", "test")
OWN_NAME = "<own name>"
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*DEFINITIONS, ast.ClassDef)
# these carry no fields of their own: an operator is part of its expression's token
FOLDED = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class FunctionTree:
    """The syntax tree of one function.

    Attributes:
        name: the name of the function.
        tokens: the token of every vertex, in preorder.
        parent: int64 (vertices,), the parent of every vertex; -1 at the root.

    Source: the nodes and fields of Python's ``ast``.

    Example:
        >>> (tree,) = parse_functions("def one():\\n    return 1")
        >>> tree.name, tree.tokens
        ('one', ('FunctionDef', 'arguments', 'Return', 'Constant:int'))
    """

    name: str
    tokens: tuple[str, ...]
    parent: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Corpus:
    """The functions of a folder, by split, and how many of its files could not be parsed."""

    functions: dict[str, list[FunctionTree]]
    num_files: int
    num_skipped: int


@dataclass(frozen=True)
class _Limits:
    num_classes: int
    max_tokens: int
    min_vertices: int
    max_vertices: int

    def __post_init__(self) -> None:
        if self.max_vertices < self.min_vertices:
            raise DataError("max_vertices is below min_vertices", cure=f"correct one of {self}")


@checked(folder=PATH.or_none(), num_classes=POSITIVE, max_tokens=POSITIVE, min_vertices=POSITIVE, max_vertices=POSITIVE)
def load_syntax(
    *,
    num_classes: int = 12,
    max_tokens: int = 4000,
    min_vertices: int = 4,
    max_vertices: int = 200,
    folder: str | Path | None = None,
    cache: bool = True,
) -> TreeSplits:
    """Names the functions of Python's standard library: one tree a function.

    Vertices are nodes of the abstract syntax, with ``ndata["token"]``: the node's type and, where
    there is one, its name, constant or operator. Docstrings and the function's own name are left
    out. The label is the first word of the name, among the ``num_classes`` commonest in train;
    other functions, dunder methods and trees outside the size limits are dropped, and so are
    repeated trees. Files, not functions, are split 80/10/10, by a hash of their relative path.

    Args:
        num_classes: how many labels, from 1 up.
        max_tokens: the size of the vocabulary, which comes from train; rarer names keep their type.
        min_vertices: the size of the smallest tree that is kept.
        max_vertices: the size of the largest tree that is kept.
        folder: a folder of Python files in place of the standard library; None: that.
        cache: keep the result under ``vgraph.config.cache_dir()``.

    Returns:
        TreeSplits.

    Raises:
        ArgumentError: a number is no whole number from 1 up.
        DataError: an argument is out of range, the folder does not exist, or no function in train
            fits.

    Source: after Allamanis et al. 2015 (naming methods).

    Example:
        >>> import email
        >>> splits = load_syntax(folder=Path(email.__file__).parent, num_classes=3, cache=False)
        >>> splits.train.num_classes, splits.train.tokens[0]
        (3, '<unknown>')
    """
    limits = _Limits(num_classes, max_tokens, min_vertices, max_vertices)
    root = Path(folder or sysconfig.get_paths()["stdlib"])
    sources = find_sources(root)
    path = cache_dir() / f"syntax-{_cache_key(root, sources, limits)}.npz"
    forests = _read_cache(path) if cache and path.exists() else None
    if forests is None:
        forests = _build_forests(root, sources, limits)
        if cache:
            _write_cache(path, forests)
    return TreeSplits(*map(TreeDataset, forests))


_SOURCE = Bound("the text of a source file", lambda given: isinstance(given, (str, bytes)))


@checked(source=_SOURCE, min_vertices=COUNT, max_vertices=COUNT)
def parse_functions(source: str | bytes, *, min_vertices: int = 1, max_vertices: int = 200) -> list[FunctionTree]:
    """The tree of every function in a source, nested ones and methods too; dunders are left out.

    Args:
        source: a source file's text.
        min_vertices: the size of the smallest tree that is kept.
        max_vertices: the size of the largest tree that is kept.

    Returns:
        A list of FunctionTrees, in the order of the source.

    Raises:
        ArgumentError: a number is no whole number from 0 up.
        DataError: it is no source of this Python, or nested too deeply.

    Source: the nodes and fields of Python's ``ast``.

    Example:
        >>> (tree,) = parse_functions("def get_x(self):\\n    return self.x + 1")
        >>> tree.tokens[:4]
        ('FunctionDef', 'arguments', 'arg:self', 'Return')
        >>> tree.tokens[4:], tree.parent.tolist()
        (('BinOp:Add', 'Attribute:x', 'Name:self', 'Constant:int'), [-1, 0, 1, 0, 3, 4, 5, 4])
    """
    with warnings.catch_warnings():
        # an invalid escape in somebody's source is no concern of the reader's
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            fact = f"it cannot be parsed: {str(error) or type(error).__name__}"
            line = f"<source>:{getattr(error, 'lineno', None) or 1}"
            raise DataError(fact, line=line, cure="pass source that this Python reads") from error
    functions = [f for f in _find_functions(module) if not _is_dunder(f.name)]
    trees = [_build_tree(function, max_vertices) for function in functions]
    return [tree for tree in trees if tree is not None and len(tree.tokens) >= min_vertices]


def first_word(name: str) -> str | None:
    """The first word of an identifier, in lower case; None where it starts with no letter.

    >>> [first_word(n) for n in ("_get_x", "setValue", "HTTPError", "do_GET", "_2to3", "_")]
    ['get', 'set', 'http', 'do', None, None]
    """
    match = WORD.match(name.lstrip("_"))
    return match[0].lower() if match else None


def split_of(relative: str) -> str:
    """Where a file belongs: "train", "val" or "test", by a hash of its path ("email/parser.py")."""
    tenth = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:8], "big") % 10
    return SPLITS[max(0, tenth - 7)]


def find_sources(root: Path) -> list[Path]:
    """The Python files below a folder, sorted, without tests and installed packages."""
    if not root.is_dir():
        cure = "pass the folder of a Python's standard library"
        raise DataError("there is no such folder", line=str(root), cure=cure)
    found: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    found = [path for path in found if path.is_file()]  # a link may point nowhere
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def read_corpus(root: Path, sources: Sequence[Path], *, min_vertices: int = 4, max_vertices: int = 200) -> Corpus:
    """The functions of all ``sources``, in order; files that do not parse are counted."""
    functions: dict[str, list[FunctionTree]] = {name: [] for name in SPLITS}
    num_skipped = 0
    for path in tqdm(sources, desc="syntax trees", unit="file", disable=None):
        try:
            trees = parse_functions(path.read_bytes(), min_vertices=min_vertices, max_vertices=max_vertices)
        except (DataError, OSError):
            num_skipped += 1
            continue
        functions[split_of(path.relative_to(root).as_posix())] += trees
    return Corpus(functions, len(sources), num_skipped)


# ---------------------------------------------------------------- from a source to trees


def _find_functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every def of a module: they stand in blocks only, so expressions are not searched."""
    stack: list[ast.AST] = [module]
    while stack:
        vertex = stack.pop()
        if isinstance(vertex, DEFINITIONS):
            yield vertex
        for block in BLOCKS:
            inner = getattr(vertex, block, None)
            if isinstance(inner, list):
                stack += cast("list[ast.AST]", inner)[::-1]


def _build_tree(function: ast.FunctionDef | ast.AsyncFunctionDef, max_vertices: int) -> FunctionTree | None:
    tokens: list[str] = []
    parent: list[int] = []
    stack: list[tuple[ast.AST, int]] = [(function, -1)]
    while stack:
        vertex, above = stack.pop()
        if len(tokens) == max_vertices:
            return None
        stack += [(child, len(tokens)) for child in reversed(_children(vertex))]
        tokens.append(_token(vertex, function.name))
        parent.append(above)
    return FunctionTree(function.name, tuple(tokens), np.asarray(parent, np.int64))


def _children(vertex: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for name in vertex._fields:
        value: Any = getattr(vertex, name, None)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if name == "body" and isinstance(vertex, SCOPES) and _is_docstring(items[0]):
                items = items[1:]
            # a dict display has None where ** stands; a global statement has plain strings
            found += [item for item in items if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return [child for child in found if not isinstance(child, FOLDED)]


def _is_docstring(statement: Any) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _token(vertex: ast.AST, own_name: str) -> str:
    kind = type(vertex).__name__
    if kind in NAMES:
        name = NAMES[kind](vertex)
        hidden = own_name.strip("_") in [part.strip("_") for part in name.split(".")]
        return f"{kind}:{OWN_NAME if hidden else name}"
    if kind in DETAILS:
        return f"{kind}:{DETAILS[kind](vertex)}"
    return kind


NAMES: dict[str, Callable[[Any], str]] = {
    "Name": lambda vertex: vertex.id,
    "Attribute": lambda vertex: vertex.attr,
    "arg": lambda vertex: vertex.arg,
    "keyword": lambda vertex: vertex.arg or "**",
    "alias": lambda vertex: vertex.name,
}
DETAILS: dict[str, Callable[[Any], str]] = {
    "BinOp": lambda vertex: type(vertex.op).__name__,
    "AugAssign": lambda vertex: type(vertex.op).__name__,
    "BoolOp": lambda vertex: type(vertex.op).__name__,
    "UnaryOp": lambda vertex: type(vertex.op).__name__,
    "Compare": lambda vertex: type(vertex.ops[0]).__name__,
    "Constant": lambda vertex: (
        str(vertex.value) if vertex.value is None or isinstance(vertex.value, bool) else type(vertex.value).__name__
    ),
}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


# ---------------------------------------------------------------- from trees to forests


def _build_forests(root: Path, sources: Sequence[Path], limits: _Limits) -> list[Forest]:
    corpus = read_corpus(root, sources, min_vertices=limits.min_vertices, max_vertices=limits.max_vertices)
    logger.info("%d of %d files do not parse", corpus.num_skipped, corpus.num_files)
    seen: set[tuple[tuple[str, ...], bytes]] = set()
    parts = [_drop_repeated(corpus.functions[name], seen) for name in SPLITS]
    classes = _commonest_words(parts[0], limits.num_classes)
    parts = [[f for f in part if first_word(f.name) in classes] for part in parts]
    if not parts[0]:
        cure = "widen min_vertices and max_vertices, or pass a folder with more files"
        raise DataError("the training files have no function that fits", line=str(root), cure=cure)
    tokens = _commonest_tokens(parts[0], limits.max_tokens)
    return [_pack(part, tokens, classes) for part in parts]


def _drop_repeated(functions: Sequence[FunctionTree], seen: set[tuple[tuple[str, ...], bytes]]) -> list[FunctionTree]:
    """Keep what ``seen`` lacks: codecs repeat each other, and a test tree must not be in train."""
    kept: list[FunctionTree] = []
    for function in functions:
        key = (function.tokens, function.parent.tobytes())
        if key not in seen:
            seen.add(key)
            kept.append(function)
    return kept


def _commonest_words(functions: Sequence[FunctionTree], num_classes: int) -> tuple[str, ...]:
    words = Counter(word for f in functions if (word := first_word(f.name)))
    ranked = sorted(words, key=lambda word: (-words[word], word))
    return tuple(ranked[:num_classes])


def _commonest_tokens(functions: Sequence[FunctionTree], max_tokens: int) -> tuple[str, ...]:
    """The unknown token, every bare node type (what a rare name falls back to), common tokens."""
    counts = Counter(itertools.chain.from_iterable(f.tokens for f in functions))
    kinds = sorted({token.partition(":")[0] for token in counts})
    ranked = sorted(counts.keys() - set(kinds), key=lambda token: (-counts[token], token))
    return (UNKNOWN, *kinds, *ranked)[:max_tokens]


def _pack(functions: Sequence[FunctionTree], tokens: tuple[str, ...], classes: tuple[str, ...]) -> Forest:
    number = {token: i for i, token in enumerate(tokens)}
    ids = [
        number.get(token) or number.get(token.partition(":")[0], 0)
        for function in functions
        for token in function.tokens
    ]
    sizes = [0, *(len(function.tokens) for function in functions)]
    parent = [np.zeros(0, np.int64), *(function.parent for function in functions)]
    label = [classes.index(first_word(function.name) or "") for function in functions]
    return Forest(
        ptr=np.cumsum(sizes, dtype=np.int64),
        parent=np.concatenate(parent),
        label=np.asarray(label, np.int64),
        features={"token": np.asarray(ids, np.int64)},
        tokens=tokens,
        classes=classes,
    )


# ---------------------------------------------------------------- the cache


def _cache_key(root: Path, sources: Sequence[Path], limits: _Limits) -> str:
    """A hash of all that the trees depend on; sizes and times stand for the files' contents."""
    stats = [(path.relative_to(root).as_posix(), path.stat()) for path in sources]
    files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    everything = (FORMAT, sys.version, str(root.resolve()), limits, files)
    return hashlib.sha256(repr(everything).encode()).hexdigest()[:20]


def _write_cache(path: Path, forests: Sequence[Forest]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            np.savez_compressed(file, **cast("Any", flatten_forests(SPLITS, forests)))
    except OSError as error:
        # a read-only home costs seconds at every start, not the training
        logger.warning("the syntax trees are not cached: %s", error)


def _read_cache(path: Path) -> list[Forest] | None:
    try:
        return restore_forests(SPLITS, read_arrays(path), path)
    except DataError as error:
        reason = str(error).partition("\n")[0]
        logger.warning("rebuilding the damaged cache file %s: %s", path, reason)
        return None
