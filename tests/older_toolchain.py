"""A toolchain of an older release, made once for all tests: the real packages, fetched as a user would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hexport.environments import adding, registry
from hexport.environments.failures import ToolchainError
from hexport.environments.record import Toolchain
from toolchain_standins import other_pythons

RELEASE = "2.3.0"
"""The last release for Linux with the QNN CPU backend; it does not work with hexport's own onnxruntime."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """In another Python if there is one. HEXPORT_TEST_DATA names a folder that has it, or shall keep it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_DATA", os.environ.get("HEXPORT_TEST_DATA") or str(_shared(tmp_path_factory)))
        patch.delenv("HEXPORT_TOOLCHAIN", raising=False)
        yield _found_or_made()


def _found_or_made() -> Toolchain:
    try:
        return registry.find(f"onnxruntime-qnn-{RELEASE}")
    except ToolchainError:
        python = next(iter(other_pythons((3, 11), (3, 14))), None)
        # Of two that add it at once, one makes it and the other waits.
        return adding.add(f"onnxruntime-qnn=={RELEASE}", python=python).toolchain


def _shared(factory: pytest.TempPathFactory) -> Path:
    """One folder for the processes that share the tests."""
    own = factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "older-toolchain"
