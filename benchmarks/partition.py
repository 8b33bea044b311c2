"""The partitioner: seconds of the search, quality of its plans, bytes, memory, simulated steps.

Sections: state (weights, gradients, history of the 21 models of the Tofu paper), search (capture and search seconds for
8 workers), growth (with layers and with workers), quality (against the exact optimum on random graphs), gap (the
recursion against all steps at once, on small models), models (twenty-six small ones, run on 2, 3, 4 and 8 workers:
their error, bytes and memory), dtensors (the same as DTensors), bytes (communication beside other ways to divide),
memory (of a worker, by its generated program), figures (simulated samples a second of all 21 models), layers (what
docs/pictures/plans.py draws), sensitivity.

usage: partition.py [--only SECTION ...] [--models NAME ...] [--methods NAME ...] [--graphs 200] [--exact] [--brief]
       [--json FILE] [--plots FOLDER] [--smoke]
--exact counts bytes of the generated programs instead of the books' (minutes for the large models); --brief leaves
out the ablations of the generated program. With --json rows of other models, methods and sections are kept.
Simulated seconds come from a described machine (eight K80); they are no measurement.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from partitioning import dtensors, layers, listed, plans, plots, searching

Section = Callable[[argparse.Namespace], Iterable[dict[str, Any]]]
SECTIONS: dict[str, tuple[str, Section]] = {
    "state": ("Weights, gradients and history of one step (GiB)", searching.section_state),
    "search": ("Search for 8 workers (seconds)", searching.section_search),
    "growth": ("Growth of the search", searching.section_growth),
    "quality": ("Plans of random graphs at 2 workers against scipy.optimize.milp", searching.section_quality),
    "gap": ("The recursion beside an exhaustive search of all steps at once", searching.section_gap),
    "models": ("Twenty-six models, run and compared with one process", listed.section_models),
    "dtensors": ("The same as DTensors", dtensors.section_dtensors),
    "bytes": ("Bytes for 8 workers; seconds are simulated", plans.section_bytes),
    "memory": ("Memory of a worker, by its generated program", plans.section_memory),
    "figures": ("Simulated samples a second on eight K80", plans.section_figures),
    "layers": ("Three models on four workers, layer by layer", layers.section_layers),
    "sensitivity": ("Simulated seconds where one number of the machine differs", plans.section_sensitivity),
}
PICTURES: dict[str, Callable[[Sequence[dict[str, Any]], Path], None]] = {
    "growth": plots.plot_growth, "bytes": plots.plot_bars, "figures": plots.plot_figures,
}  # fmt: skip


def table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}")
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(head, "")) for head in heads] for row in rows]
    widths = [max(len(c) for c in column) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def merged(known: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of models, and of their methods, that were run now take the place of older ones."""

    def key(row: dict[str, Any]) -> tuple[Any, Any]:
        return row.get("model"), row.get("method")

    now = {key(row): row for row in rows}
    if any(method is None for _, method in now):
        models = {model for model, _ in now}
        return [row for row in known if row.get("model") is not None and row["model"] not in models] + list(rows)
    kept = [now.pop(key(row), row) for row in known]
    return kept + list(now.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    add("--models", nargs="+", metavar="NAME")
    add("--methods", nargs="+", metavar="NAME")
    add("--graphs", type=int, default=200)
    add("--exact", action="store_true")
    add("--brief", action="store_true")
    add("--json", type=Path)
    add("--plots", type=Path, metavar="FOLDER")
    add("--smoke", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in options.only:
        title, section = SECTIONS[name]
        rows: list[dict[str, Any]] = []
        before = results.get(name, [])
        for row in section(options):
            rows.append(row)
            results[name] = merged(before, rows)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
        table(title, rows)
        if options.plots and name in PICTURES:
            PICTURES[name](results[name], options.plots / f"partition-{name}.svg")


if __name__ == "__main__":
    main()
