"""Writes small .pte files of every kind into a folder. Run by the interpreter that has executorch, once.

Each comes with NAME.npz: inputs in_0, in_1, … and what torch itself computes for them, out_0, out_1, ….
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# First what executorch loads by itself: after QNN's libraries it would crash.
import executorch.runtime  # type: ignore[import-not-found]  # noqa: F401
import numpy as np
import torch  # type: ignore[import-not-found]
from executorch.backends.qualcomm._passes import TagQuantIO  # type: ignore[import-not-found]
from executorch.backends.qualcomm._passes.build_quant_io import BuildQuantIo  # type: ignore[import-not-found]
from executorch.backends.qualcomm._passes.qnn_pass_manager import (  # type: ignore[import-not-found]
    get_qnn_pass_manager_cls,
)
from executorch.backends.qualcomm.quantizer.quantizer import (  # type: ignore[import-not-found]
    QnnQuantizer,
    QuantDtype,
)
from executorch.backends.qualcomm.serialization.qc_schema import (  # type: ignore[import-not-found]
    QcomChipset,
    QnnExecuTorchBackendType,
)
from executorch.backends.qualcomm.utils import utils as qnn  # type: ignore[import-not-found]
from executorch.backends.qualcomm.utils.constants import (  # type: ignore[import-not-found]
    QCOM_PASS_ACTIVATE_KEY,
    QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY,
)
from executorch.exir import ExecutorchBackendConfig, to_edge  # type: ignore[import-not-found]
from torchao.quantization.pt2e.quantize_pt2e import (  # type: ignore[import-not-found]
    convert_pt2e,
    prepare_pt2e,
)

OUT = Path(sys.argv[1])
CHIP = QcomChipset.SM8650


class Two(torch.nn.Module):  # type: ignore[misc]
    """Two inputs, two outputs, all of it for the NPU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.line = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8, 4)

    def forward(self, x: Any, y: Any) -> Any:
        z = self.line(torch.relu(self.conv(x)).mean((2, 3)))
        return z + y, torch.softmax(z, -1)


class Crossed(torch.nn.Module):  # type: ignore[misc]
    """What comes first is used last, and given first is what is computed last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 4), torch.nn.Linear(4, 6)

    def forward(self, y: Any, x: Any) -> Any:
        early = torch.relu(self.a(x))
        return self.b(early) * y, early


class Sine(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.b(torch.sin(self.a(x)))


class Line(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, line: Any) -> None:
        super().__init__()
        self.line = line

    def forward(self, x: Any) -> Any:
        return torch.relu(self.line(x))


class Picture(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.conv(x))


def spec(fp16: bool = True, sharing: bool = False, slc: bool = False, **options: Any) -> Any:
    htp = qnn.generate_htp_compiler_spec(use_fp16=fp16, use_weight_sharing=sharing, use_slc_allocator=slc)
    return qnn.generate_qnn_executorch_compiler_spec(soc_model=CHIP, backend_options=htp, **options)


def quantised(module: Any, inputs: Any) -> Any:
    quantizer = QnnQuantizer(soc_model=CHIP)
    quantizer.set_default_quant_config(
        QuantDtype.use_8a8w, is_conv_per_channel=True, is_linear_per_channel=True
    )
    prepared = prepare_pt2e(torch.export.export(module, inputs, strict=True).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def write(name: str, edge: Any, module: Any, inputs: Any, **how: Any) -> None:
    (OUT / f"{name}.pte").write_bytes(edge.to_executorch(**how).buffer)
    with torch.no_grad():
        results = module(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    arrays = {f"in_{i}": one.contiguous().numpy() for i, one in enumerate(inputs)}
    arrays |= {f"out_{i}": one.contiguous().numpy() for i, one in enumerate(results)}
    np.savez(OUT / f"{name}.npz", **arrays)


def lowered(module: Any, inputs: Any, options: Any, **more: Any) -> Any:
    return qnn.to_edge_transform_and_lower_to_qnn(module, inputs, options, **more)


def whole_on_the_npu() -> None:
    two, pair = Two().eval(), (torch.randn(1, 3, 8, 8), torch.randn(1, 4))
    torch.export.save(torch.export.export(two, pair), OUT / "two.pt2")
    write("two", lowered(two, pair, spec()), two, pair)
    integers = quantised(two, pair)
    torch.export.save(torch.export.export(integers, pair), OUT / "integers.qdq.pt2")
    write("integers", lowered(integers, pair, spec(fp16=False)), two, pair)
    crossed, ends = Crossed().eval(), (torch.randn(1, 6), torch.randn(1, 8))
    write("crossed", lowered(crossed, ends, spec()), crossed, ends)
    np.savez(OUT / "crossed_weights.npz", **{k: v.numpy() for k, v in crossed.state_dict().items()})
    picture = Picture().eval().to(memory_format=torch.channels_last)
    last = (torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last),)
    write("channels_last", lowered(picture, last, spec()), picture, last)


def in_parts() -> None:
    sine, row = Sine().eval(), (torch.randn(1, 8),)
    write("split", lowered(sine, row, spec(), skip_node_op_set={"aten.sin.default"}), sine, row)
    cpu = quantised(sine, row)
    write("cpu", to_edge(torch.export.export(cpu, row)), cpu, row)
    rows = (torch.randn(2, 8),)
    some = ({0: torch.export.Dim("n", min=1, max=8)},)
    write("bounded", to_edge(torch.export.export(sine, rows, dynamic_shapes=some)), sine, rows)


def not_for_the_simulator() -> None:
    line = torch.nn.Linear(64, 64)
    one, many = (torch.randn(1, 64),), (torch.randn(4, 64),)
    write("online", lowered(Line(line).eval(), one, spec(online_prepare=True)), Line(line), one)
    write("slc", lowered(Line(line).eval(), one, spec(slc=True)), Line(line), one)
    methods = {"one": Line(line).eval(), "many": Line(line).eval()}
    shared = spec(sharing=True)
    edge = lowered(methods, {"one": one, "many": many}, dict.fromkeys(methods, shared))
    write("shared", edge, Line(line), one)


def quantised_ends() -> None:
    module, inputs = Line(torch.nn.Linear(16, 16)).eval(), (torch.randn(1, 16),)
    passes = get_qnn_pass_manager_cls(QnnExecuTorchBackendType.kHtpBackend).get_capture_program_passes()
    passes[TagQuantIO][QCOM_PASS_ACTIVATE_KEY] = True

    def at_the_ends(node: Any) -> Any:
        ends = (node.op == "placeholder" and node.name == "x") or any(u.op == "output" for u in node.users)
        return torch.uint8 if ends else None

    passes[TagQuantIO][QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY]["get_quant_io_dtype_fn"] = at_the_ends
    edge = lowered(quantised(module, inputs), inputs, spec(fp16=False), passes_job=passes)
    # Without the pass the program still says float32 of what are bytes.
    write("misread", edge, module, inputs)
    write("bytes", edge, module, inputs, config=ExecutorchBackendConfig(passes=[BuildQuantIo()]))


if __name__ == "__main__":
    torch.manual_seed(0)
    whole_on_the_npu()
    in_parts()
    not_for_the_simulator()
    quantised_ends()
