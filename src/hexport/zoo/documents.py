"""Pages with titles, paragraphs, a figure and a table; and tables by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hexport.zoo.photos import IMAGENET, crop, load, load_pages, tensor
from hexport.zoo.sentences import split_sentences
from hexport.zoo.text_images import phrase

if TYPE_CHECKING:
    from hexport.zoo.samples import Feed, Request

_PAGE = (850, 1100)
_MARGIN = 70


def pages(ask: Request) -> list[Feed]:
    """For layout models; every fourth is a photographed page."""
    photos, scans = load(ask), load_pages(ask)
    *_, height, width = ask.shape()
    feeds = []
    for i in range(ask.count):
        page = scans[i % len(scans)] if i % 4 == 3 else _page(photos[i % len(photos)], ask)
        view = page.resize((width, height), Image.Resampling.BILINEAR)
        feeds.append(ask.named(tensor(view, *IMAGENET, bgr=True)))
    return feeds


def tables(ask: Request) -> list[Feed]:
    """For table models: the longer side at the model's size, the rest padded with zeros after normalising."""
    *_, height, width = ask.shape()
    feeds = []
    for _ in range(ask.count):
        table = _table(int(ask.rng.integers(420, 800)), ask)
        scale = min(height / table.height, width / table.width)
        size = (int(table.width * scale), int(table.height * scale))
        pixels = tensor(table.resize(size, Image.Resampling.BILINEAR), *IMAGENET, bgr=True)
        padded = np.zeros(ask.shape(), np.float32)
        padded[..., : size[1], : size[0]] = pixels
        feeds.append(ask.named(padded))
    return feeds


def _page(photo: Image.Image, ask: Request) -> Image.Image:
    """A title, then blocks in random order until the page is full."""
    page = Image.new("RGB", _PAGE, "white")
    draw = ImageDraw.Draw(page)
    width = _PAGE[0] - 2 * _MARGIN
    draw.text((_MARGIN, _MARGIN), phrase(ask, longest=32), fill="black", font=ImageFont.load_default(38))
    top = _MARGIN + 80
    while top < _PAGE[1] - 260:
        block = ask.rng.choice(["text", "text", "figure", "table"])
        if block == "text":
            top = _paragraph(draw, top, width, ask)
        else:
            part = crop(photo, (width * 2 // 3, 220), ask.rng) if block == "figure" else _table(width, ask)
            part = part.crop((0, 0, part.width, min(part.height, _PAGE[1] - top - _MARGIN)))
            page.paste(part, (_MARGIN, top))
            top += part.height
        top += 30
    return page


def _paragraph(draw: ImageDraw.ImageDraw, top: int, width: int, ask: Request) -> int:
    font = ImageFont.load_default(17)
    sentences = split_sentences(ask.split)
    words = " ".join(sentences[i] for i in ask.rng.permutation(len(sentences))[:6]).split()
    line = ""
    for word in [*words, ""]:
        if word and draw.textlength(f"{line} {word}", font=font) < width:
            line = f"{line} {word}".strip()
            continue
        draw.text((_MARGIN, top), line, fill=(30, 30, 30), font=font)
        line, top = word, top + 24
    return top


def _table(width: int, ask: Request) -> Image.Image:
    """A ruled table with a header row, words on the left and numbers in the rest."""
    columns, rows = int(ask.rng.integers(3, 6)), int(ask.rng.integers(4, 9))
    tall, wide = 36, width // columns
    table = Image.new("RGB", (columns * wide + 1, rows * tall + 1), "white")
    draw = ImageDraw.Draw(table)
    font = ImageFont.load_default(16)
    for row in range(rows):
        for column in range(columns):
            left, top = column * wide, row * tall
            draw.rectangle((left, top, left + wide, top + tall), outline=(60, 60, 60))
            words = row == 0 or column == 0
            text = phrase(ask, longest=wide // 10) if words else f"{ask.rng.uniform(0, 1000):.1f}"
            draw.text((left + 6, top + 8), text, fill="black", font=font)
    return table
