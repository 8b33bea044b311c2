"""parallelize: workers together compute what one process computes, in process and with processes."""

from __future__ import annotations

import copy
import json
import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import vgraph
from tests.partition.small_models import Cast, model_and_batch
from tests.tables import table

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def one_process(
    model: nn.Module, batch: tuple[Tensor, ...], make: Callable[[Any], torch.optim.Optimizer] | None, steps: int = 1
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    model = copy.deepcopy(model)
    optimizer = make(model.parameters()) if make else None
    loss = torch.zeros(())
    for _ in range(steps):
        model.zero_grad()
        loss = model(*batch)
        loss.backward()
        if optimizer:
            optimizer.step()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return loss.detach(), grads, [p.detach() for p in model.parameters()]


def close(found: Any, wanted: Any) -> bool:
    """Whether tensors agree to nine places; what does not is told."""
    torch.testing.assert_close(list(found), list(wanted), rtol=1e-9, atol=1e-9)
    return True


@pytest.mark.parametrize(
    ("trained", "workers"), table([("attention", "adam"), ("wresnet", "sgd"), ("lstm", "adagrad")], [2, 4, 8])
)
def test_in_process(trained: tuple[str, str], workers: int) -> None:
    name, make = trained
    model, batch = model_and_batch(name)
    model = _without_dropout(model)
    before = copy.deepcopy(model.state_dict())
    plan = vgraph.parallelize(model, batch, workers, optimizer=OPTIMIZERS[make])
    found = plan.run_in_process(*batch)
    again = plan.run_in_process(*batch, state=found.state)
    for result, steps in ((found, 1), (again, 2)):
        loss, grads, parameters = one_process(model, batch, OPTIMIZERS[make], steps)
        assert close([result.loss], [loss])
        assert close([g for g in result.grads if g is not None], grads)
        assert close(result.parameters, parameters)
    assert plan.communicated_bytes == sum(e.num_bytes for e in plan.parts.exchanges)
    assert plan.communicated_bytes > 0
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])


def test_one_worker_sends_nothing() -> None:
    model, batch = model_and_batch("block")
    plan = vgraph.parallelize(model, batch, 1)
    loss, grads, _ = one_process(model, batch, None)
    found = plan.run_in_process(*batch)
    assert close([found.loss, *found.grads], [loss, *grads])
    assert plan.communicated_bytes == 0


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def test_dropout_does_not_depend_on_the_number_of_workers() -> None:
    model, batch = model_and_batch("attention")
    losses = [vgraph.parallelize(model, batch, n).run_in_process(*batch, seed=3).loss for n in (1, 2, 4)]
    assert close(losses[1:], losses[:1] * 2)
    other = vgraph.parallelize(model, batch, 2).run_in_process(*batch, seed=4).loss
    assert not torch.equal(losses[0], other)


def test_random_numbers_of_a_tensor_of_probabilities() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return (torch.bernoulli(y.sigmoid()) * y).square().mean()

    model, x = Noisy(16, 4).double(), torch.randn(8, 16, dtype=torch.float64)
    one, two, four = (vgraph.parallelize(model, (x,), n).run_in_process(x, seed=3) for n in (1, 2, 4))
    assert close([two.loss, *two.grads], [one.loss, *one.grads])
    assert close([four.loss, *four.grads], [one.loss, *one.grads])


@pytest.mark.parametrize("register", [Tensor.register_hook, Tensor.register_post_accumulate_grad_hook])
def test_a_hook_of_a_parameter_is_refused(register: Callable[[Tensor, Any], Any]) -> None:
    model, batch = model_and_batch("mlp")
    handle = register(model.second.weight, lambda given: None)
    with pytest.raises(vgraph.VGraphError, match=r"second\.weight has a hook(.|\n)*register it after plan.as_dtensor"):
        vgraph.parallelize(model, batch, 2)
    handle.remove()
    vgraph.parallelize(model, batch, 2)


