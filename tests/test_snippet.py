"""Snippets call real packages: Python's is run, C++'s is compiled and run where its headers are."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime
import onnxruntime_qnn
import pytest
from click.testing import CliRunner

import made_packages
import small_models
from hexport.cli.pack import command as pack_command
from hexport.cli.snippet import command
from hexport.packaging import artefact, open_package, package_aside, write_manifest
from hexport.packaging import manifest as m
from hexport.snippets.failures import NoSnippet
from hexport.snippets.languages import LANGUAGES
from hexport.snippets.verb import snippet
from test_wrap import compile_to

HEADERS = os.environ.get("HEXPORT_ORT_HEADERS", "")
"""A folder with onnxruntime_cxx_api.h, which Python's wheel does not have."""
ODD = 'a"b\\u0001c$d\n\x01é'


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of a real model, compiled."""
    folder = tmp_path_factory.mktemp("snippet")
    (model,) = compile_to(folder, small_models.conv_relu)
    with pytest.MonkeyPatch.context() as patch, package_aside_in(folder, patch) as new:
        (new / "SM8650").mkdir()
        files = []
        for role, file in ((m.CONTEXT_MODEL, model), (m.CONTEXT_BINARY, next(folder.glob("*.bin")))):
            shutil.copy(file, new / "SM8650")
            files.append(artefact(new, f"SM8650/{file.name}", role, targets=["SM8650"], buckets=["fixed"]))
        shapes = {"x": (1, 3, 16, 16)}, {"y": (1, 8, 16, 16)}
        made = made_packages.manifest(
            contract=m.Contract(
                (m.Tensor("x", "float32", (1, 3, 16, 16)),), (m.Tensor("y", "float32", None),)
            ),
            buckets=(m.Bucket("fixed", {}, *shapes),),
            artefacts=tuple(files),
            verification=(),
        )
        write_manifest(new, made)
    return folder / "pkg"


def package_aside_in(folder: Path, patch: pytest.MonkeyPatch):
    patch.setenv("HEXPORT_CACHE", str(folder / "cache"))
    return package_aside(folder / "pkg")


def odd_package(folder: Path, patch: pytest.MonkeyPatch, dtype: str = "float32", name: str = ODD) -> Path:
    """Any file serves: the code is looked at, not run."""
    patch.setenv("HEXPORT_CACHE", str(folder / "cache"))
    with package_aside(folder / "odd") as new:
        made_packages.fill(new)
        made = made_packages.manifest(new)
        contract = dataclasses.replace(
            made.contract,
            inputs=(m.Tensor(name, dtype, (1, "seq")), m.Tensor("flag", "bool", ())),
            outputs=(m.Tensor("y", "float16", (1, "seq", 8)), m.Tensor("z", "int64", ())),
            padding=(m.Padding(name, 1, 7),),
            crops=(m.Crop("y", 1, "seq", 2, -1, 4),),
        )
        bucket = dataclasses.replace(
            made_packages.BUCKET, input_shapes={name: (1, 64), "flag": ()},
            output_shapes={"y": (1, 64, 8), "z": ()},
        )  # fmt: skip
        smaller = dataclasses.replace(bucket, name="seq=16")
        write_manifest(new, dataclasses.replace(made, contract=contract, buckets=(bucket, smaller)))
    return folder / "odd"


def test_python_runs_on_the_simulator(package: Path) -> None:
    code = snippet(package, lang="python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "y float32 (1, 8, 16, 16)" in done.stdout


def test_python_finds_no_other_way_when_the_binary_is_gone(package: Path, tmp_path: Path) -> None:
    """The instrument itself: what ran above was the package's own binary."""
    broken = tmp_path / "pkg"
    shutil.copytree(package, broken)
    code = snippet(broken, lang="python")
    next((broken / "SM8650").glob("*.bin")).unlink()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1


