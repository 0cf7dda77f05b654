"""ONNX Runtime's ModelCompiler on one model, as its documentation says; started by ``build.py``.

    python plain_compile.py MODEL OUTPUT SOC_MODEL

Nothing of hexport is in here. The binary appears beside OUTPUT.
"""

from __future__ import annotations

import sys

import onnxruntime as ort
import onnxruntime_qnn as qnn_ep

PROVIDER = "QNNExecutionProvider"


def main(model: str, output: str, soc_model: str) -> None:
    """Compile for one chip."""
    ort.register_execution_provider_library(PROVIDER, qnn_ep.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    options = ort.SessionOptions()
    options.add_provider_for_devices(devices[:1], {"backend_type": "htp", "soc_model": soc_model})
    ort.ModelCompiler(options, model, embed_compiled_data_into_model=False).compile_to_file(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
