"""Text to read: single lines, and photographs with text on them. As OpenCV, PP-OCR works in BGR."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hexport.zoo.photos import HALF, crop, load, load_pages, tensor
from hexport.zoo.sentences import split_sentences

if TYPE_CHECKING:
    from hexport.zoo.samples import Feed, Request

Colour = tuple[int, int, int]


def lines(ask: Request) -> list[Feed]:
    """For recognisers: one line, scaled to the model's height, padded on the right with zeros."""
    return [_line(ask, turned=False) for _ in range(ask.count)]


def turned_lines(ask: Request) -> list[Feed]:
    """For direction classifiers: every other line upside down."""
    return [_line(ask, turned=bool(i % 2)) for i in range(ask.count)]


def scenes(ask: Request) -> list[Feed]:
    """For detectors: photographs with some lines of text drawn on, and every third a photographed page."""
    photos, pages = load(ask), load_pages(ask)
    *_, height, width = ask.shape()
    feeds = []
    for i in range(ask.count):
        if i % 3 == 2:
            view = _part_of_page(pages[i % len(pages)], (width, height), ask.rng)
        else:
            view = crop(photos[i % len(photos)], (width, height), ask.rng)
            _write_on(view, ask)
        feeds.append(ask.named(tensor(view, *HALF, bgr=True)))
    return feeds


def phrase(ask: Request, longest: int) -> str:
    """Some words in a row out of a sentence, at most ``longest`` characters."""
    sentences = split_sentences(ask.split)
    words = sentences[ask.rng.integers(len(sentences))].split()
    words = words[int(ask.rng.integers(max(1, len(words) - 2))) :]
    text = words[0]
    for word in words[1:]:
        if len(text) + 1 + len(word) > longest:
            break
        text += " " + word
    return text


def render(text: str, size: int, ink: Colour, paper: Colour) -> Image.Image:
    """A line of text on plain paper, cropped as a detector would crop it."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    margin = max(2, size // 6)
    box = (math.ceil(right - left) + 2 * margin, math.ceil(bottom - top) + 2 * margin)
    image = Image.new("RGB", box, paper)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, fill=ink, font=font)
    return image


def inks(rng: np.random.Generator) -> tuple[Colour, Colour]:
    """A dark and a light colour, as ink and paper or the other way round."""
    dark, light = rng.integers(0, 90, 3), rng.integers(170, 256, 3)
    first, second = (dark, light) if rng.random() < 0.7 else (light, dark)
    return _colour(first), _colour(second)


def _colour(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Colour:
    red, green, blue = (int(v) for v in values)
    return red, green, blue


def _line(ask: Request, *, turned: bool) -> Feed:
    *_, height, width = ask.shape()
    text = phrase(ask, longest=width // 14)
    image = render(text, int(ask.rng.integers(24, 48)), *inks(ask.rng))
    if turned:
        image = image.rotate(180)
    fitted = min(width, math.ceil(height * image.width / image.height))
    pixels = tensor(image.resize((fitted, height), Image.Resampling.BILINEAR), *HALF, bgr=True)
    padded = np.zeros(ask.shape(), np.float32)
    padded[..., :fitted] = pixels
    return ask.named(padded)


def _write_on(view: Image.Image, ask: Request) -> None:
    top = int(ask.rng.integers(4, 40))
    while top < view.height - 40:
        label = render(phrase(ask, longest=22), int(ask.rng.integers(16, 30)), *inks(ask.rng))
        left = int(ask.rng.integers(0, max(1, view.width - label.width)))
        view.paste(label, (left, top))
        top += label.height + int(ask.rng.integers(20, 90))


def _part_of_page(page: Image.Image, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    side = min(page.size)
    left = int(rng.integers(page.width - side + 1))
    return page.resize(size, Image.Resampling.BICUBIC, box=(left, 0, left + side, side))