class Checkpointed(nn.Module):
    """Two layers with dropout between, which a checkpoint may run again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.is_kept = nn.Linear(16, 32), nn.Linear(32, 16), True

    def body(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.dropout(torch.tanh(self.up(x)), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x) if self.is_kept else checkpoint(self.body, x, use_reentrant=False)
        return nn.functional.dropout(h, 0.5).square().mean()


def test_a_checkpoint_draws_what_its_forward_drew() -> None:
    model, x = Checkpointed().double(), torch.randn(8, 16, dtype=torch.float64)
    before, found = torch.get_rng_state(), []
    for model.is_kept in (True, False):
        plan = vgraph.parallelize(model, (x,), 2)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(plan.run_in_process(x, seed=3))
    assert close([found[1].loss, *found[1].grads], [found[0].loss, *found[0].grads])


def test_a_model_that_seeds_torchs_generator_is_refused() -> None:
    class Seeded(Checkpointed):
        def forward(self, x: Tensor) -> Tensor:
            torch.manual_seed(0)
            return super().forward(x)

    with pytest.raises(vgraph.VGraphError, match=r"generator is seeded before it draws(.|\n)*test_parallel(.|\n)*draw"):
        vgraph.parallelize(Seeded(), (torch.randn(8, 16),), 2)


def test_bf16_autocast_is_divided_as_it_is_captured() -> None:
    model, batch = model_and_batch("mlp")
    cast, batch = Cast(model.float()), tuple(x.float() for x in batch)
    plan = vgraph.parallelize(cast, batch, 2)
    assert any(v.dtype == torch.bfloat16 for op in plan.step.ops for v in op.results)
    found, (loss, grads, _) = plan.run_in_process(*batch), one_process(cast, batch, None)
    torch.testing.assert_close(found.loss, loss, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(list(found.grads), grads, rtol=5e-2, atol=5e-2)


def groups(parameters: Any) -> torch.optim.Optimizer:
    """Matrices at one rate, everything else at another, decayed; and one group that stands still."""
    last, *rest = list(parameters)[::-1]
    heavy = [p for p in rest if p.dim() > 1]
    light = [p for p in rest if p.dim() <= 1]
    return torch.optim.Adam(
        [{"params": heavy}, {"params": light, "lr": 0.003, "weight_decay": 0.1}, {"params": [last], "lr": 0.0}], lr=0.01
    )


def layer_by_layer(parameters: Any) -> torch.optim.Optimizer:
    """The last parameter has the full rate, each before it nine tenths of the next one's."""
    backwards = enumerate(list(parameters)[::-1])
    return torch.optim.SGD([{"params": [p], "lr": 0.1 * 0.9**i} for i, p in backwards][::-1])


def without_empty_groups(parameters: Any) -> torch.optim.Optimizer:
    parameters = list(parameters)
    vectors = {"params": [p for p in parameters if p.dim() == 1], "lr": 0.001}
    matrices = {"params": [p for p in parameters if p.dim() > 1], "lr": 0.01}
    return torch.optim.Adam([group for group in (vectors, matrices) if group["params"]])


def rates_in_tensors(parameters: Any) -> torch.optim.Optimizer:
    rates = torch.tensor([0.01, 0.02, 0.03, 0.04], dtype=torch.float64)
    return torch.optim.Adam([{"params": [p], "lr": rate} for p, rate in zip(parameters, rates, strict=False)])


def groups_of_steps(parameters: Any) -> torch.optim.Optimizer:
    """Of Rprop each group's rate is what its state begins with."""
    return torch.optim.Rprop([{"params": [p], "lr": 0.01 * (i + 1)} for i, p in enumerate(parameters)])


def vectors_alone(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for p in parameters if p.dim() == 1])


