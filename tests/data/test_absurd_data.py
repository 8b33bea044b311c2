"""What nobody can mean, for every argument of the loaders; and files that are empty, of another kind or cut short.

Each is read, or refused by an error of vgraph's that tells its cure.
"""

from __future__ import annotations

import gzip
import importlib.util
import inspect
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import io as scipy_io
from scipy import sparse

from tests.data.test_data_aiger import NAND
from tests.data.test_data_heterophilous import GOOD
from tests.data.test_user_files import CONLLU, MUSAE, PAIR, Files, write
from tests.test_absurd_calls import failures
from tests.test_absurd_values import parameters_of
from vgraph import data
from vgraph.errors import VGraphError

TREES, TRIPLES, GRAPHS = "(3 (2 It) (4 (2 is) (4 good)))\n", "<a> <knows> <b> .\n", "1\n3 0\n0 1 1\n0 2 0 2\n0 1 1\n"
SOURCE, DAG = "def f(x):\n    return x + 1\n", '[{"nodes": ["in", "conv"], "edges": [[0, 1, "x"]], "label": 7}]'
CITATIONS = {
    "feat_indptr": np.array([0, 1, 1]), "feat_indices": np.array([0]), "feat_data": np.ones(1, np.float32),
    "feat_shape": np.array([2, 4]), "label": np.array([1, 0]), "src": np.array([0]), "dst": np.array([1]),
    **{f"{part}_mask": np.array([True, False]) for part in ("train", "val", "test")},
}  # fmt: skip


def packed(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def matlab() -> bytes:
    file = io.BytesIO()
    scipy_io.savemat(file, {"network": sparse.eye(2)})
    return file.getvalue()


def saved() -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file)
    return file.getvalue()


PARTS: Files = {f"{part}/{name}": text for part in ("train", "dev", "test") for name, text in PAIR.items()}
# loader -> the files that it reads, and what else it takes
LOADERS: dict[str, tuple[Files, dict[str, Any]]] = {
    "load_aiger": ({"a.aig": NAND}, {}),
    "load_conllu": ({"s.conllu": CONLLU}, {"label": "polarity"}),
    "load_dags": ({"d.json": DAG}, {}),
    "load_edge_list": ({"e.txt": "0 1\n1 2\n"}, {}),
    "load_heterophilous": ({"h.npz": packed(GOOD)}, {}),
    "load_listops": ({"l.tsv": "9\t[MAX 2 9 ]\n"}, {}),
    "load_matrix": ({"m.mat": matlab()}, {}),
    "load_musae": (MUSAE, {}),
    "load_pairs": (PAIR, {}),
    "load_planetoid": ({"c.npz": packed(CITATIONS)}, {}),
    "load_ptb": ({"t.txt": TREES}, {}),
    "load_rdf": ({"r.nt": TRIPLES}, {}),
    "load_sick": (PARTS, {}),
    "load_smiles": ({"m.csv": "smiles,y\nCCO,1.0\n"}, {"value": "y"}),
    "load_sst": ({f"{part}.txt": TREES for part in ("train", "dev", "test")}, {}),
    "load_tu": ({"t.txt": GRAPHS}, {}),
}
FOREST = data.parse_ptb(TREES)
OTHERS: dict[str, dict[str, Any]] = {
    "build_vocabulary": {"forest": FOREST},
    "renumber_words": {"forest": FOREST, "vocabulary": ["<unknown>", "It"]},
    "split_trees": {"trees": data.TreeDataset(FOREST)},
    "parse_aiger": {"data": NAND},
    "parse_conllu": {"text": CONLLU},
    "parse_edge_list": {"text": "0 1\n"},
    "parse_functions": {"source": SOURCE},
    "parse_listops": {"text": "9\t9\n"},
    "parse_ntriples": {"text": TRIPLES},
    "parse_planetoid": {"members": CITATIONS},
    "parse_ptb": {"text": TREES},
    "parse_smiles": {"smiles": "CCO"},
    "parse_tu": {"text": GRAPHS},
}
JUNK = {
    "empty": b"", "a line": b"\n", "zeros": bytes(64), "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "gzip": gzip.compress(b"0 1\n"), "arrays": packed({"a": np.ones(3)}), "tensors": saved(),
    "UTF-16": "0 1\n1 2\n".encode("utf-16"), "JSON": b'{"a": [1, 2]}', "HTML": b"<!DOCTYPE html><html></html>",
    "a table": b"a,b,c\n1,2,3\n", "a long number": b"9" * 10_000, "brackets": b"[" * 10_000,
    "more brackets": b"(" * 10_000,
}  # fmt: skip
NO_CHEMISTRY = "there is no RDKit" if importlib.util.find_spec("rdkit") is None else ""


