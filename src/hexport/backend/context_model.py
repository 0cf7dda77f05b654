"""Reading the small ONNX model that wraps a context binary: for which chip it was really made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport.model.onnx_proto import message_class

_COMPATIBILITY = b"ep_compatibility_info.QNNExecutionProvider"


@dataclass(frozen=True)
class CompiledFor:
    """From the compatibility record ``version:backend:SDK:API:archs:SoCs:VTCM:driver``."""

    sdk: str
    htp_archs: tuple[int, ...]
    soc_models: tuple[int, ...]


def read_compiled_for(wrapper: Path) -> CompiledFor | None:
    """The record inside a wrapper model, if it carries one."""
    proto = message_class("ModelProto")()
    proto.ParseFromString(wrapper.read_bytes())
    for entry in proto.metadata_props:
        if entry.key == _COMPATIBILITY:
            fields = entry.value.decode().split(":")
            return CompiledFor(sdk=fields[2], htp_archs=_numbers(fields[4]), soc_models=_numbers(fields[5]))
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)
