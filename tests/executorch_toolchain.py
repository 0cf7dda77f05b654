"""A toolchain with ExecuTorch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hexport import facts
from hexport.environments import adding
from hexport.environments.failures import DoesNotFit
from hexport.environments.record import Toolchain
from real_toolchains import real_toolchain

RELEASE = facts.executorch_releases()[-1].version


@pytest.fixture(scope="module")
def executorch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """It has wheels for few systems only."""
    with real_toolchain(f"executorch-{RELEASE}", _make, tmp_path_factory) as found:
        yield found


def _make() -> Toolchain:
    try:
        return adding.add(f"executorch=={RELEASE}").toolchain
    except DoesNotFit as error:
        pytest.skip(f"no ExecuTorch here: {error.why}")
