"""The command place: a model on devices, by simulation, as a picture, and run.

Takes: arguments. Gives: an exit status. Runs once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import vgraph
from vgraph.cli.models import load_model
from vgraph.cli.option_values import at_least, number_from
from vgraph.cli.report import check_writable

PLACE = """\
MODEL is file.py:function or package.module:function, where function() returns (model, example_inputs), or the
built-in two-branches. A model that returns a scalar loss is placed with its backward. MODEL may also be a
Graphviz file of operators with their costs, FILE.dot, as --dot writes it; then nothing is run.

devices: cpu (one thread), cpu*4 (four), cuda:0 ..., as many as there are; or a simulated machine alone:
v100-nvlink or v100-pcie, four V100-32GB by estimated costs.
"""


def add_place(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """The command's options."""
    place = add_parser(
        "place",
        help="put a model's operators on several devices",
        description=PLACE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = place.add_argument
    add("model", metavar="MODEL", help="as above")
    add("--devices", nargs="+", default=["cpu", "cpu"], metavar="DEVICE", help="as above (default: cpu cpu)")
    add("--memory", type=number_from(above=0), metavar="GIB", help="what each device may hold")
    add("--profile", type=Path, metavar="FILE.json", help="measured seconds: read if it is there, else written")
    add("--trials", type=at_least(0), metavar="N", help="schedules that the local search may try")
    add("--plot", type=Path, metavar="FILE.svg", help="draw the coloured graph and who does what when")
    add("--dot", type=Path, metavar="FILE.dot", help="write the placed graph for Graphviz")
    add("--run", type=at_least(0), default=0, metavar="N", help="run it N times, and on the first device alone")
    place.set_defaults(command=run_place)


def run_place(arguments: argparse.Namespace) -> int:
    """Places, prints, draws, runs."""
    for path in (arguments.profile, arguments.plot, arguments.dot):
        check_writable(path)
    is_file = arguments.model.endswith(".dot")
    model, inputs = (Path(arguments.model), ()) if is_file else load_model(arguments.model)
    memory = None if arguments.memory is None else int(arguments.memory * 2**30)
    placement = vgraph.place(
        model, inputs, arguments.devices, arguments.profile, memory=memory, trials=arguments.trials
    )
    print(placement)
    for name, (excess, seconds) in placement.starts.items():
        print(f"  {name:20s} {seconds * 1e3:10.3f} ms{'  does not fit' if excess else ''}")
    if arguments.plot:
        placement.save_plot(arguments.plot)
    if arguments.dot:
        placement.save_dot(arguments.dot)
    if arguments.run:
        alone = vgraph.place(model, inputs, arguments.devices[:1], placement.profile)
        _measure({"placed": placement, "one device": alone}, inputs, arguments.run)
    return 0


def _measure(placements: dict[str, vgraph.Placement], inputs: tuple[object, ...], count: int) -> None:
    """Medians of alternating runs; the first of each prepares and does not count."""
    times: dict[str, list[float]] = {name: [] for name in placements}
    for number in range(count + 1):
        for name, placement in placements.items():
            start = time.perf_counter()
            placement.run(*inputs)
            if number:
                times[name].append(time.perf_counter() - start)
    for name, values in times.items():
        simulated = placements[name].makespan * 1e3
        print(f"{name}: measured {statistics.median(values) * 1e3:.3f} ms, simulated {simulated:.3f} ms")
