"""Toolchains of the real packages: another compiler version in another Python, and verbs that run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hexport
import small_models as small
from hexport import facts
from hexport.environments import adding
from hexport.environments.choosing import using
from hexport.environments.record import Toolchain


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_DATA", str(folder))
        patch.delenv("HEXPORT_TOOLCHAIN", raising=False)
        yield folder


@pytest.fixture(scope="module")
def mine(data: Path) -> Toolchain:
    """This very interpreter, by a name: same packages, but started the other way."""
    return adding.add("mine", python=sys.executable).toolchain


def test_check_is_the_same_through_a_name(mine: Toolchain, tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    plain = hexport.check(path, target="SM8650").to_json()
    with using(mine.name):
        there = hexport.check(path, target="SM8650").to_json()
    del plain["compile_seconds"], there["compile_seconds"]
    assert there == plain


def test_run_on_the_simulator_of_a_toolchain(mine: Toolchain, tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    np.savez(tmp_path / "in.npz", **inputs)
    for name, more in (("plain", ()), ("there", ("--toolchain", mine.name))):
        subprocess.run(
            [
                *(sys.executable, "-m", "hexport", "run", str(path), "--target", "SM8650"),
                *("--backend", "simulator", "--inputs", str(tmp_path / "in.npz")),
                *("-o", str(tmp_path / f"{name}.npz"), *more),
            ],
            check=True,
            capture_output=True,
        )
    with np.load(tmp_path / "plain.npz") as plain, np.load(tmp_path / "there.npz") as there:
        assert plain.files == there.files
        for output in plain.files:
            np.testing.assert_array_equal(plain[output], there[output])


def test_what_the_installed_release_carries_is_what_the_table_says(mine: Toolchain) -> None:
    plugin = facts.find_plugin(mine.packages["onnxruntime-qnn"])
    assert plugin is not None
    carried = {one.backend for one in mine.backends if one.state != "absent"}
    assert carried == set(plugin.backends)


def test_the_runtime_runs_there(mine: Toolchain, tmp_path: Path) -> None:
    """An isolated session of a package, whose worker is the toolchain's."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "hexport"]
    build = [*command, "build", str(path), "-o", str(tmp_path / "pkg"), "--target", "SM8650"]
    subprocess.run(build, check=True, capture_output=True)
    run = [*command, "verify", str(tmp_path / "pkg"), "--toolchain", mine.name, "--json"]
    environment = {**os.environ, "HEXPORT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    assert json.loads(done.stdout)["toolchain"]["name"] == mine.name
