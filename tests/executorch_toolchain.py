"""A toolchain with ExecuTorch, made once for all tests: the real packages, fetched as a user would."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hexport import facts
from hexport.environments import adding, registry
from hexport.environments.failures import DoesNotFit, ToolchainError
from hexport.environments.record import Toolchain

RELEASE = facts.executorch_releases()[-1].version


@pytest.fixture(scope="module")
def executorch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """HEXPORT_TEST_DATA names a folder that has it, or shall keep it. It has wheels for few systems only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_DATA", os.environ.get("HEXPORT_TEST_DATA") or str(_shared(tmp_path_factory)))
        patch.delenv("HEXPORT_TOOLCHAIN", raising=False)
        yield _found_or_made()


def _found_or_made() -> Toolchain:
    try:
        return registry.find(f"executorch-{RELEASE}")
    except ToolchainError:
        try:
            # Of two that add it at once, one makes it and the other waits.
            return adding.add(f"executorch=={RELEASE}").toolchain
        except DoesNotFit as error:
            pytest.skip(f"no ExecuTorch here: {error.why}")


def _shared(factory: pytest.TempPathFactory) -> Path:
    """One folder for the processes that share the tests."""
    own = factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "executorch-toolchain"
