"""Every example runs, small, without a warning."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


JOINED = {"divided_training", "gcn_distributed", "sage_distributed", "tree_lstm_ddp"}  # they join a process group


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem not in JOINED], ids=lambda path: path.stem)
def test_example(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "--smoke"])
    runpy.run_path(str(path), run_name="__main__")  # here: a process of its own would load torch once more
    assert capsys.readouterr().out.strip(), f"{path.name} prints nothing"


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem in JOINED], ids=lambda path: path.stem)
def test_example_of_several_processes(path: Path, run_script: Callable[..., str]) -> None:
    assert run_script(path, "--smoke").strip(), f"{path.name} prints nothing"


def test_reddit_reads_its_files(tmp_path: Path, run_script: Callable[..., str]) -> None:
    draw = np.random.default_rng(0)
    types = np.array([1, 2, 3] * 10)
    np.savez(
        tmp_path / "reddit_data.npz", feature=draw.random((30, 5)), label=draw.integers(0, 4, 30), node_types=types
    )
    ends = draw.integers(0, 30, (2, 90))
    scipy.sparse.save_npz(tmp_path / "reddit_graph.npz", scipy.sparse.coo_matrix((np.ones(90), ends), (30, 30)))
    path = next(path for path in EXAMPLES if path.stem == "reddit")
    printed = run_script(path, str(tmp_path), "--model", "sage", "--epochs", "1")
    lines = printed.splitlines()
    assert "30 posts" in lines[0] and all(line.startswith("Reddit: ") for line in lines)


def test_trees_of_sst(data_dir: Path, run_script: Callable[..., str]) -> None:
    path = next(path for path in EXAMPLES if path.stem == "tree_lstm")
    printed = run_script(path, "--smoke", "--sst", str(data_dir / "sst" / "trees")).splitlines()
    assert [line.partition(",")[0] for line in printed] == [
        f"{cell}: epoch {n}" for cell in ("child-sum", "binary") for n in (1, 2)
    ]


def test_circuits_of_epfl(data_dir: Path, run_script: Callable[..., str]) -> None:
    path = next(path for path in EXAMPLES if path.stem == "circuits")
    files = [str(data_dir / "epfl_aig" / name) for name in ("ctrl.aig", "int2float.aig")]
    printed = run_script(path, *files, "--steps", "3").splitlines()
    assert printed[0].startswith("2 circuits, 434 gates") and "step 3" in printed[-1]


def test_listops_of_nangia_and_bowman(data_dir: Path, tmp_path: Path, run_script: Callable[..., str]) -> None:
    path = next(path for path in EXAMPLES if path.stem == "listops")
    some = (data_dir / "listops" / "test_d20s.tsv").read_text().splitlines()[:200]
    (tmp_path / "some.tsv").write_text("\n".join(some))
    printed = run_script(path, str(tmp_path / "some.tsv"), "--steps", "2").splitlines()
    assert printed[0] == "200 expressions; 0 evaluate to something else than their label"
