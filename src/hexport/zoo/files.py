"""The bytes of files, as Magika looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.zoo.samples import Feed, Request

_BLOCK = 4096
_MANY_LINES = 40
_PADDING = 256
"""One more than a byte can be."""


def file_bytes(ask: Request) -> list[Feed]:
    """Each file once; after that, what follows a random line of the files that have many."""
    contents = [path.read_bytes() for path in ask.files(f"files-{ask.split}")]
    texts = [content.splitlines(keepends=True) for content in contents if b"\0" not in content]
    texts = [lines for lines in texts if len(lines) >= _MANY_LINES]
    length = ask.shape()[1]
    feeds = []
    for i in range(ask.count):
        if i < len(contents):
            content = contents[i]
        else:
            lines = texts[i % len(texts)]
            content = b"".join(lines[int(ask.rng.integers(len(lines) // 2)) :])
        feeds.append(ask.named(features(content, length)[None]))
    return feeds


def features(content: bytes, length: int) -> NDArray[np.int32]:
    """The first and the last bytes, half each, without white space at the ends of the file."""
    half = length // 2
    beginning = content[:_BLOCK].lstrip()[:half]
    end = content[-_BLOCK:].rstrip()[-half:]
    array = np.full(length, _PADDING, np.int32)
    array[: len(beginning)] = np.frombuffer(beginning, np.uint8)
    array[length - len(end) :] = np.frombuffer(end, np.uint8)
    return array
