"""Placements of models: what runs on the devices is what the model computes; bad input is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.errors import DataError, DeviceMemoryError, GraphError, ModelError, PlacementError
from vgraph.partition.placement.dot import parse_dot
from vgraph.partition.placement.profile import Profile

CPUS = ["cpu", "cpu"]


def branch(width: int, depth: int = 2) -> nn.Sequential:
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())])


class TwoBranches(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.left, self.right = branch(width), branch(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x)


class Loss(nn.Module):
    """A convolution, BatchNorm, dropout and two branches down to a scalar."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.up, self.down = nn.Conv2d(6, 4, 1), nn.Conv2d(6, 4, 3, padding=1)
        self.out, self.drop = nn.Linear(8, 5), nn.Dropout(dropout)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.conv(images)))
        h = torch.cat([self.up(h), self.down(h)], 1).mean((2, 3))
        return nn.functional.cross_entropy(self.out(self.drop(h)), labels)


def forced(model: nn.Module, inputs: Any, devices: list[str] = CPUS, **options: Any) -> vgraph.Placement:
    """A placement that uses all devices: each may hold only a part."""
    alone = vgraph.place(model, inputs, devices[:1], repeats=1, trials=0)
    limit = int(alone.peak_memory[0] * 0.8)
    return vgraph.place(model, inputs, devices, repeats=1, trials=200, memory=limit, **options)


def test_forward_runs_on_two_devices() -> None:
    model, x = TwoBranches().double(), torch.randn(7, 48, dtype=torch.float64)
    placement = forced(model, x)
    assert set(placement.device_of.values()) == {0, 1}
    with torch.no_grad():
        torch.testing.assert_close(placement.run(x), model(x))
        other = torch.randn_like(x)
        torch.testing.assert_close(placement.run(other), model(other))


def test_parameters_are_read_at_every_run() -> None:
    model, x = TwoBranches(), torch.randn(7, 48)
    placement = forced(model, x)
    with torch.no_grad():
        model.left[0].weight.mul_(0.5)
        torch.testing.assert_close(placement.run(x), model(x))
        model.left[0].weight = nn.Parameter(torch.zeros(48, 48))
        torch.testing.assert_close(placement.run(x), model(x))


def test_training_equals_one_process() -> None:
    model = Loss().double()
    batch = (torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3]))
    reference = copy.deepcopy(model)
    placement = forced(model, batch)
    assert len(set(placement.device_of.values())) == 2
    ours, theirs = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        for run, owner, optimizer in ((placement.run, model, ours), (reference, reference, theirs)):
            optimizer.zero_grad()
            owner.last = run(*batch)
            (2 * owner.last).backward()
            optimizer.step()
        torch.testing.assert_close(model.last, reference.last, rtol=1e-9, atol=1e-12)
        for (name, a), b in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10, msg=name)


