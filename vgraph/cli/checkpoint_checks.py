"""Checks of a checkpoint: whether what a file says can be continued by this training, before anything is changed.

Takes: what was read, what there is. Gives: yes or no, or a ValueError that says why not. Runs once per resumption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

MERSENNE_WORDS = 624
HISTORY = ("seed", "epoch", "loss", "val", "test", "seconds")


def fits_module(module: nn.Module, stored: Mapping[str, object]) -> bool:
    """Whether the tensors have the same names, shapes and dtypes."""
    return _shapes(module.state_dict()) == _shapes(stored)


def _shapes(state: Mapping[str, object]) -> dict[str, object]:
    return {k: (t.shape, t.dtype, t.layout) if isinstance(t, Tensor) else None for k, t in state.items()}


def fits_optimizer(optimizer: torch.optim.Optimizer, stored: Mapping[str, object]) -> bool:
    """Whether groups have as many parameters and the same settings, and what is kept of each has its shape."""
    own, groups, kept = optimizer.param_groups, stored.get("param_groups"), stored.get("state")
    if not isinstance(groups, list) or not isinstance(kept, dict) or len(groups) != len(own):
        return False
    if not all(_fits_group(group, there) for group, there in zip(own, groups, strict=True)):
        return False
    numbers = [number for group in groups for number in group["params"]]
    parameters = [parameter for group in own for parameter in group["params"]]
    if numbers != list(range(len(parameters))) or len({tuple(slots) for slots in kept.values()}) > 1:
        return False
    known = dict(zip(numbers, parameters, strict=True))
    return all(number in known and _fits_slots(known[number], slots) for number, slots in kept.items())


def _fits_group(own: Mapping[str, list[object]], there: object) -> bool:
    """Settings may have changed in training, but not what kind of thing they are."""
    if not isinstance(there, dict) or there.keys() != own.keys() or not isinstance(there["params"], list):
        return False
    settings = own.keys() - {"params"}
    return len(there["params"]) == len(own["params"]) and all(_is_alike(own[key], there[key]) for key in settings)


def _is_alike(own: object, there: object) -> bool:
    if isinstance(own, (tuple, list)):
        return type(there) is type(own) and len(there) == len(own) and all(map(_is_alike, own, there))
    is_number = isinstance(own, (int, float)) and not isinstance(own, bool)
    return _is_amount(there) if is_number else type(own) is type(there)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _fits_slots(parameter: Tensor, slots: object) -> bool:
    return isinstance(slots, dict) and all(
        isinstance(t, Tensor) and t.layout == torch.strided and (not t.dim() or t.shape == parameter.shape)
        for t in slots.values()
    )


def check_progress(stored: Mapping[str, Any]) -> None:
    """ValueError: a number of it is none, or numbers do not fit one another."""
    for name in ("seed", "epoch", "position"):
        if type(stored[name]) is not int or stored[name] < 0:
            raise ValueError(f"{name}={stored[name]!r}")
    if not _is_loss(stored["loss_sum"]) or not _is_amount(stored["seconds"]):
        raise ValueError(f"loss_sum={stored['loss_sum']!r}, seconds={stored['seconds']!r}")
    order = stored["order"]
    if not isinstance(order, list) or any(type(number) is not int for number in order):
        raise ValueError("an order that is no list of samples")
    if sorted(order) != list(range(len(order))) or stored["position"] > len(order):
        raise ValueError(f"an order of {len(order)} samples that is none, or position {stored['position']} in it")
    _check_history(stored["history"])
    if stored["epoch"] and not stored["history"]:
        raise ValueError(f"a history without any of {stored['epoch']} epochs")


def _check_history(history: object) -> None:
    entries = history if isinstance(history, list) else [{}]
    for entry in entries:
        is_entry = isinstance(entry, dict) and all(name in entry for name in HISTORY)
        if not is_entry or not all(isinstance(name, str) and _is_loss(value) for name, value in entry.items()):
            raise ValueError("a history that is no list of measurements")


def _is_loss(value: object) -> bool:
    """A number, which training may have made infinite or no number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_generators(numpy_state: Sequence[Any]) -> None:
    """ValueError: NumPy's generator would read beyond its words; the others look themselves."""
    kind, keys, position, *_ = numpy_state
    if kind != "MT19937" or len(keys) != MERSENNE_WORDS or type(position) is not int:
        raise ValueError("the state of NumPy's generator is another's")
    if not 0 <= position <= MERSENNE_WORDS or any(type(k) is not int or not 0 <= k < 2**32 for k in keys):
        raise ValueError("the state of NumPy's generator is out of range")
