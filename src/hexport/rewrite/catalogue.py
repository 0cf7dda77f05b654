"""Every rule, in the order they are tried; users' own come last, through an entry point.

The order is part of the meaning: a log-power front end must be found before its square root is rewritten,
and a GELU before the Erf inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hexport.errors import UsageError
from hexport.rewrite.faults.average_pool_padded import AveragePoolPadded
from hexport.rewrite.faults.conv_transpose_covered import ConvTransposeCovered
from hexport.rewrite.faults.empty_reduction import (
    EmptyReduceMax,
    EmptyReduceMin,
    EmptyReduceProd,
    EmptyReduceSum,
)
from hexport.rewrite.faults.equal_infinity import EqualInfinity
from hexport.rewrite.faults.exp_in_range import ExpInRange
from hexport.rewrite.faults.gather_elements_positive import GatherElementsPositive
from hexport.rewrite.faults.gru_unrolled import GruUnrolled
from hexport.rewrite.faults.integer_mod_to_div import IntegerModToDiv
from hexport.rewrite.faults.log_softmax_to_max import LogSoftmaxToMax
from hexport.rewrite.faults.lp_pool_padded import LpPoolPadded
from hexport.rewrite.faults.lstm_unrolled import LstmUnrolled
from hexport.rewrite.faults.max_pool_floor import MaxPoolFloor
from hexport.rewrite.faults.mish_to_softplus import MishToSoftplus
from hexport.rewrite.faults.pinned_faults import (
    GridSampleOnCpu,
    IsNaNOfInput,
    MaxPoolBytes,
    NonZeroOnCpu,
    ResizeByInput,
    StftByInput,
    UpsampleByInput,
)
from hexport.rewrite.faults.reduce_log_sum_exp_to_max import ReduceLogSumExpToMax
from hexport.rewrite.faults.resize_decomposed import ResizeDecomposed
from hexport.rewrite.faults.scatter_elements_positive import ScatterElementsPositive
from hexport.rewrite.faults.softmax_is_nan import SoftmaxIsNaN
from hexport.rewrite.faults.softplus_in_range import SoftplusInRange
from hexport.rewrite.integers.catalogue import INTEGER_RULES
from hexport.rewrite.offered import offered_rules
from hexport.rewrite.precision.hypot import Hypot
from hexport.rewrite.precision.l2_scaled import L2Scaled
from hexport.rewrite.precision.layernorm_scaled import SumToMean
from hexport.rewrite.precision.log_of_square import LogOfSquare
from hexport.rewrite.precision.log_power import LogPower
from hexport.rewrite.precision.log_scaled import LogScaled
from hexport.rewrite.precision.root_of_squares import RootOfSquares
from hexport.rewrite.precision.sigmoid_exact import SigmoidExact
from hexport.rewrite.precision.sum_before_activation import SumBeforeSigmoid, SumBeforeTanh
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.support.acos_to_series import AcosToSeries
from hexport.rewrite.support.acosh_to_log import AcoshToLog
from hexport.rewrite.support.asin_to_series import AsinToSeries
from hexport.rewrite.support.asinh_to_log import AsinhToLog
from hexport.rewrite.support.atanh_to_log import AtanhToLog
from hexport.rewrite.support.axis_low_rank import ConcatLowRank, GatherLowRank, SoftmaxLowRank
from hexport.rewrite.support.batch_norm_to_mul_add import BatchNormToMulAdd
from hexport.rewrite.support.bias_gelu_to_gelu import BiasGeluToGelu
from hexport.rewrite.support.bitwise_not_to_sub import BitwiseNotToSub
from hexport.rewrite.support.celu_to_elu import CeluToElu
from hexport.rewrite.support.clip_to_max_min import ClipToMaxMin
from hexport.rewrite.support.compress_to_gather import CompressToGather
from hexport.rewrite.support.cosh_to_exp import CoshToExp
from hexport.rewrite.support.cumsum_plain import CumSumPlain
from hexport.rewrite.support.dropout_to_identity import DropoutToIdentity
from hexport.rewrite.support.einsum_to_matmul import EinsumToMatMul
from hexport.rewrite.support.elementwise_low_rank import ELEMENTWISE_LOW_RANK
from hexport.rewrite.support.embed_layer_norm import EmbedLayerNormApart
from hexport.rewrite.support.erf_to_tanh import ErfToTanh
from hexport.rewrite.support.eye_like_folded import EyeLikeFolded
from hexport.rewrite.support.fast_gelu_to_tanh import FastGeluToTanh
from hexport.rewrite.support.float_mod_to_floor import FloatModToFloor
from hexport.rewrite.support.fused_activation import FusedConvApart, FusedGemmApart
from hexport.rewrite.support.gelu_from_erf import GeluFromErf
from hexport.rewrite.support.gemm_scale import GemmScale
from hexport.rewrite.support.global_lp_pool_to_sum import GlobalLpPoolToSum
from hexport.rewrite.support.group_norm_to_instance_norm import GroupNormOutsideImages, GroupNormPerGroup
from hexport.rewrite.support.hardmax_to_argmax import HardmaxToArgmax
from hexport.rewrite.support.if_to_where import IfToWhere
from hexport.rewrite.support.instance_norm_flat import InstanceNormFlat
from hexport.rewrite.support.integer_to_float import (
    DynamicMatMulToFloat,
    IntegerProductToFloat,
    MatMulIntegerToFloatApart,
)
from hexport.rewrite.support.layer_norm_last_axis import LayerNormLastAxis, RmsNormLastAxis
from hexport.rewrite.support.loop_unrolled import LoopUnrolled
from hexport.rewrite.support.lp_normalization_l1 import LpNormalizationL1
from hexport.rewrite.support.matmul_low_rank import MatMulLowRank
from hexport.rewrite.support.mean_variance_to_mean import MeanVarianceToMean
from hexport.rewrite.support.microsoft_attention import MicrosoftAttentionApart
from hexport.rewrite.support.microsoft_rotary_embedding import MicrosoftRotaryEmbeddingApart
from hexport.rewrite.support.multi_head_attention import MultiHeadAttentionApart
from hexport.rewrite.support.pad_by_concat import PadByConcat
from hexport.rewrite.support.pad_by_gather import PadByGather, PadEdgeByGather
from hexport.rewrite.support.pow_to_mul import PowToMul
from hexport.rewrite.support.qlinear_to_qdq import (
    QGemmToQdq,
    QLinearAddToQdq,
    QLinearAveragePoolToQdq,
    QLinearConcatToQdq,
    QLinearGlobalAveragePoolToQdq,
    QLinearLeakyReluToQdq,
    QLinearMulToQdq,
    QLinearSigmoidToQdq,
    QLinearSoftmaxToQdq,
)
from hexport.rewrite.support.reduce_l1_to_sum import ReduceL1ToSum
from hexport.rewrite.support.reduce_log_sum_to_log import ReduceLogSumToLog
from hexport.rewrite.support.reduce_low_rank import (
    ReduceMaxLowRank,
    ReduceMeanLowRank,
    ReduceMinLowRank,
    ReduceSumLowRank,
)
from hexport.rewrite.support.reduce_prod_to_mul import ReduceProdToMul
from hexport.rewrite.support.reduce_sum_square_to_sum import ReduceSumSquareToSum
from hexport.rewrite.support.reshape_chain import FlattenChain, ReshapeChain, SqueezeChain
from hexport.rewrite.support.reverse_sequence_to_gather import ReverseSequenceToGather
from hexport.rewrite.support.rnn_unrolled import RnnUnrolled
from hexport.rewrite.support.scan_unrolled import ScanUnrolled
from hexport.rewrite.support.shrink_to_where import ShrinkToWhere
from hexport.rewrite.support.sinh_to_exp import SinhToExp
from hexport.rewrite.support.skip_layer_norm import (
    SkipLayerNorm,
    SkipLayerNormWithSum,
    SkipRmsNorm,
    SkipRmsNormWithSum,
)
from hexport.rewrite.support.softsign_to_div import SoftsignToDiv
from hexport.rewrite.support.transpose_low_rank import TransposeLowRank
from hexport.rewrite.support.trilu_to_where import TriluToWhere

# What the compiler takes and computes wrongly, or dies of: applied always.
_FAULTS: tuple[type[Rule], ...] = (
    AveragePoolPadded,
    LpPoolPadded,
    MaxPoolFloor,
    ConvTransposeCovered,
    ResizeDecomposed,
    GatherElementsPositive,
    ScatterElementsPositive,
    ResizeByInput,
    UpsampleByInput,
    GridSampleOnCpu,
    MaxPoolBytes,
    NonZeroOnCpu,
    IsNaNOfInput,
    SoftmaxIsNaN,
    EqualInfinity,
    EmptyReduceSum,
    EmptyReduceProd,
    EmptyReduceMax,
    EmptyReduceMin,
    StftByInput,
    ExpInRange,
    SoftplusInRange,
    MishToSoftplus,
    ReduceLogSumExpToMax,
    LogSoftmaxToMax,
    IntegerModToDiv,
    PadEdgeByGather,
    GroupNormOutsideImages,
    LstmUnrolled,
    GruUnrolled,
)

# What the backend refuses: applied where it did.
_SUPPORT: tuple[type[Rule], ...] = (
    PowToMul,
    GeluFromErf,
    ErfToTanh,
    BiasGeluToGelu,
    FastGeluToTanh,
    SoftsignToDiv,
    CeluToElu,
    ShrinkToWhere,
    HardmaxToArgmax,
    SinhToExp,
    CoshToExp,
    AsinhToLog,
    AcoshToLog,
    AtanhToLog,
    AsinToSeries,
    AcosToSeries,
    DropoutToIdentity,
    FloatModToFloor,
    BitwiseNotToSub,
    ReduceL1ToSum,
    ReduceSumSquareToSum,
    ReduceLogSumToLog,
    ReduceProdToMul,
    GlobalLpPoolToSum,
    MeanVarianceToMean,
    ClipToMaxMin,
    GemmScale,
    EinsumToMatMul,
    TriluToWhere,
    CumSumPlain,
    ReverseSequenceToGather,
    CompressToGather,
    EyeLikeFolded,
    PadByGather,
    PadByConcat,
    BatchNormToMulAdd,
    InstanceNormFlat,
    GroupNormPerGroup,
    LayerNormLastAxis,
    RmsNormLastAxis,
    LpNormalizationL1,
    SkipLayerNorm,
    SkipLayerNormWithSum,
    SkipRmsNorm,
    SkipRmsNormWithSum,
    MultiHeadAttentionApart,
    MicrosoftAttentionApart,
    EmbedLayerNormApart,
    MicrosoftRotaryEmbeddingApart,
    FusedConvApart,
    FusedGemmApart,
    IntegerProductToFloat,
    DynamicMatMulToFloat,
    MatMulIntegerToFloatApart,
    RnnUnrolled,
    IfToWhere,
    LoopUnrolled,
    ScanUnrolled,
    TransposeLowRank,
    ReshapeChain,
    SqueezeChain,
    FlattenChain,
    SoftmaxLowRank,
    ConcatLowRank,
    GatherLowRank,
    ReduceMeanLowRank,
    ReduceSumLowRank,
    ReduceMaxLowRank,
    ReduceMinLowRank,
    MatMulLowRank,
    QLinearAddToQdq,
    QLinearMulToQdq,
    QLinearSigmoidToQdq,
    QLinearLeakyReluToQdq,
    QLinearGlobalAveragePoolToQdq,
    QLinearAveragePoolToQdq,
    QLinearConcatToQdq,
    QLinearSoftmaxToQdq,
    QGemmToQdq,
    *ELEMENTWISE_LOW_RANK,
)

# What fp16 cannot hold: applied where the results then come closer to fp32.
_RANGES: tuple[type[Rule], ...] = (
    LogPower,
    LogOfSquare,
    LogScaled,
    SumToMean,
    Hypot,
    RootOfSquares,
    L2Scaled,
    SigmoidExact,
    SumBeforeSigmoid,
    SumBeforeTanh,
)

RULES: tuple[type[Rule], ...] = (*_FAULTS, *_SUPPORT, *_RANGES, *INTEGER_RULES)


def all_rules() -> tuple[type[Rule], ...]:
    """hexport's own, and those that installed packages offer under ``hexport.rules``."""
    return (*RULES, *offered_rules())


def rule_names() -> frozenset[str]:
    """Of all of them."""
    return frozenset(rule.__name__ for rule in all_rules())


def select_rules(names: str | None) -> Callable[[Purpose], Sequence[Rule]]:
    """The rules of a purpose: all; only ``A,B``; or, by ``-A,-B``, all but these."""
    known = {rule.__name__: rule for rule in all_rules()}
    chosen = list(known.values()) if names is None else _chosen(names, known)

    def of(purpose: Purpose) -> Sequence[Rule]:
        return [rule() for rule in chosen if rule.purpose is purpose]

    return of


def _chosen(names: str, known: dict[str, type[Rule]]) -> list[type[Rule]]:
    asked = [name.strip() for name in names.split(",") if name.strip()]
    plain = [name.removeprefix("-") for name in asked]
    if unknown := [name for name in plain if name not in known]:
        raise UsageError(f"--rules: there is no rule {unknown[0]!r}", next=f"there are: {', '.join(known)}")
    without = {name.removeprefix("-") for name in asked if name.startswith("-")}
    if without:
        return [rule for name, rule in known.items() if name not in without]
    return [known[name] for name in plain]
