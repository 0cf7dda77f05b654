"""Keeping native logs where the user asked for them (``--native-log FILE``)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from hexport.errors import UsageError


def keep_logs(logs: Mapping[str, Path], destination: Path) -> None:
    """Write ``logs`` into one file, each under its title; those that do not exist said nothing."""
    try:
        with destination.open("wb") as kept:
            for title, log in logs.items():
                if len(logs) > 1:
                    kept.write(f"==== {title}\n".encode())
                if log.exists():
                    with log.open("rb") as source:
                        shutil.copyfileobj(source, kept)
    except OSError as error:
        raise UsageError(
            f"the native log cannot be written to {destination}",
            why=str(error),
            next="give --native-log a file in a folder that exists and may be written to",
        ) from error
