"""A toolchain of another release, from the index: what was asked for is what is there, and works."""

from __future__ import annotations

import sys

from hexport import facts
from hexport.environments.record import Toolchain
from older_toolchain import RELEASE
from toolchain_standins import other_pythons


def test_another_release_in_another_python(older: Toolchain) -> None:
    plugin = facts.find_plugin(RELEASE)
    assert plugin is not None
    assert older.packages["onnxruntime-qnn"] == RELEASE
    assert older.packages["onnxruntime"] == plugin.tested
    assert older.state == "ok"
    if other_pythons((3, 11), (3, 14)):
        assert older.python_version.rpartition(".")[0] != ".".join(map(str, sys.version_info[:2]))
    states = {one.backend: one for one in older.backends}
    carried = {backend for backend, one in states.items() if one.state != "absent"}
    assert carried == set(plugin.backends)
    if older.platform == "linux-x86_64":
        works = {backend for backend, one in states.items() if one.state == "works"}
        assert works == {"htp", "cpu", "saver", "ir"}
        assert states["gpu"].why
