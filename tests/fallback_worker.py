"""A worker that calls onnxruntime the way its documentation does: with the CPU fallback left on."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort

from hexport.backend.jobs import create_session
from hexport.toolchain.serving import serve

_Session = ort.InferenceSession


def _with_fallback(*arguments: Any, **options: Any) -> Any:
    options.pop("enable_fallback", None)
    return _Session(*arguments, **options)


if __name__ == "__main__":
    ort.InferenceSession = _with_fallback
    serve({"create_session": create_session})
