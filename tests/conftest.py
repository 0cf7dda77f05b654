"""Settings for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from executorch_toolchain import executorch  # noqa: F401 - a fixture
from older_toolchain import older  # noqa: F401 - a fixture

# A machine under load is slow, not wrong.
settings.register_profile("hexport", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hexport")

# A shell that starts the tests in the background has Ctrl-C ignored, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """hexport's cache, one for all tests of a module: what one made serves the next."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("HEXPORT_CACHE", str(folder))
        yield folder
