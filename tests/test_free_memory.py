"""Memory that is done with goes back."""

from __future__ import annotations

import gc
import weakref

import onnx_ir as ir

from hexport.model.free_memory import hand_back
from small_models import conv_relu


def test_a_model_that_nobody_has_is_gone() -> None:
    gc.disable()
    try:
        model = ir.from_proto(conv_relu())
        node = weakref.ref(model.graph.node("conv"))
        del model
        assert node() is not None, "nodes know each other, so only the collector frees them"
        hand_back()
        assert node() is None
    finally:
        gc.enable()
