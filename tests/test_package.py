"""Opening packages: every way one can be wrong is refused with its reason."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.packaging import Manifest, failures, open_package
from hexport.packaging import manifest as m
from hexport.packaging.manifest_file import from_bytes, to_bytes
from hexport.packaging.relative_path import check_relative_path
from made_packages import BUCKET, FILES, build, edit, manifest

BINARY = "SM8650/model_ctx_qnn.bin"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))


def test_a_package_is_opened_and_its_files_are_found(tmp_path: Path) -> None:
    package = open_package(build(tmp_path / "pkg"))
    binary, *others = package.find(m.CONTEXT_BINARY, target="SM8650", bucket="seq=64")
    assert (others, binary.path) == ([], BINARY)
    assert package.find(m.CONTEXT_BINARY, target="SM8550") == ()
    assert package.find(m.CONTEXT_BINARY, bucket="seq=16") == ()
    # What depends on no chip serves all.
    assert [a.path for a in package.find(m.CPU_MODEL, target="SM8550")] == ["cpu/model.onnx"]
    assert package.verified(binary) == (tmp_path / "pkg" / BINARY,)
    assert package.manifest.target("SM8650").soc_model == 57
    assert package.manifest.bucket("seq=64").dims == {"seq": 64}


def test_the_same_build_writes_the_same_bytes(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one"), build(tmp_path / "other")
    assert (one / m.MANIFEST).read_bytes() == (other / m.MANIFEST).read_bytes()
    assert json.loads((one / m.MANIFEST).read_text("utf-8"))["created"] is None


# ── what is wrong with the files ──────────────────────────────────────────────────────────────────────────


def test_a_tampered_file_is_refused(tmp_path: Path) -> None:
    file = build(tmp_path / "pkg") / BINARY
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(failures.PackageTampered, match="SHA-256") as caught:
        open_package(tmp_path / "pkg")
    assert BINARY.split("/")[1] in caught.value.what


def test_only_what_is_used_needs_to_be_hashed(tmp_path: Path) -> None:
    (build(tmp_path / "pkg") / "cpu" / "model.onnx").write_bytes(b"A MODEL")
    package = open_package(tmp_path / "pkg", verify=False)
    package.verified(*package.find(m.CONTEXT_BINARY), *package.find(m.CONTEXT_MODEL))
    with pytest.raises(failures.PackageTampered):
        package.verified(*package.find(m.CPU_MODEL))


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(tmp_path: Path, name: str, verify: bool) -> None:
    (build(tmp_path / "pkg") / name).unlink()
    with pytest.raises(failures.PackageIncomplete, match="missing"):
        open_package(tmp_path / "pkg", verify=verify)


def test_a_short_file_is_refused(tmp_path: Path) -> None:
    (build(tmp_path / "pkg") / BINARY).write_bytes(b"short")
    with pytest.raises(failures.PackageIncomplete, match="has 5 bytes"):
        open_package(tmp_path / "pkg", verify=False)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes in folders are of POSIX")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    file = build(tmp_path / "pkg") / "report.json"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(failures.PackageIncomplete, match="not a file"):
        open_package(tmp_path / "pkg")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    file = build(tmp_path / "pkg") / "cpu" / "model.onnx"
    outside = tmp_path / "outside.onnx"
    file.rename(outside)
    file.symlink_to(outside)
    with pytest.raises(failures.UnsafePath, match="leads out of the package"):
        open_package(tmp_path / "pkg")
    file.unlink()
    outside.rename(tmp_path / "pkg" / "cpu" / "same.onnx")
    file.symlink_to("same.onnx")
    assert open_package(tmp_path / "pkg")


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    folder = build(tmp_path / "pkg") / "cpu"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(failures.UnsafePath, match="leads out"):
        open_package(tmp_path / "pkg")


# ── what is wrong with the manifest ───────────────────────────────────────────────────────────────────────


def test_a_newer_schema_is_refused_whatever_else_is_in_it(tmp_path: Path) -> None:
    edit(build(tmp_path / "pkg"), lambda d: d.update(schema_version=2, something_new=1))
    with pytest.raises(failures.PackageTooNew, match="schema version 2") as caught:
        open_package(tmp_path / "pkg")
    assert "upgrade" in caught.value.next


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../other.bin", "a/../../b", "C:/x", "C:x", "\\\\host\\x", "a\\b", "a//b", "./a", "",
     "nul", "a/COM1.bin", "a.", "a ", "x\0y", "x\ny", "a" * 300, "\ud800"],
)  # fmt: skip
def test_paths_that_lead_elsewhere_are_refused(tmp_path: Path, path: str) -> None:
    edit(build(tmp_path / "pkg"), lambda d: d["artefacts"][0].update(path=path))
    with pytest.raises(failures.UnsafePath):
        open_package(tmp_path / "pkg")
    with pytest.raises(failures.UnsafePath):
        check_relative_path(path, "here")


def _twice(document: dict[str, Any]) -> None:
    document["artefacts"].append(
        dict(document["artefacts"][0], path=document["artefacts"][0]["path"].upper())
    )


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no version": (lambda d: d.pop("schema_version"), "no schema_version"),
    "version text": (lambda d: d.update(schema_version="1"), "no schema_version"),
    "version true": (lambda d: d.update(schema_version=True), "no schema_version"),
    "unknown field": (lambda d: d.update(evil=1), "unknown field 'evil'"),
    "missing field": (lambda d: d.pop("contract"), "'contract' is missing"),
    "wrong type": (lambda d: d.update(scheme=8), "expected str"),
    "role": (lambda d: d["artefacts"][0].update(role="code"), "unknown role 'code'"),
    "size": (lambda d: d["artefacts"][0].update(bytes=-1), "is none"),
    "hash": (lambda d: d["artefacts"][0].update(sha256="A" * 64), "is none"),
    "same file": (_twice, "2 times"),
    "the manifest": (lambda d: d["artefacts"][0].update(path="Hexport.json"), "2 times"),
    "in a file": (lambda d: d["artefacts"][0].update(path="report.json/x"), "a folder that is a file"),
    "in the manifest": (lambda d: d["artefacts"][0].update(path="hexport.json/x"), "lies in hexport.json"),
    "target": (lambda d: d["artefacts"][0].update(targets=["SM8550"]), "target 'SM8550'"),
    "bucket": (lambda d: d["verification"][0].update(bucket="seq=1"), "bucket 'seq=1'"),
    "two targets": (lambda d: d["targets"].append(d["targets"][0]), "target 'SM8650' is there 2 times"),
    "padding": (lambda d: d["contract"]["padding"][0].update(input="z"), "input 'z'"),
    "division": (lambda d: d["contract"]["crops"][0].update(divide=0), "less than 1"),
    "frozen": (lambda d: d["contract"]["frozen"][0].update(shape=[2]), "1 values for 2"),
    "rank": (lambda d: d["buckets"][0]["input_shapes"].update(ids=[64]), "no possible shape for 'ids'"),
    "negative": (lambda d: d["buckets"][0]["input_shapes"].update(ids=[1, -64]), "no possible shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_an_unsound_manifest_is_refused(tmp_path: Path, name: str) -> None:
    change, says = CHANGES[name]
    edit(build(tmp_path / "pkg"), change)
    with pytest.raises(failures.NotAPackage) as caught:
        open_package(tmp_path / "pkg")
    assert says in caught.value.why


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"schema_version": 1, "schema_version": 2}', "twice"),
        (b'{"schema_version": NaN}', "NaN is no number"),
        (b'{"schema_version": 1e999}', "1e999 is no number"),
        (b"[1]", "no schema_version"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(failures.NotAPackage) as caught:
        from_bytes(data, "here")
    assert says in caught.value.why


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "does not exist"), (tmp_path, "not a package")):
        with pytest.raises(failures.NotAPackage, match=says):
            open_package(path)
    (tmp_path / "f.onnx").write_bytes(b"x")
    with pytest.raises(failures.NotAPackage, match="is a file"):
        open_package(tmp_path / "f.onnx")


# ── properties ────────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SIZES = st.integers(0, 2**40)
NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
TENSORS = st.builds(
    m.Tensor,
    NAMES,
    NAMES,
    st.none() | st.lists(st.one_of(st.none(), NAMES, SIZES)).map(tuple),
    st.booleans(),
)


def unique(tensors: st.SearchStrategy[m.Tensor]) -> st.SearchStrategy[tuple[m.Tensor, ...]]:
    return st.lists(tensors, max_size=4, unique_by=lambda t: t.name).map(tuple)


@given(
    unique(TENSORS),
    unique(TENSORS),
    st.lists(NUMBERS, max_size=5),
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["exact", "broken"])),
    st.lists(NAMES).map(tuple),
)
def test_a_manifest_comes_back_as_it_was(
    inputs: tuple[m.Tensor, ...],
    outputs: tuple[m.Tensor, ...],
    values: list[Any],
    options: dict[str, str],
    sqnr: float | str,
    words: tuple[str, ...],
) -> None:
    frozen = m.FrozenInput("\x00 never drawn", "float32", (len(values),), tuple(values))
    verified = m.Verification("T", "b", "npu", 1, None, False, (m.OutputFigure("y", sqnr),), {"n": 3})
    made = manifest(
        contract=m.Contract(inputs, outputs, (frozen,), tuple(m.Padding(t.name, 0, 1.5) for t in inputs)),
        targets=(m.Target("T", 1, 73, "gpu", "v2:6", options),),
        buckets=(dataclasses.replace(BUCKET, name="b", input_shapes={}, output_shapes={}),),
        verification=(verified,),
        notes=words,
        command=words,
    )
    data = to_bytes(made)
    again = from_bytes(data, "here")
    assert isinstance(again, Manifest)
    assert again == made
    assert to_bytes(again) == data


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(failures.PackageError):
        from_bytes(data, "here")
