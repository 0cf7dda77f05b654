"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexport.errors import UsageError


def refuse_missing_folder(output: Path) -> None:
    """Say at once, and not after the work, that ``output`` has no folder to be in."""
    if not output.parent.is_dir():
        raise UsageError(f"{output} cannot be written", why=f"there is no folder {output.parent}")


@contextmanager
def whole_or_absent(output: Path) -> Iterator[Path]:
    """A file beside ``output`` that takes its place only when it is complete."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written", why=str(error), next="choose another -o") from error
    finally:
        part.unlink(missing_ok=True)
