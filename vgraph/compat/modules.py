"""Where the names of DGL's modules are found.

Takes: a module of DGL and a name. Gives: the thing itself. Runs once per process.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

_TRANSFORMS = tuple(f"vgraph.compat.{name}" for name in ("transforms", "functional", "diffusion", "augment"))
_AS_DGL = ("vgraph.compat.partition", "vgraph.compat.nearest")  # before vgraph's own of the same names
_LATER = ("vgraph.compat.loading.lazy", "vgraph.compat.shared")
_NN = ("vgraph.compat.nearest", "vgraph.nn", "vgraph.compat.node_embedding")
_DATASETS = (
    "chosen adapters node_sets graph_sets molecules knowledge fraud rdf trees temporal generated communities "
    "cora_binary csv_set"
)
_DATA = (
    *(f"vgraph.compat.{name}" for name in ("data", "splits", "files", "collections")),
    *(f"vgraph.compat.datasets.{name}" for name in _DATASETS.split()),
)
_GEOMETRY = ("geometry", "geometry.fps", "geometry.edge_coarsening")
_LOADING = ("vgraph.sampling", "vgraph.compat.loading", "vgraph.compat.names", "vgraph.compat.distributed.loaders")
_DISTRIBUTED = ("vgraph.compat.distributed", "vgraph.distributed")
# modules that functions of the same name hide
HIDDEN = ("dgl.heterograph", "dgl.batch", "dgl.merge", "dgl.sparse.matmul", "dgl.sparse.sddmm", "dgl.sparse.softmax")
# a module of DGL -> where its names are looked up, in this order
MODULES: dict[str, tuple[str, ...]] = {
    "dgl": ("vgraph.compat.names", *_AS_DGL, "vgraph", *_TRANSFORMS, "vgraph.ops", *_LATER),
    "dgl.function": ("vgraph.function",),
    "dgl.ops": ("vgraph.ops",),
    "dgl.nn": _NN,
    "dgl.nn.pytorch": _NN,
    "dgl.nn.functional": ("vgraph.nn", "vgraph.ops"),
    "dgl.data": (*_DATA, "vgraph.data"),
    "dgl.data.utils": _DATA,
    "dgl.dataloading": _LOADING,
    "dgl.sampling": ("vgraph.sampling", "vgraph.compat.loading"),
    "dgl.distributed": _DISTRIBUTED,
    "dgl.sparse": ("vgraph.sparse",),
    "dgl.backend": ("vgraph.compat.backend", "vgraph.compat.backend_graphs"),
    "dgl.multiprocessing": ("vgraph.compat.processes", "torch.multiprocessing"),
    "dgl.multiprocessing.pytorch": ("vgraph.compat.processes",),
    "dgl.frame": ("vgraph.compat.frame", "vgraph.compat.loading.lazy"),
    **{f"dgl.{name}": ("vgraph.compat.geometry",) for name in _GEOMETRY},
    "dgl.nn.pytorch.utils": ("vgraph.nn", "vgraph.compat.layer_words"),
    "dgl.base": ("vgraph.compat.names",),
    **{f"dgl.{name}": ("vgraph.compat.names",) for name in ("_ffi", "_ffi.base")},  # for DGLError alone
    "dgl.udf": ("vgraph.api.messages.batches",),
    "dgl.utils": ("vgraph.compat.arguments", "vgraph.compat.shared"),
    "dgl.utils.shared_mem": ("vgraph.compat.shared",),
    "dgl.optim": ("vgraph.compat.optim",),
    "dgl.optim.pytorch": ("vgraph.compat.optim",),
    "dgl.init": ("vgraph.compat.initial",),
    "dgl.ndarray": ("vgraph.compat.ndarray", "vgraph.compat.shared"),
    "dgl.partition": ("vgraph.compat.partition",),
    "dgl.mpops": ("vgraph.compat.names", "vgraph.ops"),
    "dgl.random": ("vgraph.compat.draws", "vgraph.compat.names", "vgraph"),
    "dgl.graph_index": ("vgraph.compat.graph_index",),
    "dgl.heterograph_index": ("vgraph.compat.graph_index",),
    "dgl._sparse_ops": ("vgraph.compat.sparse_ops",),
    **{
        f"dgl.{name}": ("vgraph.compat.names", *_AS_DGL, *_TRANSFORMS, "vgraph")
        for name in ("transforms", "transforms.functional", "transforms.module", "homophily")
    },
    **{
        f"dgl.data.{name}": _DATA
        for name in (
            "dgl_dataset citation_graph citegrh tu gindt karate graph_serialize heterograph_serialize tensor_serialize "
            "actor adapter bitcoinotc cluster fakenews flickr fraud gdelt geom_gcn gnn_benchmark icews18 minigc "
            "pattern ppi qm7b qm9 qm9_edge rdf reddit sbm synthetic tree wikics yelp zinc"
        ).split()
    },
    "dgl.data.knowledge_graph": ("vgraph.compat.datasets.knowledge", *_DATA),
    **{
        f"dgl.dataloading.{name}": _LOADING
        for name in (
            "base cluster_gcn dataloader dist_dataloader graphsaint labor_sampler negative_sampler neighbor_sampler "
            "shadow spot_target"
        ).split()
    },
    **{
        f"dgl.distributed.{name}": _DISTRIBUTED
        for name in (
            "dist_context dist_dataloader dist_graph dist_tensor graph_partition_book graph_services partition"
        ).split()
    },
    **{
        f"dgl.sparse.{name}": ("vgraph.sparse",)
        for name in (
            "broadcast elementwise_op elementwise_op_sp matmul reduction sddmm softmax sparse_matrix unary_op"
        ).split()
    },
    **{f"dgl.{name}": ("vgraph.compat.names", "vgraph") for name in ("heterograph", "batch", "merge")},
    **{
        f"dgl.{name}": ("vgraph.compat.names", "vgraph")
        for name in ("convert", "readout", "subgraph", "transform", "traversal", "propagate", "generators")
    },
    **{
        f"dgl.nn.pytorch.{name}": _NN
        for name in (
            "conv glob softmax hetero factory linear link explain gt network_emb "
            "sparse_emb explain.gnnexplainer explain.subgraphx link.edgepred link.transe link.transr gt.biased_mha "
            "gt.degree_encoder gt.egt gt.graphormer gt.lap_pos_encoder gt.path_encoder gt.spatial_encoder"
        ).split()
    },
    **{
        f"dgl.nn.pytorch.conv.{name}": ("vgraph.nn",)
        for name in (
            "agnnconv appnpconv atomicconv cfconv chebconv densechebconv densegraphconv densesageconv dgnconv "
            "dotgatconv edgeconv edgegatconv egatconv egnnconv gatconv gatedgcnconv gatedgraphconv gatv2conv gcn2conv "
            "ginconv gineconv gmmconv graphconv grouprevres hgtconv nnconv pnaconv relgraphconv sageconv "
            "sgconv tagconv twirlsconv"
        ).split()
    },
}
SUBMODULES = frozenset(name.partition(".")[2] for name in MODULES if name.count(".") == 1)


def names_of(module: str) -> list[str]:
    """Every name that ``lookup`` knows in a module of DGL and that is there to be used."""
    found = set[str]()
    for source in MODULES[module]:
        place = importlib.import_module(source)
        own = getattr(place, "__all__", None) or [name for name in vars(place) if not name.startswith("_")]
        homes = ("vgraph", "torch") if source == "vgraph.compat.backend" else ("vgraph",)  # DGL's words for torch's
        found.update(name for name in own if _is_of(homes, getattr(place, name)))
    return sorted(found)


def _is_of(homes: tuple[str, ...], thing: object) -> bool:
    """Neither a module nor what a module imported from elsewhere than these."""
    return not isinstance(thing, ModuleType) and (getattr(thing, "__module__", None) or "vgraph").startswith(homes)


def lookup(module: str, name: str) -> Any:
    """What a name of a module of DGL means; LookupError: vgraph has no such thing."""
    for source in MODULES[module]:
        try:
            place = importlib.import_module(source)
        except ModuleNotFoundError:
            continue
        found = getattr(place, name, None)
        if found is not None and not (isinstance(found, ModuleType) and name not in SUBMODULES):
            return found
    raise LookupError(name)
