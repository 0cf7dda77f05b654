"""A toolchain of an older release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hexport.environments import adding
from hexport.environments.record import Toolchain
from real_toolchains import real_toolchain
from toolchain_standins import other_pythons

RELEASE = "2.3.0"
"""The last release for Linux with the QNN CPU backend; it does not work with hexport's own onnxruntime."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """In another Python if there is one."""
    with real_toolchain(f"onnxruntime-qnn-{RELEASE}", _make, tmp_path_factory) as found:
        yield found


def _make() -> Toolchain:
    python = next(iter(other_pythons((3, 11), (3, 14))), None)
    return adding.add(f"onnxruntime-qnn=={RELEASE}", python=python).toolchain
