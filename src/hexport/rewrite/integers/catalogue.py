"""The rules for what integers carry badly, applied before quantising.

Apart from the others, because quantising a prepared model needs only these.
"""

from __future__ import annotations

from hexport.rewrite.integers.affine_before_layer import (
    AffineBeforeConv,
    AffineBeforeConvTranspose,
    AffineBeforeGemm,
    AffineBeforeMatMul,
)
from hexport.rewrite.integers.affine_into_layer import (
    AddIntoLayer,
    BatchNormIntoLayer,
    DivIntoLayer,
    MulIntoLayer,
    SubIntoLayer,
)
from hexport.rewrite.integers.batch_norm_to_conv import BatchNormToConv
from hexport.rewrite.integers.bias_of_zeros import (
    BiasOfZerosForConv,
    BiasOfZerosForConvTranspose,
    BiasOfZerosForGemm,
)
from hexport.rewrite.integers.conv_pads import ConvPads
from hexport.rewrite.integers.div_to_mul import DivToMul
from hexport.rewrite.integers.gelu_from_tanh import GeluFromTanh
from hexport.rewrite.integers.hard_swish_whole import HardSwishFromDiv, HardSwishFromMul
from hexport.rewrite.integers.l2_norm_whole import L2NormWhole
from hexport.rewrite.integers.layer_norm_whole import LayerNormFromDiv, LayerNormFromMul
from hexport.rewrite.integers.mask_clamped import MaskClampedAdd, MaskClampedMul, MaskClampedWhere
from hexport.rewrite.integers.matmul_add_to_gemm import MatMulAddToGemm
from hexport.rewrite.integers.sigmoid_whole import SigmoidFromDiv, SigmoidFromReciprocal
from hexport.rewrite.integers.softmax_whole import SoftmaxWhole
from hexport.rewrite.offered import offered_rules
from hexport.rewrite.rule import Purpose, Rule

INTEGER_RULES: tuple[type[Rule], ...] = (
    MaskClampedAdd,
    MaskClampedWhere,
    MaskClampedMul,
    GeluFromTanh,
    HardSwishFromMul,
    HardSwishFromDiv,
    SigmoidFromDiv,
    SigmoidFromReciprocal,
    SoftmaxWhole,
    L2NormWhole,
    LayerNormFromDiv,
    LayerNormFromMul,
    ConvPads,
    MulIntoLayer,
    DivIntoLayer,
    AddIntoLayer,
    SubIntoLayer,
    BatchNormIntoLayer,
    MatMulAddToGemm,
    AffineBeforeConv,
    AffineBeforeConvTranspose,
    AffineBeforeGemm,
    AffineBeforeMatMul,
    BatchNormToConv,
    DivToMul,
    BiasOfZerosForConv,
    BiasOfZerosForConvTranspose,
    BiasOfZerosForGemm,
)
"""In the order they are tried: whole operators are found before their parts go."""


def integer_rules() -> tuple[type[Rule], ...]:
    """hexport's own, and those for integers that installed packages offer."""
    offered = (rule for rule in offered_rules() if rule.purpose is Purpose.INTEGER)
    return (*INTEGER_RULES, *offered)
