"""The command line: short trainings, stopped and resumed to the bit, and its errors."""

from __future__ import annotations

import json
import math
import random
import signal
from collections.abc import Callable
from email import __file__ as email_file
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vgraph.cli import checkpoint as checkpoints
from vgraph.cli import citations, main, report, training, trees
from vgraph.data import load_syntax

TREES = (
    "(3 (2 It) (4 (2 is) (4 good)))",
    "(1 (2 It) (1 (2 is) (0 bad)))",
    "(4 (4 (4 very) (4 good)) (2 film))",
    "(0 (0 (0 very) (0 bad)) (2 film))",
    "(2 film)",
)
SMALL = ["--hidden", "6", "--embedding", "5", "--batch-size", "4", "--threads", "1"]


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    folder = tmp_path / "sentences"
    folder.mkdir()
    for name, count in (("train", 11), ("dev", 5), ("test", 5)):
        lines = [random.choice(TREES) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Thirty papers of three topics; a topic's papers share two words and cite each other."""
    label = np.arange(30) % 3
    src = np.random.randint(0, 30, 200)
    dst = (src + 3 * np.random.randint(1, 10, 200)) % 30
    masks = {
        f"{name}_mask": np.isin(np.arange(30) // 6, k)
        for name, k in (("train", [0]), ("val", [1, 2]), ("test", [3, 4]))
    }
    np.savez(
        tmp_path / "papers.npz", label=label, src=src, dst=dst, **masks,
        feat_indptr=np.arange(0, 62, 2), feat_data=np.ones(60, np.float32),
        feat_indices=np.stack([2 * label, 2 * label + 1], 1).reshape(-1), feat_shape=[30, 6],
    )  # fmt: skip
    return tmp_path / "papers.npz"


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``stop_at(k)``: Ctrl-C comes within the k-th step from now; an error, if one is given."""

    def arrange(k: int, error: BaseException | None = None) -> None:
        done = [0]

        def descend(*args: Any) -> float:
            done[0] += 1
            if done[0] == k and error is None:
                signal.raise_signal(signal.SIGINT)
            if done[0] == k and error is not None:
                raise error
            return training.descend(*args)

        monkeypatch.setattr(trees, "descend", descend)
        monkeypatch.setattr(citations, "descend", descend)

    return arrange


def contents(path: Path) -> Any:
    stored = torch.load(path, weights_only=True)
    for entry in stored["progress"]["history"]:
        entry.pop("seconds")
    stored["progress"].pop("seconds")
    return stored


def assert_identical(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            assert_identical(a[name], b[name])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_identical(left, right)
    else:
        assert a == b


# ------------------------------------------------------------------ resume


@pytest.mark.parametrize("stops", [(1,), (3,), (4,), (9,), (2, 1, 4)], ids=str)
def test_resumed_trees_are_identical(
    sentences: Path, tmp_path: Path, stop_at: Callable[..., None], stops: tuple[int, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # 11 trees in batches of 4: three steps an epoch
    command = ["train", "tree-lstm", "--data", str(sentences), "--epochs", "3", *SMALL]
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    assert main([*command, "--checkpoint", str(whole)]) == 0
    resume: list[str] = []
    for stop in stops:
        stop_at(stop)
        assert main([*command, "--checkpoint", str(parts), *resume]) == 130
        assert f"{parts} holds everything up to here" in capsys.readouterr().out
        random.seed(5), np.random.seed(5), torch.manual_seed(5)  # another process starts elsewhere
        resume = ["--resume"]
    stop_at(-1)
    assert main([*command, "--checkpoint", str(parts), *resume]) == 0
    assert_identical(contents(parts), contents(whole))


@pytest.mark.parametrize(("model", "stop"), [("gcn", 1), ("gcn", 5), ("gcn", 8), ("gat", 3)])
def test_resumed_citations_are_identical(
    papers: Path, tmp_path: Path, stop_at: Callable[..., None], model: str, stop: int
) -> None:
    command = ["train", model, "--data", str(papers), "--epochs", "5", "--seeds", "2"]
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    assert main([*command, "--checkpoint", str(whole)]) == 0
    stop_at(stop)
    assert main([*command, "--checkpoint", str(parts)]) == 130
    assert main([*command, "--checkpoint", str(parts), "--resume"]) == 0
    assert_identical(contents(parts), contents(whole))


def test_after_a_crash(
    sentences: Path, tmp_path: Path, stop_at: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_SAVES", 0.0)
    command = ["train", "tree-lstm", "--data", str(sentences), "--epochs", "2", *SMALL]
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    assert main([*command, "--checkpoint", str(whole)]) == 0
    stop_at(5, MemoryError())
    with pytest.raises(MemoryError):
        main([*command, "--checkpoint", str(parts)])
    stop_at(-1)
    assert contents(parts)["progress"]["position"] == 4
    assert main([*command, "--checkpoint", str(parts), "--resume"]) == 0
    assert_identical(contents(parts), contents(whole))


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_training_that_diverges_ends_there(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """The file is from before it, and the parameters in it are finite."""
    monkeypatch.setattr(training, "SECONDS_BETWEEN_SAVES", 0.0)
    done = [0]

    def descend(model: Any, optimizer: Any, loss: torch.Tensor) -> float:
        done[0] += 1
        if done[0] == 3:
            zero = 0.0 * next(model.parameters()).sum()
            loss = loss * math.inf if what == "loss" else loss + zero.sqrt()
        return training.descend(model, optimizer, loss)

    monkeypatch.setattr(citations, "descend", descend)
    path = tmp_path / "kept.pt"
    assert main(["train", "gcn", "--data", str(papers), "--epochs", "5", "--checkpoint", str(path)]) == 1
    told = capsys.readouterr().err
    assert "in seed 0, epoch 3, step 1 of 1" in told and "smaller --lr" in told and str(path) in told
    assert "the loss is inf" in told if what == "loss" else "the norm of its gradient nan" in told
    stored = torch.load(path, weights_only=True)
    assert stored["progress"]["epoch"] == 1
    assert all(bool(torch.isfinite(tensor).all()) for tensor in stored["parts"]["model"].values())
    done[0] = 3  # the cause is mended
    assert main(["train", "gcn", "--data", str(papers), "--epochs", "5", "--checkpoint", str(path), "--resume"]) == 0


def test_more_epochs_may_follow(sentences: Path, tmp_path: Path) -> None:
    command = ["train", "tree-lstm", "--data", str(sentences), *SMALL]
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    assert main([*command, "--epochs", "3", "--checkpoint", str(whole)]) == 0
    assert main([*command, "--epochs", "1", "--checkpoint", str(parts)]) == 0
    assert main([*command, "--epochs", "3", "--checkpoint", str(parts), "--resume"]) == 0
    assert_identical(contents(parts), contents(whole))
    assert main([*command, "--epochs", "3", "--checkpoint", str(parts), "--resume"]) == 0
    assert_identical(contents(parts), contents(whole))


def test_a_stop_without_a_checkpoint(
    sentences: Path, stop_at: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(2)
    assert main(["train", "tree-lstm", "--data", str(sentences), "--epochs", "1", *SMALL]) == 130
    assert "without --checkpoint nothing is kept" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_stop_is_at_once(
    sentences: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def descend(*args: Any) -> float:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr(trees, "descend", descend)
    assert main(["train", "tree-lstm", "--data", str(sentences), *SMALL]) == 130
    assert "stopped at once" in capsys.readouterr().err


# ------------------------------------------------------------------ bad checkpoints


@pytest.fixture
def stored(sentences: Path, tmp_path: Path) -> tuple[list[str], Path]:
    path = tmp_path / "kept.pt"
    command = ["train", "tree-lstm", "--data", str(sentences), "--checkpoint", str(path), *SMALL]
    assert main([*command, "--epochs", "1"]) == 0
    return [*command, "--epochs", "2", "--resume"], path


def refused(command: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said; the file and the random states stay as they were."""
    before, states = path.read_bytes(), checkpoints.random_states()
    capsys.readouterr()
    assert main(command) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    if not any(fact in said for fact in ("other tensors", "optimizer is missing", "random states")):  # once it is built
        assert_identical(checkpoints.random_states(), states)
    assert "cure: " in said and str(path) in said
    return said


@pytest.mark.parametrize("damage", ["empty", "half", "text", "bit", "other", "part"])
def test_damaged_checkpoint(stored: tuple[list[str], Path], damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, path = stored
    whole = path.read_bytes()
    if damage == "bit":
        middle = whole.index(b"/data/1") + 200
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :])
    elif damage == "other":
        torch.save([1, 2], path)
    elif damage == "part":
        content = torch.load(path, weights_only=True)
        del content["progress"]
        torch.save(content, path)
    else:
        path.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "text": b"x\n"}[damage])
    said = refused(command, path, capsys)
    assert ("no checkpoint of vgraph" if damage == "other" else "damaged") in said


