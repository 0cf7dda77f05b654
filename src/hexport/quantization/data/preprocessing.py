"""How a picture becomes the model's input: declared by the user, never guessed."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hexport.errors import UsageError
from hexport.model.dims import Shape
from hexport.records import RecordError, from_plain

EXAMPLE = """\
resize = "crop"                  # stretch | fit-pad (then also: pad = 114) | crop
layout = "NCHW"                  # or NHWC; the size is that of the model's input
colour = "rgb"                   # rgb | bgr | gray
scale  = "1/255"                 # first times this,
mean   = [0.485, 0.456, 0.406]   # then minus this,
std    = [0.229, 0.224, 0.225]   # then divided by this
dtype  = "float32"
"""
IN_FOLDER = ("preprocess.toml", "preprocess.json")
_CHOICES = {
    "resize": ("stretch", "fit-pad", "crop"),
    "layout": ("NCHW", "NHWC", "CHW", "HWC"),
    "colour": ("rgb", "bgr", "gray"),
    "anchor": ("centre", "top-left"),
    "filter": ("nearest", "bilinear", "bicubic"),
}


@dataclass(frozen=True)
class Preprocess:
    """What is done to each picture; ``mean`` and ``std`` are in the order that the channels then have."""

    resize: str
    layout: str
    colour: str
    scale: float | str
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    dtype: str
    pad: int | None = None
    """What fit-pad fills the rest with, 0 to 255."""
    anchor: str | None = None
    """Where fit-pad puts the picture: centre, unless told."""
    crop_fraction: float | None = None
    """How much of the largest part that fits crop keeps, from its middle: all, unless told."""
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise RecordError(f"{name}: {value!r} is none of {', '.join(allowed)}")
        self._check_companions()
        self.ratio  # noqa: B018 - parsed now, so that a bad one is refused here
        for name, values in (("mean", self.means), ("std", self.stds)):
            if len(values) not in (1, self.channels) or not all(map(math.isfinite, values)):
                raise RecordError(
                    f"{name}: expected a number, or {self.channels} of them, found {list(values)}"
                )
        if 0 in self.stds:
            raise RecordError("std: 0 cannot be divided by")

    def _check_companions(self) -> None:
        """A key that would be ignored is refused, as is one that is needed and absent."""
        for name, owner in (("pad", "fit-pad"), ("anchor", "fit-pad"), ("crop_fraction", "crop")):
            if getattr(self, name) is not None and self.resize != owner:
                raise RecordError(f'{name}: goes with resize = "{owner}" only')
        if self.resize == "fit-pad" and (self.pad is None or not 0 <= self.pad <= 255):
            raise RecordError(f"pad: fit-pad needs a value from 0 to 255 to fill with, found {self.pad}")
        if self.crop_fraction is not None and not 0 < self.crop_fraction <= 1:
            raise RecordError(f"crop_fraction: {self.crop_fraction} is not above 0 and up to 1")

    @property
    def channels(self) -> int:
        return 1 if self.colour == "gray" else 3

    @property
    def means(self) -> tuple[float, ...]:
        return self.mean if isinstance(self.mean, tuple) else (self.mean,)

    @property
    def stds(self) -> tuple[float, ...]:
        return self.std if isinstance(self.std, tuple) else (self.std,)

    @property
    def ratio(self) -> tuple[float, float]:
        """``scale`` as two numbers: pixels divided by 255 are not quite pixels times the nearest 1/255."""
        over, _, under = str(self.scale).partition("/")
        try:
            ratio = float(over), float(under or 1)
        except ValueError:
            ratio = math.nan, 1.0
        if not all(map(math.isfinite, ratio)) or 0 in ratio:
            raise RecordError(f'scale: {self.scale!r} is neither a number nor a ratio such as "1/255"')
        return ratio

    def size(self, name: str, shape: Shape, dtype: str) -> tuple[int, int]:
        """Width and height of the pictures for the input ``name``, which must have the declared form."""
        axes = dict(zip(self.layout, shape, strict=False))
        if len(shape) != len(self.layout) or axes["C"] != self.channels or axes.get("N", 1) != 1:
            wanted = ", ".join(str({"N": 1, "C": self.channels}.get(axis, axis)) for axis in self.layout)
            raise UsageError(
                f"{self.colour} pictures in {self.layout} do not fit input {name!r} of shape {list(shape)}",
                why=f"the declared preprocessing gives [{wanted}], one picture a sample",
                next="change layout or colour there, or the model's sizes with --dim and --input-shape",
            )
        if self.dtype != dtype:
            raise UsageError(
                f"the preprocessing gives {self.dtype}, and input {name!r} takes {dtype}",
                next=f'write dtype = "{dtype}" if scale, mean and std are meant for it',
            )
        return axes["W"], axes["H"]


def read_preprocess(path: Path) -> Preprocess:
    """The declaration in a TOML or JSON file."""
    try:
        text = path.read_text("utf-8")
        plain = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        return from_plain(Preprocess, plain, "preprocess")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} does not declare a preprocessing", why=str(error), next=f"a whole example:\n{EXAMPLE}"
        ) from error


def find_preprocess(given: Preprocess | Path | None, folder: Path) -> Preprocess:
    """What was given, else the file in the folder; never a default."""
    if isinstance(given, Preprocess):
        return given
    inside = [folder / name for name in IN_FOLDER if (folder / name).is_file()]
    if given is not None:
        return read_preprocess(given)
    if len(inside) != 1:
        teller = "two files say" if inside else "nothing says"
        raise UsageError(
            f"{folder} holds pictures, and {teller} how they become inputs",
            why="scaled in another way than in training they calibrate the model for inputs it never gets",
            next=f"write {IN_FOLDER[0]} into the folder, or give it with --preprocess FILE:\n{EXAMPLE}",
        )
    return read_preprocess(inside[0])
