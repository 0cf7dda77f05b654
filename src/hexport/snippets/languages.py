"""How each language spells names, types and tensors; the rest is in its template."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hexport.snippets.call import Call, Value
from hexport.snippets.failures import NoSnippet


@dataclass(frozen=True)
class Spelling:
    """One element type; empty where ONNX Runtime for that language has none."""

    bytes: int
    numpy: str
    cpp: str
    element: str
    """What C's ONNX_TENSOR_ELEMENT_DATA_TYPE_ ends with."""
    csharp: str
    java: str


_TYPES = {
    "float32": Spelling(4, "float32", "float", "FLOAT", "float", "FLOAT"),
    "float64": Spelling(8, "float64", "double", "DOUBLE", "double", "DOUBLE"),
    "float16": Spelling(2, "float16", "Ort::Float16_t", "FLOAT16", "Float16", "FLOAT16"),
    "bfloat16": Spelling(2, "", "Ort::BFloat16_t", "BFLOAT16", "BFloat16", "BFLOAT16"),
    "int8": Spelling(1, "int8", "int8_t", "INT8", "sbyte", "INT8"),
    "int16": Spelling(2, "int16", "int16_t", "INT16", "short", "INT16"),
    "int32": Spelling(4, "int32", "int32_t", "INT32", "int", "INT32"),
    "int64": Spelling(8, "int64", "int64_t", "INT64", "long", "INT64"),
    "uint8": Spelling(1, "uint8", "uint8_t", "UINT8", "byte", "UINT8"),
    "uint16": Spelling(2, "uint16", "uint16_t", "UINT16", "ushort", ""),
    "uint32": Spelling(4, "uint32", "uint32_t", "UINT32", "uint", ""),
    "uint64": Spelling(8, "uint64", "uint64_t", "UINT64", "ulong", ""),
    # std::vector<bool> has no memory to point at.
    "bool": Spelling(1, "bool", "uint8_t", "BOOL", "bool", "BOOL"),
}


@dataclass(frozen=True)
class Language:
    """One language: its comments, and what fills the places of its template."""

    comment: str
    places: Callable[[Call], Mapping[str, str]]


def _python(call: Call) -> dict[str, str]:
    for value in call.outputs:
        _spelled(value, "numpy", "Python")
    inputs = (f"    {_text(v.name)}: np.zeros({v.shape!r}, np.{_numpy(v)}),  # fill it" for v in call.inputs)
    return {
        "model": _text(f"{call.package}/{call.model}"),
        "options": _lines(f"    {_text(k)}: {_text(v)}," for k, v in call.options.items()),
        "inputs": _lines(inputs),
        "output_names": ", ".join(_text(v.name) for v in call.outputs),
        "outputs": _lines(f"# {_text(v.name)}: {v.dtype}, {v.sizes}" for v in call.outputs),
    }


def _numpy(value: Value) -> str:
    """``np.bool`` came with numpy 2."""
    return "bool_" if value.dtype == "bool" else _spelled(value, "numpy", "Python")


def _cpp(call: Call) -> dict[str, str]:
    inputs, outputs = [], []
    for n, value in enumerate(call.inputs):
        kind, shape = _spelled(value, "cpp", "C++"), ", ".join(map(str, value.shape))
        inputs += [
            f"  std::vector<{kind}> input_{n}({value.count});  // fill it: {value.sizes}",
            f"  const std::vector<int64_t> shape_{n}{{{shape}}};",
            f"  values.push_back(Ort::Value::CreateTensor(memory, input_{n}.data(),",
            f"      input_{n}.size() * sizeof(input_{n}[0]), shape_{n}.data(), shape_{n}.size(),",
            f"      ONNX_TENSOR_ELEMENT_DATA_TYPE_{_spelled(value, 'element', 'C++')}));",
        ]
    for n, value in enumerate(call.outputs):
        kind = "bool" if value.dtype == "bool" else _spelled(value, "cpp", "C++")
        outputs += [
            f"  const {kind}* output_{n} = results[{n}].GetTensorData<{kind}>();  // {value.sizes}",
            f'  std::cout << {_cpp_text(value.name)} << ": " << {value.count} << " of {value.dtype}, first "',
            f"            << {_shown(f'output_{n}[0]', value)} << std::endl;",
        ]
    return {
        "package": _cpp_text(call.package),
        "model": _cpp_text(call.model),
        "options": _lines(f"      {{{_cpp_text(k)}, {_cpp_text(v)}}}," for k, v in call.options.items()),
        "inputs": _lines(inputs),
        "input_names": ", ".join(_cpp_text(v.name) for v in call.inputs),
        "output_names": ", ".join(_cpp_text(v.name) for v in call.outputs),
        "output_count": str(len(call.outputs)),
        "outputs": _lines(outputs),
    }


