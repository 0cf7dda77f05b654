"""Three witnesses, one story: the op trace, the assignment API and the native log agree on every zoo model.

check trusts the trace for reasons and the API for placement; if a release of onnxruntime-qnn lets them
drift apart, this is where it shows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hexport import facts, zoo
from hexport.backend.calling import PROVIDER
from hexport.backend.failures import CompileFailed, ModelRejected
from hexport.backend.native_log import read_native_log
from hexport.backend.probe import Evidence, probe
from hexport.backend.where import on_chip
from hexport.model import Graph, read
from hexport.model.dims import fix_shapes
from hexport.model.staging import stage
from hexport.observe.placement import Names, place

TARGET = facts.find_target("SM8650")

# A GRU is unrolled, a step at a time: 100 frames compile for minutes and say the same as 4.
SHORTER = {"nsnet2-48k": {"input": (1, 4, 513)}}

# Known not to compile as they are, with the reason; rewriting them is `prepare`'s work.
FAILS = {
    "swift-f0": (CompileFailed, "7004"),  # float64 tensors
    "silero-vad": (ModelRejected, "rank 3"),  # a branch of its If is not valid at any one size
}


def evidence(name: str, folder: Path) -> tuple[Graph, Evidence]:
    model = read(zoo.get(name))
    shapes = fix_shapes(model.graph, {}, SHORTER.get(name, zoo.entry(name).input_shapes), "")
    return model.graph, probe(stage(model, shapes, folder), on_chip(TARGET), folder)


@pytest.mark.parametrize("name", [name for name in zoo.names() if name not in FAILS])
def test_three_witnesses_agree(name: str, tmp_path: Path) -> None:
    graph, found = evidence(name, tmp_path)
    api_npu = {node.name for part in found.parts if part.provider == PROVIDER for node in part.nodes}
    api_cpu = {node.name for part in found.parts if part.provider != PROVIDER for node in part.nodes}
    trace_cpu = {node.name: node.reason for node in found.trace.unsupported}

    assert api_npu, "nothing on the NPU: there is nothing to compare"
    assert found.trace.on_npu == api_npu
    assert len(found.trace.graphs) == sum(part.provider == PROVIDER for part in found.parts)
    assert api_npu <= found.log.passed
    assert found.log.failed == trace_cpu

    # The trace does not look into bodies of If and Loop, the API does.
    names = Names(graph, found.trace.tensor_of)
    in_bodies = {inner.name for node in graph.nodes for body in node.bodies for inner in body.walk()}
    assert {node for node in api_cpu if names.original(node) not in in_bodies} == set(trace_cpu)
    assert_every_node_is_led_back(graph, found)


def assert_every_node_is_led_back(graph: Graph, found: Evidence) -> None:
    """Each node the backend names is one of the user's, but for the layout changes it adds."""
    placement = place(graph, found.parts, found.trace)
    assert not placement.made_cpu
    assert {node.op for node in placement.made_npu} <= {"Transpose"}
    placed = [name for part in placement.npu for name in part] + list(placement.cpu)
    assert len(placed) == len(set(placed))
    assert set(placed) | set(placement.folded) == {n.name for n in graph.walk() if n.op != "Constant"}


@pytest.mark.parametrize("name", FAILS)
def test_models_that_fail_say_why(name: str, tmp_path: Path) -> None:
    kind, reason = FAILS[name]
    with pytest.raises(kind, match=reason) as caught:
        evidence(name, tmp_path)
    assert caught.value.next
    # Even then the log has the provider's answer to each node that it was asked about.
    log = read_native_log(tmp_path / "native.log")
    assert log.failed.keys().isdisjoint(log.passed)
