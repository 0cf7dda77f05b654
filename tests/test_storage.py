"""The store of results: whole or absent, shared between processes, never larger than allowed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hexport.errors import UsageError
from hexport.storage import Store, file_digest, key_of
from hexport.storage import keys as key_module


def writer(text: str, calls: list[str] | None = None):
    def make(folder: Path) -> None:
        if calls is not None:
            calls.append(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "result.txt").write_text(text)

    return make


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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


@pytest.mark.parametrize(
    "damage", ["changed", "missing", "added", "cut list", "empty list", "odd list", "no list"]
)
def test_a_damaged_result_is_made_again(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    folder, _ = store.get("step", "k", writer("good"))
    file, listing = folder / "deep" / "result.txt", folder / "entry.json"
    whole = listing.read_text()
    {
        "changed": lambda: file.write_text("evil"),
        "missing": file.unlink,
        "added": lambda: (folder / "stranger").write_text("x"),
        "cut list": lambda: listing.write_text(whole[: len(whole) // 2]),
        "empty list": lambda: listing.write_text("{}"),
        "odd list": lambda: listing.write_text("[1, 2]"),
        "no list": listing.unlink,
    }[damage]()
    again, was_there = store.get("step", "k", writer("good"))
    assert not was_there
    assert (again / "deep" / "result.txt").read_text() == "good"
    assert store.get("step", "k", writer("never called"))[1]
    assert names(tmp_path / "step") == ["k"]


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


def test_what_is_used_in_work_that_goes_on_stays(tmp_path: Path) -> None:
    """A build with a small limit must not lose what it is working with; afterwards the limit holds again."""
    store = Store(tmp_path, limit_gb=0)
    store.get("step", "before", writer("old"))
    os.utime(tmp_path / "step" / "before" / "entry.json", (1, 1))
    with store.using():
        for key in ("a", "b"):
            store.get("step", key, writer(key))
        assert {entry.key for entry in store.entries()} == {"a", "b"}
        gone, used = store.clear()
        assert (gone, {entry.key for entry in used}) == ([], {"a", "b"})
    store.shrink()
    assert store.entries() == []


def test_inner_results_stay_while_the_outer_one_is_made(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_gb=0)

    def outer(folder: Path) -> None:
        inner = [store.get("inner", key, writer(key))[0] for key in ("a", "b")]
        texts = [(path / "deep" / "result.txt").read_text() for path in inner]
        (folder / "both").write_text("".join(texts))

    folder, _ = store.get("outer", "k", outer)
    assert (folder / "both").read_text() == "ab"
    assert [entry.step for entry in store.entries()] == ["outer"]


def test_clearing_by_step_and_age(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step, key, used in (("one", "old", 10), ("one", "new", 30), ("two", "old", 10)):
        store.get(step, key, writer(step))
        os.utime(tmp_path / step / key / "entry.json", (used, used))
    sizes = {(entry.step, entry.key): entry.bytes for entry in store.entries()}
    gone, used = store.clear("one", unused_since=20)
    assert ([(e.step, e.key, e.bytes) for e in gone], used) == ([("one", "old", sizes["one", "old"])], [])
    gone, _ = store.clear()
    assert {(entry.step, entry.key) for entry in gone} == {("one", "new"), ("two", "old")}
    assert store.entries() == []


def test_parts_that_nobody_works_on_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    part = tmp_path / "step" / ".part-other.abc"
    part.mkdir(parents=True)
    (part / "entry.json").write_text("{}")
    assert store.entries() == []
    store.get("step", "k", writer("x"))
    assert names(tmp_path / "step") == ["k"]


def test_without_locks_only_old_parts_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int) -> bool:
        raise OSError("no locks available")

    monkeypatch.setattr("hexport.storage.locking._try_lock", no_locks)
    store = Store(tmp_path)
    old, young = tmp_path / "step" / ".part-a.old", tmp_path / "step" / ".part-b.young"
    for part in (old, young):
        part.mkdir(parents=True)
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    assert store.get("step", "k", writer("x"))[1] is False
    assert store.get("step", "k", writer("never called"))[1] is True
    assert names(tmp_path / "step") == [young.name, "k"]


@pytest.mark.parametrize("given", ["ten", "nan", "-1", "1e", "10 GB"])
def test_a_limit_that_is_no_number_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE_GB", given)
    with pytest.raises(UsageError, match="HEXPORT_CACHE_GB"):
        Store()


@pytest.mark.parametrize(("given", "gigabytes"), [("2.5", 2.5), ("", 10), (" 3 ", 3), ("0", 0)])
def test_the_limit_is_in_gigabytes(given: str, gigabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE_GB", given)
    assert Store().limit_bytes == gigabytes * 1e9


def test_a_place_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError) as caught:
        Store(tmp_path / "file").get("step", "k", writer("x"))
    assert "HEXPORT_CACHE" in caught.value.next


def test_a_key_depends_on_all_that_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = key_of("prepare", model="a", shapes={"x": [1, 2]})
    assert first == key_of("prepare", shapes={"x": [1, 2]}, model="a")
    others = {key_of("prepare", model="b", shapes={"x": [1, 2]}), key_of("compile", model="a", shapes={})}
    monkeypatch.setattr(key_module, "own_code", lambda: "other code")
    others.add(key_of("prepare", model="a", shapes={"x": [1, 2]}))
    assert first not in others
    assert len(others) == 3
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    assert file_digest(file) == file_digest(file)
