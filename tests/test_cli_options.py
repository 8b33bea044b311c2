"""Numbers that no option takes, and files that cannot be written: told before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgraph.cli import main

PAPER = ["plan-graph", "--ranks", "2", "--nodes", "10", "--edges", "5"]
PLACE, PARTITION = ["place", "two-branches"], ["partition", "two-branches"]


@pytest.mark.parametrize(
    "arguments",
    [
        [*PAPER, "--bandwidth", "0"], [*PAPER, "--bandwidth", "nan"], [*PAPER, "--parameters=-1"],
        [*PAPER, "--batch-size", "0"], [*PAPER, "--widths", "9" * 30], [*PLACE, "--memory", "nan"],
        [*PLACE, "--memory", "inf"], [*PLACE, "--run=-1"], [*PLACE, "--trials=-1"], [*PARTITION, "--memory", "inf"],
    ],
    ids=lambda words: "=".join(words[-2:]),
)  # fmt: skip
def test_numbers_out_of_bounds(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    option = next(word.split("=")[0] for word in reversed(arguments) if word.startswith("--"))
    assert f"argument {option}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(PLACE, "--plot"), (PLACE, "--dot"), (PLACE, "--profile"), (PARTITION, "--plot"), (PARTITION, "--save")],
)
def test_files_that_cannot_be_written(
    arguments: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, fact in ((tmp_path / "none" / "x.svg", "there is no folder"), (tmp_path, "is a folder, and a file is")):
        assert main([*arguments, option, str(path)]) == 1
        said = capsys.readouterr()
        assert fact in said.err and "cure: " in said.err and not said.out


def test_a_picture_of_a_plan_in_no_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PARTITION, "--plot", "plan.txt"]) == 1
    assert "plan.txt is no picture" in capsys.readouterr().err
