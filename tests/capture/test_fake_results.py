"""What an operator gives for fake tensors is what torch's own mode gives, however often it was asked before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarks.models.lstm import StackedLSTM
from benchmarks.models.resnet import WideResNet
from benchmarks.models.transformer import Llama
from vgraph.capture.record.aliases import storage_key
from vgraph.capture.step import repeated
from vgraph.capture.step.capture_step import capture_step
from vgraph.capture.step.fake_results import FakeResults

aten = torch.ops.aten


def looks(out: Any, args: Sequence[Any]) -> list[object]:
    """All that is asked of results: also which argument they are, or lie in."""
    given = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
    found: list[object] = [type(out)]
    for item in out if isinstance(out, (tuple, list)) else [out]:
        if isinstance(item, Tensor):
            places = [storage_key(item) == storage_key(t) for t in given], [item is t for t in given]
            found += [type(item), item.shape, item.stride(), item.storage_offset(), item.dtype, item.device, *places]
            found += [item.untyped_storage().nbytes(), item.requires_grad]
        else:
            found.append(item)
    return found


class Compared(FakeResults):
    """Asks torch again whenever a result was known."""

    num_known = 0

    def run(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        key = self.key(func, args, kwargs, [])
        is_known = key is not None and self._known.get(key) is not None
        out = super().run(func, args, kwargs)
        if is_known:
            Compared.num_known += 1
            assert looks(out, args) == looks(func(*args, **kwargs), args), func
        return out


class Views(nn.Module):
    """Views, writes through them, several results, numbers of other types, twice each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            first, second = (x @ self.weight).chunk(2, -1)
            y = torch.cat([first.t(), second.t()]).clone()
            y[1:3].mul_(2)
            y = y.unsqueeze(0).clone().unsqueeze_(0).squeeze()
            counts = (y > 0).sum(0) + 1
            x = x + (y.max(0).values * (counts + 1.0)).mean() + torch.tensor(0.5)
        return x.sum()


def sgd(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


LONG = torch.zeros(2, 8, dtype=torch.long)
MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "lstm": lambda: (StackedLSTM(2, 8), (torch.zeros(3, 4, 8), torch.zeros(3, 4, 8))),
    "llama": lambda: (Llama(16, 8, 2, 1, 16, 2), (LONG, LONG)),
    "resnet": lambda: (WideResNet(50, 1, 8, (1, 2, 1, 1)), (torch.zeros(2, 3, 32, 32), LONG[:, 0])),
    "views": lambda: (Views(), (torch.ones(3, 4),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = capture_step(*MODELS[name](), sgd)
    monkeypatch.setattr(repeated, "FakeResults", Compared)
    monkeypatch.setattr(repeated.RepeatingTracer, "repeated", lambda _self, _func, _args, _kwargs, run: run())
    monkeypatch.setattr(Compared, "num_known", 0)
    step = capture_step(*MODELS[name](), sgd)
    assert [str(op.target) for op in step.ops] == [str(op.target) for op in expected.ops]
    assert Compared.num_known > 20


class TestRun:
    """One mode; each operator is asked for twice."""

    def setup_method(self) -> None:
        self.fakes = FakeResults()

    def twice(self, func: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with self.fakes.mode:
            return self.fakes.run(func, args, kwargs), self.fakes.run(func, args, kwargs)

    def ones(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.fakes.stand_in(torch.ones(shape, dtype=dtype))

    def test_new_tensors_share_nothing(self) -> None:
        one, other = self.twice(aten.relu.default, self.ones(2, 3))
        assert looks(one, ()) == looks(other, ())
        assert storage_key(one) != storage_key(other)

    def test_views_lie_where_they_did(self) -> None:
        x = self.ones(4, 3)
        one, other = self.twice(aten.slice.Tensor, x, 0, 1, 3)
        assert looks(one, (x,)) == looks(other, (x,))
        assert other.storage_offset() == 3
        assert storage_key(other) == storage_key(x)

    def test_what_is_written_is_given_back(self) -> None:
        x = self.ones(2, 3)
        assert all(out is x for out in self.twice(aten.mul_.Tensor, x, 2))

    def test_what_changes_its_argument_is_run_each_time(self) -> None:
        x = self.ones(1)
        self.twice(aten.unsqueeze_.default, x, 0)
        assert x.shape == (1, 1, 1)
        x, y = self.ones(2), self.ones(2)
        self.twice(aten.set_.source_Tensor, self.ones(2), self.ones(2))
        self.twice(aten.set_.source_Tensor, x, y)
        assert storage_key(x) == storage_key(y)

    def test_the_type_of_a_number_counts(self) -> None:
        x = self.ones(2, dtype=torch.int64)
        dtypes = [self.twice(aten.mul.Tensor, x, number)[1].dtype for number in (1, 1.0, True, 1j)]
        assert dtypes == [torch.int64, torch.float32, torch.int64, torch.complex64]

    def test_the_default_dtype_counts(self) -> None:
        x = self.ones(2, dtype=torch.int64)
        assert self.twice(aten.div.Tensor, x, 2)[1].dtype == torch.float32
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            assert self.twice(aten.div.Tensor, x, 2)[1].dtype == torch.float64
        finally:
            torch.set_default_dtype(before)

    def test_left_out_results_stay_left_out(self) -> None:
        x, w, g = self.ones(1, 2, 5), self.ones(3, 2, 3), self.ones(1, 3, 3)
        args = (g, x, w, [3], [1], [0], [1], False, [0], 1, [False, True, False])
        one, other = self.twice(aten.convolution_backward.default, *args)
        assert other[0] is None
        assert looks(one, args) == looks(other, args)

    def test_numbers_that_torch_knows_are_kept(self) -> None:
        with self.fakes.mode:
            x = torch.tensor(2.0)
            y = self.fakes.run(aten.mul.Tensor, (x, 3), {})
            z = self.fakes.run(aten.mul.Tensor, (x, 3), {})
        assert (y.item(), z.item()) == (6.0, 6.0)

    def test_tensors_tell_their_device(self) -> None:
        x = self.ones(2)
        assert self.fakes.ask(torch.ops.prim.device.default, (x,), {}) == torch.device("cpu")
