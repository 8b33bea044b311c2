"""Affine accesses: which positions of an operand's dim an element of the result reads.

Takes: index notation of one dim ("2*y+k-1", "a b", "y"). Gives: exact intervals for bounds of the indices, or a
refusal. Runs once per function. Source: Tofu section 4.2 (symbolic interval analysis).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

Bounds = Mapping[str, tuple[int, int]]  # index name -> [lower, upper)

_TERM = re.compile(r"([+-]?)(?:(\d+)\*)?([A-Za-z_]\w*|\d+)")
_WHOLE = re.compile(r"(?:\((?P<inner>[^()]+)\)/(?P<divisor>\d+)|(?P<plain>[^()/]+))")


@dataclass(frozen=True)
class Affine:
    """(sum of coefficient * index + constant) / divisor; positions that do not divide are not read."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0
    divisor: int = 1

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)

    def interval(self, bounds: Bounds) -> tuple[int, int]:
        """The least [lower, upper) that holds every position read; upper <= lower where none is.

        >>> parse_access("2*y+k-1").interval({"y": (4, 8), "k": (0, 3)})
        (7, 16)
        """
        least = most = self.constant
        for name, factor in self.terms:
            low, high = bounds[name]
            if high <= low:
                return (0, 0)
            ends = (factor * low, factor * (high - 1))
            least, most = least + min(ends), most + max(ends)
        return (-(-least // self.divisor), most // self.divisor + 1)

    def __str__(self) -> str:
        text = "".join(f"{'+' if f > 0 else '-'}{'' if abs(f) == 1 else f'{abs(f)}*'}{n}" for n, f in self.terms)
        text += f"{self.constant:+d}" if self.constant or not self.terms else ""
        text = text.removeprefix("+")
        return text if self.divisor == 1 else f"({text})/{self.divisor}"

    def symbolic(self) -> str:
        """The interval as a function of the bounds of the indices.

        >>> parse_access("2*y-k+1").symbolic()
        '[2*y.lower-k.upper+2, 2*y.upper-k.lower)'
        """
        assert self.divisor == 1
        up, down = [(n, f) for n, f in self.terms if f > 0], [(n, f) for n, f in self.terms if f < 0]
        lower = Affine(
            (*((f"{n}.lower", f) for n, f in up), *((f"{n}.upper", f) for n, f in down)),
            self.constant - sum(f for _, f in down),
        )
        upper = Affine(
            (*((f"{n}.upper", f) for n, f in up), *((f"{n}.lower", f) for n, f in down)),
            self.constant + 1 - sum(f for _, f in up),
        )
        return f"[{lower}, {upper})"


@cache
def parse_access(text: str) -> Affine | None:
    """An affine access; None for what is needed whole ("s?") or is composed of indices ("a b").

    >>> parse_access("2*y+k-1")
    Affine(terms=(('y', 2), ('k', 1)), constant=-1, divisor=1)
    >>> parse_access("s?") is None
    True
    """
    if "?" in text or " " in text.strip():
        return None
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    body = found["inner"] or found["plain"]
    terms: dict[str, int] = {}
    constant = position = 0
    for part in _TERM.finditer(body):
        if part.start() != position:
            return None
        position = part.end()
        sign = -1 if part[1] == "-" else 1
        factor = sign * int(part[2] or 1)
        if part[3].isdigit():
            constant += factor * int(part[3])
        else:
            terms[part[3]] = terms.get(part[3], 0) + factor
    if position != len(body):
        return None
    return Affine(tuple((n, f) for n, f in terms.items() if f), constant, int(found["divisor"] or 1))
