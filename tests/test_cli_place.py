"""vgraph place: a model of one's own file on devices, drawn and run; what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgraph.cli import main

MODEL = """
import torch
from torch import nn

def small():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)), torch.ones(4, 8)

def wrong():
    return 3
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    return tmp_path / "my_model.py"


def test_place_prints_draws_and_runs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--profile",
        str(tmp_path / "p.json"),
        "--plot",
        str(tmp_path / "p.svg"),
        "--dot",
        str(tmp_path / "p.dot"),
    ]
    assert main(["place", f"{model}:small", "--devices", "cpu", "cpu", "--run", "2", "--trials", "5", *options]) == 0
    printed = capsys.readouterr().out
    assert "operators on 2 devices" in printed and "one device  " in printed
    assert "placed: measured" in printed and "one device: measured" in printed
    assert (tmp_path / "p.json").exists() and "<svg" in (tmp_path / "p.svg").read_text()
    assert (tmp_path / "p.dot").read_text().startswith("digraph")
    assert main(["place", f"{model}:small", "--devices", "cpu", "--profile", str(tmp_path / "p.json")]) == 0


def test_place_on_a_simulated_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", "two-branches", "--devices", "v100-pcie", "--trials", "5"]) == 0
    assert "on 4 devices" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no model 'nothing'\n  cure: name file.py:function, or one of two-branches"),
        (["{}:other"], "has no function 'other'"),
        (["{}:wrong"], "gives a int\n  cure: return (model, example_inputs)"),
        (["absent.py:small"], "there is no file absent.py"),
        (["absent_package.models:small"], "absent_package.models cannot be imported"),
        (["{}:small", "--devices", "gpu"], "there is no device 'gpu'"),
        (["{}:small", "--memory", "0.0000001"], "the parameters alone need"),
    ],
)
def test_place_refuses(model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", *(argument.format(model) for argument in arguments)]) == 1
    assert message in capsys.readouterr().err
