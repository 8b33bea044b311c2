"""``dgl.sampling.sample_neighbors_biased``: neighbours by the tags of their nodes.

Takes: a graph whose edges stand in order of tags. Gives: a graph of what is drawn. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError, FunctionError
from vgraph.graphs.types import Device, Nodes
from vgraph.sampling import sample_neighbors

_BIAS = "_BIAS"


def sample_neighbors_biased(
    g: vgraph.Graph,
    nodes: Nodes,
    fanout: int,
    bias: Tensor | Sequence[float],
    edge_dir: str = "in",
    tag_offset_name: str = "_TAG_OFFSET",
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    output_device: Device = None,
) -> vgraph.Graph:
    """As ``sample_neighbors``, an edge in proportion to ``bias`` at the tag of the node at its other end.

    The graph is what ``dgl.sort_csc_by_tag`` gives ("in"), or ``dgl.sort_csr_by_tag`` ("out").

    Raises:
        FunctionError: ``edge_dir`` is another word.
        FeatureError: ``bias`` has not one number a tag.
    """
    if edge_dir not in ("in", "out"):
        raise FunctionError(f"edge_dir is {edge_dir!r}", cure='pass "in" or "out"')
    etype = g.canonical_etypes[g.get_etype_id(None)]
    ntype = etype[2] if edge_dir == "in" else etype[0]
    frame = g.dst_frames[ntype] if edge_dir == "in" else g.src_frames[ntype]
    offsets, numbers = frame[tag_offset_name].long(), torch.as_tensor(bias)
    if numbers.shape != (offsets.shape[1] - 1,):
        fact = f"bias has shape {tuple(numbers.shape)} for {offsets.shape[1] - 1} tags"
        raise FeatureError(fact, cure="give one number a tag")
    lists = g.relation(etype)[0].csc if edge_dir == "in" else g.relation(etype)[0].csr
    counts = lists.ptr.diff()
    owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
    place = torch.arange(len(owner)) - lists.ptr[:-1][owner]
    tag = sum((place >= offsets[owner, k]).long() for k in range(1, len(numbers))) if len(numbers) > 1 else 0 * place
    marked = g.local_var()
    marked.edge_frames[etype][_BIAS] = numbers[tag] if lists.edge_ids is None else _at(numbers[tag], lists.edge_ids)
    given = nodes if isinstance(nodes, Mapping) else {ntype: nodes}
    copies = {"copy_ndata": copy_ndata, "copy_edata": copy_edata}
    drawn = sample_neighbors(marked, given, fanout, edge_dir, _BIAS, replace, output_device=output_device, **copies)
    for frame in drawn.edge_frames.values() if copy_edata else ():
        del frame[_BIAS]
    return drawn


def _at(rows: Tensor, ids: Tensor) -> Tensor:
    """Rows, each at its id."""
    return torch.empty_like(rows).index_copy_(0, ids.long(), rows)
