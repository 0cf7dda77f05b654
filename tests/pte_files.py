"""Small .pte files of every kind, made once for all tests by the real executorch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from executorch_toolchain import RELEASE
from hexport import facts
from hexport.environments.record import Toolchain
from hexport.executorch.pte.partition import Partition
from hexport.executorch.pte.sidecar import Method, Sidecar, TensorSpec, file_sha256, write_sidecar
from hexport.storage.locking import exclusive

_MAKER = Path(__file__).with_name("make_ptes.py")
CHIP = "SM8650"


@dataclass(frozen=True)
class MadePtes:
    """A folder of them; HEXPORT_DATA has the toolchain that made them."""

    folder: Path
    toolchain: Toolchain

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.pte"

    def inputs(self, name: str) -> dict[str, NDArray[Any]]:
        """By their number."""
        return self._arrays(name, "in", "input")

    def expected(self, name: str) -> dict[str, NDArray[Any]]:
        """What torch computes for them."""
        return self._arrays(name, "out", "output")

    def _arrays(self, name: str, stored: str, called: str) -> dict[str, NDArray[Any]]:
        with np.load(self.folder / f"{name}.npz") as arrays:
            numbers = [key for key in arrays.files if key.startswith(f"{stored}_")]
            return {key.replace(stored, called, 1): arrays[key] for key in numbers}


@pytest.fixture(scope="module", name="ptes")
def ptes_fixture(executorch: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadePtes]:
    """With a cache of hexport's own."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_CACHE", str(tmp_path_factory.mktemp("cache")))
        # Of two processes that share the tests, one makes them and the other waits.
        with exclusive(shared / "ptes.lock", lambda: None):
            _make(executorch, shared / "ptes")
        yield MadePtes(shared / "ptes", executorch)


def _make(toolchain: Toolchain, folder: Path) -> None:
    done = folder / "done"
    if done.exists():
        return
    folder.mkdir(exist_ok=True)
    made = subprocess.run(
        [toolchain.python, "-E", "-s", str(_MAKER), str(folder)],
        env={**os.environ, **toolchain.environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    done.touch()


def describe(pte: Path, inputs: dict[str, Any], outputs: dict[str, Any], program: Path | None = None) -> Path:
    """The file beside a .pte: its names, in order, and what it was made of."""
    soc = facts.find_target(CHIP)

    def specs(arrays: dict[str, Any]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name, array.dtype.name, array.shape) for name, array in arrays.items())

    made_of = (program.name, file_sha256(program)) if program else ("", "")
    method = Method("forward", specs(inputs), specs(outputs), Partition((), ()), *made_of)
    sidecar = Sidecar(
        "0", RELEASE, "tests", "8a8w", soc.chip, soc.soc_model, soc.htp_arch, (method,),
        pte_sha256=file_sha256(pte),
    )  # fmt: skip
    return write_sidecar(pte, sidecar)


def decibels(expected: NDArray[Any], got: NDArray[Any]) -> float:
    assert expected.shape == got.shape
    noise = float(np.sum((got.astype(float) - expected) ** 2))
    return 10 * np.log10(float(np.sum(expected.astype(float) ** 2)) / noise) if noise else np.inf
