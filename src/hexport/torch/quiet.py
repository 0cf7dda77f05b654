"""torch writes graphs to stdout and warnings to stderr while it works; stdout belongs to results."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """For torch's own work. What goes wrong in it is raised, and said once, in hexport's words."""
    handlers = _handlers()
    for handler in handlers:
        handler.addFilter(_nothing)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        for handler in handlers:
            handler.removeFilter(_nothing)


@contextlib.contextmanager
def users_turn() -> Iterator[None]:
    """For the user's own code: what it prints is kept, and goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _handlers() -> list[logging.Handler]:
    """torch has one on each of its loggers that has a level of its own."""
    own = (
        logger for name, logger in logging.root.manager.loggerDict.items() if name.split(".")[0] == "torch"
    )
    return [handler for logger in own if isinstance(logger, logging.Logger) for handler in logger.handlers]


def _nothing(_: logging.LogRecord) -> bool:
    return False