def needs(name: str) -> None:
    if "smiles" in name and NO_CHEMISTRY:
        pytest.skip(NO_CHEMISTRY)


def test_every_function_is_asked() -> None:
    functions = {name for name in data.__all__ if inspect.isfunction(getattr(data, name))}
    assert functions == {*LOADERS, *OTHERS, "load_rdf_task", "load_syntax"}


@pytest.mark.parametrize("name", LOADERS)
def test_arguments_of_loaders(name: str, tmp_path: Path) -> None:
    needs(name)
    load, (files, valid) = getattr(data, name), LOADERS[name]
    place = next(parameters_of(load))
    valid = {place: write(tmp_path, files), **valid}
    load(**valid)
    assert list(failures(load, valid, list(parameters_of(load)))) == []


@pytest.mark.parametrize("name", OTHERS)
def test_arguments_of_what_reads_no_file(name: str) -> None:
    needs(name)
    function, valid = getattr(data, name), OTHERS[name]
    function(**valid)
    names = [name for name in parameters_of(function) if name != "path"]  # which errors show, whatever it is
    assert list(failures(function, valid, names)) == []


def test_arguments_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("who\tkind\na\tx\n", encoding="utf-8")
    valid: dict[str, Any] = {"data": data.parse_ntriples(TRIPLES), "entity": "who", "label": "kind"}
    valid |= {"train": tmp_path / "a.tsv", "test": tmp_path / "a.tsv"}
    assert list(failures(data.load_rdf_task, valid, list(valid))) == []
    for folder in (3, b"x", ["x"], torch.ones(1)):
        with pytest.raises(VGraphError, match="folder="):
            data.load_syntax(folder=folder)  # pyright: ignore[reportArgumentType]


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(VGraphError, match=r"load_listops\(path=") as caught:
        data.load_listops("a\0b")
    assert caught.value.cure == "give a path"


def test_a_text_is_no_list_of_words() -> None:
    """Each of its letters was a word, and every word of the trees unknown."""
    with pytest.raises(VGraphError, match="vocabulary='good'"):
        data.renumber_words(FOREST, "good")
    with pytest.raises(VGraphError, match="a list of words, in order"):
        data.renumber_words(FOREST, {"<unknown>", "good"})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", LOADERS)
def test_files_of_other_kinds(name: str, tmp_path: Path) -> None:
    needs(name)
    load, (files, valid) = getattr(data, name), LOADERS[name]
    path, wrong = write(tmp_path, files), list[str]()

    def read(given: Path, what: str) -> None:
        try:
            load(given, **valid)
        except VGraphError as error:
            if not (error.cure and error.line):
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")

    for file, content in files.items():
        place, whole = tmp_path / file, content.encode() if isinstance(content, str) else content
        cut = {f"cut at {size}": whole[:size] for size in range(1, len(whole), 1 + len(whole) // 20)}
        for what, other in (JUNK | cut).items():
            place.write_bytes(other)
            read(path, f"{file}: {what}")
        place.write_bytes(whole)
    read(tmp_path / "none" / "such", "there is none")
    read(tmp_path if path.is_file() else next(tmp_path.rglob("*.*")), "a folder for a file, or a file for a folder")
    assert wrong == []
