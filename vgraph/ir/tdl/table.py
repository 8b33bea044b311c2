"""TDL: what every operator does to every dim, in index notation.

Takes: an Op with its shapes. Gives: its Notation, or None where it is not described. Runs once per function.
Source: Tofu section 4 (tensor description language), short form "m k, k n -> m n".
"""

from __future__ import annotations

from collections.abc import Mapping

from vgraph.errors import DescriptionError
from vgraph.ir.moves import AnyMove, Random
from vgraph.ir.operators import POINTWISE
from vgraph.ir.program import Op, Target, Value, op_name
from vgraph.ir.reductions import REDUCTIONS
from vgraph.ir.tdl import layer_rules as layers
from vgraph.ir.tdl import plane_rules as planes
from vgraph.ir.tdl import rules
from vgraph.ir.tdl import view_rules as views
from vgraph.ir.tdl.notation import Notation, Rule


def describe(op: Op) -> Notation | None:
    """The notation of an aten op, or None: then it is handled with all its rows at once."""
    name = op.name
    rule = rules.pointwise if isinstance(op.target, Random) else _RULES.get(name) or _registered.get(name)
    notation = rule(op) if rule else None
    return notation if notation is not None and _fits(op, notation) else None


def _fits(op: Op, notation: Notation) -> bool:
    """One index a dim, for every operand and for every result that is there."""
    results = notation.outputs
    given = [*zip(op.operands(), notation.inputs, strict=False)]
    given += [(r, dims) for r, dims in zip(op.results, results, strict=False) if not is_absent(r)]
    same = len(list(op.operands())) == len(notation.inputs) and len(op.results) == len(results)
    return same and all(len(value.shape) == len(dims) for value, dims in given)


def is_absent(result: Value) -> bool:
    """A result that the operator left out: a backward gives only the gradients asked for."""
    return result.shape == (0,)


def described_ops() -> frozenset[str]:
    """The names of all operators that the table describes."""
    return frozenset(_RULES)


def is_view(target: Target) -> bool:
    """Whether the result shares its operand's memory."""
    return op_name(target) in _VIEWS


def may_share(op: Op) -> bool:
    """Whether a result may lie in its operand's memory; a Move's does where every degree is 1."""
    return isinstance(op.target, AnyMove) or is_view(op.target) or bool(getattr(op.target, "is_view", False))


def is_pointwise(target: Target) -> bool:
    """Whether every element of the result depends on the same element of each operand."""
    return op_name(target) in POINTWISE


def reads_values(op: Op, operand: int = 0) -> bool:
    """Whether an op looks at what an operand holds, not at its shape alone."""
    name = op.name
    if name in SHAPE_ONLY:
        return False
    if name not in _READ_IN_PART:
        return True
    notation = describe(op)
    if notation is None or not notation.reads:
        return True
    made = [number for number, result in enumerate(op.results) if not is_absent(result)]
    return any(operand in notation.reads.get(number, (operand,)) for number in made)


def tensor_operands(op: Op) -> list[Value]:
    """The operands that a notation's ``inputs`` stand for, in the same order."""
    return list(op.operands())


# Of their tensor only the shape matters; what it holds need not be there.
SHAPE_ONLY = frozenset("zeros_like ones_like empty_like full_like fill new_zeros new_ones new_full new_empty".split())
# These go through memory as if elements followed one another: of one row that stands for many, as a gather from one
# vertex gives, derivatives of norms would read beyond its end, and a median would sort rows into one another.
READ_AS_DENSE = frozenset(
    "native_layer_norm_backward native_group_norm_backward median nanmedian view_as_complex view_dtype".split()
)
_PADDED = " ".join(f"{kind}_pad{space}d_backward" for kind in ("reflection", "replication") for space in (1, 2, 3))
_READ_IN_PART = frozenset(
    f"""avg_pool2d_backward _adaptive_avg_pool2d_backward max_pool2d_with_indices_backward
    avg_pool3d_backward _adaptive_avg_pool3d_backward max_pool3d_with_indices_backward
    adaptive_max_pool2d_backward adaptive_max_pool3d_backward {_PADDED} convolution_backward""".split()
)
FACTORIES = frozenset("zeros ones full empty new_zeros new_ones new_full new_empty".split())
_VIEWS = frozenset(
    """view _unsafe_view reshape squeeze slice select split split_with_sizes unbind chunk narrow t permute
    transpose expand unsqueeze detach alias""".split()
)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