@pytest.mark.parametrize(
    ("names", "value", "told"),
    [
        (["format"], 99, "has format 99; this vgraph reads 1\n"),
        (["format"], torch.ones(2), "no checkpoint of vgraph"),
        (["identity", "hidden"], torch.ones(2), "damaged"),
        (["progress", "history"], [], "without any of 1 epochs"),
        (["random_states"], torch.ones(2), "the random states"),
        (["random_states", "python"], [], "the random states"),
    ],
)
def test_checkpoints_of_odd_values(
    names: list[str], value: object, told: str, stored: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command, path = stored
    content = torch.load(path, weights_only=True)
    inner = content
    for name in names[:-1]:
        inner = inner[name]
    inner[names[-1]] = value
    torch.save(content, path)
    assert told in refused(command, path, capsys)


def test_checkpoint_of_another_model(
    stored: tuple[list[str], Path], papers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, path = stored
    said = refused([*command, "--hidden", "7"], path, capsys)
    assert "it has hidden=6, this one hidden=7" in said
    assert "seed=0" in refused([*command, "--seed", "1"], path, capsys)
    gcn = ["train", "gcn", "--data", str(papers), "--checkpoint", str(path), "--resume"]
    assert "model=sentiment" in refused(gcn, path, capsys)


@pytest.mark.parametrize("what", ["shape", "name", "optimizer", "missing"])
def test_checkpoint_with_other_tensors(
    stored: tuple[list[str], Path], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, path = stored
    content = torch.load(path, weights_only=True)
    model, optimizer = content["parts"]["model"], content["parts"]["optimizer"]
    if what == "shape":
        model["out.bias"] = torch.zeros(3)
    elif what == "name":
        model["more"] = torch.zeros(3)
    elif what == "optimizer":
        optimizer["state"][0]["exp_avg"] = torch.zeros(2, 2)
    else:
        del content["parts"]["optimizer"]
    torch.save(content, path)
    said = refused(command, path, capsys)
    assert ("damaged" if what == "missing" else "other tensors") in said


def test_resume_and_checkpoint_go_together(
    stored: tuple[list[str], Path], sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, path = stored
    assert "written over" in refused([w for w in command if w != "--resume"], path, capsys)
    start = ["train", "tree-lstm", "--data", str(sentences)]
    assert main([*start, "--resume"]) == 1
    assert "add --checkpoint" in capsys.readouterr().err
    assert main([*start, "--resume", "--checkpoint", str(path.with_name("none.pt"))]) == 1
    assert "there is no such checkpoint" in capsys.readouterr().err


# ------------------------------------------------------------------ what it leaves behind


def test_log_and_curve(papers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, plot = tmp_path / "log.json", tmp_path / "curve.png"
    command = ["train", "gcn", "--data", str(papers), "--epochs", "30", "--seeds", "2"]
    assert main([*command, "--log", str(log), "--plot", str(plot), "--seed", "3"]) == 0
    found = json.loads(log.read_text())
    assert [(e["seed"], e["epoch"]) for e in found["epochs"]] == [
        (seed, epoch) for seed in (3, 4) for epoch in range(1, 31)
    ]
    assert found["summary"]["test"] > 90 and len(found["summary"]["best_epochs"]) == 2
    assert found["config"]["seeds"] == 2
    assert plot.read_bytes().startswith(b"\x89PNG")
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith(f"gcn: test accuracy {found['summary']['test']:.2f} % +- ")


def test_syntax_trees_and_baselines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(email_file).parent.parent / "asyncio"
    small = lambda **_: load_syntax(folder=folder, num_classes=3, max_vertices=40, cache=False)  # noqa: E731
    monkeypatch.setattr(trees, "load_syntax", small)
    assert main(["train", "tree-lstm", "--epochs", "2", *SMALL]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-3].startswith("majority class (")
    assert lines[-2].startswith("bag of tokens, logistic regression (")
    assert lines[-1].startswith("tree-lstm: test accuracy ")
    assert sum(line.startswith("epoch ") for line in lines) == 2


def test_seeds_differ(sentences: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    command = ["train", "tree-lstm", "--data", str(sentences), *SMALL, "--epochs", "1"]
    assert main([*command, "--seeds", "2", "--log", str(log)]) == 0
    first, second = json.loads(log.read_text())["epochs"]
    assert first["loss"] != second["loss"]


@pytest.mark.parametrize(("model", "epochs"), [("gcn", 120), ("gat", 40)])
def test_cora(data_dir: Path, tmp_path: Path, model: str, epochs: int) -> None:
    log, cora = tmp_path / "log.json", data_dir / "planetoid" / "cora.npz"
    assert main(["train", model, "--data", str(cora), "--log", str(log), "--epochs", str(epochs)]) == 0
    assert json.loads(log.read_text())["summary"]["test"] > 78


@pytest.mark.parametrize("model", ["tree-lstm", "binary-tree-lstm", "gcn", "gat"])
def test_explain(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "drawn.svg"
    assert main(["explain", model, "--picture", str(drawn)]) == 0
    said = capsys.readouterr().out
    assert "captured; forward" in said and "; backward" in said
    assert "backward" in drawn.read_text(encoding="utf-8")


def test_a_picture_that_is_not_svg(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gcn", "--picture", str(tmp_path / "drawn.png")]) == 1
    assert "drawn.png" in capsys.readouterr().err and not list(tmp_path.iterdir())


# ------------------------------------------------------------------ bad arguments and data


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "gcn"], "gcn needs a graph"),
        (["train", "gat"], "gat needs a graph"),
        (["train", "gcn", "--data", "none.npz"], "none.npz"),
        (["train", "tree-lstm", "--data", "none"], "none"),
        (["train", "gcn", "--data", "x.npz", "--log", "none/log.json"], "there is no folder none"),
        (["train", "gcn", "--data", "x.npz", "--log", "/"], "/ is a folder, and a file is to be written"),
        (["train", "gcn", "--data", "x.npz", "--plot", "curve.xyz"], "curve.xyz is no picture"),
    ],
    ids=["no data", "no data for attention", "no file", "no folder", "no place for the log", "folder", "no picture"],
)
def test_errors_are_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("vgraph: ") and words in said and "cure: " in said


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["train"], ["train", "cnn"], ["explain", "cnn"], ["train", "gcn", "--epochs", "0"],
        ["train", "gcn", "--lr", "0"], ["train", "gcn", "--dropout", "1"],
        ["train", "gcn", "--lr", "nan"], ["train", "gcn", "--hidden", "x"], ["train", "gcn", "--seed", "9" * 20],
        ["train", "gcn", "--threads", "99999999"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2
    assert "usage: vgraph" in capsys.readouterr().err


def test_empty_data(sentences: Path, papers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sentences / "dev.txt").write_text("\n")
    assert main(["train", "tree-lstm", "--data", str(sentences)]) == 1
    assert "there are no trees for val" in capsys.readouterr().err
    arrays = dict(np.load(papers))
    np.savez(papers, **{**arrays, "val_mask": np.zeros(30, bool)})
    assert main(["train", "gcn", "--data", str(papers)]) == 1
    assert "val_mask marks no vertex" in capsys.readouterr().err


def test_no_matplotlib(papers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    assert main(["train", "gcn", "--data", str(papers), "--plot", "x.png"]) == 1
    assert "vgraph[plot]" in capsys.readouterr().err


def test_a_log_of_a_training_that_diverged_is_json(tmp_path: Path) -> None:
    history = [{"seed": 0, "epoch": 1, "loss": math.nan, "val": 50.0, "test": 50.0, "val_loss": math.inf}]
    report.write_log(tmp_path / "log.json", {}, history)
    (entry,) = json.loads((tmp_path / "log.json").read_text(), parse_constant=pytest.fail)["epochs"]
    assert entry["loss"] is None and entry["val_loss"] is None and entry["val"] == 50
