"""What ExecuTorch's Qualcomm backend needs around it: the QNN libraries laid out as in Qualcomm's SDK."""

from __future__ import annotations

from pathlib import Path

from hexport.environments.asking import Sight

_LIBRARIES = Path("lib") / "x86_64-linux-clang"


def executorch_environment(folder: Path, sight: Sight) -> dict[str, str]:
    """Lay the libraries out in ``folder``, and tell what to set before Python starts.

    The folder of the package is linked and not its files: they find ``../onnxruntime_qnn.libs`` from where
    they really are. Without QNN_SDK_ROOT ExecuTorch would download an SDK when it first lowers a model.
    """
    package = Path(sight.packages["onnxruntime-qnn"].info).parent / "onnxruntime_qnn"
    root = folder / "qnn-sdk"
    place = root / _LIBRARIES
    place.parent.mkdir(parents=True)
    place.symlink_to(package, target_is_directory=True)
    return {"QNN_SDK_ROOT": str(root), "LD_LIBRARY_PATH": str(place)}
