"""Where a model is to run: what is refused before native code starts, and what the facts say of backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import hexport
import small_models as small
from hexport import facts
from hexport.backend.failures import BackendNotInitialised
from hexport.backend.options import InvalidOption, validate_options
from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.backend.running import Results
from hexport.backend.where import GPU, HTP, QNN_CPU, BackendAbsent, BackendUnfit, accept, choose_where
from hexport.cli.check import command as check_command
from hexport.errors import HexportError, UsageError
from hexport.facts.backends import DOUBTFUL, REFUSED, advise_on, backend_faults, chosen_backend, refusals
from hexport.model import Graph, read
from hexport.runtime.running import run
from hexport.toolchain import Worker
from hexport.verification.failures import NotVerifiable
from hexport.verification.verb import verify

CPU_BACKEND = chosen_backend(QNN_CPU)
assert CPU_BACKEND is not None
needs_release_without_it = pytest.mark.skipif(
    not CPU_BACKEND.absent_from(facts.installed_release(), facts.current_platform()),
    reason="the installed onnxruntime-qnn carries QNN's CPU backend",
)


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is said must be said without native code."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(Worker, "__init__", refuse)


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 3, 16, 16), np.float32))
    return small.save(small.conv_relu(), tmp_path / "conv.onnx")


def verbs(model: Path, backend: str, target: str | None = None) -> list[Callable[[], object]]:
    return [
        lambda: hexport.check(model, backend=backend, target=target),
        lambda: run(model, inputs=model.with_name("in.npz"), backend=backend, target=target),
        lambda: verify(model, backend=backend, target=target, samples=1),
    ]


def quantised_graph(folder: Path, *, weight: bool) -> Graph:
    """One Q/DQ pair, over the input or over a weight."""
    nodes = [
        helper.make_node("QuantizeLinear", ["w" if weight else "x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    constants = [
        small.constant("w", np.ones(4, np.float32)),
        small.constant("scale", np.array(0.1, np.float32)),
        small.constant("zero", np.array(0, np.uint8)),
    ]
    proto = small.model(nodes, [small.value("x", [4])], [small.value("y", [4])], constants)
    return read(small.save(proto, folder / "q.onnx")).graph


@pytest.mark.usefixtures("no_worker")
@needs_release_without_it
def test_a_release_without_the_library_names_the_toolchain_to_add(conv: Path) -> None:
    for verb in verbs(conv, QNN_CPU):
        with pytest.raises(BackendAbsent) as caught:
            verb()
        assert isinstance(caught.value, BackendNotInitialised)
        assert "hexport toolchain add onnxruntime-qnn==2.3.0" in caught.value.next
        assert str(facts.installed_release()) in caught.value.why


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize("backend", [QNN_CPU, GPU])
def test_a_target_has_no_meaning_there(conv: Path, backend: str) -> None:
    for verb in verbs(conv, backend, "SM8650"):
        with pytest.raises(UsageError, match="no meaning"):
            verb()


@pytest.mark.usefixtures("no_worker")
def test_the_npu_needs_a_chip(conv: Path) -> None:
    with pytest.raises(UsageError, match="which chip"):
        hexport.check(conv)
    with pytest.raises(UsageError, match="'tpu' is not known"):
        hexport.check(conv, backend="tpu")
    done = CliRunner().invoke(check_command, [str(conv)])
    assert isinstance(done.exception, UsageError)
    assert "--target" in done.exception.next


def test_the_npu_is_its_chip() -> None:
    where = choose_where(HTP, "snapdragon 8 gen 3")
    assert where.options == {"backend_type": "htp", "soc_model": "57"}
    assert where.arguments == "--target SM8650"


@pytest.mark.usefixtures("no_worker")
def test_code_for_the_npu_runs_nowhere_else(tmp_path: Path) -> None:
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0)
    proto = small.model([node], [small.value("x", [1])], [small.value("y", [1])])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    path = small.save(proto, tmp_path / "ctx.onnx")
    np.savez(tmp_path / "in.npz", x=np.zeros(1, np.float32))
    for backend in (QNN_CPU, GPU):
        with pytest.raises(NotVerifiable, match=backend):
            verify(path, backend=backend)
        with pytest.raises(UsageError, match=backend):
            run(path, inputs=tmp_path / "in.npz", backend=backend)


@pytest.mark.usefixtures("no_worker")
def test_packages_are_not_for_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros(1, np.float32))
    (tmp_path / "pkg").mkdir()
    for backend in (QNN_CPU, GPU):
        with pytest.raises(NotVerifiable, match=backend):
            verify(tmp_path / "pkg", backend=backend)
    with pytest.raises(UsageError, match="package"):
        run(tmp_path / "pkg", inputs=tmp_path / "in.npz", backend=QNN_CPU)


@pytest.mark.usefixtures("no_worker")
def test_no_cpu_and_the_cpu_contradict_each_other(conv: Path) -> None:
    with pytest.raises(UsageError, match="--no-cpu"):
        run(conv, inputs=conv.with_name("in.npz"), allow_cpu=False)


def test_quantised_activations_count_and_weights_do_not(tmp_path: Path) -> None:
    gpu, htp = choose_where(GPU, None), choose_where(HTP, 57)
    assert accept(gpu, quantised_graph(tmp_path, weight=True), "m") == ()
    computed = quantised_graph(tmp_path, weight=False)
    assert accept(htp, computed, "m") == ()
    with pytest.raises(BackendUnfit, match="m is quantised"):
        accept(gpu, computed, "m")


def test_quantised_in_a_body_counts(tmp_path: Path) -> None:
    inner = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"]),
    ]
    body = helper.make_graph(inner, "body", [], [small.value("z", [4])])
    constants = [
        small.constant("scale", np.array(0.1, np.float32)),
        small.constant("zero", np.array(0, np.uint8)),
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    inputs = [small.value("x", [4]), small.value("c", [], TensorProto.BOOL)]
    proto = small.model([node], inputs, [small.value("y", [4])], constants)
    graph = read(small.save(proto, tmp_path / "if.onnx")).graph
    with pytest.raises(BackendUnfit):
        accept(choose_where(GPU, None), graph, "m")


@pytest.mark.parametrize(
    ("parts", "unlisted", "whole"),
    [
        ((("QNNExecutionProvider", 3),), False, True),
        ((("QNNExecutionProvider", 3), ("CPUExecutionProvider", 1)), False, False),
        ((("CPUExecutionProvider", 2),), False, False),
        ((("QNNExecutionProvider", 3),), True, False),
        ((), False, False),
    ],
)
def test_whole_is_all_of_it_on_the_backend(
    parts: tuple[tuple[str, int], ...], unlisted: bool, whole: bool
) -> None:
    made = tuple(AssignedPart(name, (AssignedNode("n", "Relu", ""),) * count) for name, count in parts)
    assert Results((), made, 0.0, unlisted).whole is whole


# ---------------------------------------------------------------- what the facts say


def test_the_table_of_releases_agrees_about_the_library() -> None:
    assert CPU_BACKEND is not None
    for plugin in facts.plugins():
        for platform in plugin.platforms:
            if facts.on_platform(CPU_BACKEND.last_on, platform):
                assert ("cpu" in plugin.backends) != CPU_BACKEND.absent_from(plugin.version, platform)
    assert not CPU_BACKEND.absent_from(None, "linux-x86_64")
    assert not CPU_BACKEND.absent_from("2.7.0", "windows-arm64"), "a wheel that nobody looked into for it"


def test_every_backend_that_can_be_chosen_is_described() -> None:
    chosen = {backend.choice: backend for backend in facts.backends() if backend.choice}
    assert set(chosen) == {HTP, QNN_CPU, GPU}
    assert (chosen[QNN_CPU].quantised, chosen[GPU].quantised) == (DOUBTFUL, REFUSED)
    assert all(backend.computes for backend in chosen.values())


def test_every_reason_gets_an_answer() -> None:
    for backend in ("cpu", "gpu"):
        assert advise_on(backend, "something nobody has seen").cause == "not-on-backend"
        assert advise_on(backend, "Failed to add node.").cause == "validation-rejected"
    said = "QNN EP: Data type 2 is not supported for Conv operator in CPU backend."
    assert advise_on("cpu", said).cause == "dtype-unsupported"
    assert {name for entry in refusals() for name in entry.backends} == {"cpu", "gpu"}
    assert {fault.backend for fault in backend_faults()} <= {"cpu", "gpu"}


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_options_of_the_npu_do_not_go_with_another_backend(backend: str) -> None:
    npu_only = {option.key for option in facts.options() if "htp" in option.key and option.kind == "provider"}
    told = next(
        rule
        for rule in facts.combinations()
        if rule.when == (f"backend_type={backend}",) and "soc_model" in rule.forbids
    )
    assert npu_only <= set(told.forbids)
    for options in ({"soc_model": "57"}, {"htp_performance_mode": "burst"}, {"vtcm_mb": "4"}):
        with pytest.raises(InvalidOption, match="does not go with"):
            validate_options({"backend_type": backend, **options}, release="2.3.0")


def test_no_context_and_no_gate_of_the_provider_with_its_cpu_backend() -> None:
    for session in ({"ep.context_enable": "1"}, {"session.disable_cpu_ep_fallback": "1"}):
        with pytest.raises(InvalidOption):
            validate_options({"backend_type": "cpu"}, session, release="2.3.0")
        assert validate_options({"backend_type": "gpu"}, session)


def test_bad_facts_are_refused() -> None:
    from hexport.facts.load import FactsError, read_table

    text = '[[backend]]\nname="x"\nlibrary="X"\nmeaning="m"\nsource="s"\n'
    for more in ('quantised="maybe"', 'quantised="refused"', 'choice="x"'):
        with pytest.raises(FactsError):
            read_table(text + more, "backends.toml", "backend", facts.QnnBackend)
    assert issubclass(FactsError, HexportError)