def test_gradients_are_let_go_when_backward_has_handed_them_out() -> None:
    """As what autograd saves: a loss that is kept keeps none, and has no second backward unless it is asked to."""
    model, batch = Loss(), (torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    for run in (model, vgraph.place(model, batch, ["cpu"], repeats=1, trials=0).run):
        loss = run(*batch)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


class Sequences(nn.Module):
    """Ids through an embedding, an LSTM and attention down to a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True)
        self.attend, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 11)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.lstm(self.embed(ids))[0]
        h = h + self.attend(h, h, h, need_weights=False)[0]
        return nn.functional.cross_entropy(self.out(h[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def test_sequences_on_three_devices() -> None:
    model, ids = Sequences().double(), torch.randint(0, 11, (3, 5))
    reference = copy.deepcopy(model)
    placement = forced(model, ids, ["cpu"] * 3)
    assert len(set(placement.device_of.values())) > 1
    ours, theirs = placement.run(ids), reference(ids)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0.0)
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-12)


def test_three_unequal_devices() -> None:
    model, x = TwoBranches(), torch.randn(5, 48)
    placement = forced(model, (x,), ["cpu", "cpu*2", "cpu"])
    assert placement.profile.seconds.keys() == {"cpu", "cpu*2"}
    with torch.no_grad():
        torch.testing.assert_close(placement.run(x), model(x))


def test_dropout_draws_anew() -> None:
    model = Loss(dropout=0.5)
    batch = (torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    placement = vgraph.place(model, batch, CPUS, repeats=1, trials=10)
    torch.manual_seed(3)
    first, second = placement.run(*batch), placement.run(*batch)
    torch.manual_seed(3)
    assert placement.run(*batch) == first != second


def test_nested_outputs_keep_their_form() -> None:
    class Nested(nn.Module):
        def forward(self, x: Tensor, more: list[Tensor]) -> dict[str, Any]:
            return {"sum": x + more[0], "rest": [x * more[1], 3]}

    x = torch.randn(2)
    found = vgraph.place(Nested(), (x, [x, x]), ["cpu"], repeats=1).run(x, [x + 1, x])
    torch.testing.assert_close(found, {"sum": x + x + 1, "rest": [x * x, 3]})


def test_placements_of_evaluation_have_no_gradient() -> None:
    model = Loss()
    batch = (torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    placement = vgraph.place(model, batch, CPUS, repeats=1, trials=10)
    with torch.no_grad():
        assert not placement.run(*batch).requires_grad
    assert placement.run(*batch).requires_grad


def test_what_a_placement_says(tmp_path: Path) -> None:
    model, x = TwoBranches(), torch.randn(7, 48)
    placement = forced(model, x)
    assert placement.makespan > 0 and placement.one_device > 0
    assert len(placement.peak_memory) == 2 and all(isinstance(b, int) for b in placement.peak_memory)
    assert placement.device_of["parameter:left.0.weight"] in (0, 1)
    assert "left.0/addmm" in placement.device_of
    assert "on 2 devices" in str(placement) and "cpu #1: " in str(placement)
    placement.save_plot(tmp_path / "placement.svg")
    assert "<svg" in (tmp_path / "placement.svg").read_text()
    placement.save_dot(tmp_path / "placement.dot")
    assert parse_dot((tmp_path / "placement.dot").read_text()).num_ops == placement.graph.num_ops
    with pytest.raises(PlacementError, match=r"'.xyz' is no picture that matplotlib writes"):
        placement.save_plot(tmp_path / "placement.xyz")


def test_a_graph_of_a_file_is_placed(tmp_path: Path) -> None:
    placement = forced(TwoBranches(), torch.randn(7, 48))
    placement.save_dot(tmp_path / "graph.dot")
    again = vgraph.place(tmp_path / "graph.dot", devices=CPUS, profile=placement.profile, trials=200)
    assert again.device_of.keys() == placement.device_of.keys()
    assert again.one_device == pytest.approx(placement.one_device)
    with pytest.raises(PlacementError, match="this placement cannot run: it is of a graph"):
        again.run(torch.randn(7, 48))
    with pytest.raises(GraphError, match="the graph has no seconds for V100-32GB: it was profiled on cpu"):
        vgraph.place(tmp_path / "graph.dot", devices="v100-pcie")


def test_changed_modes_are_refused() -> None:
    model = Loss()
    batch = (torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
    placement = vgraph.place(model, batch, ["cpu"], repeats=1)
    placement.run(*batch)
    model.eval()
    with pytest.raises(PlacementError, match="has changed between training and evaluation"):
        placement.run(*batch)


# ------------------------------------------------------------------ profiles
def test_profile_is_used_again(tmp_path: Path) -> None:
    model, x = TwoBranches(), torch.randn(7, 48)
    first = vgraph.place(model, x, CPUS, tmp_path / "profile.json", repeats=1)
    second = vgraph.place(model, x, CPUS, profile=tmp_path / "profile.json")
    third = vgraph.place(model, x, CPUS, profile=second.profile)
    kept = Profile.load(tmp_path / "profile.json")
    assert kept.seconds == first.profile.seconds and kept.links == first.profile.links != {}
    assert first.makespan == second.makespan == third.makespan


def test_profile_of_another_model() -> None:
    profile = vgraph.place(TwoBranches(), torch.randn(7, 48), ["cpu"], repeats=1).profile
    with pytest.raises(PlacementError, match=r"the profile is of another model: .*addmm") as caught:
        vgraph.place(TwoBranches(32), torch.randn(7, 32), ["cpu"], profile=profile)
    assert __file__ in str(caught.value)


def test_profile_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(DataError, match="is no profile of vgraph"):
        vgraph.place(TwoBranches(), torch.randn(7, 48), ["cpu"], profile=tmp_path / "profile.json")


# ------------------------------------------------------------------ simulated machines
def test_models_that_do_not_fit_are_estimated() -> None:
    with torch.device("meta"):
        model, x = TwoBranches(4096), torch.empty(512, 4096)
    placement = vgraph.place(model, x, "v100-nvlink")
    assert placement.makespan < 0.7 * placement.one_device
    assert len(placement.devices) == 4
    with pytest.raises(PlacementError, match="this placement cannot run: V100:0 is simulated"):
        placement.run(x)
    with pytest.raises(PlacementError, match="the model is on the meta device"):
        vgraph.place(model, x, CPUS).run(x)


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["tpu:0"], r"there is no device 'tpu:0'\n  at .*\n  cure: name cpu, "),
        (["cpu", "cpu*0"], r"there is no device 'cpu\*0'"),
        (["cuda:99"], r"there is no device 'cuda:99': .* visible to torch"),
        ([], "there is no device to place operators on"),
        (None, r"the devices are None\n  at .*\n  cure: name them"),
        (["cpu", 3], r"the devices are \['cpu', 3\]"),
    ],
)
def test_devices_that_do_not_exist(devices: Any, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        vgraph.place(TwoBranches(), torch.randn(7, 48), devices)


def test_too_little_memory() -> None:
    with pytest.raises(DeviceMemoryError, match=r"the parameters alone need .* and the devices hold .* are missing"):
        vgraph.place(TwoBranches(), torch.randn(7, 48), CPUS, memory=10_000, repeats=1)
    with pytest.raises(PlacementError, match="does not fit 2 devices"):
        vgraph.place(TwoBranches(), torch.randn(7, 48), CPUS, memory=[1, 2, 3])


def test_limits_are_kept() -> None:
    model, x = TwoBranches(), torch.randn(7, 48)
    limit = 30_000
    placement = vgraph.place(model, x, ["cpu"] * 3, memory=limit, repeats=1)
    assert max(placement.peak_memory) <= limit


def test_inputs_of_other_shapes() -> None:
    placement = vgraph.place(TwoBranches(), torch.randn(7, 48), ["cpu"], repeats=1)
    with pytest.raises(PlacementError, match=r"placed with inputs float32\[7, 48\], and is given float32\[8, 48\]"):
        placement.run(torch.randn(8, 48))


def test_models_that_cannot_be_captured() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError, match="Branching cannot be captured"):
        vgraph.place(Branching(), torch.randn(3), ["cpu"])

    class Mute(nn.Module):
        def forward(self, x: Tensor) -> None:
            return None

    with pytest.raises(ModelError, match="Mute returns no tensor"):
        vgraph.place(Mute(), torch.randn(3), ["cpu"])
