"""Real toolchains for tests, each made once for all of them: the packages are fetched as a user would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hexport.environments import registry
from hexport.environments.failures import ToolchainError
from hexport.environments.record import Toolchain


@contextmanager
def real_toolchain(
    name: str, make: Callable[[], Toolchain], factory: pytest.TempPathFactory
) -> Iterator[Toolchain]:
    """HEXPORT_TEST_DATA names a folder that has it, or shall keep it.

    Of two processes that ``make`` it at once, one makes it and the other waits.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_DATA", os.environ.get("HEXPORT_TEST_DATA") or str(_shared(factory, name)))
        patch.delenv("HEXPORT_TOOLCHAIN", raising=False)
        try:
            found = registry.find(name)
        except ToolchainError:
            found = make()
        yield found


def _shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """One folder for the processes that share the tests."""
    own = factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
