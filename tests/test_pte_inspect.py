"""Looking into .pte files without executorch: programs, options, and what is in their delegates."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hexport import HexportError, facts
from hexport.cli.inspect import command
from hexport.executorch.pte.options import read_options
from hexport.executorch.pte.program import read_program
from hexport.inspection.failures import DamagedFile
from hexport.inspection.verb import inspect
from pte_files import CHIP, MadePtes, describe, ptes_fixture  # noqa: F401 - named ptes
from tiny_pte import tiny_pte


def told(pte: Path) -> Any:
    done = CliRunner().invoke(command, [str(pte), "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    shown = CliRunner().invoke(command, [str(pte)], standalone_mode=False)
    assert shown.exception is None, shown.exception
    return json.loads(done.output)["pte"] | {"shown": shown.output}


def test_a_delegate_with_its_context_binary(ptes: MadePtes) -> None:
    found = told(ptes.path("two"))
    (method,), (delegate,) = found["methods"], found["qnn"]
    soc = facts.find_target(CHIP)
    assert [(t["name"], t["dims"]) for t in method["inputs"]] == [
        ("input_0", [1, 3, 8, 8]),
        ("input_1", [1, 4]),
    ]
    assert (delegate["methods"], delegate["payload"], delegate["note"]) == (["forward"], "context_binary", "")
    options = delegate["options"]
    assert (options["soc_model"], options["htp_arch"], options["backend"]) == (
        soc.soc_model,
        soc.htp_arch,
        "htp",
    )
    assert (options["precision"], options["online_prepare"]) == ("fp16", False)
    (context,) = delegate["contexts"]
    assert (context["chip"], context["htp_arch"]) == (CHIP, soc.htp_arch)
    assert context["sdk"] == facts.sdk_of(ptes.toolchain.packages["onnxruntime-qnn"])
    (graph,) = context["graphs"]
    assert graph["name"] == "forward"
    assert [t["dims"] for t in graph["inputs"]] == [[1, 3, 8, 8], [1, 4]]
    assert graph["vtcm_mb"] == options["vtcm_mb"]
    assert 0 < context["blob_bytes"] <= delegate["bytes"] < ptes.path("two").stat().st_size
    assert CHIP in found["shown"]


def test_the_other_kinds_are_told_as_what_they_are(ptes: MadePtes) -> None:
    online, shared = told(ptes.path("online")), told(ptes.path("shared"))
    assert (online["qnn"][0]["payload"], online["qnn"][0]["options"]["online_prepare"]) == ("dlc", True)
    assert "online prepare" in online["shown"]
    (binary,) = shared["qnn"]  # one binary, told once
    assert sorted(binary["methods"]) == ["many", "one"]
    assert binary["options"]["weight_sharing"]
    assert sorted(graph["name"] for graph in binary["contexts"][0]["graphs"]) == ["many", "one"]
    split = told(ptes.path("split"))
    assert [part["index"] for part in split["qnn"]] == [0, 1]
    assert split["methods"][0]["operators"] == ["aten::sin.out"]
    (quantised,) = told(ptes.path("bytes"))["qnn"][0]["contexts"][0]["graphs"]
    assert quantised["inputs"][0]["scale"] > 0
    assert "other numbers than it is given" in told(ptes.path("misread"))["shown"]
    assert told(ptes.path("bounded"))["methods"][0]["inputs"][0]["dims"] == ["≤8", "≤8"]


def test_names_and_scheme_of_the_description(ptes: MadePtes, tmp_path: Path) -> None:
    pte = Path(shutil.copy(ptes.path("split"), tmp_path / "m.pte"))
    inputs = {"row": next(iter(ptes.inputs("split").values()))}
    sidecar = describe(pte, inputs, {"sine": next(iter(ptes.expected("split").values()))})
    found = told(pte)
    assert (found["methods"][0]["inputs"][0]["name"], found["scheme"]) == ("row", "8a8w")
    sidecar.write_text("{}", "utf-8")
    found = told(pte)  # the rest can still be told
    assert found["methods"][0]["inputs"][0]["name"] == "input_0"
    assert "cannot be used" in found["note"]


def test_damage_is_refused_and_harms_nobody(ptes: MadePtes, tmp_path: Path) -> None:
    """The structure, wherever it is broken; code for the NPU is looked into by a worker."""
    choose, data, refused = random.Random(5), ptes.path("two").read_bytes(), 0
    program = read_program(ptes.path("two"))
    head = min(delegate.start for method in program.methods for delegate in method.delegates)
    for _ in range(200):
        mutant = bytearray(data)
        for _ in range(choose.choice((1, 4, 16))):
            mutant[choose.randrange(8, head)] = choose.randrange(256)
        (tmp_path / "m.pte").write_bytes(
            mutant[: choose.choice((len(mutant), choose.randrange(12, len(mutant))))]
        )
        try:
            read = read_program(tmp_path / "m.pte")
        except DamagedFile:
            refused += 1
            continue
        for method in read.methods:
            for delegate in method.delegates:
                read_options(delegate.spec)
    assert refused > 20
    (tmp_path / "cut.pte").write_bytes(data[: head + 300])
    with pytest.raises(HexportError):
        inspect(tmp_path / "cut.pte")


def test_other_backends_are_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(tiny_pte())
    found = told(tmp_path / "m.pte")
    assert found["qnn"] == []
    assert found["methods"][0]["delegates"] == {"XnnpackBackend": 1}