_CONTRACTIONS: Mapping[str, Rule] = {
    "mm": rules.table("m k, k n -> m n"),
    "bmm": rules.table("b m k, b k n -> b m n"),
    "mv": rules.table("m k, k -> m"),
    **_named("dot vdot", rules.table("k, k ->")),
    "addmm": rules.table("m n, m k, k n -> m n", "addend"),
    "baddbmm": rules.table("b m n, b m k, b k n -> b m n", "addend"),
    "addmv": rules.table("m, m k, k -> m", "addend"),
}
_REDUCTIONS: Mapping[str, Rule] = {
    **{kind: rules.reduction(kind) for row in REDUCTIONS.values() for kind in row.joins},
    "nansum": rules.reduction("sum"),
    "logsumexp": rules.reduction("logsumexp"),
    "linalg_vector_norm": rules.reduction("whole", 2),
    "norm": rules.reduction("whole", 2),
    **_named("argmax argmin var std var_mean std_mean median nanmedian mode", rules.reduction("whole")),
    "kthvalue": rules.reduction("whole", 2),
}
_REARRANGED: Mapping[str, Rule] = {
    **_named("view _unsafe_view reshape squeeze", views.view),
    **_named("slice select unbind narrow", views.part(1)),
    **_named("split split_with_sizes chunk unsafe_split unsafe_split_with_sizes", views.part(2)),
    **_named("slice_backward select_backward", views.part_backward),
    **_named("slice_scatter select_scatter", views.scatter_part),
    "t": views.permute(lambda op, rank: range(rank)[::-1]),
    "permute": views.permute(lambda op, rank: [d % rank for d in op.args[1]]),
    "transpose": views.permute(views.swap),
    **_named("alias detach", views.permute(lambda op, rank: range(rank))),
    "expand": views.expand,
    "repeat": views.repeat,
    "unsqueeze": views.unsqueeze,
    "view_dtype": views.bits,
    "view_as_real": views.complex_parts(made=True),
    "view_as_complex": views.complex_parts(made=False),
    "cat": views.cat,
    "stack": views.stack,
    "constant_pad_nd": views.pad,
}
_ALONG: Mapping[str, Rule] = {
    **_named("_softmax _log_softmax _safe_softmax cumsum cumprod logcumsumexp flip", rules.along(1)),
    **_named("_softmax_backward_data _log_softmax_backward_data glu_backward roll", rules.along(2)),
    "glu": rules.along(1, default=-1),
    **_named("_fft_r2c _fft_c2c _fft_c2r", rules.along(1)),
    "sort": rules.along(1, default=-1),
    "topk": rules.along(2, default=-1),
    **_named("cummax cummin", rules.along(1)),
}
_INDEXING: Mapping[str, Rule] = {
    **_named("gather scatter scatter_add", rules.gather),
    "embedding": rules.embedding,
    "embedding_dense_backward": rules.embedding_backward,
    "index": rules.index,
    **_named("index_put _index_put_impl", rules.index_put),
    "index_select": rules.index_select,
    "index_add": rules.index_add,
    "scatter_reduce": rules.scatter_reduce,
    "index_reduce": rules.index_reduce,
    "bucketize": rules.bucketize,
}
RESAMPLED = """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"""
_LAYERS: Mapping[str, Rule] = {
    "native_layer_norm": layers.layer_norm,
    "native_layer_norm_backward": layers.layer_norm_backward,
    "convolution": layers.convolution,
    "convolution_backward": layers.convolution_backward,
    "native_batch_norm": layers.batch_norm,
    "native_batch_norm_backward": layers.batch_norm_backward,
    **_named(RESAMPLED, layers.resample),
    **_named(" ".join(f"{name}_backward" for name in RESAMPLED.split()), layers.resample),
    **_named("mse_loss huber_loss smooth_l1_loss", rules.loss),
    "mse_loss_backward": rules.loss,
}
_PLANES: Mapping[str, Rule] = {
    **_named("avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices adaptive_max_pool2d", planes.planes(2)),
    **_named("avg_pool3d _adaptive_avg_pool3d max_pool3d_with_indices adaptive_max_pool3d", planes.planes(3)),
    **_named("avg_pool2d_backward _adaptive_avg_pool2d_backward", planes.planes(2, 0)),
    **_named("avg_pool3d_backward _adaptive_avg_pool3d_backward", planes.planes(3, 0)),
    **_named("max_pool2d_with_indices_backward adaptive_max_pool2d_backward", planes.planes(2, 0, 2)),
    **_named("max_pool3d_with_indices_backward adaptive_max_pool3d_backward", planes.planes(3, 0, 2)),
    **{f"{kind}_pad{n}d": planes.planes(n) for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"{kind}_pad{n}d_backward": planes.planes(n, 0) for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **_named("max_unpool2d tril triu", planes.planes(2)),
    **_named(
        "linalg_cholesky_ex linalg_inv_ex _linalg_solve_ex linalg_lu_solve linalg_solve_triangular", planes.matrices
    ),
    **_named("linalg_qr linalg_matrix_exp linalg_lu_factor_ex", planes.matrices),
    **_named("_linalg_det _linalg_slogdet _linalg_eigh _linalg_svd", planes.matrices),
    "im2col": planes.im2col,
    "col2im": planes.col2im,
    **_named("unfold unfold_backward", planes.unfold),
    **_named("grid_sampler_2d grid_sampler_3d", planes.sampled),
    **_named("grid_sampler_2d_backward grid_sampler_3d_backward", planes.sampled_backward),
    "affine_grid_generator": planes.affine_grid,
    **_named("_cdist_forward _euclidean_dist", planes.distances),
    "_cdist_backward": planes.distances_backward,
    "diagonal": planes.diagonal,
    "diagonal_backward": planes.diagonal_backward,
    "diagonal_scatter": planes.diagonal_scatter,
    "diag_embed": planes.diag_embed,
    **_named("pixel_shuffle pixel_unshuffle", planes.pixel_shuffle),
    "channel_shuffle": planes.channel_shuffle,
}
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(POINTWISE, rules.pointwise),
    **dict.fromkeys(FACTORIES, rules.factory),
    **_CONTRACTIONS,
    **_REDUCTIONS,
    **_REARRANGED,
    **_ALONG,
    **_INDEXING,
    **_LAYERS,
    **_PLANES,
}
_registered: dict[str, Rule] = {}  # by users


def register(name: str, rule: Rule) -> None:
    """Adds a user's operator to the table; describing it again replaces its description."""
    if name in _RULES:
        raise DescriptionError(
            f"{name} is described already", cure="give the operator another name, or pass op= for the one that is meant"
        )
    _registered[name] = rule
