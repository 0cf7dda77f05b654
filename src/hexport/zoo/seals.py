"""Round seals with text along the rim, stamped on a page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from hexport.zoo.photos import IMAGENET, crop, load_pages, tensor
from hexport.zoo.text_images import phrase

if TYPE_CHECKING:
    import numpy as np

    from hexport.zoo.samples import Feed, Request


def seals(ask: Request) -> list[Feed]:
    pages = load_pages(ask)
    *_, height, width = ask.shape()
    feeds = []
    for i in range(ask.count):
        view = crop(pages[i % len(pages)], (width, height), ask.rng, mirrored=False)
        view = Image.blend(view, Image.new("RGB", view.size, "white"), ask.rng.uniform(0.5, 1.0))
        stamp = _seal(phrase(ask, longest=24).upper(), ask.rng)
        left = int(ask.rng.integers(width - stamp.width + 1))
        top = int(ask.rng.integers(height - stamp.height + 1))
        view.paste(stamp, (left, top), stamp)  # its alpha is the mask
        feeds.append(ask.named(tensor(view, *IMAGENET, bgr=True)))
    return feeds


def _seal(text: str, rng: np.random.Generator) -> Image.Image:
    """A ring, a pentagon in it, and the text letter by letter around the upper three quarters."""
    size = int(rng.integers(200, 300))
    red = (int(rng.integers(170, 240)), int(rng.integers(0, 50)), int(rng.integers(0, 60)), 255)
    stamp = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    draw = ImageDraw.Draw(stamp)
    draw.ellipse((3, 3, size - 4, size - 4), outline=red, width=max(3, size // 50))
    draw.regular_polygon((size / 2, size / 2, size / 8), 5, rotation=int(rng.integers(72)), fill=red)
    font = ImageFont.load_default(size // 9)
    radius = size * 0.38
    for i, letter in enumerate(text):
        turn = 270 * ((i + 0.5) / len(text) - 0.5)  # degrees from the top, clockwise
        tile = Image.new("RGBA", (size // 5, size // 5), (0, 0, 0, 0))
        ImageDraw.Draw(tile).text((tile.width / 2, tile.height / 2), letter, fill=red, font=font, anchor="mm")
        tile = tile.rotate(-turn, Image.Resampling.BICUBIC)
        x = size / 2 + radius * math.sin(math.radians(turn)) - tile.width / 2
        y = size / 2 - radius * math.cos(math.radians(turn)) - tile.height / 2
        stamp.alpha_composite(tile, (max(0, round(x)), max(0, round(y))))
    return stamp
