"""Element types: ONNX's numbers and ONNX Runtime's names, both as numpy spells them."""

from __future__ import annotations

# TensorProto.DataType of the ONNX standard.
_BY_NUMBER = {
    0: "undefined",
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
_RUNTIME_SPELLING = {"float": "float32", "double": "float64"}


def from_number(number: int) -> str:
    """``1`` → ``float32``; a number this table does not know stays visible."""
    return _BY_NUMBER.get(number, f"type{number}")


def from_runtime(text: str) -> str:
    """``tensor(float)`` → ``float32``; sequences and optionals keep their own spelling."""
    if text.startswith("tensor(") and text.endswith(")"):
        inner = text[len("tensor(") : -1]
        return _RUNTIME_SPELLING.get(inner, inner)
    return text
