"""Plans that run: equal to one process, calibrated against gloo, with each switch of the generated program off.

Sections: equality (loss, gradients, updated parameters and bytes of small models: 2, 4, 8 workers in process, 2 and 4
processes over gloo, three optimizers), limit (a model whose training does not fit one process, and fits four),
ablation (bytes and memory without fused fetch, spread-out reduction, original order, late fetch), calibration (a
simulated machine made of what this one does: measured beside simulated steps of two processes).

usage: partition_runs.py [--only SECTION ...] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from models import build
from runs import calibration, equality, limit
from runs.processes import serve

import vgraph
from vgraph.api.dense.parallel import Plan
from vgraph.partition.accounting.footprint import program_footprint
from vgraph.partition.rewrite.rewrite import rewrite

SWITCHES: dict[str, dict[str, Any]] = {
    "as generated": {}, "no fused fetch": {"fused_fetch": False}, "no spread reduction": {"spread_reductions": False},
    "breadth-first order": {"original_order": False}, "early fetch": {"late_fetch": False},
}  # fmt: skip


def section_ablation(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Eight workers; bytes of all, of the worker that receives most, and the fullest worker's peak."""
    rows: list[dict[str, Any]] = []
    chosen = {"small": 0} if options.smoke else {"rnn-4-8k": 512, "wresnet-50-4": 64}
    for name, batch in chosen.items():
        if options.models and name not in options.models:
            continue
        model, inputs = equality.small("lstm") if options.smoke else build(name, batch)
        plan = vgraph.parallelize(model, inputs, 8, optimizer=equality.OPTIMIZERS["sgd momentum"])
        rows += [switched(name, what, plan.with_options(**switch)) for what, switch in SWITCHES.items()]
    return rows


def switched(name: str, what: str, plan: Plan) -> dict[str, Any]:
    parts = rewrite(plan.step.program, plan.sharding, plan.options, plan.step.overwrites)
    received = [sum(e.received_bytes(worker) for e in parts.exchanges) for worker in range(plan.num_workers)]
    held = program_footprint(parts, plan.step)
    row = {
        "model": name, "program": what, "GB moved": parts.communicated_bytes / 1e9, "GB busiest": max(received) / 1e9,
        "exchanges": len(parts.exchanges), "GiB": held.total / 2**30, "GiB copies": held.copies / 2**30,
        "GiB activations": held.activations / 2**30,
    }  # fmt: skip
    print_rows([row])
    return row


def print_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


SECTIONS = {
    "equality": equality.section, "limit": limit.section, "ablation": section_ablation,
    "calibration": calibration.section,
}  # fmt: skip
TASKS = {"equality": equality.worker, "limit": limit.worker, "calibration": calibration.worker}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--models", nargs="+", help="only these, of equality and ablation")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--worker", choices=TASKS, help="what a process of a section does; used by the program itself")
    options = parser.parse_args()
    if options.worker:
        serve(TASKS[options.worker], options.smoke)
        return
    found: dict[str, Any] = {}
    for name in options.only:
        print(name)
        found[name] = SECTIONS[name](options)
        if name != "ablation":
            print_rows(found[name])
    if options.json:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(before | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
