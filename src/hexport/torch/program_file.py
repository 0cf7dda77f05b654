"""A saved ``.pt2`` becomes a description; nothing in the file is executed."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.model.file import UnreadableModel
from hexport.torch.description import TorchModel, checked
from hexport.torch.failures import ProgramRefused
from hexport.torch.installed import need_torch
from hexport.torch.program_checks import Suspicious, check_payload, check_program, check_records
from hexport.torch.quiet import quiet

if TYPE_CHECKING:
    from torch.export import ExportedProgram

OURS = "hexport.json"
"""What hexport adds to the programs that it saves: names."""
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_AGAIN = "export and save it again: torch.export.save(torch.export.export(module, inputs), 'model.pt2')"


@dataclass(frozen=True)
class _Archive:
    """torch's own reader, so that what is checked is what will be loaded."""

    records: tuple[str, ...]
    read: Any

    def json(self, name: str) -> Any:
        return json.loads(self.read(name))


def from_program_file(path: Path) -> TorchModel:
    """The program in ``path``, with the inputs it was captured with."""
    need_torch(str(path))
    data = _bytes(path)
    names = _checked_names(path, data)
    program = _load(path, data)
    # They were checked, and would be turned into code all the same.
    if hasattr(program, "_guards_code"):
        program._guards_code = []
    return checked(TorchModel(program, name=str(path), **names))


def refuse_pickle(path: Path) -> None:
    """A bare ``.pt`` or ``.pth`` is a pickle: loading it runs what is in it, and it has no graph."""
    raise ProgramRefused(
        f"{path} is a pickle, and not loaded",
        why="a file of torch.save holds weights or Python objects; weights alone are no model, and loading "
        "objects runs any code that is in them",
        next="name the code that makes the model, MODULE:FACTORY, and load the weights there with "
        "torch.load(…, weights_only=True); or save a program: torch.export.save(program, 'model.pt2')",
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableModel(f"{path} cannot be read", why=str(error), next="check the path") from error


def _checked_names(path: Path, data: bytes) -> dict[str, Any]:
    """Look at all that loading would act on; gives the names that hexport saved, if it did."""
    try:
        archive = _open(data)
        check_records(archive.records)
        for config in (
            "data/weights/model_weights_config.json",
            "data/constants/model_constants_config.json",
        ):
            check_payload(archive.json(config))
        check_program(archive.json("models/model.json"))
        _check_examples(archive.read("data/sample_inputs/model.pt"))
        return _names(archive)
    except Suspicious as error:
        raise ProgramRefused(
            f"{path} is refused",
            why=str(error),
            next="load only programs that you saved yourself; or " + _AGAIN,
        ) from error
    # A damaged archive fails in torch's reader, in json or at a key that is not there.
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ProgramRefused(
            f"{path} is not a program that torch.export.save of this PyTorch wrote",
            why=f"{type(error).__name__}: {reason[0] if reason else ''}",
            next=_AGAIN,
        ) from error


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


def _load(path: Path, data: bytes) -> ExportedProgram:
    from torch.export.pt2_archive._package import load_pt2

    try:
        with quiet(), _weights_only():
            found: ExportedProgram = load_pt2(io.BytesIO(data)).exported_programs["model"]
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ProgramRefused(
            f"{path} cannot be loaded",
            why=f"{type(error).__name__}: {reason[0] if reason else ''}",
            next=_AGAIN,
        ) from error
    return found


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
