"""Choosing, testing, listing and removing toolchains. The packages are stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import small_models as small
from hexport.environments import adding, keeping, registry
from hexport.environments.choosing import choose, using
from hexport.environments.failures import (
    DoesNotFit,
    NotOurs,
    ToolchainChanged,
    ToolchainError,
    ToolchainExists,
    UnknownToolchain,
)
from hexport.environments.place import data_root
from hexport.environments.record import Toolchain, write_record
from hexport.errors import UsageError
from hexport.toolchain import in_force
from toolchain_standins import HOST, PROVIDER, made_folders, make_index, settings

SPEC = f"onnxruntime-qnn=={PROVIDER}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One environment for all tests here, which are given its record."""
    folder = tmp_path_factory.mktemp("toolchains")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings(folder, make_index(folder / "index")).items():
            patch.setenv(key, value)
        adding.add(SPEC, name="made")
    return folder


@pytest.fixture
def data(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As if nothing had happened to it before."""
    monkeypatch.setenv("HEXPORT_DATA", str(prepared))
    monkeypatch.delenv("HEXPORT_TOOLCHAIN", raising=False)
    record = registry.record_path("made")
    text = record.read_text("utf-8")
    yield prepared
    record.write_text(text, "utf-8")
    registry.set_default(None)


def command(*arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "hexport", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_who_chooses(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(None) is None
    keeping.use("made")
    choice = choose(None)
    assert choice is not None
    assert "the default, set by `hexport toolchain use`" in str(choice)
    assert f"onnxruntime-qnn {PROVIDER}, onnxruntime {HOST}" in str(choice)
    assert choose("this") is None
    monkeypatch.setenv("HEXPORT_TOOLCHAIN", "this")
    assert choose(None) is None
    monkeypatch.setenv("HEXPORT_TOOLCHAIN", "made")
    assert "(HEXPORT_TOOLCHAIN)" in str(choose(None))
    assert "(--toolchain)" in str(choose("made"))
    keeping.use("this")
    monkeypatch.delenv("HEXPORT_TOOLCHAIN")
    assert choose(None) is None


def test_the_api_does_not_look_at_the_default(data: Path) -> None:
    keeping.use("made")
    assert in_force() is None
    with using("made") as toolchain:
        present = in_force()
        assert present is not None
        assert present.python == toolchain.python
    assert in_force() is None


def test_verbs_say_what_applies(data: Path, tmp_path: Path) -> None:
    """The stand-in cannot compile, so the verb fails; by then it was said where."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    check = ("check", str(path), "--target", "SM8650")
    done = command(*check, "--toolchain", "made", code=2)
    assert done.stderr.startswith(
        f"toolchain made: onnxruntime-qnn {PROVIDER}, onnxruntime {HOST}, Python 3."
    )
    command("toolchain", "use", "made")
    assert "(the default, set by" in command(*check, code=2).stderr
    assert "toolchain" not in command(*check, "--toolchain", "this").stderr
    command("toolchain", "use", "this")
    done = command("run", str(path), "--toolchain", "made", "--in-process", code=2)
    assert "--in-process" in done.stderr


def test_the_document_names_the_toolchain(data: Path, tmp_path: Path) -> None:
    """The stand-in is not started for an ONNX file, which is inspected here."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    document = json.loads(command("inspect", str(path), "--toolchain", "made", "--json").stdout)
    assert document["toolchain"]["name"] == "made"
    assert document["toolchain"]["packages"]["onnxruntime-qnn"] == PROVIDER
    assert "toolchain" not in json.loads(command("inspect", str(path), "--json").stdout)


@pytest.mark.parametrize("name", ["nope", "../made", "MADE", "", "a" * 80, "nul", "con.x", "default"])
def test_names_that_are_none(data: Path, name: str) -> None:
    with pytest.raises((UnknownToolchain, UsageError)):
        choose(name)
    with pytest.raises((UnknownToolchain, UsageError)):
        keeping.remove(name)
    with pytest.raises((UnknownToolchain, UsageError)):
        keeping.use(name)
    assert len(made_folders(data)) == 1


def test_other_packages_than_verified_are_refused_until_tested(data: Path) -> None:
    toolchain = registry.find("made")
    info = next(Path(place) for place in toolchain.evidence if "onnxruntime_qnn" in place)
    moved = info.with_name(info.name.replace(PROVIDER, "2.4.0"))
    info.rename(moved)
    metadata = moved / "METADATA"
    metadata.write_text(metadata.read_text().replace(PROVIDER, "2.4.0"))
    try:
        assert keeping.toolchains().toolchains[0].state == "changed"
        with pytest.raises(ToolchainChanged, match="other packages"), using("made"):
            pytest.fail("it must not be used")
        tested = adding.retest("made")
        assert tested.packages["onnxruntime-qnn"] == "2.4.0"
        assert (tested.state, tested.failure) == ("ok", "")
        assert choose("made") is not None
    finally:
        metadata.write_text(metadata.read_text().replace("2.4.0", PROVIDER))
        moved.rename(info)


def test_a_failed_test_is_kept_and_told(data: Path) -> None:
    toolchain = registry.find("made")
    code = next(Path(toolchain.python).parents[1].rglob("onnxruntime/__init__.py"))
    text = code.read_text()
    code.write_text(text.replace("ANSWERS =", "ANSWERS = [0.0] * 8 #"))
    try:
        document = json.loads(command("toolchain", "test", "made", "--json", code=1).stdout)
        assert document["toolchain"]["state"] == "failed"
        assert "htp" in document["toolchain"]["failure"]
        assert "its last test failed: htp" in str(choose("made"))
        with pytest.raises(ToolchainExists, match="it is failed"):
            adding.add(SPEC, name="made")
    finally:
        code.write_text(text)
    assert "it works" in command("toolchain", "test", "made").stdout


def test_an_interpreter_that_is_gone(data: Path) -> None:
    record = registry.find("made")
    gone = Toolchain("gone", str(data / "no-python"), "3.11.0", record.platform, record.packages, ())
    write_record(registry.record_path("gone"), gone)
    assert {one.name: one.state for one in keeping.toolchains().toolchains} == {
        "gone": "missing",
        "made": "ok",
    }
    with pytest.raises(ToolchainChanged, match="lost its interpreter"):
        choose("gone")
    assert "there is no" in adding.retest("gone").failure
    keeping.use("gone")
    removed = keeping.remove("gone")
    assert (removed.was_default, removed.stays) == (True, gone.python)
    assert registry.default_name() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": 1, "name": "x"}']
)
def test_a_record_that_cannot_be_read_is_told_and_not_used(data: Path, text: str) -> None:
    place = registry.record_path("spoiled")
    place.write_text(text)
    try:
        listing = keeping.toolchains()
        assert [one.name for one in listing.toolchains] == ["made"]
        assert "'spoiled' cannot be read" in listing.notes[0]
        with pytest.raises(ToolchainError, match="cannot be read"):
            choose("spoiled")
        registry.sweep()
        assert registry.find("made").state == "ok"
    finally:
        place.unlink()


def test_remove_touches_only_what_it_made(data: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".hexport-toolchain").write_text("made\n")
    record = registry.find("made")
    link = data / "toolchains" / "linked-0123abcd"
    link.symlink_to(precious, target_is_directory=True)
    for folder in (link.name, str(precious), os.path.relpath(precious, data / "toolchains")):
        plain = {**record.to_json(), "name": "linked", "folder": folder}
        del plain["state"]
        registry.record_path("linked").write_text(json.dumps({"schema_version": 1, **plain}))
        with pytest.raises(NotOurs):
            keeping.remove("linked")
        assert (precious / ".hexport-toolchain").exists()
        assert registry.record_path("linked").exists()
    registry.record_path("linked").unlink()
    link.unlink()
    with pytest.raises(NotOurs):
        keeping.remove("this")


def test_adopting_refuses_what_is_no_toolchain(data: Path) -> None:
    with pytest.raises(ToolchainExists):
        adding.add("made", python=sys.executable)
    with pytest.raises(UsageError, match="one name"):
        adding.add("a", python=sys.executable, name="b")
    bare = data / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    with pytest.raises(DoesNotFit, match="lacks onnxruntime-qnn, onnxruntime, numpy"):
        adding.add("bare", python=str(bare / "bin" / "python"))
    assert [one.name for one in keeping.toolchains().toolchains] == ["made"]


def test_the_list(data: Path) -> None:
    keeping.use("made")
    shown = command("toolchain", "list").stdout
    assert "* is used without --toolchain" in shown
    assert "htp" in shown
    document = json.loads(command("toolchain", "list", "--json").stdout)
    (one,) = document["toolchains"]
    assert document["default"] == "made"
    assert {"name", "python", "python_version", "packages", "backends", "state", "bytes"} <= set(one)
    assert document["this"]["python"] == sys.executable


def test_the_folder_is_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEXPORT_DATA", raising=False)
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert data_root() == tmp_path / "hexport"
        monkeypatch.setenv("XDG_DATA_HOME", "relative")
        assert data_root() == Path.home() / ".local" / "share" / "hexport"
    monkeypatch.setenv("HEXPORT_DATA", "~/somewhere")
    assert data_root() == Path.home() / "somewhere"


def test_remove(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the environment, which runs as well as the original as long as nothing is started in it."""
    shutil.copytree(prepared / "toolchains", tmp_path / "toolchains", symlinks=True)
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path))
    folder = tmp_path / "toolchains" / registry.find("made").folder
    assert folder.exists()
    assert "is removed" in command("toolchain", "remove", "made").stdout
    assert not folder.exists()
    assert keeping.toolchains().toolchains == ()
