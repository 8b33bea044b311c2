"""Heterophilous graphs: what is read, and what every refusal says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vgraph.data import load_heterophilous
from vgraph.errors import DataError

GOOD: dict[str, Any] = {
    "node_features": np.ones((3, 2), np.float32), "node_labels": np.array([0, 1, 1]),
    "edges": np.array([[0, 1], [1, 2]]),
    **{f"{part}_masks": np.eye(3, dtype=bool)[:2] for part in ("train", "val", "test")},
}  # fmt: skip


def test_both_directions_and_one_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **GOOD)
    data = load_heterophilous(tmp_path / "g.npz", split=1)
    assert [end.tolist() for end in data.graph.edges()] == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert data.graph.ndata["train_mask"].tolist() == [False, True, False]
    assert (data.num_classes, data.num_features) == (2, 2)


@pytest.mark.parametrize(
    ("changed", "split", "fact"),
    [
        ({"edges": None}, 0, "member 'edges' is missing"),
        ({"node_labels": np.array([0])}, 0, "do not fit"),
        ({"edges": np.array([[0, 3]])}, 0, "edges name vertices from 0 to 3 of 3"),
        ({}, 2, "split 2 of 3 vertices was asked for"),
        ({"val_masks": np.ones((2, 4), bool)}, 0, "val_masks is"),
    ],
)
def test_refusals(tmp_path: Path, changed: dict[str, Any], split: int, fact: str) -> None:
    given = {name: array for name, array in {**GOOD, **changed}.items() if array is not None}
    np.savez(tmp_path / "g.npz", **given)
    with pytest.raises(DataError, match=fact):
        load_heterophilous(tmp_path / "g.npz", split)


def test_tolokers(data_dir: Path) -> None:
    data = load_heterophilous(data_dir / "heterophilous" / "tolokers.npz")
    assert (data.graph.num_nodes(), data.graph.num_edges(), data.num_features) == (11_758, 2 * 519_000, 10)
