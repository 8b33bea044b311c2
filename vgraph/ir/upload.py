"""Upload: index tensors brought to a device in one copy that nobody waits for.

Takes: tensors on the CPU. Gives: the same on a device. Runs once per topology.
On a GPU the host's memory is pinned, so that the copy runs beside what the GPU and Python do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGNMENT = 64  # bytes; also the room behind the last one, for kernels that look ahead


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """One tensor, not waited for; itself, where it is on the device already."""
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":  # pragma: no cover - needs a GPU
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def upload(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """All in one buffer, each where wide loads may begin."""
    return pack(tensors, device)[1]


def pack(tensors: Sequence[Tensor], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """The buffer, and all within it."""
    starts, end = list[int](), 0
    for tensor in tensors:
        starts.append(end)
        end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    near = tensors[0].device if tensors else device
    pins = device.type == "cuda" and near.type == "cpu"
    buffer = torch.empty(end + _ALIGNMENT, dtype=torch.uint8, pin_memory=pins, device=near)
    for tensor, start in zip(tensors, starts, strict=True):
        _part(buffer, start, tensor).copy_(tensor)
    there = send(buffer, device)
    return there, [_part(there, start, tensor) for tensor, start in zip(tensors, starts, strict=True)]


def _part(buffer: Tensor, start: int, like: Tensor) -> Tensor:
    return buffer[start : start + like.nbytes].view(like.dtype).view(like.shape)
