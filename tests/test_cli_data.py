"""``vgraph train`` on every kind of data, on modules of the user's own, and the help of each model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from vgraph.cli import main
from vgraph.cli.metrics import roc_auc

SMALL = ["--hidden", "4", "--epochs", "1", "--threads", "1"]
TREES = ["--embedding", "3", "--batch-size", "20"]
SENTENCE = "# {}\n1\tdogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\t{}\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
DEPENDENCIES = "".join(SENTENCE.format(f"label = {name}", verb) for name, verb in [("calm", "sleep"), ("loud", "bark")])
CELL = '{{"nodes": ["in", "{0}", "{0}"], "edges": [[0, 1], [0, 2]], "label": "{0}"}}\n'
OWN = """
import torch
import vgraph
import vgraph.function as fn
from torch import nn


class OfNodes(nn.Module):
    def __init__(self, num_features, num_classes, depth=1, **others):
        super().__init__()
        self.out = nn.Linear(num_features, num_classes)

    def forward(self, graph, feat):
        with graph.local_scope():
            graph.ndata["h"] = self.out(feat)
            graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "h"))
            return graph.ndata["h"]


class OfTrees(nn.Module):
    def __init__(self, num_tokens, num_classes):
        super().__init__()
        self.votes = nn.Embedding(num_tokens, num_classes)

    def forward(self, trees):
        trees.ndata["h"] = self.votes(trees.ndata["token"])
        return vgraph.sum_nodes(trees, "h")


class Narrow(OfNodes):
    def forward(self, graph, feat):
        return super().forward(graph, feat)[:, :1]


class Deep(OfNodes):
    def __init__(self, num_features, num_layers):
        raise AssertionError


class OfPairs(nn.Module):
    def __init__(self, num_tokens):
        super().__init__()
        self.votes = nn.Embedding(num_tokens, 1)

    def forward(self, left, right):
        return (self.read(left) - self.read(right)).squeeze(1)

    def read(self, trees):
        trees.ndata["h"] = self.votes(trees.ndata["token"])
        return vgraph.sum_nodes(trees, "h")


class Fixed(nn.Module):
    pass


def nothing(num_classes):
    return num_classes
