"""A package is there whole or not at all, whatever happens to the process that writes it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from hexport.packaging import Package, failures, open_package, package_aside, writing
from hexport.packaging import manifest as m
from hexport.packaging.exchanging import exchange
from hexport.packaging.reading import INCOMING
from hexport.packaging.staging import staging_folder
from made_packages import build, fill

OTHER_DISK = Path("/dev/shm")
KILLS = 20


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A folder on another file system than the staging folder."""
    if not OTHER_DISK.is_dir() or OTHER_DISK.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("this machine has one file system")
    folder = Path(tempfile.mkdtemp(dir=OTHER_DISK))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["same disk", "other disk", "two renames"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder for packages, for each of the three ways they can be put there."""
    if request.param == "other disk":
        return request.getfixturevalue("other_disk")  # type: ignore[no-any-return]
    if request.param == "two renames":
        monkeypatch.setattr(writing, "exchange", lambda one, other: False)
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(package: Path) -> bytes:
    opened: Package = open_package(package)
    return opened.verified(*opened.find(m.CONTEXT_BINARY))[0].read_bytes()


def test_a_package_is_written_and_replaced(place: Path, cache: Path) -> None:
    build(place / "pkg", model_ctx_qnn=b"first")
    assert content(place / "pkg") == b"first"
    build(place / "pkg", model_ctx_qnn=b"second, longer")
    assert content(place / "pkg") == b"second, longer"
    assert names(place) == ["pkg"]
    assert names(place / "pkg") == ["SM8650", "cpu", "hexport.json", "report.json"]
    assert names(cache / "staging") == []


def _fail(output: Path, error: BaseException) -> None:
    with package_aside(output) as folder:
        fill(folder)
        raise error


def test_a_failed_build_leaves_the_old_one(place: Path, cache: Path) -> None:
    build(place / "pkg", model_ctx_qnn=b"old")
    for kind in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(kind):
            _fail(place / "pkg", kind())
    assert content(place / "pkg") == b"old"
    assert (names(place), names(cache / "staging")) == (["pkg"], [])


def test_a_failed_first_build_leaves_nothing(place: Path) -> None:
    with pytest.raises(RuntimeError):
        _fail(place / "pkg", RuntimeError())
    assert names(place) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is of Linux")
def test_a_full_disk_while_building_leaves_the_old_one(place: Path) -> None:
    build(place / "pkg", model_ctx_qnn=b"old")
    with (
        pytest.raises(failures.PackageNotWritten, match="the disk is full"),
        package_aside(place / "pkg"),
    ):
        Path("/dev/full").write_bytes(b"x" * 10_000)
    assert content(place / "pkg") == b"old"


@pytest.mark.parametrize("was_there", [True, False])
def test_a_full_disk_while_copying_leaves_the_old_one(
    other_disk: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    if was_there:
        build(other_disk / "pkg", model_ctx_qnn=b"old")

    def full(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing.shutil, "copy2", full)
    with pytest.raises(failures.PackageNotWritten, match="the disk is full"):
        build(other_disk / "pkg", model_ctx_qnn=b"new")
    if was_there:
        assert content(other_disk / "pkg") == b"old"
        assert not (other_disk / "pkg" / INCOMING).exists()
    else:
        assert names(other_disk) == []


def test_an_interrupt_between_the_last_steps_leaves_the_new_one(
    other_disk: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at each rename of the last phase: it is finished, and then the interrupt goes on."""
    real = Path.rename
    for stop_at in range(1, 5):
        build(other_disk / "pkg", model_ctx_qnn=b"old")
        calls = iter(range(1, 1000))

        def interrupted(self: Path, target: Path, calls: Iterator[int] = calls, at: int = stop_at) -> Path:
            if INCOMING in self.parts and next(calls) == at:
                raise KeyboardInterrupt
            return real(self, target)

        monkeypatch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(other_disk / "pkg", model_ctx_qnn=b"new")
        assert content(other_disk / "pkg") == b"new"
        assert not (other_disk / "pkg" / INCOMING).exists()
        monkeypatch.setattr(Path, "rename", real)


def test_what_an_ended_copy_left_is_no_package_and_is_cleared(other_disk: Path, cache: Path) -> None:
    package = build(other_disk / "pkg", model_ctx_qnn=b"old")
    (package / INCOMING).mkdir()
    (package / INCOMING / "half").write_bytes(b"half")
    assert content(package) == b"old"
    (package / m.MANIFEST).unlink()
    with pytest.raises(failures.NotAPackage, match="not a package") as caught:
        open_package(package)
    assert "was ended while it copied" in caught.value.why
    build(package, model_ctx_qnn=b"new")
    assert content(package) == b"new"
    assert not (package / INCOMING).exists()


BUILDER = """
    import sys
    from pathlib import Path
    from made_packages import build
    print("ready", flush=True)
    for number in range(10**6):
        build(Path(sys.argv[1]), model_ctx_qnn=(b"%d," % number) * 20_000)
        if number == 0:
            print("built", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")
@pytest.mark.parametrize("disk", ["same disk", "other disk"])
def test_killed_at_twenty_moments_it_leaves_a_whole_package_or_none(
    disk: str, tmp_path: Path, cache: Path, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("other_disk") if disk == "other disk" else tmp_path / "place"
    place.mkdir(exist_ok=True)
    script = tmp_path / "builder.py"
    script.write_text(textwrap.dedent(BUILDER))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    builder = [sys.executable, str(script)]
    with subprocess.Popen([*builder, str(tmp_path / "timed")], env=environment, stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.perf_counter()
        process.stdout.readline()
        first = time.perf_counter() - began
        process.kill()
    choose, found = random.Random(1), 0
    for _ in range(KILLS):
        with subprocess.Popen([*builder, str(place / "pkg")], env=environment, stdout=PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            # Before, while and after the first one is written, however fast the machine is.
            time.sleep(choose.random() * 3 * first)
            process.kill()
        assert set(names(place)) <= {"pkg"}
        if (place / "pkg" / m.MANIFEST).exists():
            data = content(place / "pkg")
            assert data == data[: data.index(b",") + 1] * 20_000
            found += 1
        elif disk == "same disk":
            assert not (place / "pkg").exists()
    assert found > KILLS // 2  # or the kills came before anything was written
    build(place / "pkg", model_ctx_qnn=b"after")
    assert content(place / "pkg") == b"after"
    assert (names(place), names(cache / "staging")) == (["pkg"], [])


def _build_often(output: Path, number: int, with_exchange: bool) -> None:
    if not with_exchange:
        writing.exchange = lambda one, other: False
    for _ in range(20):
        build(output, model_ctx_qnn=b"%d" % number * 1000)


def test_two_builds_at_once_both_end_right(place: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with_exchange = writing.exchange is exchange
    builders = [
        context.Process(target=_build_often, args=(place / "pkg", number, with_exchange)) for number in (1, 2)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)
    assert [builder.exitcode for builder in builders] == [0, 0]
    assert content(place / "pkg") in (b"1" * 1000, b"2" * 1000)
    assert names(place) == ["pkg"]


def test_a_living_process_keeps_its_staging_folder(cache: Path) -> None:
    with staging_folder() as mine:
        with staging_folder() as other:
            assert mine != other
            assert mine.is_dir()
        assert mine.is_dir()
        assert not other.exists()
    assert names(cache / "staging") == []


# ── what is not overwritten ───────────────────────────────────────────────────────────────────────────────


def test_a_folder_with_other_things_is_not_replaced(place: Path) -> None:
    (place / "pkg" / "deep").mkdir(parents=True)
    (place / "pkg" / "deep" / "thesis.txt").write_text("years of work")
    with pytest.raises(failures.PackageNotWritten, match="not replaced") as caught:
        build(place / "pkg")
    assert "deep/thesis.txt" in caught.value.why
    shutil.rmtree(place / "pkg")
    (build(place / "pkg") / "notes.txt").write_text("mine")
    with pytest.raises(failures.PackageNotWritten) as caught:
        build(place / "pkg")
    assert "notes.txt" in caught.value.why


def test_places_that_cannot_be_are_refused_before_the_work(place: Path) -> None:
    (place / "file").write_text("x")
    (place / "link").symlink_to(place)
    for output in (place / "file", place / "link", place / "none" / "pkg"):
        with pytest.raises(failures.PackageNotWritten), package_aside(output):
            pytest.fail("the work has begun")


def test_an_empty_folder_is_a_place(place: Path) -> None:
    (place / "pkg").mkdir()
    assert content(build(place / "pkg", model_ctx_qnn=b"x")) == b"x"


def test_what_the_manifest_does_not_name_is_not_shipped(place: Path) -> None:
    def with_a_log() -> None:
        with package_aside(place / "pkg") as folder:
            fill(folder)
            (folder / "debug.log").write_text("x")

    with pytest.raises(failures.PackageNotWritten, match="not written") as caught:
        with_a_log()
    assert "debug.log" in caught.value.why
    with pytest.raises(failures.NotAPackage), package_aside(place / "pkg"):
        pass  # no manifest at all
    assert names(place) == []


@pytest.mark.skipif(sys.platform != "linux", reason="what this system offers is what is tested")
def test_folders_change_places(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    assert exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()
    assert not exchange(tmp_path / "one", tmp_path / "none")
