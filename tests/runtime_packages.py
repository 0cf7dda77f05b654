"""Real packages to load: one of ``hexport build`` whose buckets share weights, one with a binary a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime

import verified_packages
from hexport import facts
from hexport.building.verb import build
from made_packages import edit
from sized_models import TOKENS, attention_samples, masked_attention

CHIP = "SM8650"
LENGTHS = (8, 16)
"""The buckets of both packages."""
_KEPT: list[TemporaryDirectory[str]] = []


@cache
def _folder() -> Path:
    _KEPT.append(TemporaryDirectory(prefix="runtime-packages-"))
    return Path(_KEPT[-1].name)


@cache
def attention() -> Path:
    """ids, mask [batch, seq] → y; built for a batch of one and two lengths, with shared weights."""
    folder = _folder()
    onnx.save(masked_attention(), original())
    calib = attention_samples(folder / "calib", [5, 9, 14, 16])
    build(
        original(),
        output=folder / "attention",
        targets=[CHIP],
        scheme="fp16",
        calib=calib,
        buckets={"seq": list(LENGTHS)},
        dims={"batch": 1},
    )
    return folder / "attention"


def original() -> Path:
    """What :func:`attention` was built from."""
    return _folder() / "attention.onnx"


@cache
def rows() -> Path:
    """x [1, seq, 8] → y, with a frozen ``gain``; its binaries load on the simulator as they are."""
    package = verified_packages.build(_folder() / "rows", _folder() / "work", LENGTHS, share=False)
    sdk = facts.sdk_of(facts.installed_release() or "")
    edit(package, lambda document: document["toolchain"].update(qnn_sdk=sdk))
    return package


def question(length: int, batch: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of :func:`attention`."""
    ids = np.random.default_rng(seed).integers(1, TOKENS, (batch, length))
    return {"ids": ids, "mask": np.ones_like(ids)}


@cache
def _reference() -> onnxruntime.InferenceSession:
    attention()
    return onnxruntime.InferenceSession(original(), providers=["CPUExecutionProvider"])


def answer(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the original says."""
    return _reference().run(None, dict(inputs))[0]


def decibels(expected: np.ndarray, got: np.ndarray) -> float:
    """−∞ for another shape."""
    if expected.shape != got.shape:
        return -np.inf
    noise = float(((expected - got) ** 2).sum())
    return np.inf if noise == 0 else 10 * np.log10(float((expected**2).sum()) / noise)
