"""The commands partition-graph, check-graph and plan-graph: graphs as parts on disk.

Takes: arguments. Gives: an exit status. Runs once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from vgraph.arguments import MOST
from vgraph.cli.option_values import at_least, number_from
from vgraph.cli.report import check_writable
from vgraph.errors import FunctionError, GraphError

if TYPE_CHECKING:
    from vgraph.distributed.plan import GraphPlan

PARTITION = """\
IN is OGB's data.npz or its folder, a folder of .npy files (edge_index, or src and dst; node_NAME and edge_NAME are
features), a .npy of edges, a .npz of SciPy's, a .bin of save_graphs, DGL's chunked metadata.json, or the JSON file of
DistDGL's partitions. OUT is a folder, which is there when all of it is written.

ldg and fennel pass over the edges and need little memory, metis (pip install 'vgraph[metis]') holds the graph.
"""
PLAN = """\
GRAPH is a folder of partition-graph; or none is given, and --nodes and --edges say how large a graph on paper is.
Bytes are whole numbers of one step, for all ranks together; on paper, and for fewer ranks than parts, halo rows are
an upper bound.
"""


def add_graph_parts(commands: Any) -> None:
    """The commands' options."""
    partition = _command(commands, "partition-graph", "divide a graph into parts on disk", PARTITION, run_partition)
    add = partition.add_argument
    add("source", type=Path, metavar="IN", help="the graph, as above")
    add("path", type=Path, metavar="OUT", help="the folder that is made")
    add("--parts", type=int, default=64, metavar="N", help="as many as there may ever be ranks (default 64)")
    add("--method", choices=("metis", "ldg", "fennel", "hash"), default="ldg", help="as above (default ldg)")
    add("--balance", metavar="WORDS", help="equal shares beside nodes: edges, types, features (train,edges)")
    add("--memory", type=float, metavar="GIB", help="what may be taken beside mapped files")
    add("--both", action="store_true", help="store out-edges, too, as reversed graphs need them")
    add("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
    add("--plot", type=Path, metavar="FILE.png", help="draw cut, halo and balance")
    check = _command(commands, "check-graph", "compare a partitioned graph with its checksums", None, run_check)
    check.add_argument("path", type=Path, metavar="GRAPH", help="a folder of partition-graph")
    check.add_argument("--parts", type=int, nargs="+", metavar="N", help="those that this machine has; default: all")
    plan = _command(commands, "plan-graph", "say what training on a graph would move and hold", PLAN, run_plan)
    add = plan.add_argument
    add("path", type=Path, nargs="?", metavar="GRAPH", help="as above")
    add("--ranks", type=int, required=True, metavar="N", help="processes that train")
    add("--nodes", type=int, metavar="N", help="of a graph on paper")
    add("--edges", type=int, metavar="N", help="of a graph on paper, in both directions if it is trained so")
    add(
        "--widths",
        type=_numbers,
        default=[128, 256, 256],
        metavar="N,N",
        help="columns that each layer sends (default 128,256,256)",
    )
    add("--keep-inputs", action="store_true", help="the first layer's columns come once and are kept (cache_bytes)")
    add(
        "--parameters",
        type=at_least(0),
        default=0,
        metavar="N",
        help="numbers with averaged gradients (default 0)",
    )
    add("--fanouts", type=_numbers, metavar="N,N", help="of sampled training; default: full graph alone")
    add(
        "--batch-size",
        type=at_least(1),
        default=1000,
        metavar="N",
        help="seeds of a rank in a step (default 1000)",
    )
    add("--element-size", type=int, choices=(2, 4, 8), default=4, metavar="BYTES", help="of a number (default 4)")
    add(
        "--bandwidth",
        type=number_from(above=0),
        default=25.0,
        metavar="GBIT",
        help="Gbit/s of a rank's link (default 25)",
    )
    add("--plot", type=Path, metavar="FILE.png", help="draw cut, halo and balance of the parts")


def _command(
    commands: Any, name: str, short: str, text: str | None, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    kind = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name, help=short, description=text or short, formatter_class=kind)
    parser.set_defaults(command=run)
    return parser


def _numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if min(found) < 0 or max(found) > MOST:
        raise argparse.ArgumentTypeError(f"{text} has a number below 0, or of more than 64 bits")
    return found


@contextmanager
def _bars() -> Generator[Callable[[str, int, int], None]]:
    """A bar for what is being done, one after the other."""
    bar: Any = None

    def tell(what: str, done: int, total: int) -> None:
        nonlocal bar
        if bar is None or bar.desc != what:
            if bar is not None:
                bar.close()
            bar = tqdm(total=total, desc=what, unit_scale=True, leave=False, disable=None)
            bar.desc = what
        bar.update(done - bar.n)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.close()


def run_partition(arguments: argparse.Namespace) -> int:
    """Reads, divides, writes, draws."""
    import vgraph.distributed as vd
    from vgraph.distributed.stored.picture import check_picture, draw_partition

    if arguments.plot:
        check_picture(arguments.plot)
        check_writable(arguments.plot)
    with _bars() as progress:
        summary = vd.partition_files(
            arguments.source,
            arguments.path,
            arguments.parts,
            arguments.method,
            arguments.balance,
            seed=arguments.seed,
            both=arguments.both,
            memory=arguments.memory,
            progress=progress,
        )
    print(summary)
    if arguments.plot:
        draw_partition(vd.PartitionedGraph.open(arguments.path), arguments.plot)
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Nothing is wrong, or the error says what."""
    import vgraph.distributed as vd

    with _bars() as progress:
        vd.check_graph(arguments.path, arguments.parts, progress=progress)
    stored = vd.PartitionedGraph.open(arguments.path)
    print(f"{arguments.path}: {len(stored.manifest.files)} files of {stored.num_parts} parts are what was written")
    return 0


def run_plan(arguments: argparse.Namespace) -> int:
    """A table of ranks, bytes and seconds."""
    import vgraph.distributed as vd
    from vgraph.distributed.stored.picture import check_picture, draw_partition

    path: Path | None = arguments.path
    numbers = [n for n in (arguments.nodes, arguments.edges) if n is not None]
    if len(numbers) != (2 if path is None else 0):
        raise FunctionError("a plan is of a folder, or of numbers", cure="give GRAPH, or both --nodes and --edges")
    if arguments.plot:
        check_picture(arguments.plot)
        check_writable(arguments.plot)
        if path is None:
            raise GraphError("a graph on paper has no parts to draw", cure="partition it, and give the folder")
    if path is None:
        plan = vd.plan_on_paper(numbers[0], numbers[1], arguments.ranks)
    else:
        stored = vd.PartitionedGraph.open(path)
        plan = vd.plan_graph(stored, arguments.ranks)
        if arguments.plot:
            draw_partition(stored, arguments.plot)
    for line in describe_plan(plan, arguments):
        print(line)
    return 0


def describe_plan(plan: GraphPlan, arguments: argparse.Namespace) -> list[str]:
    """The lines of the table."""
    from vgraph.distributed.plan import frontier_bounds, full_graph_bytes, gradient_bytes, sampled_bytes

    widths, size, ranks = arguments.widths, arguments.element_size, plan.num_ranks
    fullest = max(range(ranks), key=lambda rank: plan.halo_rows[rank])
    most = "at most " if plan.is_bound else ""
    sent = [(width, layer > 0) for layer, width in enumerate(widths)][arguments.keep_inputs :]
    step, own = (
        full_graph_bytes(rows, [width for width, _ in sent], [has_grad for _, has_grad in sent], size)
        for rows in (sum(plan.halo_rows), plan.halo_rows[fullest])
    )
    lines = [
        f"{ranks} ranks: {max(plan.nodes)} nodes and {max(plan.edges)} edges in the fullest, "
        f"{most}{max(plan.halo_rows)} halo rows of {max(plan.peers)} peers",
        f"full graph, columns sent {','.join(str(width) for width, _ in sent)} of {size} bytes: {most}{step} bytes a "
        f"step ({step / 1e9:.3g} GB), {most}{own} of one rank ({8 * own / arguments.bandwidth / 1e9:.3g} s)",
        f"memory of the fullest: {most}{max(plan.memory(max(widths), size))} bytes a layer, lists included",
    ]
    if arguments.keep_inputs:
        kept = max(plan.kept_bytes(widths[0], size))
        lines.append(
            f"{widths[0]} columns of inputs come once, and are kept: {most}{kept} bytes of the fullest besides"
        )
    if arguments.parameters:
        moved = gradient_bytes(ranks, arguments.parameters, size)
        lines.append(f"gradients of {arguments.parameters} parameters: {moved} bytes a step")
    if arguments.fanouts:
        sizes = frontier_bounds(arguments.batch_size, arguments.fanouts)
        remote = [n * (ranks - 1) // ranks for n in sizes]
        drawn = [n * f for n, f in zip(remote[:-1], arguments.fanouts, strict=True)]
        row = widths[0] * size
        moved = sampled_bytes(remote[:-1], drawn, remote[-1], row, edge_ids=True)
        fanouts = ",".join(map(str, arguments.fanouts))
        lines.append(
            f"sampled, {arguments.batch_size} seeds of a rank, fanouts {fanouts}, random nodes, no cache: at most "
            f"{sizes[-1]} inputs and {moved} bytes a step of a rank ({8 * moved / arguments.bandwidth / 1e9:.3g} s)"
        )
    for word, share in plan.unequal.items():
        lines.append(
            f"warning: the fullest rank has {share:.2f} times the mean of {word}; partition with --balance {word}"
        )
    return lines
