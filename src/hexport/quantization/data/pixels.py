"""A picture file as an array, as the declared preprocessing says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from hexport.quantization.data.preprocessing import Preprocess
from hexport.quantization.data.sample import Array

# Wider modes (I;16, I, F) are cut off at 255 by Pillow's conversion instead of being scaled.
_EIGHT_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "La", "RGBa"})
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def load_picture(path: Path, declared: Preprocess, size: tuple[int, int]) -> Array:
    """The input that a picture file becomes."""
    with Image.open(path) as image:
        if getattr(image, "n_frames", 1) > 1:
            raise ValueError("it has several frames")
        if image.mode not in _EIGHT_BITS:
            raise ValueError(f"its pixels ({image.mode}) have more than 8 bits a channel")
        upright = ImageOps.exif_transpose(image)
        return _numbers(
            _resized(upright.convert("L" if declared.colour == "gray" else "RGB"), declared, size), declared
        )


def _resized(image: Image.Image, declared: Preprocess, size: tuple[int, int]) -> Image.Image:
    width, height = size
    chosen = _FILTERS[declared.filter]
    if declared.resize == "stretch":
        return image.resize(size, chosen)
    if declared.resize == "crop":
        # The largest part of the picture that has the input's proportions, or the middle of it.
        scale = min(image.width / width, image.height / height) * (declared.crop_fraction or 1)
        left, top = (image.width - width * scale) / 2, (image.height - height * scale) / 2
        return image.resize(size, chosen, box=(left, top, left + width * scale, top + height * scale))
    scale = min(width / image.width, height / image.height)
    inner = max(1, min(width, round(image.width * scale))), max(1, min(height, round(image.height * scale)))
    fill = declared.pad or 0
    canvas = Image.new(image.mode, size, fill if image.mode == "L" else (fill, fill, fill))
    centre = (width - inner[0]) // 2, (height - inner[1]) // 2
    canvas.paste(image.resize(inner, chosen), (0, 0) if declared.anchor == "top-left" else centre)
    return canvas


def _numbers(image: Image.Image, declared: Preprocess) -> Array:
    dtype = np.dtype(declared.dtype)
    # float32 as training code computes; whole numbers in float64, where they are exact.
    exact: np.dtype[Any] = np.dtype(np.float32) if dtype in (np.float16, np.float32) else np.dtype(np.float64)
    pixels: Array = np.atleast_3d(np.asarray(image)).astype(exact)
    if declared.colour == "bgr":
        pixels = pixels[:, :, ::-1]
    over, under = declared.ratio
    values = (pixels * over / under - np.array(declared.means, exact)) / np.array(declared.stds, exact)
    axes = tuple("HWC".index(axis) for axis in declared.layout if axis != "N")
    values = values.transpose(axes)[None] if "N" in declared.layout else values.transpose(axes)
    return np.asarray(values if dtype.kind == "f" else _whole(values, dtype), dtype, order="C")


def _whole(values: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu":
        raise ValueError(f"a picture cannot be {dtype}")
    limits = np.iinfo(dtype)
    if values.min() < limits.min or values.max() > limits.max or (values != np.rint(values)).any():
        raise ValueError(
            f"scale, mean and std give {values.min():g} to {values.max():g}, not all of which {dtype} holds"
        )
    return values
