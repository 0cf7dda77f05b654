"""Kept results and reports belong to the toolchain that made them."""

from __future__ import annotations

import sys

from hexport.storage.installed import installed_version
from hexport.storage.keys import key_of
from hexport.toolchain import Interpreter, using

OLDER = Interpreter(
    "older", sys.executable, "linux-x86_64", {"onnxruntime": "1.26.0", "onnxruntime-qnn": "2.3.0"}
)


def test_results_of_two_compilers_have_two_names() -> None:
    here = key_of("probe", model="same")
    with using(OLDER):
        there = key_of("probe", model="same")
    assert here != there
    assert key_of("probe", model="same") == here


def test_versions_are_those_of_the_native_code() -> None:
    own = installed_version("onnx")
    with using(OLDER):
        assert installed_version("onnxruntime-qnn") == "2.3.0"
        assert installed_version("onnx") == own
    assert installed_version("onnxruntime-qnn") != "2.3.0"
