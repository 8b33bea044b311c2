"""What depends on how numbers lie in memory: bits read as another dtype, and complex numbers made of pairs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vgraph

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "bits of the same size": lambda x: x * x.view(torch.int64).bitwise_and(1023),
    "bits of half the size": lambda x: x * x.view(torch.int32).bitwise_and(255).sum(-1, keepdim=True),
    "bits of turned numbers": lambda x: x.t() * x.t().contiguous().view(torch.int64).bitwise_and(1023),
    "complex numbers of a copied turn": lambda x: torch.view_as_real(torch.view_as_complex(x.t().contiguous()) ** 2),
    "a gradient that pairs have in common": lambda x: torch.view_as_real(torch.view_as_complex(x) ** 2).sum(-1),
}
TURNED = {"complex numbers of a copied turn": (2, 8), "a gradient that pairs have in common": (8, 2)}


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.weight, self.name = nn.Parameter(torch.randn(TURNED.get(name, (4, 8)), dtype=torch.float64)), name

    def forward(self, x: Tensor) -> Tensor:
        return FUNCTIONS[self.name](x * self.weight).sin().sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_depends_on_memory_is_that_of_one_process(name: str) -> None:
    model = Model(name)
    x = torch.randn_like(model.weight)
    loss = model(x)
    loss.backward()
    found = vgraph.parallelize(model, (x,), num_workers=2).run_in_process(x)
    torch.testing.assert_close((found.loss, found.grads[0]), (loss.detach(), model.weight.grad))
