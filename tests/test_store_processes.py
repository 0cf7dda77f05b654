"""The store and its locks between processes: the work is done once, and the dead hold nobody up."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hexport.storage import Store
from hexport.storage.locking import exclusive, take, taken_since
from hexport.storage.place import temporary_area
from hexport.storage.sweeping import own_folder, sweep
from hexport.storage.temporary import temporary_folder
from hexport.storage.upkeep import cache, clear

_MAKE = """
import sys, time
from pathlib import Path
from hexport.storage import Store
root, seconds = Path(sys.argv[1]), float(sys.argv[2])
def make(folder):
    print("made", flush=True)
    (folder / "x").write_text("half")
    time.sleep(seconds)
    (folder / "x").write_text("whole")
folder, was_there = Store(root).get("step", "k", make, lambda: print("waiting", flush=True))
print((folder / "x").read_text(), was_there, flush=True)
"""
_HOLD = """
import sys, time
from pathlib import Path
from hexport.storage.locking import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
_WORK = """
import time
from hexport.storage.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "model.onnx").write_text("large")
    print(folder, flush=True)
    time.sleep(60)
"""


@contextmanager
def running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards, whatever happens."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_processes_at_once_do_the_work_once(tmp_path: Path) -> None:
    with running(_MAKE, tmp_path, 1.5) as first:
        assert line(first) == "made"
        with running(_MAKE, tmp_path, 1.5) as second:
            assert line(second) == "waiting"
            assert [line(first), line(second)] == ["whole False", "whole True"]
    assert names(tmp_path / "step") == ["k"]


def test_a_killed_maker_holds_nobody_up(tmp_path: Path) -> None:
    with running(_MAKE, tmp_path, 60) as first:
        assert line(first) == "made"
        with running(_MAKE, tmp_path, 0) as second:
            assert line(second) == "waiting"
            first.kill()
            assert [line(second), line(second)] == ["made", "whole False"]
    assert names(tmp_path / "step") == ["k"]


def test_what_another_process_is_making_is_not_cleared(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.get("step", "other", lambda folder: None)
    time.sleep(0.05)
    with running(_MAKE, tmp_path, 1.0) as maker:
        assert line(maker) == "made"
        assert store.being_made() == 1
        gone, used = store.clear()
        assert ([entry.key for entry in gone], used) == (["other"], [])
        assert line(maker) == "whole False"
    assert store.being_made() == 0
    assert names(tmp_path / "step") == ["k"]


def test_a_lock_excludes_threads_and_leaves_no_file(tmp_path: Path) -> None:
    lock, inside, most = tmp_path / "deep" / "a.lock", [0], [0]

    def work() -> None:
        with exclusive(lock):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert names(lock.parent) == []


def test_a_lock_says_since_when_it_is_taken_and_dies_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    assert taken_since(lock) is None
    before = time.time()
    with running(_HOLD, lock) as holder:
        assert line(holder) == "held"
        since = taken_since(lock)
        assert since is not None
        assert before - 1 < since <= time.time()
        assert take(lock) is None
        holder.kill()
        holder.wait()
        assert taken_since(lock) is None
    assert names(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")
def test_a_forked_copy_of_the_handle_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    script = (
        "import os, sys, time; from pathlib import Path; from hexport.storage.locking import take\n"
        "held = take(Path(sys.argv[1])); child = os.fork()\n"
        "if child == 0: time.sleep(60)\n"
        "held.release(); again = take(Path(sys.argv[1]))\n"
        "os.kill(child, 9); os.waitpid(child, 0); print(again is not None, flush=True)"
    )
    with running(script, lock) as process:
        assert line(process) == "True"


def test_folders_of_the_dead_are_swept_and_those_of_the_living_stay(tmp_path: Path) -> None:
    with own_folder(tmp_path) as mine:
        dead = tmp_path / "dead"
        dead.mkdir()
        (tmp_path / "dead.lock").touch()
        (tmp_path / "half").mkdir()  # its lock is gone, but files were open when it was to go
        sweep(tmp_path)
        assert names(tmp_path) == sorted([mine.name, f"{mine.name}.lock"])
    assert names(tmp_path) == []


def test_only_what_has_the_prefix_is_swept(tmp_path: Path) -> None:
    for name in ("users own", ".hexport-1", ".other"):
        (tmp_path / name).mkdir()
    sweep(tmp_path, ".hexport-")
    assert names(tmp_path) == [".other", "users own"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder of this process and of those that it starts."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    assert temporary_area().parent == tmp_path
    return temporary_area()


def test_work_of_killed_processes_goes_and_that_of_the_living_stays(temporary: Path) -> None:
    with running(_WORK) as dead, running(_WORK) as living:
        left, used = Path(line(dead)), Path(line(living))
        assert left.parent == used.parent == temporary
        dead.kill()
        dead.wait()
        assert (left / "model.onnx").exists()  # nobody could clean up
        assert cache().temporary_bytes == len("large")
        assert not left.exists()
        assert (used / "model.onnx").read_text() == "large"
        with running(_WORK) as second:  # and the next command sweeps by itself
            living.kill()
            living.wait()
            mine = Path(line(second))
            with running(_WORK) as third:
                other = Path(line(third))
                assert not used.exists()
                assert names(temporary) == sorted(
                    name for path in (mine, other) for name in (path.name, f"{path.name}.lock")
                )
    assert clear().notes == ()
    assert names(temporary) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the temporary folder is the user's own there")
@pytest.mark.parametrize("kind", ["a link", "a file", "open to others"])
def test_a_place_that_others_may_write_to_is_not_used(temporary: Path, kind: str) -> None:
    if kind == "a link":
        (temporary.parent / "elsewhere").mkdir()
        temporary.symlink_to(temporary.parent / "elsewhere")
    elif kind == "a file":
        temporary.touch()
    else:
        temporary.mkdir()
        temporary.chmod(0o777)
    with temporary_folder() as folder:
        assert folder.is_dir()
        assert folder.parent == temporary.parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    cache()  # finds nothing to sweep there, and nothing wrong


def test_a_temporary_folder_is_gone_after_an_error(temporary: Path) -> None:
    with pytest.raises(OSError, match=r"\w"), temporary_folder() as folder:
        folder.write_text("a folder is no file")
    assert names(temporary) == []
