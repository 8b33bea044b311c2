"""The fuzzer of files itself: valid files are read, and each way to fail is seen."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from tests.campaign.files import PROJECT
from tests.campaign.mutations import mutate, pack

TRY = """
import json, os, tempfile
from pathlib import Path
import numpy as np
from tests.campaign import files
from tests.campaign.valid_files import Loader, make_loaders
from vgraph import data
from vgraph.compat.collections import GINDataset
from vgraph.errors import DataError
def refuse(_): raise DataError("wrong", cure="right")
def raise_foreign(_): raise KeyError("foreign")
def hide(_):
    try: np.ones(2**33)
    except MemoryError as error: raise DataError("wrong", cure="right") from error
def without_cure(_): raise DataError("wrong")
def compute(_):
    while True: pass
ways = {
    "good": lambda _: None, "refused": refuse, "foreign": raise_foreign, "crash": lambda _: os.abort(),
    "held": lambda _: np.ones(1 << 27), "asked": lambda _: np.ones(2**33), "hidden": hide, "cureless": without_cure,
    "endless": compute,
}
def extremes(folder):
    "As much as so small a file may ask for."
    Path(folder, "c.aig").write_bytes(b"aig 16777215 16777215 0 0 0\\n")
    Path(folder, "e.txt").write_text("0 16777215\\n")
    Path(folder, "M.txt").write_text("1\\n5700 0\\n" + "".join(f"{2 * i} 0\\n" for i in range(5700)))
    masks = {f"{part}_masks": np.ones((1, 4), bool) for part in ("train", "val", "test")}
    edges, few = np.zeros((8_000_000, 2), np.int8), {"node_features": np.zeros((4, 1)), "node_labels": np.zeros(4, int)}
    np.savez_compressed(Path(folder, "p.npz"), edges=edges, **few, **masks)
    yield "aiger", lambda place: data.load_aiger(place / "c.aig").graph.in_degrees()
    yield "edge list", lambda place: data.load_edge_list(place / "e.txt").in_degrees()
    yield "one-hot", lambda place: GINDataset("M", raw_dir=str(place))
    yield "npz", lambda place: data.load_heterophilous(place / "p.npz").graph.in_degrees()
with tempfile.TemporaryDirectory() as folder:
    for number, loader in enumerate(make_loaders(Path(folder, "valid"))):
        for name, content in loader.files.items():
            Path(folder, str(number), name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, str(number), name).write_bytes(content)
        loader.load(Path(folder, str(number)))
    Path(folder, "large").mkdir()
    most = {
        name: files.watched(Loader(name, {}, load), Path(folder, "large"))
        for name, load in extremes(Path(folder, "large"))
    }
    files.MOST_SECONDS = 3
    said = {name: files.try_case(0, [Loader(name, {"f": b"x"}, load)], Path(folder)) for name, load in ways.items()}
print(json.dumps([said, most]))
"""


def run(script: str) -> str:
    search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": search}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(done.stderr, pytrace=False)
    return done.stdout


def test_valid_files_are_read_and_every_way_to_fail_is_seen() -> None:
    said, most = json.loads(run(TRY))
    assert most == dict.fromkeys(("aiger", "edge list", "one-hot", "npz"), "")
    assert (said.pop("good"), said.pop("refused")) == ([], [])
    words = {
        "foreign": "KeyError", "crash": "ended with -6", "held": "MiB in use", "asked": "asked for more",
        "hidden": "asked for more", "cureless": "without a cure", "endless": "too much computing",
    }  # fmt: skip
    assert {name: (len(failures), words[name] in failures[0]) for name, failures in said.items()} == dict.fromkeys(
        words, (1, True)
    )


def test_a_seed_changes_a_file_in_one_way() -> None:
    made = [[mutate(random.Random(seed), content, [b"c"]) for seed in range(50)] for _ in range(2)
            for content in (b"a 1 b 2" * 9, pack({"a": b"1 2 3", "b": b"4"}))]  # fmt: skip
    assert made[:2] == made[2:]
    assert all(len(set(changed)) > 30 for changed in made)
