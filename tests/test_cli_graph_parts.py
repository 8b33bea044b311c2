"""partition-graph, check-graph, plan-graph: what they print, draw and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vgraph
import vgraph.distributed as vd
from tests.distributed.stored_graphs import store_all
from vgraph.cli import main
from vgraph.distributed.plan import hashed_halo_rows


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    return store_all(tmp_path / "all")["ogb"][0]


def test_from_files_to_a_plan(edges: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "g.vg"
    options = ["--parts", "4", "--method", "ldg", "--balance", "train,edges", "--memory", "1", "--both"]
    assert main(["partition-graph", str(edges), str(out), *options, "--plot", str(tmp_path / "p.svg")]) == 0
    said = capsys.readouterr().out
    assert "4 parts of 12 nodes" in said and "halo rows; largest part over the mean: nodes" in said
    assert "<svg" in (tmp_path / "p.svg").read_text()
    assert main(["check-graph", str(out)]) == 0
    assert "files of 4 parts are what was written" in capsys.readouterr().out
    command = ["plan-graph", str(out), "--ranks", "2", "--widths", "3,16", "--parameters", "10", "--fanouts", "5,5"]
    assert main([*command, "--plot", str(tmp_path / "p.png")]) == 0
    said = capsys.readouterr().out
    assert "2 ranks: " in said and "gradients of 10 parameters: 80 bytes a step" in said and "sampled, " in said
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_unequal_parts_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = torch.arange(200)
    ring, hubs = (ids, ids.roll(1)), (ids.repeat(3), ids.repeat(3) % 6)
    skewed = [torch.cat(ends) for ends in zip(ring, hubs, strict=True)]
    for ends, is_told in ((ring, False), (skewed, True)):
        vd.partition_graph(vgraph.graph(tuple(ends)), tmp_path / "g.vg", 4, "ldg", balance=None if is_told else "edges")
        capsys.readouterr()
        assert main(["plan-graph", str(tmp_path / "g.vg"), "--ranks", "4", "--widths", "8"]) == 0
        assert ("times the mean of edges; partition with --balance edges" in capsys.readouterr().out) == is_told


def test_plan_on_paper(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--nodes", "111059956", "--edges", "3231371744"]
    assert main(["plan-graph", "--ranks", "1024", *size, "--widths", "256", "--fanouts", "15,10,5"]) == 0
    said = capsys.readouterr().out
    assert "1024 ranks: 108457 nodes" in said and "3109686 halo rows of 1023 peers" in said
    assert f"at most {hashed_halo_rows(111_059_956, 3_231_371_744, 1024) * 256 * 4} bytes a step" in said
    assert "1056000 inputs" in said
    assert (
        main(["plan-graph", "--ranks", "2", "--nodes", "10", "--edges", "0", "--widths", "3,4", "--keep-inputs"]) == 0
    )
    said = capsys.readouterr().out
    assert (
        "columns sent 4 of 4 bytes" in said and "3 columns of inputs come once" in said and "60 bytes of the f" in said
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan-graph", "--ranks", "2"], "a plan is of a folder, or of numbers"),
        (["plan-graph", "--ranks", "2", "--nodes", "5", "--edges", "9", "--plot", "p.png"], "no parts to draw"),
        (["check-graph", "nothing"], "cannot read the data file"),
        (["partition-graph", "nothing.npz", "{}/g.vg"], "cannot read the data file"),
        (["partition-graph", "{}/all/edges.npy", "{}/g.vg", "--plot", "{}/p.txt"], "p.txt is no picture"),
        (["partition-graph", "{}/all/edges.npy", "{}/g.vg", "--memory", "0.01"], "0.01 GiB are too little"),
    ],
)
def test_errors(
    arguments: list[str], message: str, edges: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(tmp_path) for word in arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "g.vg").exists()