@pytest.mark.skipif(not HEADERS or not shutil.which("g++"), reason="set HEXPORT_ORT_HEADERS to compile it")
def test_cpp_compiles_and_runs_on_the_simulator(package: Path, tmp_path: Path) -> None:
    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)  # what the linked program asks for
    (tmp_path / "main.cpp").write_text(snippet(package, lang="cpp"), "utf-8")
    build = ["g++", "-std=c++17", "-Wall", f"-I{HEADERS}", "main.cpp", str(library), "-o", "main"]
    run = ["./main", str(package), onnxruntime_qnn.get_library_path()]
    for step in ([*build, f"-Wl,-rpath,{tmp_path}"], run):
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert f"y: {8 * 16 * 16} of float32, first " in done.stdout


@pytest.mark.skipif(not HEADERS or not shutil.which("g++"), reason="set HEXPORT_ORT_HEADERS to compile it")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "uint16", "int8"])
def test_cpp_of_odd_names_and_types_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    code = snippet(odd_package(tmp_path, monkeypatch, dtype), lang="cpp")
    done = subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-fsyntax-only", f"-I{HEADERS}", "-x", "c++", "-"],
        input=code, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_language_has_the_packages_own_names(package: Path, lang: str) -> None:
    code = snippet(package, lang=lang)
    (model,) = open_package(package).find(m.CONTEXT_MODEL)
    assert model.path in code
    assert '"x"' in code
    assert '"y"' in code
    assert re.search(r"1, 3, 16, 16", code)
    assert "%%" not in code
    assert code.count("{") == code.count("}")
    assert code.count("(") == code.count(")")
    if lang != "kotlin":  # Android's provider is built in, and named by its library
        assert '"soc_model"' in code
        assert "QNNExecutionProvider" in code


@pytest.mark.parametrize("lang", LANGUAGES)
def test_odd_names_stay_in_their_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str) -> None:
    code = snippet(odd_package(tmp_path, monkeypatch), lang=lang)
    escaped = r'"a\"b\\u0001c' + (r"\$" if lang == "kotlin" else "$") + r"d\n"
    assert escaped + (r"\001" if lang == "cpp" else r"\u0001") + 'é"' in code
    assert code.splitlines() == [line for line in code.splitlines() if "\x01" not in line]


def test_python_of_odd_names_means_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(snippet(odd_package(tmp_path, monkeypatch), lang="python"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {ODD, "flag", "y", "z"} <= texts


def test_padding_crops_and_other_sizes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = snippet(odd_package(tmp_path, monkeypatch, name="ids"), lang="python")
    assert "# Fill 'ids' up along axis 1 with 7 where it is shorter." in code
    assert "# Of 'y' only the first (seq * 2 - 1) // 4 along axis 1 are real." in code
    assert "# Other sizes have files of their own: seq=16." in code
    assert "# Without an NPU: cpu/model.onnx, on the CPU." in code


def test_what_cannot_be_called_is_said(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"lang": "cobol"}, {"lang": "cpp", "target": "SM1"}, {"lang": "cpp", "bucket": "seq=9"}):
        with pytest.raises(NoSnippet):
            snippet(package, **wrong)
    odd = odd_package(tmp_path, monkeypatch, "uint16")
    with pytest.raises(NoSnippet, match="uint16, which ONNX Runtime for Java cannot pass"):
        snippet(odd, lang="kotlin")
    assert "ushort" in snippet(odd, lang="csharp")
    with pytest.raises(NoSnippet, match="no model for SM8650 at seq=16"):
        snippet(odd, lang="cpp", bucket="seq=16")


def test_the_commands(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    printed = CliRunner().invoke(command, [str(package), "--lang", "python"], standalone_mode=False)
    assert printed.output == snippet(package, lang="python")
    document = CliRunner().invoke(command, [str(package), "--lang", "cpp", "--json"], standalone_mode=False)
    assert json.loads(document.output)["code"] == snippet(package, lang="cpp")
    zipped, again = str(tmp_path / "p.zip"), str(tmp_path / "again")
    for arguments in ([str(package), "-o", zipped], [zipped, "--unpack", "-o", again]):
        done = CliRunner().invoke(pack_command, [*arguments, "--json"], standalone_mode=False)
        assert json.loads(done.output)["files"] == 3
        assert done.return_value == 0
    assert open_package(again).manifest == open_package(package).manifest
