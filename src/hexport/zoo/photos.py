"""Photographs as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hexport.zoo.samples import Feed, Request

Rgb = tuple[float, float, float]
IMAGENET: tuple[Rgb, Rgb] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF: tuple[Rgb, Rgb] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""Maps 0…255 to −1…1."""
LITE: tuple[Rgb, Rgb] = ((127 / 255,) * 3, (128 / 255,) * 3)
"""EfficientNet-Lite's own: the ImageNet constants also work with it, but with less certainty."""


def photographs(ask: Request) -> list[Feed]:
    """For classifiers: each photograph once by its middle, after that random crops, mirrored or not."""
    images = load(ask)
    *_, height, width = ask.shape()
    feeds = []
    for i in range(ask.count):
        image = images[i % len(images)]
        if i < len(images):
            view = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        else:
            view = crop(image, (width, height), ask.rng)
        feeds.append(ask.named(tensor(view, *LITE)))
    return feeds


def load(ask: Request) -> list[Image.Image]:
    return [_rgb(path) for path in ask.files(f"photos-{ask.split}")]


def load_pages(ask: Request) -> list[Image.Image]:
    return [_rgb(path) for path in ask.files(f"pages-{ask.split}")]


def _rgb(path: Any) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def crop(
    image: Image.Image, size: tuple[int, int], rng: np.random.Generator, *, mirrored: bool = True
) -> Image.Image:
    """A random part, at least six tenths of what fits, at ``size``; half of the time ``mirrored``."""
    width, height = size
    scale = min(image.width / width, image.height / height) * rng.uniform(0.6, 1.0)
    w, h = width * scale, height * scale
    left, top = rng.uniform(0, image.width - w), rng.uniform(0, image.height - h)
    part = image.resize(size, Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))
    return ImageOps.mirror(part) if mirrored and rng.random() < 0.5 else part


def tensor(
    image: Image.Image, mean: Sequence[float], std: Sequence[float], *, bgr: bool = False
) -> NDArray[np.float32]:
    """1×3×H×W, scaled to 0…1 and normalised channel by channel, in the order the channels then have."""
    pixels = np.asarray(image, np.float32) / 255
    if bgr:
        pixels = pixels[:, :, ::-1]
    normal = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)
