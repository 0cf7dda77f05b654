"""A saved ``.pt2`` becomes a description; nothing in the file is executed."""

from __future__ import annotations

from pathlib import Path

from hexport.model.file import UnreadableModel
from hexport.torch.description import TorchModel, checked
from hexport.torch.failures import ProgramRefused
from hexport.torch.installed import need_torch
from hexport.torch.program_checks import Suspicious
from hexport.torch.program_reading import OURS, Damaged, ReadProgram, Unloadable, read_program

__all__ = ["OURS", "from_program_file", "refuse_pickle"]

_AGAIN = "export and save it again: torch.export.save(torch.export.export(module, inputs), 'model.pt2')"


def from_program_file(path: Path) -> TorchModel:
    """The program in ``path``, with the inputs it was captured with."""
    need_torch(str(path))
    found = _read(path, _bytes(path))
    return checked(TorchModel(found.program, name=str(path), **found.names))


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


def _read(path: Path, data: bytes) -> ReadProgram:
    try:
        return read_program(data)
    except Suspicious as error:
        raise ProgramRefused(
            f"{path} is refused",
            why=str(error),
            next="load only programs that you saved yourself; or " + _AGAIN,
        ) from error
    except Damaged as error:
        raise ProgramRefused(
            f"{path} is not a program that torch.export.save of this PyTorch wrote",
            why=str(error),
            next=_AGAIN,
        ) from error
    except Unloadable as error:
        raise ProgramRefused(f"{path} cannot be loaded", why=str(error), next=_AGAIN) from error
