"""The table of pointwise operators: one row says all that any stage asks about one.

Takes: an operator's name, as torch's ``aten`` has it. Gives: its OpInfo, or None. Nothing here runs by itself.
Derivatives need no entry: autograd writes them while a function is recorded, and what it writes are operators of this
table. An operator without C text is run by the library, never approximated; CONTRIBUTING.md says how to add a row.
Source: Tofu section 4 (pointwise operators are alike in index notation); Cavs section 3.5 (which become one kernel).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from vgraph.ir.program import Value

_MOST_OPERANDS = 6
Types = Literal["same", "compare", "truth", "any"]


@dataclass(frozen=True)
class OpInfo:
    """A row of the table.

    C text, for CPUs and GPUs: {0} {1} ... are the arguments, each one number or a short vector of them; {T} is the
    type of the result's numbers, {V} that of its vector. The functions are those of the preludes.

    Attributes:
        name: ``add`` for ``aten.add.Tensor``.
        text: the C expression; empty: the library runs the operator.
        choose: the C expression, or none, where the arguments decide; in the place of ``text``.
        costly: whether it is as dear as reading a few numbers, and better kept than computed again.
        types: what kernels ask of dtypes. "same": floating-point operands, a result of the same dtype; "compare":
            operands of one dtype, a truth value; "truth": truth values alone; "any": whatever they are.
        mask: the place of an argument that is a truth value, whatever the others are.
        whole_numbers: whether it may also be computed of int64 numbers.
        zero: which operands make the result zero by being zero: "all" of them, "any" one, the "first"; "": not known.
        defaults: the last arguments, where they are left out.
        words: keyword arguments that change nothing if they have this value.
        unread: how many of the last arguments change no number.
        pointwise: False for what hands on its operand as it is (``detach``): a view.
    """

    name: str
    text: str = ""
    choose: Callable[[Sequence[object]], str] | None = None
    costly: bool = False
    types: Types = "same"
    mask: int | None = None
    whole_numbers: bool = False
    zero: Literal["", "all", "any", "first"] = ""
    defaults: tuple[object, ...] = ()
    words: Mapping[str, object] = field(default_factory=dict[str, object])
    unread: int = 0
    pointwise: bool = True

    @cached_property
    def num_arguments(self) -> int:
        """How many arguments the text speaks of."""
        return 1 + max((d for d in range(_MOST_OPERANDS) if f"{{{d}}}" in self.text), default=0)

    @cached_property
    def is_constant(self) -> bool:
        """Whether the text speaks of no argument at all."""
        return bool(self.text) and not any(f"{{{d}}}" in self.text for d in range(_MOST_OPERANDS))

    def arguments(self, given: tuple[object, ...]) -> tuple[object, ...]:
        """With the defaults that were left out; without arguments that change no number."""
        if self.unread:
            given = given[: self.num_arguments]
        missing = self.num_arguments - len(given)
        return given + self.defaults[-missing:] if self.defaults and missing > 0 else given

    def template(self, given: Sequence[object]) -> str:
        """The C text for these arguments; empty where there is none."""
        return self.text if self.choose is None else self.choose(given)


_POWERS = {  # what torch computes for these exponents, too
    0: "{T}(1)",
    0.5: "vg_sqrt({0})",
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    -1: "{T}(1) / {0}",
    -2: "{T}(1) / ({0} * {0})",
}


def _power(given: Sequence[object]) -> str:
    """A constant exponent alone."""
    exponent = given[1]
    if isinstance(exponent, (int, float)) and isinstance(given[0], Value):
        return _POWERS.get(exponent, "")
    return ""


def bounded(text: str, sign: Literal["<", ">"], bound: object, place: int = 1) -> str:
    """A number, or in its place the bound that it lies beyond; NaN where either of them is.

    ``place``: that of the bound among the arguments.
    """
    at = f"{{{place}}}"
    is_number = isinstance(bound, (int, float)) and not math.isnan(bound)
    beyond = f"{text} {sign} {at}" if is_number else f"vg_or({text} {sign} {at}, {at} != {at})"
    return f"vg_select<{{V}}>({beyond}, {at}, {text})"


def _clamp(given: Sequence[object]) -> str:
    low, high = (*given[1:], None, None)[:2]
    text = "{0}" if low is None else bounded("{0}", "<", low)
    return text if high is None else bounded("{0}" if low is None else f"({text})", ">", high, place=2)


def _elu_backward(given: Sequence[object]) -> str:
    """Of what elu was given, or of its result, as where elu wrote over it."""
    below = "({5} + {1} * {2})" if given[4] else "({1} * {2}) * vg_exp({5} * {3})"
    return f"vg_select<{{V}}>({{5}} > {{T}}(0), {{0}} * {{2}}, {{0}} * {{3}} * {below})"


# {0} + 3 from 0 to 6; nothing where {1} is within {2} of 0; what mish multiplies {1} with
_UP_TO_SIX = "vg_select<{V}>({0} >= {T}(3), {T}(6), vg_relu({0} + {T}(3)))"
_WITHIN = "vg_select<{V}>(vg_and({1} >= -{2}, {1} <= {2}), {T}(0), {0})"
_OF_SOFTPLUS = "vg_tanh(vg_softplus({1}))"
_AWAY = "vg_exp(-vg_abs({0} - {1}))"  # of two numbers, the exponential of the distance from the larger to the smaller
_IN_FULL: Mapping[str, object] = {"approximate": "none"}
_WITH_TEXT = (
    OpInfo("add", "{0} + {1}", zero="all"),
    OpInfo("sub", "{0} - {1}", zero="all"),
    OpInfo("rsub", "{1} - {0}"),
    OpInfo("mul", "{0} * {1}", zero="any"),
    OpInfo("div", "{0} / {1}", costly=True),
    OpInfo("neg", "-{0}", zero="all"),
    OpInfo("pow", choose=_power),
    OpInfo("square", "{0} * {0}"),
    OpInfo("reciprocal", "{T}(1) / {0}", costly=True),
    OpInfo("abs", "vg_abs({0})"),
    OpInfo("sign", "vg_sign({0})"),
    OpInfo("sgn", "vg_sign({0})"),
    OpInfo("floor", "vg_floor({0})"),
    OpInfo("sqrt", "vg_sqrt({0})", costly=True),
    OpInfo("rsqrt", "{T}(1) / vg_sqrt({0})", costly=True),
    OpInfo("exp", "vg_exp({0})", costly=True),
    OpInfo("expm1", "vg_expm1({0})", costly=True),
    OpInfo("log", "vg_log({0})", costly=True),
    OpInfo("log1p", "vg_log1p({0})", costly=True),
    OpInfo(
        "logaddexp",
        "vg_select<{V}>({0} == {1}, {0} + {T}(0.69314718055994530942),"
        f" vg_select<{{V}}>(vg_or({{0}} > {{1}}, {{0}} != {{0}}), {{0}}, {{1}}) + vg_log1p({_AWAY}))",
        costly=True,
    ),
    OpInfo("sin", "vg_sin({0})", costly=True),
    OpInfo("cos", "vg_cos({0})", costly=True),
    OpInfo("erf", "vg_erf({0})", costly=True),
    # activations, and what autograd writes for them
    OpInfo("sigmoid", "vg_sigmoid({0})", costly=True),
    OpInfo("sigmoid_backward", "{0} * (({T}(1) - {1}) * {1})", zero="first"),
    OpInfo("tanh", "vg_tanh({0})", costly=True),
    OpInfo("tanh_backward", "{0} * ({T}(1) - {1} * {1})", zero="first"),
    OpInfo("relu", "vg_relu({0})"),
    OpInfo("threshold", "vg_select<{V}>({0} <= {1}, {2}, {0})"),
    OpInfo("threshold_backward", "vg_select<{V}>({1} <= {2}, {T}(0), {0})", zero="first"),
    OpInfo("leaky_relu", "vg_select<{V}>({0} > {T}(0), {0}, {0} * {1})", defaults=(0.01,)),
    OpInfo("leaky_relu_backward", "vg_select<{V}>({1} > {T}(0), {0}, {0} * {2})", unread=1),
    OpInfo("silu", "{0} * vg_sigmoid({0})", costly=True),
    OpInfo("silu_backward", "{0} * vg_sigmoid({1}) * ({T}(1) + {1} * ({T}(1) - vg_sigmoid({1})))", costly=True),
    OpInfo(
        "gelu",
        "{0} * {T}(0.5) * ({T}(1) + vg_erf({0} * {T}(0.70710678118654752440)))",
        costly=True,
        words=_IN_FULL,
    ),
    OpInfo(
        "gelu_backward",
        "{0} * ({T}(0.5) * ({T}(1) + vg_erf({1} * {T}(0.70710678118654752440)))"
        " + {1} * vg_exp({1} * {1} * {T}(-0.5)) * {T}(0.39894228040143267794))",
        costly=True,
        words=_IN_FULL,
    ),
    OpInfo(
        "elu",
        "vg_select<{V}>({0} > {T}(0), {0} * {2}, vg_expm1({0} * {3}) * ({1} * {2}))",
        costly=True,
        defaults=(1.0, 1.0, 1.0),
    ),
    OpInfo("elu_backward", choose=_elu_backward, costly=True, zero="first"),
    OpInfo(
        "celu",
        "vg_select<{V}>({0} > {T}(0), {0}, vg_expm1({0} * ({T}(1) / {1})) * {1})",
        costly=True,
        defaults=(1.0,),
    ),
    OpInfo(
        "softplus",
        "vg_select<{V}>({0} * {1} > {2}, {0}, vg_softplus({0} * {1}) / {1})",
        costly=True,
        defaults=(1.0, 20.0),
    ),
    OpInfo(
        "softplus_backward",
        "vg_select<{V}>({1} * {2} > {3}, {0}, {0} * vg_logistic({1} * {2}))",
        costly=True,
    ),
    OpInfo(
        "hardtanh",
        "vg_select<{V}>({0} < {1}, {1}, vg_select<{V}>({0} > {2}, {2}, {0}))",
        defaults=(-1.0, 1.0),
    ),
    OpInfo("hardtanh_backward", "vg_select<{V}>(vg_or({1} <= {2}, {1} >= {3}), {T}(0), {0})"),
    OpInfo("hardsigmoid", f"{_UP_TO_SIX} / {{T}}(6)", costly=True),
    OpInfo(  # torch's sixth has 32 bits in every dtype
        "hardsigmoid_backward",
        "vg_select<{V}>(vg_and({1} > {T}(-3), {1} < {T}(3)), {0} * {T}(1.0f / 6.0f), {T}(0))",
        zero="first",
    ),
    OpInfo("hardswish", f"{{0}} * {_UP_TO_SIX} / {{T}}(6)", costly=True),
    OpInfo(
        "hardswish_backward",
        "vg_select<{V}>({1} <= {T}(-3), {T}(0), vg_select<{V}>({1} >= {T}(3), {0}, {0} * ({1} / {T}(3) + {T}(0.5))))",
        costly=True,
        zero="first",
    ),
    OpInfo("mish", "{0} * vg_tanh(vg_softplus({0}))", costly=True),
    OpInfo(
        "mish_backward",
        f"{{0}} * ({_OF_SOFTPLUS} + {{1}} * vg_sigmoid({{1}}) * ({{T}}(1) - {_OF_SOFTPLUS} * {_OF_SOFTPLUS}))",
        costly=True,
    ),
    OpInfo("hardshrink", "vg_select<{V}>(vg_and({0} >= -{1}, {0} <= {1}), {T}(0), {0})", defaults=(0.5,)),
    OpInfo("hardshrink_backward", _WITHIN, zero="first"),
    OpInfo(
        "softshrink",
        "vg_select<{V}>({0} > {1}, {0} - {1}, vg_select<{V}>({0} < -{1}, {0} + {1}, {0} * {T}(0)))",
        defaults=(0.5,),
    ),
    OpInfo("softshrink_backward", _WITHIN, zero="first"),
    # choices
    OpInfo("where", "vg_select<{V}>({0}, {1}, {2})", mask=0),
    OpInfo("masked_fill", "vg_select<{V}>({1}, {2}, {0})", mask=1),
    OpInfo("maximum", "vg_select<{V}>(vg_or({0} > {1}, {0} != {0}), {0}, {1})"),
    OpInfo("minimum", "vg_select<{V}>(vg_or({0} < {1}, {0} != {0}), {0}, {1})"),
    OpInfo("clamp", choose=_clamp, whole_numbers=True),
    OpInfo("clamp_min", choose=lambda given: bounded("{0}", "<", given[1]), whole_numbers=True),
    OpInfo("clamp_max", choose=lambda given: bounded("{0}", ">", given[1]), whole_numbers=True),
    # truth values
    OpInfo("eq", "({0} == {1})", types="compare"),
    OpInfo("ne", "({0} != {1})", types="compare"),
    OpInfo("lt", "({0} < {1})", types="compare"),
    OpInfo("le", "({0} <= {1})", types="compare"),
    OpInfo("gt", "({0} > {1})", types="compare"),
    OpInfo("ge", "({0} >= {1})", types="compare"),
    OpInfo("isnan", "({0} != {0})", types="compare"),
    OpInfo("logical_not", "vg_not({0})", types="truth"),
    OpInfo("logical_and", "vg_and({0}, {1})", types="truth"),
    OpInfo("logical_or", "vg_or({0}, {1})", types="truth"),
    OpInfo("bitwise_not", "vg_not({0})", types="truth"),
    OpInfo("bitwise_and", "vg_and({0}, {1})", types="truth"),
    OpInfo("bitwise_or", "vg_or({0}, {1})", types="truth"),
    # copies and constants
    OpInfo("zeros_like", "{T}(0)", types="any"),
    OpInfo("ones_like", "{T}(1)", types="any"),
    OpInfo("full_like", "{1}", types="any"),
    OpInfo("clone", "{0}", types="any", zero="all"),
    OpInfo("_to_copy", "vg_cast<{T}>({0})", types="any", zero="all"),
    OpInfo("alias", "{0}", pointwise=False),
    OpInfo("detach", "{0}", pointwise=False),
)
_OF_THE_LIBRARY = (
    """_conj _conj_physical _prelu_kernel _prelu_kernel_backward acos acosh addcdiv addcmul angle asin asinh atan atan2
    atanh bitwise_left_shift bitwise_right_shift bitwise_xor ceil contiguous copy copysign cosh deg2rad digamma
    empty_like erfc erfinv exp2 fill float_power floor_divide fmax fmin fmod frac gcd heaviside hypot i0 imag
    isfinite isinf isneginf isposinf lcm ldexp lerp lgamma log10 log2 log_sigmoid_backward log_sigmoid_forward
    logaddexp2 logical_xor logit logit_backward masked_scale nan_to_num native_dropout_backward nextafter polygamma
    positive rad2deg real relu6 remainder round selu signbit sinc sinh special_entr special_i1 special_log_ndtr tan
    to true_divide trunc xlogy zero"""
).split()
OPERATORS: Mapping[str, OpInfo] = {
    **{row.name: row for row in _WITH_TEXT},
    **{name: OpInfo(name) for name in _OF_THE_LIBRARY},
}
POINTWISE = frozenset(name for name, row in OPERATORS.items() if row.pointwise)


def zero_by(name: str) -> str:
    """Which operands make the result zero by being zero: all, any, first; "": not known."""
    row = OPERATORS.get(name)
    return "" if row is None else row.zero
