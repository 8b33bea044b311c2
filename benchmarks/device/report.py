"""What gpu.py found: a table, a picture, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Found = Mapping[str, Any]


def lines(found: Found) -> Iterator[str]:
    """A table in Markdown; figures with an aim say whether it is met, or that it is open."""
    yield "| row | side | ms | peak MiB | figures |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        if "problem" in row:
            yield f"| {row['row']} | | | | **{row['problem'][:120].replace('|', '/')}** |"
        for name, side in row.get("sides", {}).items():
            if "seconds" not in side:
                why = " ".join(side.get("problem", {"": "not timed"}).values())[:60].replace("|", "/")
                yield f"| {row['row']} | {name} | | | {why} |"
                continue
            peak = f"{side['peak_bytes'] / 2**20:.0f}" if side.get("peak_bytes") else ""
            told = ""
            if name == "vgraph":
                told = "; ".join(figure(row, key, value, found["device"]) for key, value in row["figures"].items())
            yield f"| {row['row']} | {name} | {1e3 * side['seconds']:.3f} | {peak} | {told} |"


def figure(row: Found, key: str, value: float, device: str) -> str:
    least = row["aims"].get(key)
    if least is None:
        return f"{key} {value:.3g}"
    word = "open" if device != "cuda" else "met" if value >= least else "MISSED"
    return f"{key} {value:.3g} (aim {least:g}: {word})"


def open_figures(all_aims: Sequence[tuple[str, Mapping[str, float]]]) -> Iterator[str]:
    """What only a GPU can show."""
    yield "Open without a GPU (all times above are of the CPU and mean nothing):"
    for name, aims in all_aims:
        shown = ", ".join(f"{key} at least {least:g}" for key, least in aims.items())
        yield f"  {name}: {shown or 'its time beside the other sides'}"
    yield "  results on the GPU beside the CPU's, and two of its runs bitwise, for every row"


def write(folder: Path, found: Found) -> None:
    """gpu.json and gpu.md; after every row, so that what was measured is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    head = [f"{found['name']}, torch {found['torch']}; copy {found['machine']['copy'] / 1e9:.0f} GB/s", ""]
    (folder / "gpu.md").write_text("\n".join([*head, *lines(found)]) + "\n")


def draw(folder: Path, found: Found) -> None:
    """gpu.svg: how many times as fast as every other side."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - a table and JSON need none

    pairs = [(f"{row['row']}: {key.removeprefix('times ')}", value) for row in found["rows"]
             for key, value in row.get("figures", {}).items() if key.startswith("times ")]  # fmt: skip
    picture = Figure(figsize=(8, 1.5 + 0.2 * len(pairs)), layout="constrained")
    axes = picture.add_subplot()
    axes.barh([name for name, _ in pairs], [value for _, value in pairs])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel=f"times as fast on {found['name']}")
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    picture.savefig(folder / "gpu.svg")
