"""Real inputs for each model: photographs, speech, rendered text, files, sentences.

Calibration and test inputs never share their material: other photographs, another stretch of the
recording, other files, other sentences. The same call gives the same arrays.
"""

from __future__ import annotations

import importlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hexport.errors import MissingDependency, UsageError
from hexport.zoo.catalogue import Entry, assets, entry
from hexport.zoo.fetch import ensure, tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

Split = Literal["calib", "test"]
Feed = dict[str, "NDArray[Any]"]

# kind (models.toml) -> the module of this room and the function in it that makes such inputs.
KINDS: dict[str, tuple[str, str]] = {
    "photos": ("photos", "photographs"),
    "text-scenes": ("text_images", "scenes"),
    "text-lines": ("text_images", "lines"),
    "text-lines-turned": ("text_images", "turned_lines"),
    "seals": ("seals", "seals"),
    "pages": ("documents", "pages"),
    "tables": ("documents", "tables"),
    "pcm": ("speech", "pcm"),
    "waveforms": ("speech", "waveforms"),
    "pitch": ("speech", "pitch"),
    "sound-22k": ("speech", "sound_22k"),
    "log-power": ("speech", "log_power"),
    "vad-frames": ("speech_models", "vad_frames"),
    "vad-blocks": ("speech_models", "vad_blocks"),
    "mel-windows": ("speech_models", "mel_windows"),
    "file-bytes": ("files", "file_bytes"),
    "sentences": ("sentences", "sentences"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a maker of inputs is asked for."""

    entry: Entry
    count: int
    split: Split
    rng: np.random.Generator
    say: Callable[[str], None]

    def files(self, group: str) -> list[Path]:
        """The fetched files of an asset group."""
        return ensure(assets(group), self.say)

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of the model's input number ``index``."""
        return self.entry.inputs[index].shape

    def named(self, *arrays: NDArray[Any]) -> Feed:
        """Arrays by the names of the model's inputs, in their order."""
        return {i.name: a for i, a in zip(self.entry.inputs, arrays, strict=True)}


def inputs(
    name: str, *, count: int = 8, split: Split = "calib", seed: int = 0, say: Callable[[str], None] = tell
) -> list[Feed]:
    """``count`` inputs for the model ``name``, each by input name, at the catalogue's shapes."""
    import numpy as np

    model = entry(name)
    if split not in ("calib", "test"):
        raise UsageError(f"there is no split {split!r}", next="use calib or test")
    if count < 1:
        raise UsageError(f"{count} inputs cannot be made", next="ask for at least one")
    module, function = KINDS[model.kind]
    rng = np.random.default_rng([seed, zlib.crc32(f"{name}/{split}".encode())])
    try:
        make = getattr(importlib.import_module(f"hexport.zoo.{module}"), function)
        feeds: list[Feed] = make(Request(model, count, split, rng, say))
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"inputs for {name} need {error.name}", why=str(error), next="pip install 'hexport[zoo]'"
        ) from error
    for feed in feeds:
        _check(model, feed)
    return feeds


def _check(model: Entry, feed: Feed) -> None:
    """A maker that strays from the contract is a mistake of ours; it must not reach a calibration."""
    for i in model.inputs:
        array = feed[i.name]
        if array.shape != i.shape or array.dtype != i.dtype:
            raise AssertionError(f"{model.name}.{i.name}: {array.dtype}{array.shape}, not {i.dtype}{i.shape}")
