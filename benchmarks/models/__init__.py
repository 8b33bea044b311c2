"""Models of the benchmarks, written out: each is a module that returns its scalar loss, on the meta device.

``BENCHMARK`` names the 21 of the Tofu paper; ``build(name)`` gives a model and its example inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .densenet import densenet121
from .inception import inception_v3
from .lstm import StackedLSTM
from .resnet import WideResNet
from .transformer import GPT, Llama
from .vgg import vgg16

Built = tuple[nn.Module, tuple[Tensor, ...]]

WRESNET_GIB = {50: (4.2, 9.6, 17.1, 26.7), 101: (7.8, 17.1, 30.6, 47.7), 152: (10.5, 23.4, 41.7, 65.1)}
RNN_GIB = {4: (8.4, 11.4, 14.4), 6: (18.6, 28.5, 32.1), 8: (33.0, 45.3, 57.0)}
PUBLISHED_GIB = {
    **{f"wresnet-{n}-{w}": gib for n, row in WRESNET_GIB.items() for w, gib in zip((4, 6, 8, 10), row, strict=True)},
    **{f"rnn-{n}-{k}k": gib for k, row in RNN_GIB.items() for n, gib in zip((6, 8, 10), row, strict=True)},
}
BENCHMARK = tuple(PUBLISHED_GIB)


def build(name: str, batch: int = 8, device: str = "meta") -> Built:
    """``wresnet-152-10``, ``rnn-10-8k``, ``llama-8b``, ``gpt-2``, ``inception-v3``, ``vgg-16``, ``densenet-121``."""
    with torch.device(device):
        kind, *sizes = name.split("-")
        if kind == "wresnet":
            model, shape = WideResNet(int(sizes[0]), int(sizes[1])), (batch, 3, 224, 224)
            return model, (torch.empty(shape), torch.zeros(batch, dtype=torch.long))
        if kind == "rnn":
            hidden = int(sizes[1].removesuffix("k")) * 1024
            x = torch.empty(20, batch, hidden)
            return StackedLSTM(int(sizes[0]), hidden), (x, torch.empty_like(x))
        return _OTHERS[name](batch)


def _images(make: Callable[[], nn.Module], size: int) -> Callable[[int], Built]:
    return lambda batch: (make(), (torch.empty(batch, 3, size, size), torch.zeros(batch, dtype=torch.long)))


def _tokens(make: Callable[[], nn.Module], length: int) -> Callable[[int], Built]:
    def built(batch: int) -> Built:
        ids = torch.zeros(batch, length, dtype=torch.long)
        return make(), (ids, torch.zeros_like(ids))

    return built


_OTHERS: dict[str, Callable[[int], Built]] = {
    "llama-8b": _tokens(lambda: Llama(128256, 4096, 32, 8, 14336, layers=32), 2048),
    "gpt-2": _tokens(lambda: GPT(50304, 768, 12, layers=12), 1024),
    "inception-v3": _images(inception_v3, 299),
    "vgg-16": _images(vgg16, 224),
    "densenet-121": _images(densenet121, 224),
}
