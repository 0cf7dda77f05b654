"""Packed packages: the same bytes every time; and archives that somebody else made are distrusted."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hexport.packaging import archive, failures, open_package, pack, read_packed, unpack
from hexport.packaging import manifest as m
from hexport.packaging.manifest_file import to_bytes
from made_packages import FILES, build, manifest

Entries = dict[str, bytes]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return build(tmp_path / "pkg")


def test_what_was_packed_comes_back(package: Path, tmp_path: Path) -> None:
    zipped = pack(package, tmp_path / "p.zip")
    unpacked = unpack(zipped, tmp_path / "again")
    assert unpacked.manifest == open_package(package).manifest == read_packed(zipped)
    for name, (_, content) in FILES.items():
        assert (tmp_path / "again" / name).read_bytes() == content
    assert (tmp_path / "again" / m.MANIFEST).read_bytes() == (package / m.MANIFEST).read_bytes()


def test_packing_twice_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    first = pack(package, tmp_path / "1.zip").read_bytes()
    for name in FILES:
        os.utime(package / name, (time.time() - 10**6,) * 2)
        (package / name).chmod(0o600)
    assert pack(package, tmp_path / "2.zip").read_bytes() == first
    assert zipfile.ZipFile(tmp_path / "1.zip").namelist() == [m.MANIFEST, *sorted(FILES)]


def test_a_damaged_package_is_not_packed(package: Path, tmp_path: Path) -> None:
    (package / "cpu" / "model.onnx").write_bytes(b"A MODEL")
    with pytest.raises(failures.PackageTampered):
        pack(package, tmp_path / "p.zip")
    assert not (tmp_path / "p.zip").exists()


def test_a_zip_is_not_opened_as_a_folder(package: Path, tmp_path: Path) -> None:
    with pytest.raises(failures.NotAPackage) as caught:
        open_package(pack(package, tmp_path / "p.zip"))
    assert "pack --unpack" in caught.value.next


def test_a_zip_made_by_hand_may_have_folders(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as made:
        for path in sorted(package.rglob("*")):
            made.write(path, path.relative_to(package).as_posix())
    assert "cpu/" in made.namelist()
    assert unpack(tmp_path / "p.zip", tmp_path / "out").manifest


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────


def zip_of(path: Path, entries: Entries, change: Callable[[zipfile.ZipInfo], None] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            if change is not None:
                change(entry)
            made.writestr(entry, content)
    return path


def entries_of(package: Path) -> Entries:
    return {name: (package / name).read_bytes() for name in (m.MANIFEST, *FILES)}


def refused(path: Path, kind: type[failures.PackageError] = failures.UnsafeArchive) -> str:
    """Unpacking is refused, and nothing at all was written."""
    output = path.parent / "unpacked"
    before = {p for p in path.parent.rglob("*") if "cache" not in p.parts}
    with pytest.raises(kind) as caught:
        unpack(path, output)
    assert {p for p in path.parent.rglob("*") if "cache" not in p.parts} == before
    return caught.value.why


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "a/../../evil",
        "C:\\evil",
        "..\\evil",
        "\\\\host\\evil",
        "C:evil",
        "nul",
        "//x",
    ],
)
def test_names_that_lead_out_are_refused(package: Path, tmp_path: Path, name: str) -> None:
    path = zip_of(tmp_path / "p.zip", {**entries_of(package), name: b"evil"})
    refused(path, failures.UnsafePath)
    assert not (tmp_path.parent / "evil").exists()


def test_a_manifest_that_leads_out_is_refused(package: Path, tmp_path: Path) -> None:
    entries = entries_of(package)
    entries[m.MANIFEST] = entries[m.MANIFEST].replace(b"report.json", b"../rep.json")
    assert "may lead out" in refused(zip_of(tmp_path / "p.zip", entries), failures.UnsafePath)


def test_links_are_refused(package: Path, tmp_path: Path) -> None:
    def link(entry: zipfile.ZipInfo) -> None:
        if entry.filename == "report.json":
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16

    assert "a link" in refused(zip_of(tmp_path / "p.zip", entries_of(package), link))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(package: Path, tmp_path: Path) -> None:
    path = zip_of(tmp_path / "p.zip", entries_of(package))
    with zipfile.ZipFile(path, "a") as made:
        made.writestr("report.json", b"{ }")
    assert "twice" in refused(path)


def test_strangers_and_gaps_are_refused(package: Path, tmp_path: Path) -> None:
    entries = entries_of(package)
    assert "does not name 'run.sh'" in refused(zip_of(tmp_path / "a.zip", {**entries, "run.sh": b"x"}))
    del entries["cpu/model.onnx"]
    assert "'cpu/model.onnx' is missing" in refused(zip_of(tmp_path / "b.zip", entries))
    del entries[m.MANIFEST]
    assert "no packed package" in refused(zip_of(tmp_path / "c.zip", entries))


def test_other_content_is_refused(package: Path, tmp_path: Path) -> None:
    entries = {**entries_of(package), "cpu/model.onnx": b"A MODEL"}
    assert "SHA-256" in refused(zip_of(tmp_path / "a.zip", entries), failures.PackageTampered)
    entries["cpu/model.onnx"] = b"a longer model"
    assert "14 bytes in the zip, 7 in the manifest" in refused(zip_of(tmp_path / "b.zip", entries))


def test_a_newer_schema_is_refused(package: Path, tmp_path: Path) -> None:
    entries = entries_of(package)
    entries[m.MANIFEST] = entries[m.MANIFEST].replace(b'"schema_version": 1', b'"schema_version": 7')
    assert "up to 1" in refused(zip_of(tmp_path / "p.zip", entries), failures.PackageTooNew)


def bomb(tmp_path: Path, size: int) -> Path:
    """A package that is sound in all but its zeros."""
    zeros = bytes(size)
    entry = m.Artefact(m.CPU_MODEL, "zeros.onnx", size, hashlib.sha256(zeros).hexdigest())
    entries = {m.MANIFEST: to_bytes(manifest(artefacts=(entry,))), "zeros.onnx": zeros}
    return zip_of(tmp_path / "bomb.zip", entries)


def test_a_bomb_of_a_thousandfold_is_refused(tmp_path: Path) -> None:
    path = bomb(tmp_path, 64 * 2**20)
    assert 900 * path.stat().st_size < 64 * 2**20  # the instrument itself
    assert "would swell" in refused(path)


def test_small_files_may_be_zeros(tmp_path: Path) -> None:
    assert unpack(bomb(tmp_path, 2**19), tmp_path / "out").manifest


def test_a_zip_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    """The table of contents says 100 bytes, the data holds 64 MiB."""
    path = bomb(tmp_path, 64 * 2**20)
    small = m.Artefact(m.CPU_MODEL, "zeros.onnx", 100, hashlib.sha256(bytes(100)).hexdigest())
    with zipfile.ZipFile(path) as made:
        packed = made.getinfo("zeros.onnx")
        start, length = packed.header_offset, packed.compress_size
    raw = path.read_bytes()
    header = raw[start : start + 30]
    name_size = int.from_bytes(header[26:28], "little")
    data = raw[start + 30 + name_size :][:length]
    path = zip_of(tmp_path / "liar.zip", {m.MANIFEST: to_bytes(manifest(artefacts=(small,)))})
    with zipfile.ZipFile(path, "a") as made:
        made.writestr("zeros.onnx", data)
    patched = path.read_bytes()
    # method: deflated; size: 100
    for magic, method, size in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        at = patched.rindex(magic)
        patched = patched[: at + method] + b"\x08\0" + patched[at + method + 2 :]
        patched = patched[: at + size] + (100).to_bytes(4, "little") + patched[at + size + 4 :]
    path.write_bytes(patched)
    # Python's own reader stops at 100 bytes and finds the checksum wrong.
    assert "damaged" in refused(path)


def test_no_room_is_said_before_anything_is_unpacked(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(package, tmp_path / "p.zip")
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: usage)
    assert "10 are free" in refused(path)


@pytest.mark.parametrize("cut", [0, 10, 200, -1, -30])
def test_a_truncated_zip_is_refused(package: Path, tmp_path: Path, cut: int) -> None:
    path = pack(package, tmp_path / "p.zip")
    path.write_bytes(path.read_bytes()[:cut])
    assert "damaged" in refused(path)


def test_flipped_bits_are_refused(package: Path, tmp_path: Path) -> None:
    path = pack(package, tmp_path / "p.zip")
    data = path.read_bytes()
    for at in range(40, len(data) - 30, 37):
        mutant = bytearray(data)
        mutant[at] ^= 4
        path.write_bytes(mutant)
        try:
            unpacked = unpack(path, tmp_path / "out")
        except failures.PackageError:
            assert not (tmp_path / "out").exists()
        else:  # a bit that says nothing: a date, a version
            unpacked.verify()
            assert unpacked.manifest == open_package(package).manifest
            for file in sorted((tmp_path / "out").rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            (tmp_path / "out").rmdir()


def test_what_is_no_zip_is_refused(package: Path, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"hello")
    assert "damaged" in refused(tmp_path / "x.zip")
    assert "cannot be read" in refused(tmp_path / "none.zip")
    assert "cannot be read" in refused(package)