@pytest.mark.parametrize(
    "make", [layer_by_layer, without_empty_groups, rates_in_tensors, groups_of_steps, vectors_alone]
)
def test_rates_that_depend_on_which_parameters_there_are(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model, batch = model_and_batch("mlp")
    found = vgraph.parallelize(model, batch, 2, optimizer=make).run_in_process(*batch)
    _, _, parameters = one_process(model, batch, make)
    assert close(found.parameters, parameters)


@pytest.mark.parametrize(
    "make",
    [groups, torch.optim.NAdam, torch.optim.Adamax, lambda p: torch.optim.AdamW(p, amsgrad=True), torch.optim.Rprop],
)
def test_optimizers_whose_state_begins_otherwise(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """A product of decays that begins at one, maxima, groups with rates of their own."""
    model, batch = model_and_batch("mlp")
    plan = vgraph.parallelize(model, batch, 2, optimizer=make)
    found = plan.run_in_process(*batch)
    found = plan.run_in_process(*batch, state=found.state)
    loss, grads, parameters = one_process(model, batch, make, 2)
    assert close([found.loss], [loss])
    assert close(found.grads, grads)
    assert close(found.parameters, parameters)


@pytest.mark.parametrize("make", [torch.optim.RAdam, torch.optim.ASGD])
def test_an_update_that_looks_at_data_is_refused(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """In its first step, which makes state, or in the later one that is recorded."""
    model, batch = model_and_batch("mlp")
    fact = f"the update of {make.__name__} cannot be part of the step: .*looks at the data of a tensor"
    with pytest.raises(vgraph.VGraphError, match=fact) as caught:
        vgraph.parallelize(model, batch, 2, optimizer=make)
    assert "cure: leave optimizer= out" in str(caught.value)


class Averaging(torch.optim.SGD):
    """Keeps a mean of its parameters, which begins with what they are."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["mean"] = state["mean"].lerp(parameter.detach(), 0.5) if state else parameter.detach().clone()


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.5), Averaging])
def test_an_update_whose_first_step_is_another_is_refused(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model, batch = model_and_batch("mlp")
    with pytest.raises(vgraph.VGraphError, match=r"the first step of .* is another than its later ones") as caught:
        vgraph.parallelize(model, batch, 2, optimizer=make)
    assert "cure: leave dampening= out" in str(caught.value)


def test_a_rate_in_a_tensor_from_outside_is_refused() -> None:
    (model, batch), rate = model_and_batch("mlp"), torch.tensor(0.1)
    with pytest.raises(vgraph.VGraphError, match="optimizer= looks at the numbers of a tensor") as caught:
        vgraph.parallelize(model, batch, 2, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=rate))
    assert "lr=0.1" in str(caught.value)


def test_gradients_clipped_in_the_plan() -> None:
    class Clipped(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 0.05)
            super().step()

    model, batch = model_and_batch("mlp")
    plan = vgraph.parallelize(model, batch, 4, optimizer=OPTIMIZERS["sgd"], max_norm=0.05)
    found = plan.run_in_process(*batch)
    loss, grads, parameters = one_process(model, batch, lambda p: Clipped(p, lr=0.1, momentum=0.9))
    assert close([found.loss], [loss])
    assert close(found.grads, grads)
    assert close(found.parameters, parameters)
    assert torch.stack([g.norm() for g in grads]).norm() < 0.0501
    with pytest.raises(vgraph.VGraphError, match="the plan has none"):
        vgraph.parallelize(model, batch, 4, max_norm=0.05)


def test_the_rate_is_an_input() -> None:
    model, batch = model_and_batch("mlp")
    plan = vgraph.parallelize(model, batch, 4, optimizer=OPTIMIZERS["adam"])
    found = plan.run_in_process(*batch, lr=0.5)
    _, _, parameters = one_process(model, batch, lambda p: torch.optim.Adam(p, lr=0.5))
    assert close(found.parameters, parameters)


def test_a_plan_is_saved_and_loaded(tmp_path: Any) -> None:
    model, batch = model_and_batch("mlp")
    plan, path = vgraph.parallelize(model, batch, 2), tmp_path / "plan.json"
    plan.save(path)
    other = vgraph.parallelize(model, batch, 2).load(path)
    assert other.sharding == plan.sharding
    assert other.communicated_bytes == plan.communicated_bytes
    small, x = nn.Linear(8, 8), torch.randn(4, 8)

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small = small

        def forward(self, x: Tensor) -> Tensor:
            return self.small(x).sum()

    with pytest.raises(vgraph.VGraphError, match="saved for another model"):
        vgraph.parallelize(Other(), (x,), 2).load(path)
    path.write_text("no plan")
    with pytest.raises(vgraph.VGraphError, match="is not a saved plan"):
        plan.load(path)


def test_a_plan_whose_worker_runs_takes_over_no_other(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``worker()`` would go on by the plan before, beside ``run_in_process`` by the one that was loaded."""
    model, batch = model_and_batch("mlp")
    plan, path = vgraph.parallelize(model, batch, 2), tmp_path / "plan.json"
    plan.save(path)
    monkeypatch.setattr(plan, "launch", lambda *_, **__: object())
    before, worker = plan.sharding, plan.worker()
    with pytest.raises(vgraph.VGraphError, match="worker has been made, and goes on by the plan"):
        plan.load(path)
    assert plan.sharding is before and plan.worker() is worker


def test_a_loaded_plan_keeps_the_limit_of_memory(tmp_path: Any) -> None:
    model, batch = model_and_batch("attention")
    plan, path = vgraph.parallelize(model, batch, 4), tmp_path / "plan.json"
    plan.save(path)
    limited = vgraph.parallelize(model, batch, 4, memory_limit=0.999 * plan.memory_per_worker)
    before = limited.sharding
    with pytest.raises(vgraph.VGraphError, match=r"a worker needs .* bytes, .* more than the limit"):
        limited.load(path)
    assert limited.sharding is before
    limited.save(path)
    assert limited.load(path).sharding == before


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda plan: plan.update(axes=[2**20]), "it is for (1048576,) workers"),
        (lambda plan: plan.update(axes=[-2]), "it is for (-2,) workers"),
        (lambda plan: plan["strategies"].pop(), "strategies of"),
        (lambda plan: plan["strategies"][0][0].__setitem__(2, [["split", 7, 1]] * 9), "damaged plan"),
        (lambda plan: plan["placements"].update({"input 0": [["split", 9, 1]]}), "S9 among 2 workers"),
        (lambda plan: plan["placements"].update({"input 0": [["at", 2]]}), "@2 among 2 workers"),
        (lambda plan: plan["placements"].update({"input 0": [["partial", "xor"]]}), "first.weight is given whole"),
        (
            lambda plan: plan["placements"].update({"input 0": [["split", 0, 2**40]]}),
            "S0/1099511627776 among 2 workers",
        ),
        (lambda plan: plan["placements"].pop("input 0"), "it does not say where parameter:first.weight lies"),
        (lambda plan: plan["placements"].update({"input 99": [["at", 0]]}), "damaged plan: 'input 99'"),
        (lambda plan: plan.pop("fetched again"), "damaged plan: 'fetched again'"),
        (lambda plan: None, "its checksum does not fit"),
    ],
)
def test_plans_that_do_not_fit(change: Any, fact: str, tmp_path: Any) -> None:
    model, batch = model_and_batch("mlp")
    plan, path = vgraph.parallelize(model, batch, 2), tmp_path / "plan.json"
    plan.save(path)
    content, before = json.loads(path.read_text()), plan.sharding
    content.pop("crc32")
    is_sealed = change(content) is not None or fact != "its checksum does not fit"
    path.write_text(json.dumps(content | {"crc32": zlib.crc32(json.dumps(content).encode()) if is_sealed else 0}))
    with pytest.raises(vgraph.VGraphError, match=re.escape(fact)) as caught:
        plan.load(path)
    assert caught.value.cure and plan.sharding is before
    with pytest.raises(vgraph.VGraphError, match="cannot read the data file"):
        plan.load(tmp_path / "none.json")


