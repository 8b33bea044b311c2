"""Lines of plumbing: what a program says beside its model, its step and its data, with vgraph and by other means.

Takes: the text of programs. Gives: a table. A statement is plumbing if it batches, orders or numbers vertices, makes
room for rows, sends, gathers or scatters them, puts them back in order, or deals them out to processes or threads,
whatever else it computes. Which statements do so is told by ``WORDS``, one of which stands in each; functions that do
nothing else count whole. What both sides share is counted on both. What makes the data, a vertex's own row (``x[v]``,
``v.pull("x")``), headers of functions and classes, comments and docstrings are nobody's plumbing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    "vgraph": (
        "v.gather", "v.scatter", "v.push", "has_parent =", "vgraph.batch", "vgraph.unbatch", "GraphLoader", "rows_at",
        "batch_num_nodes", "roots", "ops.", "negative_sampling", "local_scope", "update_all", "apply_edges",
        "sum_nodes", "vd.", "dist.", "measure=", "batch[0]", "model.zero_grad", "DistributedDataParallel",
        "vgraph.serve", "submit", "done_callback",
    ),
    "other": (
        "visit(", "dict[int", "torch.stack(", "_stacked", "if others", "if not others", "if parents", "if children",
        "continue", "torch.zeros(size)", "edges()", "[src]", "[dst]", "index_add", "scatter_reduce", "bincount",
        "repeat_interleave", "unjoined", "zeros", "in levels", "[first:last]", "[child]", "[parent]", "cat([h,",
        "cat([c,", "[roots]", "ranks", "ampler", "DataLoader", "DistributedDataParallel", "dist.", "Semaphore", "hread",
        "there.", "numbers", "vgraph.batch",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A function of a file; ``whole``: all of it is plumbing."""

    file: str
    function: str
    whole: bool = False


def _of(file: str, *functions: str, whole: bool = False) -> tuple[Part, ...]:
    return tuple(Part(file, function, whole) for function in functions)


LOOPS, HAND, LEVELS = (f"benchmarks/plain/{name}.py" for name in ("loops", "messages", "levels"))
CELL, SERVING = "vgraph/nn/tree_lstm.py", "benchmarks/recursion/serving.py"
LOOP = (*_of(LOOPS, "_order", "_stacked", whole=True), *_of(LOOPS, "Loop.visit"))
Sides = tuple[tuple[Part, ...], tuple[Part, ...], tuple[Part, ...]]  # shared, vgraph's, the other's
PROGRAMS: dict[str, Sides] = {
    "sick": (
        (*_of("examples/sick.py", "Relatedness.forward", "main"), *_of("examples/sick.py", "roots_of", whole=True)),
        _of(CELL, "ChildSumTreeLSTM.forward", "_finish"),
        (*LOOP, *_of(LOOPS, "ChildSum.forward")),
    ),
    "edge_attention": (
        (),
        _of("examples/edge_attention.py", "EdgeAttention.forward"),
        _of(HAND, "attend"),
    ),
    "link_prediction": (
        (),
        _of("examples/link_prediction.py", "scores", "loss_of"),
        (*_of(HAND, "convolved", "loss_of_links"), *_of(HAND, "unjoined", whole=True)),
    ),
    "dag_vae": (
        _of("examples/dag_vae.py", "DagVae.encode", "DagVae.loss"),
        _of("examples/dag_vae.py", "AlongWires.forward"),
        (*LOOP, *_of(LOOPS, "AlongWires.forward")),
    ),
    "lattice": (
        _of("examples/lattice.py", "Segmenter.forward", "train"),
        _of("examples/lattice.py", "Arcs.forward"),
        (*LOOP, *_of(LOOPS, "Arcs.forward")),
    ),
    "junction_trees": (
        _of("examples/junction_trees.py", "Marginals.forward", "train"),
        _of("examples/junction_trees.py", "Inward.forward", "Outward.forward"),
        (*LOOP, *_of(LOOPS, "Inward.forward", "Outward.forward")),
    ),
    "forces": (
        (),
        _of("examples/forces.py", "Energy.forward", "clusters"),
        (*_of(HAND, "joined", whole=True), *_of(HAND, "energy")),
    ),
    "tree_lstm_ddp": (
        (),
        (
            *_of("examples/tree_lstm_ddp.py", "Namer.forward", "main"),
            *_of(CELL, "ChildSumTreeLSTM.forward", "_finish"),
        ),
        (*_of(LEVELS, "collate", whole=True), *_of(LEVELS, "states", "ByLevels.forward", "train")),
    ),
    "serving": ((), _of(SERVING, "_served"), _of(SERVING, "_batched")),
}


def lines_of(part: Part, words: tuple[str, ...]) -> list[str]:
    """The lines of plumbing in a function."""
    text = (ROOT / part.file).read_text(encoding="utf-8")
    source = text.splitlines()
    return [
        source[number - 1].strip()
        for statement in _statements(_found(ast.parse(text), part))
        if part.whole or any(word in _own_text(statement) for word in words)
        for number in range(statement.lineno, _last_line(statement) + 1)
    ]


def _found(tree: ast.AST, part: Part) -> ast.AST:
    for name in part.function.split("."):
        tree = next(
            item
            for item in ast.iter_child_nodes(tree)
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)) and item.name == name
        )
    return tree


def _statements(function: ast.AST) -> Iterator[ast.stmt]:
    """All statements within, but for headers of functions and docstrings."""
    for item in ast.walk(function):
        is_text = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
        if isinstance(item, ast.stmt) and not isinstance(item, (ast.FunctionDef, ast.ClassDef)) and not is_text:
            yield item


def _own_text(statement: ast.stmt) -> str:
    """The statement, without what stands below its header."""
    body = getattr(statement, "body", None)
    return ast.unparse(statement) if body is None else ast.unparse(statement).partition("\n")[0]


def _last_line(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    return body[0].lineno - 1 if body else (statement.end_lineno or statement.lineno)


def counted(name: str) -> tuple[list[str], list[str]]:
    """Lines of plumbing with vgraph, and by other means."""
    shared, own, other = PROGRAMS[name]
    both = [line for part in shared for line in lines_of(part, WORDS["vgraph"])]
    ours = [line for part in own for line in lines_of(part, WORDS["vgraph"])]
    return both + ours, both + [line for part in other for line in lines_of(part, WORDS["other"])]


def report(*, show: bool = False) -> None:
    """Prints the table; ``show``: and the lines."""
    for name in PROGRAMS:
        ours, others = counted(name)
        print(f"{name:15s} lines of plumbing: vgraph {len(ours):2d}; by other means {len(others):2d}")
        if show:
            print("\n".join([*(f"    vgraph | {line}" for line in ours), *(f"    other  | {line}" for line in others)]))
