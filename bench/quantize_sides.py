"""The two sides of ``quantize.py``: both make a file in a process of its own, timed the same way."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from command import run_hexport, why
from plain_runs import one_line
from timed_child import run_timed

Feed = Mapping[str, Any]
STOCK = Path(__file__).with_name("stock_quantize.py")
ACTIVATIONS = {"8a8w": "uint8", "16a8w": "uint16"}
"""What the stock recipe is asked for; it has no search, so it has no ``auto``."""
_KEPT = ("met", "sqnr_db", "sqnr_cpu_db", "recipe", "precisions", "mac_shares", "seconds", "warnings")
_OK, _SHORT = 0, 1
"""Exit codes with which ``hexport quantize`` leaves a model."""


@dataclass(frozen=True)
class Made:
    """What one side made of a model."""

    file: Path | None
    seconds: float
    peak_bytes: int | None
    failure: str = ""
    """Why there is no file."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """hexport's own words on it."""

    @property
    def size(self) -> int | None:
        """Bytes on disk, with external data."""
        if self.file is None:
            return None
        return sum(f.stat().st_size for f in self.file.parent.iterdir() if f.suffix != ".json")


def write_samples(samples: Sequence[Feed], folder: Path, keep: set[str]) -> Path:
    """One .npz a sample, of the inputs that the model still has: both sides read them one by one."""
    folder.mkdir(parents=True)
    for number, sample in enumerate(samples):
        arrays: dict[str, Any] = {name: array for name, array in sample.items() if name in keep}
        np.savez(folder / f"{number:04}.npz", **arrays)
    return folder


def without_metadata(model: Path, copy: Path) -> Path:
    """What of a prepared model the stock recipe can take: it dies of any entry in ``metadata_props``."""
    if not copy.is_file():
        proto = onnx.load(model)
        del proto.metadata_props[:]
        onnx.save(proto, copy)
    return copy


def by_stock(
    model: Path, samples: Path, folder: Path, scheme: str, limit: float, method: str = "MinMax"
) -> Made:
    """ONNX Runtime's documented recipe."""
    folder.mkdir(parents=True)
    output = folder / "model.onnx"
    command = [str(STOCK), str(model), str(samples), str(output)]
    options = ["--activations", ACTIVATIONS[scheme], "--method", method]
    ended = run_timed([sys.executable, *command, *options], limit)
    if ended.code == 0 and output.is_file():
        return Made(output, ended.seconds, ended.peak_bytes)
    return Made(None, ended.seconds, ended.peak_bytes, one_line(ended.words) or "no file, no message")


def by_hexport(
    model: Path,
    samples: Path,
    folder: Path,
    scheme: str,
    limit: float,
    *,
    target: str,
    effort: str,
    min_sqnr: float | None = None,
) -> Made:
    """``hexport quantize --json``, the command as a user has it, with a cache that is empty."""
    folder.mkdir(parents=True)
    output = folder / "model.onnx"
    options = ["--target", target, "--scheme", scheme, "--effort", effort, "--calib", str(samples)]
    if min_sqnr is not None:
        options += ["--min-sqnr", f"{min_sqnr:g}"]
    cache = {"HEXPORT_CACHE": str(folder / "cache")}
    ended, document = run_hexport(["quantize", str(model), "-o", str(output), *options], limit, cache)
    said = {key: document[key] for key in _KEPT if key in document}
    if ended.code in (_OK, _SHORT) and output.is_file():
        return Made(output, ended.seconds, ended.peak_bytes, said=said)
    return Made(None, ended.seconds, ended.peak_bytes, why(ended, document), said)


def prepare(asked: Sequence[str], output: Path, target: str, limit: float) -> Made:
    """``hexport prepare`` on a model, asked for so; the file appears only when it is whole."""
    ended, document = run_hexport(["prepare", *asked, "-o", str(output), "--target", target], limit)
    if output.is_file():
        return Made(output, ended.seconds, ended.peak_bytes)
    return Made(None, ended.seconds, ended.peak_bytes, why(ended, document))
