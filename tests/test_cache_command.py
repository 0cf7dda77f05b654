"""``hexport cache``: what is kept is told, and only what was asked for is removed."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hexport.cli.cache import command
from hexport.errors import HexportError, UsageError
from hexport.storage import Store
from hexport.storage.locking import exclusive
from hexport.storage.upkeep import cache, clear

DAY = 24 * 3600


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path))
    monkeypatch.delenv("HEXPORT_CACHE_GB", raising=False)
    (tmp_path / "zoo" / "locks").mkdir(parents=True)
    (tmp_path / "zoo" / "model.onnx").write_bytes(b"0" * 100)
    return tmp_path


def keep(step: str, key: str, days: float = 0) -> None:
    folder, _ = Store().get(step, key, lambda part: (part / "x").write_bytes(b"0" * 1000) and None)
    used = time.time() - days * DAY
    os.utime(folder / "entry.json", (used, used))


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    if isinstance(done.exception, HexportError):
        raise done.exception
    assert done.exception is None, done.output
    assert done.return_value == 0
    return done.output


def document(*arguments: str) -> dict[str, Any]:
    found = json.loads(run(*arguments))
    assert found.pop("schema_version") == 1
    return found


def kept() -> list[tuple[str, str]]:
    return sorted((entry.step, entry.key) for entry in Store().entries())


def test_what_is_kept_is_listed_by_step(root: Path) -> None:
    keep("prepare", "a", days=3)
    keep("prepare", "b", days=1)
    keep("compile", "c")
    found = document("--json")
    sizes = {(entry.step, entry.key): entry.bytes for entry in Store().entries()}
    assert [(step["step"], step["entries"], step["bytes"]) for step in found["steps"]] == [
        ("compile", 1, sizes["compile", "c"]),
        ("prepare", 2, sizes["prepare", "a"] + sizes["prepare", "b"]),
    ]
    newest = datetime.fromisoformat(found["steps"][1]["last_used"]).timestamp()
    assert newest == pytest.approx(time.time() - DAY, abs=60)
    assert (found["folder"], found["bytes"], found["zoo_bytes"]) == (str(root), sum(sizes.values()), 100)
    assert found["limit_bytes"] == 10e9
    text = run()
    assert "prepare" in text
    assert str(root) in text


def test_an_empty_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "not there"))
    assert document("--json")["steps"] == []
    assert document("clear", "--json", "--zoo")["bytes"] == 0
    assert not (tmp_path / "not there").exists()


def test_clearing_leaves_the_zoo_alone_unless_asked(root: Path) -> None:
    keep("prepare", "a")
    size = Store().entries()[0].bytes
    cleared = document("clear", "--json")
    assert (cleared["entries"], cleared["bytes"], cleared["zoo_bytes"]) == (1, size, 0)
    assert (root / "zoo" / "model.onnx").exists()
    assert document("--json", "clear", "--zoo")["zoo_bytes"] == 100
    assert not (root / "zoo").exists()


def test_clearing_one_step_or_what_is_old() -> None:
    keep("prepare", "old", days=5)
    keep("prepare", "new")
    keep("compile", "old", days=5)
    run("clear", "--step", "prepare", "--older-than", "4.5")
    assert kept() == [("compile", "old"), ("prepare", "new")]
    assert "1 results" in run("clear", "--older-than", "1")
    assert kept() == [("prepare", "new")]


def test_the_zoo_stays_while_another_process_fetches(root: Path) -> None:
    with exclusive(root / "zoo" / "locks" / "a.lock"):
        cleared = clear(zoo=True)
    assert cleared.zoo_bytes == 0
    assert "fetching" in cleared.notes[0]
    assert (root / "zoo" / "model.onnx").exists()


def test_what_is_in_use_stays_and_is_said() -> None:
    keep("prepare", "old", days=1)
    with Store().using():
        keep("prepare", "new", days=-1)
        cleared = clear()
    assert (cleared.entries, cleared.in_use) == (1, 1)
    assert "may need them" in cleared.notes[0]
    assert kept() == [("prepare", "new")]


def test_what_dead_builds_left_is_cleared(root: Path) -> None:
    left = root / "staging" / "dead"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"0" * 50)
    (root / "staging" / "dead.lock").touch()
    assert cache().staging_bytes == 50
    clear()
    assert list((root / "staging").iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [{"step": "nonsense"}, {"older_than": -1.0}, {"older_than": float("nan")}, {"zoo": True, "step": "x"}],
)
def test_wrong_wishes_are_refused(wrong: dict[str, Any]) -> None:
    keep("prepare", "a")
    with pytest.raises(UsageError):
        clear(**wrong)
    assert kept() == [("prepare", "a")]
