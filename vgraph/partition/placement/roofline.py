"""Roofline: estimated seconds of an op from its operations and bytes, where it cannot be run.

Takes: an Op, a device's peak rates. Gives: seconds. Runs once per model.
Source: roofline model (Williams et al. 2009); depth-first placement's four V100-32GB as a preset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vgraph.ir.moves import Random
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.tdl.table import is_absent, is_view


@dataclass(frozen=True)
class Roofline:
    """Rates that are reached, not nominal ones: operations and bytes a second, seconds to start an op."""

    operations: float
    bandwidth: float
    launch: float


# V100 SXM2 32 GB: 15.7 TFLOP/s in fp32 and 900 GB/s nominal, of which cuDNN and copies reach about 0.75 and 0.85.
RATES: Mapping[str, Roofline] = {
    "V100-32GB": Roofline(15.7e12 * 0.75, 900e9 * 0.85, 5e-6),
    "cpu": Roofline(40e9, 8e9, 3e-6),
    "cuda": Roofline(30e12, 1.2e12, 5e-6),
}


def rates_of(kind: str) -> Roofline:
    """The rates of a kind of device; ``cpu*4`` has four times the operations of ``cpu``.

    >>> rates_of("cpu*4").operations == 4 * rates_of("cpu").operations
    True
    """
    if kind in RATES:
        return RATES[kind]
    name, _, threads = kind.partition("*")
    count = int(threads) if threads.isdigit() else 1
    base = RATES.get(name.partition(":")[0], RATES["cuda"])
    return Roofline(base.operations * count, base.bandwidth * min(count, 4), base.launch)


def estimate_seconds(op: Op, kind: str) -> float:
    """Seconds of an op: the slower of arithmetic and memory, after the launch; a view takes none."""
    if is_view(op.target):
        return 0.0
    rates = rates_of(kind)
    return rates.launch + max(num_operations(op) / rates.operations, moved_bytes(op) / rates.bandwidth)


def moved_bytes(op: Op) -> int:
    """Bytes of every operand once and of every result."""
    values = {value.id: value for value in (*op.operands(), *op.results)}
    return sum(value.row_bytes for value in values.values())


def num_operations(op: Op) -> int:
    """Multiplications and additions of an op: those of products and convolutions, else one an element."""
    name, operands = op_name(op.target), list(op.operands())
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return 2 * _size(op.results[0]) * operands[-1].row_shape[-2]
    if name == "convolution":
        return 2 * _size(op.results[0]) * math.prod(operands[1].row_shape[1:])
    if name == "convolution_backward":
        gradient, weight = operands[0], operands[2]
        products = sum(not is_absent(result) for result in op.results[:2])
        return 2 * products * _size(gradient) * math.prod(weight.row_shape[1:])
    largest = max((_size(value) for value in (*operands, *op.results)), default=0)
    return largest * (20 if isinstance(op.target, Random) else 1)


def _size(value: Value) -> int:
    return math.prod(value.row_shape)
