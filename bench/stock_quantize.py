"""ONNX Runtime's documented recipe for QNN on one model; started by ``quantize.py`` as a process of its own.

    python stock_quantize.py MODEL SAMPLES OUTPUT --activations uint8|uint16 [--method MinMax]

Nothing of hexport is in here: these are the calls of the page "QNN Execution Provider" of ONNX Runtime's
documentation, with a reader that takes one .npz after the other from the folder SAMPLES.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

ACTIVATIONS = {"uint8": QuantType.QUInt8, "uint16": QuantType.QUInt16}


class DataReader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """The documented reader, but one sample in memory at a time."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npz"))
        self.rewind()

    def get_next(self) -> dict[str, Any] | None:
        path = next(self.waiting, None)
        if path is None:
            return None
        with np.load(path) as arrays:
            return dict(arrays)

    def rewind(self) -> None:
        self.waiting: Iterator[Path] = iter(self.files)


def main() -> None:
    """Pre-process, configure, quantise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--activations", choices=ACTIVATIONS, required=True)
    parser.add_argument("--method", choices=[method.name for method in CalibrationMethod], default="MinMax")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stock-") as folder:
        preprocessed = Path(folder, "model.preproc.onnx")
        changed = qnn_preprocess_model(asked.model, preprocessed)
        model = preprocessed if changed else asked.model
        config = get_qnn_qdq_config(
            model,
            DataReader(asked.samples),
            calibrate_method=CalibrationMethod[asked.method],
            activation_type=ACTIVATIONS[asked.activations],
            weight_type=QuantType.QUInt8,
        )
        quantize(model, asked.output, config)


if __name__ == "__main__":
    main()
