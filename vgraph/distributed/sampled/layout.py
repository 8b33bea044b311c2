"""Layout: what a rank of a distributed graph serves and where; found once per graph.

Takes: a DistGraph. Gives: ranks, machines, this machine's parts. All ranks ask at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from vgraph.distributed.dist_graph import DistGraph
from vgraph.distributed.sampled.served import Served
from vgraph.distributed.whole import Whole
from vgraph.runtime.distributed.peers import Machines, find_machines
from vgraph.runtime.distributed.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Layout:
    """The ranks of a graph by machine, and what this machine serves."""

    ranks: Ranks
    machines: Machines
    served: Served


_layouts: WeakKeyDictionary[Whole, Layout] = WeakKeyDictionary()


def layout_of(g: DistGraph) -> Layout:
    """Where the graph's parts are; all ranks call."""
    whole = g.whole
    if whole not in _layouts:
        machines = find_machines(whole.ranks)
        firsts = [whole.first_parts[own[0]] for own in machines.ranks] + [whole.stored.num_parts]
        served = Served(whole.stored, firsts, machines.of(whole.ranks.rank))
        _layouts[whole] = Layout(whole.ranks, machines, served)
    return _layouts[whole]
