"""What a plan prints, draws, simulates; memory limits; the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import vgraph
from benchmarks.partitioning.sensitivity import sensitivity
from tests.partition.test_search import Heads, Perceptron
from vgraph.api.dense.parallel import Plan
from vgraph.api.dense.plan_hints import undivided
from vgraph.cli import main
from vgraph.errors import ModelError, NameLookupError
from vgraph.partition.accounting.machines import MACHINES


def plan_of(model: nn.Module, *inputs: torch.Tensor, workers: int = 4) -> Plan:
    return vgraph.parallelize(model, inputs, workers, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def test_print_names_modules_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(Heads(), torch.zeros(8, 16, 64))
    plan.print()
    text = capsys.readouterr().out
    named = ("data parallel would move", "FSDP, ZeRO-3 would move", "Megatron would move")
    for word in (
        "4 workers",
        "communication:",
        "under way while workers compute:",
        "memory a worker:",
        "up",
        "down",
        "mm ",
        *named,
    ):
        assert word in text
    assert plan.search_seconds > 0
    whole = 4 * 3 * sum(p.numel() for p in Heads().parameters())
    assert plan.memory_per_worker > whole / 4


def test_what_to_pad_and_what_is_not_divided_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(1027, 8), nn.Linear(8, 8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.special.erfcx(self.head(self.words(ids))).square().mean()

    with torch.device("meta"):
        model, ids = Odd(), torch.zeros(512, 4, dtype=torch.long)
    vgraph.parallelize(model, (ids,), 8).print()
    text = capsys.readouterr().out
    assert "words.weight: 8 workers do not divide 1027; pad it to 1032, and it can be cut there" in text
    assert "fair shares; memory_limit= asks for a plan that holds less" in text
    told = [line for line in text.splitlines() if "special_erfcx in the model takes" in line]
    assert len(told) == 1
    assert told[0].endswith("shares too many: no index notation describes it, vgraph.tdl takes one")
    plan_of(Heads(), torch.zeros(8, 16, 64)).print()
    assert "fair shares" not in capsys.readouterr().out


def test_picture(tmp_path: Path) -> None:
    plan = plan_of(Heads(), torch.zeros(8, 16, 64))
    for name in ("tiles.png", "tiles.svg"):
        plan.save_plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    assert (
        "worker 3" in (tmp_path / "tiles.svg").read_text() or (tmp_path / "tiles.svg").read_text().count("<path") > 50
    )


def test_the_names_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What programs written for plans use, as they write it."""
    model, inputs = Perceptron((16, 32, 8)), (torch.randn(8, 16), torch.randn(8, 8))
    before = [p.detach().clone() for p in model.parameters()]
    plan = vgraph.parallelize(model, inputs, num_workers=4)
    assert plan.communicated_bytes == sum(exchange.num_bytes for exchange in plan.parts.exchanges) > 0
    assert plan.search_seconds > 0
    assert plan.memory_per_worker > 0
    plan.print()
    assert "4 workers" in capsys.readouterr().out
    plan.save_plot(tmp_path / "tiles.svg")
    plan.save(tmp_path / "plan.json")
    plan.load(tmp_path / "plan.json")
    assert plan.simulate("nvlink").seconds > 0
    found = plan.run_in_process(*inputs)
    loss = model(*inputs)
    loss.backward()
    torch.testing.assert_close(found.loss, loss.detach())
    for grad, parameter, parameter_after, start in zip(
        found.grads, model.parameters(), found.parameters, before, strict=True
    ):
        assert grad is not None
        assert parameter.grad is not None
        torch.testing.assert_close(grad, parameter.grad)
        assert torch.equal(parameter_after, start)  # without optimizer= nothing is updated
        assert torch.equal(parameter.detach(), start)
    updating = vgraph.parallelize(model, inputs, 2, optimizer=lambda p: torch.optim.SGD(p, lr=0.5))
    after = updating.run_in_process(*inputs)
    for changed, grad, start in zip(after.parameters, found.grads, before, strict=True):
        assert grad is not None
        torch.testing.assert_close(changed, start - 0.5 * grad)
    with torch.device("meta"):
        hollow = Perceptron((16, 32, 8))
    filled = vgraph.parallelize(hollow, inputs, 2, init=lambda name, p: p.copy_(model.state_dict()[name]))
    torch.testing.assert_close(filled.run_in_process(*inputs).loss, loss.detach())


def test_simulation_grows_with_what_it_should() -> None:
    plan = plan_of(Perceptron((512, 2048, 512)), torch.zeros(64, 512), torch.zeros(64, 512), workers=8)
    found = {name: plan.simulate(name) for name in MACHINES}
    assert found["nvlink"].seconds < found["paper"].seconds
    assert found["nvlink"].seconds == found["hosts"].seconds  # eight workers are one host
    assert MACHINES["hosts"].link(16).bandwidth < MACHINES["hosts"].link(8).bandwidth
    assert all(f.fits and 0 <= f.communication_share < 1 for f in found.values())
    changed = sensitivity(plan.book, MACHINES["paper"])
    assert changed["links twice"] <= changed["as described"] <= changed["links half"]
    assert changed["flops twice"] <= changed["as described"] <= changed["flops half"]


def test_unknown_machine() -> None:
    plan = plan_of(Perceptron((8, 8)), torch.zeros(8, 8), torch.zeros(8, 8), workers=2)
    with pytest.raises(NameLookupError, match="no machine is called 'abacus'"):
        plan.simulate("abacus")


def test_memory_limit() -> None:
    model, inputs = Perceptron((64, 64, 64)), (torch.zeros(8, 64), torch.zeros(8, 64))
    plan = vgraph.parallelize(model, inputs, 4)
    roomy = vgraph.parallelize(model, inputs, 4, memory_limit=2 * plan.memory_per_worker)
    assert roomy.memory_per_worker <= 2 * plan.memory_per_worker
    with pytest.raises(ModelError, match="more than the limit"):
        vgraph.parallelize(model, inputs, 4, memory_limit=1000)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x).square().mean()\n"
        "def make():\n"
        "    return Net(), (torch.zeros(8, 64),)\n"
    )
    arguments = ["partition", f"{source}:make", "--workers", "2", "--optimizer", "adam"]
    assert main([*arguments, "--plot", str(tmp_path / "t.png"), "--save", str(tmp_path / "plan.json")]) == 0
    assert "simulated on" in capsys.readouterr().out
    assert (tmp_path / "t.png").exists()
    assert (tmp_path / "plan.json").exists()
    assert main([*arguments, "--memory", "0.000001"]) == 1


def test_why_a_dim_is_not_cut_is_told() -> None:
    """Lengths that workers do not divide; what divides is not said to lack that, but to be needed whole."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.linear(x)
            longer = nn.functional.pad(made, (0, 1, 0, 1)).tanh()
            return made.flatten().cumsum(0).square().mean() + longer.square().mean()

    plan = vgraph.parallelize(Whole(), (torch.randn(16, 16),), 4)
    told = {line.split()[0]: line for line in undivided(plan.book, 1.0, most=100)}
    assert told["tanh"].endswith("4 workers do not divide a dim of length 17, make one a multiple of 4")
    assert told["cumsum"].endswith("each entry of its results depends on all of every dim of more than one")
