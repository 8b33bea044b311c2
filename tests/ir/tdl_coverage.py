"""Coverage: what the table knows of every core ATen operator, for people who ask what is divided.

Takes: nothing. Gives: operator name to one of four words; tempo: when asked.
Source: Tofu section 4.3 (how many of MXNet's operators TDL describes).
"""

from __future__ import annotations

from collections.abc import Mapping

from vgraph.ir.operators import POINTWISE
from vgraph.ir.tdl import table
from vgraph.ir.tdl.table import FACTORIES, described_ops

# Operators that torch tags as core ATen; torch.export reduces any model to these.
CORE = frozenset(
    """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward _embedding_bag
    _fft_c2r _fft_r2c _local_scalar_dense _log_softmax _native_batch_norm_legit
    _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy abs acos acosh adaptive_avg_pool1d
    add addmm alias amax amin any arange argmax argmin as_strided asin asinh atan atan2 atanh avg_pool1d
    avg_pool2d avg_pool2d_backward avg_pool3d bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil
    clamp clone col2im constant_pad_nd convolution convolution_backward copy cos cosh cumsum diagonal div elu
    embedding embedding_dense_backward empty empty_strided eq erf exp expand expm1 fill flip floor fmod full
    full_like gather ge gelu grid_sampler_2d gt hardtanh index index_put index_select isinf isnan le
    leaky_relu log log10 log1p log2 logical_and logical_not logical_or logical_xor lt masked_scatter max
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices maximum mean min minimum
    mm mul native_dropout native_group_norm native_group_norm_backward native_layer_norm
    native_layer_norm_backward ne neg nonzero permute pow prod rand randn randperm reciprocal reflection_pad1d
    reflection_pad2d reflection_pad3d relu remainder repeat replication_pad2d replication_pad3d resize_ round
    rsqrt scalar_tensor scatter scatter_add scatter_reduce select select_scatter sigmoid sign sin sinh slice
    slice_scatter sort split_with_sizes sqrt squeeze sub sum sym_is_contiguous sym_numel sym_size
    sym_storage_offset sym_stride tan tanh topk trunc unsqueeze upsample_bilinear2d upsample_nearest2d var
    view where""".split()
)

# Taken apart when a training step is captured, into sums and pointwise operators that are described.
DECOMPOSED = frozenset(
    """_native_batch_norm_legit _native_batch_norm_legit_no_training native_group_norm native_dropout _embedding_bag
    var std_mean""".split()
)


def coverage() -> Mapping[str, str]:
    """How each core operator is known: a word an operator.

    "described": a line of the table; "derived": from a tag, an index map or torch's decomposition;
    "opaque": needed whole along some dims, divided along the others; "not": none of these. What is not
    described is replicated, on every worker, and listed by the plan.

    >>> coverage()["mm"], coverage()["exp"], coverage()["_softmax"]
    ('described', 'derived', 'opaque')
    """
    derived = POINTWISE | FACTORIES | table._REARRANGED.keys() | DECOMPOSED
    kinds = {name: "derived" if name in derived else "described" for name in described_ops() | DECOMPOSED}
    kinds |= dict.fromkeys(table._ALONG, "opaque")
    return {name: kinds.get(name, "not") for name in sorted(CORE)}


def coverage_report() -> str:
    """The same as a page in Markdown, with counts."""
    found = coverage()
    lines = ["| kind | operators | number |", "|---|---|---|"]
    for kind in ("described", "derived", "opaque", "not"):
        names = [name for name, known in found.items() if known == kind]
        lines.append(f"| {kind} | {' '.join(f'`{name}`' for name in names)} | {len(names)} |")
    return "\n".join(lines) + "\n"
