"""Handing out files that belong together: all of them, or those that were there before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hexport.errors import UsageError
from hexport.storage.sweeping import own_folder, sweep

HIDDEN = ".hexport-"
"""What folders in the user's own begin with, for as long as they are there."""


def refuse_unwritable(folder: Path) -> None:
    """Say at once, and not after minutes of compiling, that nothing can be written to ``folder``."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        Path(tempfile.mkdtemp(prefix=HIDDEN, dir=place)).rmdir()
    except OSError as error:
        raise _unwritable(folder, error) from error


def publish(binaries: Sequence[Path], models: Sequence[Path], folder: Path) -> None:
    """Move finished files to ``folder``. A model is never there without the binary that it names."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder, HIDDEN)  # what a process left that was killed at this
        with own_folder(folder, HIDDEN) as part:
            _move(binaries, models, part, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _move(binaries: Sequence[Path], models: Sequence[Path], part: Path, folder: Path) -> None:
    # The slow part first: over here all that is left are renames.
    for file in (*binaries, *models):
        shutil.move(file, part / file.name)
    for model in models:
        (folder / model.name).unlink(missing_ok=True)
    for file in (*binaries, *models):
        (part / file.name).replace(folder / file.name)


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"nothing can be written to {folder}", why=str(error), next="choose another folder with -o"
    )
