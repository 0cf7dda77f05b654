"""Builds that are ended, killed, run side by side or out of room: the old package or the new one, or none."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import small_models as small
from hexport.building.verb import build
from hexport.packaging import open_package
from hexport.packaging.failures import PackageNotWritten
from hexport.storage.place import temporary_area

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
TARGET = "SM8650"
COLD, WARM = 12, 8
"""Moments at which builds are ended: while they work, and while they put the package in its place."""
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
MARK = "HEXPORT_TEST_MARK"


class Builds:
    """Real ``hexport build`` processes, which are known by a mark in their environment."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.model = small.save(small.conv_relu(), folder / "model.onnx")
        self.cache, self.place = folder / "cache", folder / "place"
        self.temporary = folder / "tmp"
        self.place.mkdir()
        self.temporary.mkdir()

    def start(self, output: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "hexport", "build", str(self.model), "-o", str(output),
             "--target", TARGET, *words],
            env={**os.environ, "HEXPORT_CACHE": str(self.cache), "TMPDIR": str(self.temporary),
                 MARK: self.mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def left(self) -> list[int]:
        """Processes that carry the mark."""
        if not Path("/proc/self/environ").exists():
            return []
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue  # it is gone, or another user's
        return found

    def wait_for_the_last(self) -> None:
        """Workers of a killed build are ended by the kernel, at once or nearly so."""
        end = time.monotonic() + 10
        while self.left():
            assert time.monotonic() < end, "processes are left"
            time.sleep(0.02)

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


@pytest.fixture
def builds(tmp_path: Path) -> Iterator[Builds]:
    made = Builds(tmp_path)
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)


def end_at(builds: Builds, moment: float, number: int, *words: str) -> None:
    """Start a build, end it after ``moment`` seconds in one of three ways, and look at what is there."""
    output = builds.place / "pkg"
    before = output.exists() and open_package(output).manifest
    process = builds.start(output, *words)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(SIGNALS[number % len(SIGNALS)])
    _, errors = process.communicate(timeout=60)
    # Ctrl-C while Python itself starts is answered by Python.
    assert "Traceback" not in errors or "KeyboardInterrupt" in errors
    builds.wait_for_the_last()
    assert [path.name for path in builds.place.iterdir()] in ([], ["pkg"])
    if process.returncode != 0 and before and before != open_package(output).manifest:
        # The new package was in place already when the signal came.
        assert open_package(output).manifest.command[-len(words) or None :] == words
    elif before or output.exists():
        open_package(output)


def test_ended_at_any_moment(builds: Builds) -> None:
    rng = random.Random(2024)
    began = time.monotonic()
    builds.finish(builds.start(builds.place / "pkg"))
    duration = time.monotonic() - began
    shutil.rmtree(builds.place / "pkg")
    shutil.rmtree(builds.cache)
    # Half of the time, because each goes on from what the ones before it have kept.
    for number in range(COLD):
        if number == COLD // 2:
            shutil.rmtree(builds.cache, ignore_errors=True)
        end_at(builds, rng.uniform(0, duration / 2), number)
    builds.finish(builds.start(builds.place / "pkg"))
    open_package(builds.place / "pkg")
    began = time.monotonic()
    builds.finish(builds.start(builds.place / "pkg"))
    warm = time.monotonic() - began
    # With everything kept a build is mostly the writing of the package, over an old one.
    for number in range(WARM):
        end_at(builds, rng.uniform(warm / 2, 1.1 * warm), number, "--without-cpu-model")
    builds.finish(builds.start(builds.place / "pkg", "--without-cpu-model"))
    open_package(builds.place / "pkg")
    assert [path.name for path in builds.place.iterdir()] == ["pkg"]
    staged = [path for path in (builds.cache / "staging").iterdir() if path.is_dir()]
    assert staged == []  # the last build swept what the killed ones left
    area = builds.temporary / temporary_area().name
    assert list(area.iterdir()) == []
    assert [path.name for path in builds.temporary.glob("*hexport*")] == [area.name]


def test_builds_side_by_side(builds: Builds) -> None:
    one, other = builds.place / "one", builds.place / "other"
    for process in [builds.start(one), builds.start(one), builds.start(other)]:
        builds.finish(process)
    assert sorted(path.name for path in builds.place.iterdir()) == ["one", "other"]
    first, second = (open_package(place).manifest for place in (one, other))
    assert first.artefacts == second.artefacts  # the work was done once
    builds.wait_for_the_last()


def test_a_disk_that_is_full_while_the_package_is_put_together(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(builds.cache))
    output = builds.place / "pkg"
    old = build(builds.model, output=output, targets=[TARGET], command=("old",)).manifest

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("hexport.building.assembling.shutil.copyfile", full)
        with pytest.raises(PackageNotWritten, match="the disk is full"):
            build(builds.model, output=output, targets=[TARGET], command=("new",))
    assert open_package(output).manifest == old
    assert [path.name for path in builds.place.iterdir()] == ["pkg"]
    assert not any(path.is_dir() for path in (builds.cache / "staging").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_too_small_for_the_package(builds: Builds, small_disk: Path) -> None:
    process = builds.start(small_disk / "pkg")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "No space left" in errors
    assert "the disk is full" in errors
    assert list(small_disk.iterdir()) == []
    builds.wait_for_the_last()


def test_a_cache_on_a_disk_that_is_too_small(builds: Builds, small_disk: Path) -> None:
    builds.cache = small_disk / "cache"
    process = builds.start(builds.place / "pkg")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2, errors
    assert "space" in errors or "full" in errors
    assert "defect" not in errors
    assert list(builds.place.iterdir()) == []
