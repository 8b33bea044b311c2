"""Lines of code that a model takes: the function of a vertex, and what evaluates it on a batch, as in this folder."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import tree_lstm

from recursion import circuits, tree_fc, trees

# What the functions hold beside the model (the trainer's loop, how DyNet is looked for, timers) is left out by name.
NOT_THE_MODEL = ("optional", "config", "trainer", "construction", "stopwatch", "step.", "time.perf_counter")
MODELS: dict[str, dict[str, tuple[Callable[..., Any], ...]]] = {
    "Tree-LSTM": {
        "vgraph": (tree_lstm.TreeLSTM, tree_lstm.loss_of),
        "DGL": (tree_lstm.TreeLSTM.__init__, tree_lstm.dgl_step),
        "DyNet": (trees.by_dynet,),
        "levels by hand": (tree_lstm.TreeLSTM.__init__, tree_lstm.by_hand_step, *tree_lstm.LEVELS),
    },
    "Tree-FC": {"vgraph": (tree_fc.TreeFC, tree_fc.loss_of), "DyNet": (tree_fc.by_dynet,)},
    "gated unit on a DAG": {
        "vgraph": (circuits.GateGRU, circuits.loss_of),
        "DGL": (circuits.GateGRU.__init__, circuits.by_dgl),
    },
}


def count_lines(function: Callable[..., Any]) -> int:
    """Lines that hold a statement of the model; docstrings, comments and blank lines are none."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    skipped = set[int]()
    for item in ast.walk(tree):
        is_text = (
            isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
        )
        is_other = isinstance(item, ast.stmt) and not hasattr(item, "body")
        text = ast.unparse(item) if is_other else ""
        if is_text or any(word in text for word in NOT_THE_MODEL):
            skipped |= set(range(item.lineno, (item.end_lineno or item.lineno) + 1))  # type: ignore[attr-defined]
    lines = enumerate(source.splitlines(), start=1)
    return sum(1 for n, line in lines if n not in skipped and line.strip() and not line.strip().startswith(("#", "@")))


def counted() -> dict[str, dict[str, int]]:
    return {
        model: {side: sum(map(count_lines, parts)) for side, parts in sides.items()} for model, sides in MODELS.items()
    }
