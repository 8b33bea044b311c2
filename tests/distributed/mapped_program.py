"""How much of a graph's files a process holds, by what it shares with others: ``FOLDER``.

Every process maps all parts of its machine and reads them; then all say what the kernel counts for their mappings.
"""

from __future__ import annotations

import sys
from pathlib import Path

import vgraph.distributed as vd
from vgraph.distributed.sampled.layout import layout_of
from vgraph.runtime.distributed.ranks import current_ranks


def proportional_bytes(folder: str) -> int:
    """The sum of ``Pss`` over mappings of files of the folder: pages, divided by how many processes map them."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            is_ours = folder in rest
        elif name == "Pss:" and is_ours:
            total += 1024 * int(rest.split()[0])
    return total


def main(folder: str) -> None:
    vd.init(timeout=60)
    g = vd.DistGraph(folder)
    served = layout_of(g).served
    etype = g.canonical_etypes[0]
    for part in served.lists(etype).parts:
        _ = int(part.other.sum()), int(part.ptr.sum())
    for part in served.rows("_N", "feat").parts:
        _ = float(part.sum())
    vd.barrier()
    own = proportional_bytes(folder)
    vd.barrier()  # nobody ends while others count
    total = sum(current_ranks().gather(own, "test"))
    if vd.rank() == 0:
        print(f"all processes hold {total} bytes of files", flush=True)
    vd.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