"""


def related(count: int) -> dict[str, str]:
    """Pairs of sentences: 5 if their verbs are the same, else 1."""
    verbs = [("bark", "sleep")[number % 2] for number in range(count)]
    same = [number // 3 % 2 for number in range(count)]
    others = [verb if is_same else "run" for verb, is_same in zip(verbs, same, strict=True)]
    texts = {
        "a.toks": [f"dogs {verb}" for verb in verbs],
        "b.toks": [f"cats {verb}" for verb in others],
        "sim.txt": [str(1 + 4 * is_same) for is_same in same],
        **{f"{side}.parents": ["2 0"] * count for side in "ab"},
    }
    return {name: "\n".join(lines) + "\n" for name, lines in texts.items()}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files of every kind, in which commands run."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "l.tsv": "9\t[MAX 2 9 ]\n4\t[MIN 4 7 ]\n" * 10,
        "s.conllu": DEPENDENCIES * 10,
        "d.json": (CELL.format("conv") + CELL.format("pool")) * 10,
        "t.txt": "(1 (0 a) (1 b))\n(0 a)\n" * 10,
        "own_models.py": OWN,
        "bank/x-ud-train.conllu": DEPENDENCIES,
        "bank/x-ud-dev.conllu": DEPENDENCIES.replace("bark", "growl"),
        "bank/x-ud-test.conllu": DEPENDENCIES,
        **{f"pairs/{name}": text for name, text in related(40).items()},
        **{f"sick/{part}/{name}": text for part in ("train", "dev", "test") for name, text in related(20).items()},
        "musae/x_edges.csv": "a,b\n" + "".join(f"{i},{i + 1}\n" for i in range(39)),
        "musae/x_target.csv": "id,kind\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(40)),
        "musae/x_features.json": "{" + ",".join(f'"{i}": [{i % 2}]' for i in range(40)) + "}",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    masks = {f"{part}_masks": np.ones((1, 4), bool) for part in ("train", "val", "test")}
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    np.savez(tmp_path / "h.npz", node_features=np.eye(4), node_labels=np.array([0, 1, 0, 1]), edges=edges, **masks)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["tree-lstm", "--data", "l.tsv", *TREES], "child-sum Tree-LSTM, l.tsv: ListOps, of each ten 8 to train"),
        (["tree-lstm", "--data", "s.conllu", *TREES], "s.conllu: dependency trees (CoNLL-U), of each ten"),
        (["tree-lstm", "--data", "bank", *TREES], "bank: dependency trees (CoNLL-U)"),
        (["tree-lstm", "--data", "d.json", *TREES], "d.json: DAGs"),
        (["tree-lstm", "--data", "t.txt", *TREES], "binary Tree-LSTM, t.txt: bracketed trees"),
        (["gcn", "--data", "h.npz"], "h.npz: a heterophilous graph"),
        (["--data", "h.npz", "gat"], "h.npz: a heterophilous graph"),
        (["gcn", "--data", "musae", "--label", "kind"], "musae: a network of MUSAE"),
        (["gcn", "--data", "h.npz", "--embedding", "3"], "gcn has no --embedding: it is left out"),
        (["--model", "own_models.py:OfNodes", "--data", "h.npz"], "own_models.py:OfNodes, h.npz: a heterophilous"),
        (["--model", "own_models.py:OfTrees", "--data", "s.conllu"], "own_models.py:OfTrees, s.conllu: dependency"),
        (["--model", "own_models.py:OfPairs", "--data", "pairs"], "own_models.py:OfPairs, pairs: pairs of sentences"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_kind_is_trained(arguments: list[str], kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *arguments, *SMALL]) == 0
    said = capsys.readouterr().out
    last = said.splitlines()[-1]
    assert kind in said and ("test accuracy" in last or "test Pearson's r" in last)


@pytest.mark.parametrize("data", ["sick", "pairs"])
def test_relatedness_is_learnt(data: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epochs", "12", "--lr", "0.03", "--hidden", "8", "--batch-size", "10", "--log", "log.json"]
    assert main(["train", "tree-lstm", "--data", data, *options, "--threads", "1"]) == 0
    said, log = capsys.readouterr().out, json.loads(Path("log.json").read_text())
    assert "measured_by Pearson's r" in said and ", test MSE " in said.splitlines()[-1]
    first, summary = log["epochs"][0], log["summary"]
    assert summary["test"] > 0.95 and summary["beside"]["MSE"] < 0.5 < first["test_mse"]


def test_two_classes_are_measured_by_roc_auc(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "gcn", "--data", "h.npz", *SMALL, "--log", "log.json"]) == 0
    said, (entry,) = capsys.readouterr().out, json.loads(Path("log.json").read_text())["epochs"]
    assert f"test ROC AUC {entry['test']:.2f} %" in said and f", test accuracy {entry['test_accuracy']:.2f} %" in said
    (place / "two.json").write_text(CELL.format("conv") * 10 + CELL.format("pool") * 10)
    assert main(["train", "tree-lstm", "--data", "two.json", *TREES, *SMALL]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.index("test accuracy") < last.index(", test ROC AUC")


def test_roc_auc_counts_pairs_and_ties_by_half() -> None:
    label, score = torch.randint(0, 2, (40,)), torch.randint(0, 6, (40,)).double()
    one, zero = (score[label == kind] for kind in (1, 0))
    difference = one.unsqueeze(1) - zero
    wanted = ((difference > 0).double() + (difference == 0).double() / 2).mean() * 100
    assert roc_auc(torch.stack([-score, score], 1), label) == pytest.approx(float(wanted))


def test_own_models_resume(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--model", "own_models.py:OfNodes", "--data", "h.npz", "--checkpoint", "kept.pt"]
    assert main([*command, *SMALL]) == 0
    assert main([*command, *SMALL, "--epochs", "2", "--resume"]) == 0
    other = [word.replace("OfNodes", "Narrow") for word in command]
    assert main([*other, *SMALL, "--resume"]) == 1
    assert "it has model=own_models.py:OfNodes, this one model=own_models.py:Narrow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["gcn", "--data", "l.tsv"], "gcn takes one graph with labels of nodes, and this is ListOps"),
        (["tree-lstm", "--data", "h.npz"], "tree-lstm takes trees and DAGs with a label each, and this is a hetero"),
        (["tree-lstm", "--data", "own_models.py"], "cannot read the data file"),
        (["tree-lstm", "--data", "g.mtx"], "it is a matrix, with no labels that a command could learn"),
        (["tree-lstm", "--data", "e.txt"], "it is text that begins with no bracket"),
        (["tree-lstm", "--data", "u.json"], "graph 0, counted from 0, has no label"),
        (["tree-lstm", "--data", "few.tsv"], "there are no trees for val"),
        (["tree-lstm", "--data", "s.conllu", "--label", "tone"], "the sentence has no comment '# tone = ...'"),
        (["tree-lstm", "--data", "l.tsv", "--label", "tone"], "--label tone names a comment of CoNLL-U"),
        (["tree-lstm", "--data", "far"], "6 is not from 1 to 5, as relatedness in SICK is\n  at far/sim.txt:3"),
        (["tree-lstm", "--data", "torn"], "'x' is not a similarity\n  at torn/sim.txt:2"),
        (["gcn", "--data", "pairs"], "gcn takes one graph with labels of nodes, and this is pairs of sentences"),
        (["tree-lstm", "--data", "lone"], "there are no pairs for val"),
        (["--model", "own_models.py:OfTrees", "--data", "pairs"], "asks for 'num_classes', which the data do not"),
        (["--model", "own_models.py:OfNodes"], "own_models.py:OfNodes needs data"),
        (["--model", "own_models.py:Narrow", "--data", "h.npz"], "gives (4, 1) where logits of shape (4, 2) are"),
        (["--model", "own_models.py:Deep", "--data", "h.npz"], "asks for 'num_layers', which the data do not say"),
        (["--model", "own_models.py:Fixed", "--data", "h.npz"], "has no parameters to train"),
        (["--model", "own_models.py:nothing", "--data", "h.npz"], "gives a int"),
        (["--model", "own_models.py:Absent", "--data", "h.npz"], "own_models.py has no class 'Absent'"),
        (["--model", "absent.py:Net", "--data", "h.npz"], "there is no file absent.py\n  cure: name file.py:class"),
        (["--model", "own_models.py", "--data", "h.npz"], "'own_models.py' names no class"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_is_told(
    arguments: list[str], fact: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "e.txt").write_text("0 1\n")
    (place / "u.json").write_text('{"nodes": ["a"], "edges": []}\n')
    (place / "few.tsv").write_text("1\t1\n")
    for folder, scores in {"far": ["1", "5", "6"] * 4, "torn": ["1", "x"], "lone": ["1", "2", "3"]}.items():
        (place / folder).mkdir()
        for name, text in {**related(len(scores)), "sim.txt": "\n".join(scores) + "\n"}.items():
            (place / folder / name).write_text(text)
    assert main(["train", *arguments]) == 1
    said = capsys.readouterr().err
    assert fact in said and "cure: " in said


@pytest.mark.parametrize(
    ("model", "shown", "hidden"),
    [
        ("tree-lstm", ["--embedding", "(default 100; 200 for bracketed trees)", ".tsv: ListOps"], "MUSAE:"),
        ("gcn", ["(default 200)", "heterophilous", "MUSAE"], "--embedding"),
        ("gat", ["(default 300)", "heterophilous", "MUSAE"], "--batch-size"),
    ],
)
def test_the_help_of_a_model(model: str, shown: list[str], hidden: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(["train", model, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert info.value.code == 0 and hidden not in said
    assert all(words in said for words in shown)


@pytest.mark.parametrize("arguments", [[], ["gcn", "--model", "x.py:Net"], ["--model", "x.py:Net", "gcn"]], ids=str)
def test_one_model_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(["train", *arguments])
    said = capsys.readouterr().err
    assert info.value.code == 2 and "usage: vgraph" in said
