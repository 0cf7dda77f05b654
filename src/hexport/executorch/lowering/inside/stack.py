"""torch, torchao and executorch, imported once, in the one order that does not crash.

executorch's extensions must be loaded before libQnnHtp is, which the first use of its compiler brings along;
loaded after it, the process dies. So whoever needs any of these takes them from here.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Stack:
    """The modules that lowering needs. Typed as Any: none of them is there where types are checked."""

    runtime: Any
    torch: Any
    pt2e: Any
    quantize_pt2e: Any
    quantizer: Any
    partitioner: Any
    schema: Any
    serialize: Any
    tools: Any
    exir: Any
    program: Any

    @property
    def aten(self) -> Any:
        return self.torch.ops.aten


@cache
def stack() -> Stack:
    """All of them."""
    # Nothing of a model file is executed: torch.export would unpickle some parts of one.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    # Deprecations, by the hundred, in the log that tells why nodes are refused.
    warnings.filterwarnings("ignore")
    runtime = importlib.import_module("executorch.runtime")
    torch = importlib.import_module("torch")
    logging.getLogger("torch").setLevel(logging.ERROR)
    qualcomm = "executorch.backends.qualcomm"
    return Stack(
        runtime=runtime,
        torch=torch,
        pt2e=importlib.import_module("torchao.quantization.pt2e"),
        quantize_pt2e=importlib.import_module("torchao.quantization.pt2e.quantize_pt2e"),
        quantizer=importlib.import_module(f"{qualcomm}.quantizer.quantizer"),
        partitioner=importlib.import_module(f"{qualcomm}.partition.qnn_partitioner"),
        schema=importlib.import_module(f"{qualcomm}.serialization.qc_schema"),
        serialize=importlib.import_module(f"{qualcomm}.serialization.qc_schema_serialize"),
        tools=importlib.import_module(f"{qualcomm}.utils.utils"),
        exir=importlib.import_module("executorch.exir"),
        program=importlib.import_module("executorch.exir.program._program"),
    )
