"""The store of results: whole or absent, shared between processes, never larger than allowed."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from hexport.storage import Store, file_digest, key_of
from hexport.storage import keys as key_module


def writer(text: str, calls: list[str] | None = None):
    def make(folder: Path) -> None:
        if calls is not None:
            calls.append(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "result.txt").write_text(text)

    return make


def test_a_result_is_made_once(tmp_path: Path) -> None:
    store, calls = Store(tmp_path), []
    first, was_there = store.get("step", "k1", writer("one", calls))
    again, is_there = store.get("step", "k1", writer("two", calls))
    assert (was_there, is_there, calls) == (False, True, ["one"])
    assert first == again
    assert (again / "deep" / "result.txt").read_text() == "one"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        Store(tmp_path).get("step", "k", fails)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert Store(tmp_path).get("step", "k", writer("ok"))[1] is False


@pytest.mark.parametrize("damage", ["changed", "missing", "list"])
def test_a_damaged_result_is_made_again(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    folder, _ = store.get("step", "k", writer("good"))
    file = folder / "deep" / "result.txt"
    if damage == "changed":
        file.write_text("evil")
    elif damage == "missing":
        file.unlink()
    else:
        (folder / "entry.json").write_text("[")
    again, was_there = store.get("step", "k", writer("good"))
    assert not was_there
    assert (again / "deep" / "result.txt").read_text() == "good"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_gb=1e-6)
    for number, key in enumerate(("a", "b", "c")):
        folder, _ = store.get("step", key, lambda f: (f / "x").write_bytes(b"0" * 400) and None)
        os.utime(folder / "entry.json", (number, number))
    store.get("step", "a", writer("never called"))
    store.get("step", "d", lambda f: (f / "x").write_bytes(b"0" * 400) and None)
    kept = {entry.key for entry in store.entries()}
    assert "d" in kept
    assert "b" not in kept
    assert sum(entry.bytes for entry in store.entries()) <= store.limit_bytes


def test_clearing_says_how_much_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.get("one", "k", writer("text"))
    size = sum(entry.bytes for entry in store.entries())
    assert store.clear() == size > 0
    assert store.entries() == []


def test_abandoned_parts_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    part = tmp_path / "step" / ".part-old"
    part.mkdir(parents=True)
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(part, (long_ago, long_ago))
    store.get("step", "k", writer("x"))
    assert not part.exists()


def _build(root: Path, key: str, results: multiprocessing.Queue[str]) -> None:
    def slow(folder: Path) -> None:
        (folder / "x").write_text("same")
        time.sleep(0.2)

    folder, _ = Store(root).get("step", key, slow)
    results.put((folder / "x").read_text())


def test_two_processes_at_once_both_end_right(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_build, args=(tmp_path, "k", results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert found == ["same"] * 3
    assert len(Store(tmp_path).entries()) == 1
    assert not list(tmp_path.glob("*/.part-*"))


def test_a_key_depends_on_all_that_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = key_of("prepare", model="a", shapes={"x": [1, 2]})
    assert first == key_of("prepare", shapes={"x": [1, 2]}, model="a")
    others = {key_of("prepare", model="b", shapes={"x": [1, 2]}), key_of("compile", model="a", shapes={})}
    monkeypatch.setattr(key_module, "_own_code", lambda: "other code")
    others.add(key_of("prepare", model="a", shapes={"x": [1, 2]}))
    assert first not in others
    assert len(others) == 3
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    assert file_digest(file) == file_digest(file)