def _shown(expression: str, value: Value) -> str:
    if value.dtype in ("float16", "bfloat16"):
        return f"{expression}.ToFloat()"
    return f"+{expression}"  # as a number, also where it is a character to C++


def _csharp(call: Call) -> dict[str, str]:
    inputs, outputs = [], []
    for n, value in enumerate(call.inputs):
        kind, shape = _spelled(value, "csharp", "C#"), ", ".join(map(str, value.shape))
        inputs += [
            f"var input{n} = new {kind}[{value.count}]; // fill it: {value.sizes}",
            f"using OrtValue value{n} = OrtValue.CreateTensorValueFromMemory(",
            f"    input{n}, new long[] {{ {shape} }});",
        ]
    for n, value in enumerate(call.outputs):
        kind = _spelled(value, "csharp", "C#")
        outputs += [
            f"ReadOnlySpan<{kind}> output{n} = results[{n}].GetTensorDataAsSpan<{kind}>(); // {value.sizes}",
            f'Console.WriteLine({_text(value.name)} + ": " + output{n}.Length + ", first " + output{n}[0]);',
        ]
    return {
        "package": _text(call.package),
        "model": _text(call.model),
        "options": _lines(f"    [{_text(k)}] = {_text(v)}," for k, v in call.options.items()),
        "inputs": _lines(inputs),
        "input_pairs": _lines(f"    [{_text(v.name)}] = value{n}," for n, v in enumerate(call.inputs)),
        "output_names": ", ".join(_text(v.name) for v in call.outputs),
        "outputs": _lines(outputs),
    }


def _kotlin(call: Call) -> dict[str, str]:
    buffers, inputs, outputs = [], [], []
    for value in call.inputs:
        kind, name = _spelled(value, "java", "Java"), _kotlin_text(value.name)
        size = _TYPES[value.dtype].bytes
        buffers.append(f"        {name} to buffer({value.count} * {size}), // {value.dtype}, {value.sizes}")
        shape = ", ".join(map(str, value.shape))
        inputs += [
            f"            {name} to OnnxTensor.createTensor(",
            f"                env, buffers.getValue({name}), longArrayOf({shape}), OnnxJavaType.{kind},",
            "            ),",
        ]
    for value in call.outputs:
        _spelled(value, "java", "Java")
        name = _kotlin_text(value.name)
        outputs.append(
            f"                    {name} to (results.get({name}).get() as OnnxTensor).byteBuffer, "
            f"// {value.dtype}, {value.sizes}"
        )
    return {
        "model": _kotlin_text(call.model),
        "buffers": _lines(buffers),
        "inputs": _lines(inputs),
        "outputs": _lines(outputs),
    }


LANGUAGES = {
    "cpp": Language("//", _cpp),
    "csharp": Language("//", _csharp),
    "kotlin": Language("//", _kotlin),
    "python": Language("#", _python),
}


def _spelled(value: Value, column: str, language: str) -> str:
    spelled: str = getattr(_TYPES[value.dtype], column) if value.dtype in _TYPES else ""
    if not spelled:
        raise NoSnippet(
            f"{value.name!r} is {value.dtype}, which ONNX Runtime for {language} cannot pass",
            next="choose another --lang",
        )
    return spelled


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _text(text: str) -> str:
    """Python and C#: what JSON escapes, they read back."""
    return json.dumps(text, ensure_ascii=False)


def _cpp_text(text: str) -> str:
    """C++ has no \\u for control characters."""
    plain = (f"\\{ord(c):03o}" if ord(c) < 32 and c not in "\n\r\t" else _text(c)[1:-1] for c in text)
    return f'"{"".join(plain)}"'


def _kotlin_text(text: str) -> str:
    """Kotlin has no \\f, and puts variables where a $ is."""
    special = {"$": r"\$", "\f": r"\u000c"}
    return f'"{"".join(special.get(c) or _text(c)[1:-1] for c in text)}"'
