"""The bytes of a saved program become the program, after a look at all that loading would act on.

The only place that loads one: here and in workers, whose Python has torch and may have nothing else of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexport.torch.program_checks import Suspicious, check_payload, check_program, check_records
from hexport.torch.quiet import quiet

if TYPE_CHECKING:
    from torch.export import ExportedProgram

OURS = "hexport.json"
"""What hexport adds to the programs that it saves: names."""
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
# Operators that quantise → the module that declares them. The second takes long to import.
_DECLARING = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization.pt2e.quantize_pt2e",
}


class Damaged(Exception):
    """The file is no program that torch.export.save of this PyTorch wrote."""


class Unloadable(Exception):
    """There is nothing wrong with what it holds, and torch does not load it."""


UNREADABLE = (Suspicious, Damaged, Unloadable)


@dataclass(frozen=True)
class ReadProgram:
    """A program, and the names that hexport saved with it, if it did."""

    program: ExportedProgram
    names: Mapping[str, Any]


@dataclass(frozen=True)
class _Archive:
    """torch's own reader, so that what is checked is what will be loaded."""

    records: tuple[str, ...]
    read: Any

    def json(self, name: str) -> Any:
        return json.loads(self.read(name))


def read_program(data: bytes, *, quantised: bool = False) -> ReadProgram:
    """What is in ``data``; nothing of it is executed. ``quantised``: operators that quantise may be in it.

    Raises Suspicious, Damaged or Unloadable, each with its reason.
    """
    operators, names = _checked(data, quantised)
    # Its guards stay: they were found to compare sizes and no more, and without them a program that was
    # captured for even sizes gives wrong numbers for odd ones, without a word.
    return ReadProgram(_load(data, _quantising(operators)), names)


def _checked(data: bytes, quantised: bool) -> tuple[frozenset[str], dict[str, Any]]:
    try:
        archive = _open(data)
        check_records(archive.records)
        for config in _CONFIGS:
            check_payload(archive.json(config))
        operators = check_program(archive.json("models/model.json"), quantised=quantised)
        _check_examples(archive.read("data/sample_inputs/model.pt"))
        return operators, _names(archive)
    except Suspicious:
        raise
    # A damaged archive fails in torch's reader, in json or at a key that is not there.
    except Exception as error:
        raise Damaged(_first_line(error)) from error


def _open(data: bytes) -> _Archive:
    import torch

    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    if reader.get_record("archive_format") != b"pt2":
        raise Suspicious("it is no archive of torch.export")
    return _Archive(tuple(reader.get_all_records()), reader.get_record)


def _check_examples(data: bytes) -> None:
    """They are a pickle in any case: of tensors and plain containers, which torch's safe reader takes."""
    import torch

    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise Suspicious(
            "its example inputs hold objects, which may run any code when they are loaded"
        ) from error


def _names(archive: _Archive) -> dict[str, Any]:
    if f"extra/{OURS}" not in archive.records:
        return {}
    document = archive.json(f"extra/{OURS}")
    kept = {key: tuple(map(str, document.get(key, ()))) for key in ("input_names", "output_names")}
    axes = [{int(a): str(n) for a, n in leaf.items()} for leaf in document.get("axis_names", ())]
    return {**kept, "axis_names": tuple(axes)}


def _quantising(operators: frozenset[str]) -> tuple[str, ...]:
    """The modules that declare them; torch knows an operator only when it was declared."""
    families = {name.split(".")[2] for name in operators if name.startswith("torch.ops.")}
    return tuple(module for family, module in _DECLARING.items() if family in families)


def _load(data: bytes, declaring: tuple[str, ...]) -> ExportedProgram:
    from torch.export.pt2_archive._package import load_pt2

    try:
        with quiet(), _weights_only():
            for module in declaring:
                importlib.import_module(module)
            found: ExportedProgram = load_pt2(io.BytesIO(data)).exported_programs["model"]
    except Exception as error:
        raise Unloadable(_first_line(error)) from error
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """torch's own bolt: every ``torch.load`` in here is the safe one, whatever it asks for."""
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = before
