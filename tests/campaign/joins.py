"""Random functions that join rows, on random graphs, beside plain torch: kernels put pieces where ``cat`` does.

Forward, backward and double backward with kernels and without, as the fuzzer of messages; then without gradients,
under autocast, and two calls of which each is differentiated twice, the later one first.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.campaign.drawn_joins import make_case
from tests.campaign.drawn_messages import Case, Data
from tests.campaign.judging import Found, Way, differences, differentiated, largest
from tests.campaign.limits import small_limits
from tests.campaign.messages import check_case, expected, found_by, told

FULL_COUNT = 4_000
SHORT_COUNT = 2  # most of the time is that of the compiler
KERNELS = 0.5  # of the cases are compiled, too
ROUNDED = 0.3  # of the largest number: so far are numbers that autocast rounds at one place and not at another

Mode = Callable[[Case, Data, Mapping[str, Any]], list[str]]


def check(seed: int) -> str | None:
    """What is wrong with the case of a seed."""
    case, draw = make_case(seed), random.Random(f"limits of {seed}")
    with small_limits(draw, draw.choice((0.0, 0.1, 0.3))) as limits:
        failure = check_case(seed, case, KERNELS) or _in_other_modes(seed, case)
    return failure and f"{failure}with {limits}\n"


def _in_other_modes(seed: int, case: Case) -> str | None:
    draw = random.Random(f"modes of {seed}")
    mode = draw.choice(list(_MODES))
    way = Way(kernels=draw.random() < 0.8, threads=draw.choice((1, 2)))
    with way.running():
        names = case.functions(case.dtype, reference=False)
        for number, data in enumerate(case.data):
            try:
                wrong = _MODES[mode](case, data, names)
            except Exception:
                wrong = [traceback.format_exc(limit=-4)]
            if wrong:
                return told(seed, case, f"{mode}, {way}, graph {number}", wrong)
    return None


def _without_gradients(case: Case, data: Data, names: Mapping[str, Any]) -> list[str]:
    with torch.no_grad():
        return _alike(case, data, names, [])


def _inference(case: Case, data: Data, names: Mapping[str, Any]) -> list[str]:
    with torch.inference_mode():
        return _alike(case, data, names, [])


def _autocast(case: Case, data: Data, names: Mapping[str, Any]) -> list[str]:
    with torch.autocast("cpu", torch.bfloat16):
        return _alike(case, data, names, [*data.leaves(), *names["parameters"]], ROUNDED)


def _alike(case: Case, data: Data, names: Mapping[str, Any], leaves: Sequence[Tensor], part: float = 1e-4) -> list[str]:
    """Beside torch under the same modes: the dtypes, and numbers up to a part of the largest."""
    order = 1 if leaves else 0
    try:
        wanted = differentiated(lambda: expected(case, data, names), leaves, order)
    except RuntimeError:  # torch refuses numbers of two dtypes, of which autocast makes more
        return []
    found = differentiated(lambda: found_by(case, data, names), leaves, order)
    one, two = ({name: t.dtype for name, t in side.outputs.items()} for side in (found, wanted))
    if one != two and "einsum" not in case.text:  # which multiplies single slots: autocast leaves these as they are
        return [f"the outputs have {one}, not {two}"]
    part = max(part, 64 * torch.finfo(case.dtype).eps)
    return differences(found, wanted, [part * (1 + largest(t)) for _, t in wanted.all()])


def _twice(case: Case, data: Data, names: Mapping[str, Any]) -> list[str]:
    """Two calls before a derivative; each has two, of which the second is as the first."""
    leaves = [*data.leaves(), *names["parameters"]]
    one, two = found_by(case, data, names), found_by(case, data, names)
    kept = {name: rows.detach().clone() for name, rows in one.items()}
    found = [Found(dict(one), _gradients(rows, leaves), []) for rows in (two, one, two, one)]
    return [text for each in found for text in differences(each, Found(kept, found[0].first, []))]


def _gradients(outputs: Mapping[str, Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Which may be asked for once more; zeros where there are none."""
    able = [rows for rows in outputs.values() if rows.requires_grad]
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    if not able or not leaves:
        return zeros
    weights = [torch.linspace(0.5, 1.5, t.numel()).view(t.shape).to(t.dtype) for t in able]
    got = torch.autograd.grad(able, leaves, weights, allow_unused=True, retain_graph=True)
    return [zero if g is None else g for g, zero in zip(got, zeros, strict=True)]


_MODES: dict[str, Mode] = {
    "no_grad": _without_gradients, "inference_mode": _inference, "autocast": _autocast, "two calls": _twice,
}  # fmt: skip


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the cases ``seed`` to ``seed + count - 1`` that went wrong."""
    return [found for case in range(seed, seed + count) if (found := check(case)) is not None]
