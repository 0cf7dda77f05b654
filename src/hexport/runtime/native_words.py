"""What native code prints kept from stdout, which under ``--json`` holds one document and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def native_words_to_stderr() -> Iterator[None]:
    """Meanwhile this whole process writes to stderr what it would write to stdout."""
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # there is no stdout
        yield
        return
    _flush()
    try:
        with contextlib.suppress(OSError):  # there is no stderr
            os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        _flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _flush() -> None:
    """Python's buffer and C's, each to where it was meant to go."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).fflush(None)
