"""Every benchmark runs, small, without a warning; what it measures then means nothing."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).resolve().parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark(path: Path, run_script: Callable[..., str]) -> None:
    assert run_script(path, "--smoke").strip(), f"{path.name} prints no table"


def test_they_start_without_the_project_on_the_path() -> None:
    """As ``python benchmarks/name.py`` does, whose path has the folder itself."""
    imports = re.compile(r"^\s*(from|import) benchmarks\b", re.MULTILINE)
    assert [path for path in BENCHMARKS[0].parent.rglob("*.py") if imports.search(path.read_text("utf-8"))] == []


def test_folders_that_go_away_while_they_are_measured_count_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS[0].parent)
    distributed = importlib.import_module("distributed")
    for name in ("kept/one", "gone/two"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(bytes(10_000))
    whole, scandir = distributed.bytes_below(tmp_path), os.scandir

    def other_process_removes(folder: str) -> object:
        if Path(folder).name == "gone":
            Path(folder, "two").unlink()
            Path(folder).rmdir()
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", other_process_removes)
    assert 0 < distributed.bytes_below(tmp_path) == whole / 2


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_a_transpose_built_beforehand_changes_no_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS[0].parent)
    workloads = importlib.import_module("sides.workloads")
    work = workloads.Workload("gcn", 30, 200, (5, 4, 3), folder=str(tmp_path))
    workloads.write_graph(work, tmp_path)
    sides = [importlib.import_module(f"sides.{name}") for name in ("by_sparse", "by_sparse_both", "by_torch")]
    steps = [side.build(workloads.Data(work)) for side in sides]
    losses = [[step()[0].item() for _ in range(3)] for step in steps]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[1] == pytest.approx(losses[2], rel=1e-5)
    assert losses[1][2] < losses[1][0]


def test_numbers_of_a_program_are_those_of_its_last_epoch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS[0].parent)
    programs = importlib.import_module("sides.programs")
    conditions = programs.Conditions(tmp_path, None, epochs=2, rounds=1, threads=1, limit=60)
    lines = ["Loading", "Epoch: 001, Loss: 1.5", "Epoch: 002, Loss: 1.25", "saved", "Epoch: 003, Loss: 1.0, Test: 0.5"]
    run, ended = programs._read([*lines, "Epoch: 004, Loss: 9.0"], conditions)
    assert (run.numbers, len(run.seconds), ended, run.problem) == ([1.0, 0.5], 2, False, "")
    other, ended = programs._read(lines[:3], conditions)
    assert (other.numbers, len(other.seconds), ended) == ([1.25], 1, True)
    assert programs._read(lines[:2], conditions)[0].problem and programs._read(lines[:2], conditions)[0].median is None
    assert programs.difference(run, programs.Run(numbers=[1.25, 0.5])) == 0.25


def test_programs_of_the_gallery_have_half_the_plumbing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS[0].parent)
    plumbing = importlib.import_module("plain.plumbing")
    counts = {name: tuple(map(len, plumbing.counted(name))) for name in plumbing.PROGRAMS}
    assert [name for name, (ours, others) in counts.items() if 2 * ours > others] == ["forces"]
    page = (BENCHMARKS[0].parents[1] / "docs" / "gallery" / "programs.md").read_text(encoding="utf-8")
    told = re.findall(r"\| (\d+), (\d+) \|$", page, re.MULTILINE)
    assert [(int(ours), int(others)) for ours, others in told] == list(counts.values())
