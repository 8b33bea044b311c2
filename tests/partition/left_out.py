"""Divisions that torch's enumerator finds valid and that are no strategies of ours, by name, on purpose.

Each entry: why, and the operators with the placements of their operands and of the result, as
"operand operand > result" (R whole, S0 split along dim 0, Psum terms of a sum).
"""

from __future__ import annotations

BIAS = "a bias that is itself terms of a sum is reduced before a product adds it: it is small"
TERMS = "terms of a sum are reduced before operators that move entries about"
ADDED = "terms of a sum are reduced before entries are added to them by position"
OWN_DIM = "positions are not divided along the dim that they count in"
WINDOWS = "pooling is divided along batch and channels; windows that do not overlap could be divided in space, too"

# (operator, its example in op_examples by the shapes of its operands) -> (why, what is left out)
LEFT_OUT: dict[str, tuple[str, str]] = {
    "aten.addmm.default(12,)x(4, 8)x(8, 12)": (BIAS, "Psum Psum R > Psum, Psum R Psum > Psum, Psum S1 S0 > Psum"),
    "aten.addmv.default(4,)x(4, 8)x(8,)": (BIAS, "Psum Psum R > Psum, Psum R Psum > Psum, Psum S1 S0 > Psum"),
    "aten.convolution.default(4, 6, 8, 8)x(4, 6, 3, 3)x(4,)": (
        BIAS, "Psum R Psum > Psum, R Psum Psum > Psum, S1 S1 Psum > Psum",
    ),
    "aten.slice_scatter.default(4, 8, 6)x(4, 4, 6)": (TERMS, "Psum Psum > Psum"),
    "aten.select_scatter.default(4, 8, 6)x(4, 6)": (TERMS, "Psum Psum > Psum"),
    "aten.cumsum.default(4, 8, 6)": (TERMS, "Psum > Psum"),
    "aten.flip.default(4, 8, 6)": (TERMS, "Psum > Psum"),
    "aten.index.Tensor(4, 8)x(6,)": (TERMS, "Psum R > Psum"),
    "aten.gather.default(4, 8)x(2, 4)": (f"{TERMS}; {OWN_DIM}", "Psum R > Psum, R S1 > S1"),
    "aten.gather.default(8, 6)x(4, 6)": (OWN_DIM, "R S0 > S0"),
    "aten.scatter.src(4, 8)x(4, 1)x(4, 1)": (ADDED, "Psum R Psum > Psum"),
    "aten.scatter_add.default(4, 8)x(4, 6)x(4, 6)": (ADDED, "Psum R Psum > Psum, Psum S1 S1 > Psum"),
    "aten.index_put.default(4, 8)x(6,)x(6, 8)": (ADDED, "Psum R Psum > Psum, Psum S0 S0 > Psum"),
    "aten.index_add.default(4, 8)x(6,)x(4, 6)": (ADDED, "Psum R Psum > Psum, Psum S0 S1 > Psum"),
    "aten.avg_pool2d.default(4, 6, 8, 8)": (WINDOWS, "S2 > S2, S3 > S3"),
}  # fmt: skip


def left_out(name: str) -> set[tuple[tuple[str, ...], str]]:
    """The placements that are left out for one example."""
    found: set[tuple[tuple[str, ...], str]] = set()
    for entry in LEFT_OUT[name][1].split(", ") if name in LEFT_OUT else ():
        operands, result = entry.split(" > ")
        found.add((tuple(operands.split()), result))
    return found


def report() -> str:
    """The same as a table in Markdown."""
    lines = ["| operator | operands > result | why |", "|---|---|---|"]
    for name, (why, what) in LEFT_OUT.items():
        entries = ", ".join(f"`{entry}`" for entry in what.split(", "))
        lines.append(f"| `{name.removeprefix('aten.')}` | {entries} | {why} |")
    return "\n".join(lines) + "\n"