class Running(nn.Module):
    """Sums up along one of two dims of one length; all its tensors look alike whichever it is."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer, self.dim = nn.Linear(8, 8), dim

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).cumsum(self.dim).square().mean()


def test_a_plan_of_a_model_whose_tensors_look_alike_is_another(tmp_path: Any) -> None:
    batch, path = (torch.randn(8, 8),), tmp_path / "plan.json"
    vgraph.parallelize(Running(0), batch, 2).save(path)
    vgraph.parallelize(Running(0), batch, 2).load(path)
    with pytest.raises(vgraph.VGraphError, match="was saved for another model"):
        vgraph.parallelize(Running(1), batch, 2).load(path)


def test_batches_that_do_not_fit() -> None:
    model, (x,) = model_and_batch("mlp")
    plan = vgraph.parallelize(model, (x,), 2)
    for other in (x.float(), x[0]):
        with pytest.raises(vgraph.VGraphError, match="the plan was made for"):
            plan.run_in_process(other)
    with pytest.raises(vgraph.VGraphError, match="2 tensors were passed; the plan was made for 1"):
        plan.run_in_process(x, x)


def test_a_meta_model_needs_init() -> None:
    real, batch = model_and_batch("mlp")
    with torch.device("meta"):
        model, _ = model_and_batch("mlp")
    with pytest.raises(vgraph.VGraphError, match="is on the meta device"):
        vgraph.parallelize(model, batch, 2).run_in_process(*batch)
    plan = vgraph.parallelize(model, batch, 2, init=lambda name, tensor: tensor.copy_(real.state_dict()[name]))
    assert close([plan.run_in_process(*batch).loss], [real(*batch).detach()])
    wrong = vgraph.parallelize(model, batch, 2, init=lambda name, tensor: torch.zeros(3))
    with pytest.raises(vgraph.VGraphError, match="the shape"):
        wrong.run_in_process(*batch)


@pytest.mark.parametrize("workers", [0, -2, 2.0, True])
def test_numbers_of_workers_that_are_none(workers: Any) -> None:
    model, batch = model_and_batch("mlp")
    with pytest.raises(vgraph.VGraphError, match=r"parallelize\(num_workers="):
        vgraph.parallelize(model, batch, workers)


def test_more_workers_than_the_dims_allow() -> None:
    model, batch = model_and_batch("mlp")
    with pytest.raises(vgraph.VGraphError, match="cannot be divided among 7 workers"):
        vgraph.parallelize(model, batch, 7)


def test_a_plan_is_made_where_tensors_are_meta() -> None:
    """Constants of the model and the optimizer's first numbers are made on the CPU, not where the context says."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(8, 16), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return (self.head(x) + self.words(torch.arange(8))).square().mean()

    with torch.device("meta"):
        model, x = Words(), torch.zeros(8, 16)
        inside = vgraph.parallelize(model, (x,), 2, optimizer=torch.optim.Adam)
    outside = vgraph.parallelize(model, (x,), 2, optimizer=torch.optim.Adam)
    assert inside.sharding.strategies == outside.sharding.strategies
    assert inside.communicated_bytes == outside.communicated_bytes


