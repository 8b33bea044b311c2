"""What samplers are made of, checked: names of features, fanouts, directions, devices.

Takes: arguments of samplers and loaders. Gives: the same, or an error that names them. Runs once per sampler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from vgraph.arguments import Bound, is_list_of
from vgraph.errors import FunctionError
from vgraph.graphs.draw.neighbors import Fanout, whole_fanout
from vgraph.graphs.edge_formats import check_device
from vgraph.graphs.types import Device


def _are_names(given: object) -> bool:
    """Whether these are names of features, or such names by type."""
    lists = cast("Mapping[object, object]", given).values() if isinstance(given, Mapping) else (given,)
    return all(is_list_of(names, str) for names in lists)


FEATURES = Bound("a list of names of features, or such lists by type", _are_names).or_none()
PREFETCHED = dict.fromkeys(("prefetch_node_feats", "prefetch_labels", "prefetch_edge_feats"), FEATURES)


def check_sampler(sampler: object) -> None:
    """FunctionError: it draws nothing."""
    if not callable(getattr(sampler, "sample", None)):
        fact = f"{type(sampler).__name__} has no method sample"
        raise FunctionError(fact, cure="pass a sampler, like vgraph.sampling.NeighborSampler([10, 10])")


def known_device(device: Device) -> Device:
    """The device; DeviceError: there is none such."""
    if device is not None:
        check_device(device)
    return device


def check_direction(edge_dir: str) -> None:
    """Blocks compute the vertices that their edges end at."""
    if edge_dir != "in":
        fact = f"edge_dir is {edge_dir!r}, and blocks compute what edges end at"
        raise FunctionError(fact, cure="sample from vgraph.reverse(g)")


def one_a_layer(fanouts: object) -> list[Fanout]:
    """The fanouts of all layers; FunctionError: what is given is that of one; GraphError: one is no number of edges."""
    is_one = isinstance(fanouts, (str, Mapping)) or getattr(fanouts, "shape", None) == ()
    if is_one or not isinstance(fanouts, Iterable):
        raise FunctionError(f"fanouts are {fanouts!r}", cure="give one for each layer, as in [10, 10]")
    given = list(cast("Iterable[Fanout]", fanouts))
    for fanout in given:
        if not isinstance(fanout, Mapping):
            whole_fanout(fanout)
    return given
