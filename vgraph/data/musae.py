"""Social and page networks of MUSAE: edges and targets as CSV with a header, features as JSON.

Takes: a folder. Gives: a graph with features, labels and a split. Runs once per folder.
Source: Rozemberczki, Allen and Sarkar 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

import vgraph
from vgraph.arguments import NAME, PATH, WHOLE, checked
from vgraph.data.lines import SHOWN, Line, Record, records_of
from vgraph.data.planetoid import CitationGraph
from vgraph.errors import DataError
from vgraph.files import most_dense, read_json_items, read_text

IDS = ("new_id", "id")
TARGETS = ("target", "ml_target", "page_type", "mature")
FILES = {"edges": "*edges.csv", "target": "*target.csv", "features": "*features.json"}
MOST_NODES = MOST_FEATURES = 1 << 24
SHARES = (0.6, 0.8)  # up to the first: for training, up to the second: for validation
FEATURES = 'write {"0": [3, 17], "1": []}: the numbers of the features that each node has'


@checked(folder=PATH, target=NAME.or_none(), seed=WHOLE)
def load_musae(folder: str | Path, *, target: str | None = None, seed: int = 0) -> CitationGraph:
    """The graph of one network of MUSAE, every edge in both directions; ``ndata`` as in ``load_planetoid``.

    The folder has one file each of ``*edges.csv`` (a header and two columns of ids), ``*target.csv`` (a header with a
    column ``new_id`` or ``id`` and one of labels) and ``*features.json`` (an object: for each id the numbers of the
    features that it has). ``feat`` is 1 where a node has a feature, and 0 elsewhere. The files have no split: six nodes
    in ten are drawn for training, two for validation, two for testing.

    Args:
        folder: the folder.
        target: the column of labels; None: target, ml_target, page_type or mature, whichever is there.
        seed: of the split.

    Returns:
        A CitationGraph; ``classes`` names the labels, sorted.

    Raises:
        ArgumentError: ``seed`` is no whole number.
        DataError: a file is missing, twice there or malformed, an id is out of range or has two lines, or there is no
            such column.

    Source: Rozemberczki, Allen and Sarkar 2021.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "x_edges.csv").write_text("id_1,id_2\\n0,1\\n")
        ...     _ = Path(folder, "x_target.csv").write_text("id,page_type\\n0,tvshow\\n1,company\\n")
        ...     _ = Path(folder, "x_features.json").write_text('{"0": [1], "1": [0, 2]}')
        ...     data = load_musae(folder)
        >>> data.graph.num_edges(), data.classes, data.graph.ndata["feat"].tolist()
        (2, ('company', 'tvshow'), [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    """
    paths = {kind: _only(Path(folder), pattern) for kind, pattern in FILES.items()}
    names = _read_target(paths["target"], target)
    classes = tuple(sorted(set(names)))
    number = {name: i for i, name in enumerate(classes)}
    one, other = _read_edges(paths["edges"], len(names))
    feat = _read_features(paths["features"], len(names))
    graph = vgraph.graph((torch.cat([one, other]), torch.cat([other, one])), num_nodes=len(names))
    graph.ndata["feat"] = feat
    graph.ndata["label"] = torch.tensor([number[name] for name in names])
    lot = torch.rand(len(names), generator=torch.Generator().manual_seed(seed))
    graph.ndata["train_mask"] = lot < SHARES[0]
    graph.ndata["val_mask"] = (lot >= SHARES[0]) & (lot < SHARES[1])
    graph.ndata["test_mask"] = lot >= SHARES[1]
    return CitationGraph(graph, len(classes), feat.shape[1], classes)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        shown = ", ".join(path.name for path in found)[:SHOWN] or "none"
        raise DataError(f"one file {pattern} is needed; there is {shown}", line=str(folder), cure="put one there")
    return found[0]


def _read_target(path: Path, target: str | None) -> list[str]:
    """The name of each node's label, by id."""
    records = list(records_of(read_text(path), path))
    if not records:
        raise Line("", path, 1).wrong("there are no nodes below the header", "write a line for each node")
    columns = list(records[0].fields)
    own, wanted = _one_of(IDS, columns, path), _one_of((target,) if target else TARGETS, columns, path)
    names: dict[int, str] = {}
    for record in records:
        node = _id(record, own, len(records))
        if node in names:
            raise record.line.wrong(f"node {node} has a second line", "write one line for each node")
        names[node] = record.fields[wanted]
    return [names[node] for node in range(len(records))]


def _one_of(wanted: Sequence[str], columns: Sequence[str], path: Path) -> str:
    found = next((name for name in wanted if name in columns), None)
    if found is None:
        fact = f"there is no column {' or '.join(wanted)[:SHOWN]}; the header names {', '.join(columns)[:SHOWN]}"
        raise Line("", path, 1).wrong(fact, "name the column of labels as target")
    return found


def _id(record: Record, column: str, count: int) -> int:
    cure = f"number the {count} nodes from 0, each once, in all files"
    return record.line.whole(record.fields[column], "node id", count - 1, cure)


def _read_edges(path: Path, count: int) -> tuple[Tensor, Tensor]:
    one, other = list[int](), list[int]()
    for record in records_of(read_text(path), path):
        if len(record.fields) != 2:
            fact = f"an edge has two ends, and there are {len(record.fields)} columns"
            raise record.line.wrong(fact, "write two columns of ids")
        for column, ends in zip(record.fields, (one, other), strict=True):
            ends.append(_id(record, column, count))
    return torch.tensor(one, dtype=torch.int64), torch.tensor(other, dtype=torch.int64)


def _read_features(path: Path, count: int) -> Tensor:
    """(nodes, features) of zeros and ones."""
    rows, columns = list[int](), list[int]()
    for number, item in read_json_items(path):
        line = Line("", path, number)
        if not isinstance(item, dict) or number != 1:
            raise line.wrong("the features are no single object", FEATURES)
        for key, features in cast("Mapping[str, object]", item).items():
            node = line.whole(key, "node id", count - 1, f"number the {count} nodes from 0, as in the other files")
            found = _features(features, key, line)
            rows += [node] * len(found)
            columns += found
    width = max(columns, default=-1) + 1
    needed, length = 4 * count * width, path.stat().st_size
    if needed > most_dense(length):
        raise Line("", path, 1).wrong(f"{length} bytes make features of {needed}", "number the features 0, 1, 2, ...")
    feat = torch.zeros(count, width)
    feat[rows, columns] = 1
    return feat


def _features(features: object, key: str, line: Line) -> list[int]:
    found = cast("list[object]", features) if isinstance(features, list) else [features]
    numbers = [n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < MOST_FEATURES]
    if not isinstance(features, list) or len(numbers) < len(found):
        raise line.wrong(f"node {key} has {repr(features)[:SHOWN]}, which lists no features", FEATURES)
    return numbers
