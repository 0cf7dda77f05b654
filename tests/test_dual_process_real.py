"""A package in a toolchain of the real packages, in another Python where there is one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import hexport
import small_models as small
from cpu_packages import cpu_package
from hexport.environments.record import Toolchain
from hexport.packaging import manifest as m
from hexport.runtime.failures import Incompatible
from older_toolchain import RELEASE
from runtime_packages import rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_package_runs_there_and_here(older: Toolchain, tmp_path: Path) -> None:
    """The worker's Python, numpy and onnxruntime are of other versions than this process's."""
    x, y = (m.Tensor(name, "float32", dims) for name, dims in (("x", (1, 3, 16, 16)), ("y", (1, 8, 16, 16))))
    package = cpu_package(small.conv_relu(), m.Contract((x,), (y,)), tmp_path / "package")
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    with (
        hexport.load(package, "cpu", toolchain=older.name) as there,
        hexport.load(package, "cpu") as here,
    ):
        for _ in range(2):
            got = there.run(inputs, timeout=300)["y"]
            np.testing.assert_allclose(got, here.run(inputs)["y"], rtol=1e-5, atol=1e-6)
        (pid,) = there.worker_pids()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert words[0].decode() == older.python
        assert there.describe().toolchain.packages["onnxruntime-qnn"] == RELEASE
        assert here.describe().toolchain.packages["onnxruntime-qnn"] != RELEASE


def test_a_newer_compilers_package_is_refused_before_native_code_sees_it(older: Toolchain) -> None:
    with pytest.raises(Incompatible, match="was made with QNN SDK") as caught:
        hexport.load(rows(), "simulator", toolchain=older.name)
    assert "onnxruntime-qnn" in caught.value.why
