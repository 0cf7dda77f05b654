"""BatchNorm as a part of the convolution before it."""

from __future__ import annotations

import importlib
from collections.abc import Container
from typing import Any

from hexport.executorch.lowering.inside.operators import base_name


def join_norms(module: Any, apart: Container[str] = ()) -> bool:
    """As the quantiser does; not if one of those that stay ``apart``, by name, is among them: gives whether.

    In fp16 it is not a matter of speed: a BatchNorm of its own multiplies by 1/sqrt(variance) what the
    convolution has rounded to 16 bits, and EfficientNet-Lite0 comes out at 12 dB instead of 44.
    """
    if any(base_name(node) == "batch_norm" and node.name in apart for node in module.graph.nodes):
        return False
    importlib.import_module("torchao.quantization.pt2e.utils")._fuse_conv_bn_(module)
    return True