class Assigning(nn.Module):
    """Puts other tensors in the places of its buffers: a moving mean, and what it was one and two steps before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        for number in range(3):
            self.register_buffer(f"mean{number}", torch.full((8,), float(number)))

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        loss = (h - self.mean0).square().mean() + (h * self.mean1 * self.mean2).mean()
        self.mean1, self.mean2 = self.mean0, self.mean1
        self.mean0 = 0.9 * self.mean0 + 0.1 * h.detach().mean(0)
        return loss


def test_a_buffer_is_what_forward_puts_in_its_place() -> None:
    model, x, state = Assigning().double(), torch.randn(4, 8).double(), None
    whole = copy.deepcopy(model)
    plan, placement = vgraph.parallelize(model, (x,), 2), vgraph.place(placed := copy.deepcopy(model), x, ["cpu"])
    for _ in range(3):
        step, loss = plan.run_in_process(x, state=state), whole(x)
        state = step.state
        torch.testing.assert_close((step.loss, step.buffers), (loss.detach(), dict(whole.named_buffers())))
        torch.testing.assert_close(placement.run(x), loss)
        torch.testing.assert_close(dict(placed.named_buffers()), dict(whole.named_buffers()))


class Writing(Assigning):
    """Grows a buffer, changes the dtype of one, or writes to a parameter."""

    def __init__(self, write: Callable[[Any], object]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        self.write(self)
        return self.linear(x).mean()


@pytest.mark.parametrize(
    ("write", "fact"),
    [
        (
            lambda m: setattr(m, "mean0", torch.cat([m.mean0, m.mean1])),
            r"leaves the buffer mean0 as torch.float32\[16\]",
        ),
        (lambda m: setattr(m, "mean0", m.mean0.long()), r"leaves the buffer mean0 as torch.int64\[8\]"),
        (lambda m: m.linear.weight.data.clamp_(-0.1, 0.1), "writes to the parameter linear.weight"),
    ],
)
def test_writes_that_the_next_step_would_not_see(write: Callable[[Any], object], fact: str) -> None:
    with pytest.raises(vgraph.VGraphError, match=fact):
        vgraph.parallelize(Writing(write), (torch.randn(4, 8),), 2)
