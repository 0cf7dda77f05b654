"""What a context binary says of itself, read back from real compiles; and what damaged ones do to us."""

from __future__ import annotations

import _ctypes
import ctypes
import random
import re
import struct
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models
from hexport import facts
from hexport.backend import context_binary
from hexport.backend.context_binary import (
    ContextBinary,
    ContextGraph,
    ContextReply,
    ContextRequest,
    ContextTensor,
)
from hexport.backend.failures import WrongTarget
from hexport.backend.probe import _refuse_wrong_target
from hexport.backend.requests import SessionRequest
from hexport.records import from_plain, to_plain
from hexport.toolchain import (
    JobFailed,
    Limits,
    Worker,
    WorkerCrashed,
    WorkerExited,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from hexport.toolchain.serving import JobError

MODULE = "hexport.backend.context_binary"
Compile = Callable[..., Path]


def qdq_conv() -> onnx.ModelProto:
    """8-bit through and through: compiles for chips without float, and without naming a chip."""
    node = helper.make_node
    weight = np.random.default_rng(0).integers(-127, 128, (8, 3, 3, 3), dtype=np.int8)
    constants = {
        "w": weight, "w_scale": np.float32(0.01), "w_zero": np.int8(0),
        "x_scale": np.float32(0.02), "x_zero": np.uint8(128),
        "y_scale": np.float32(0.05), "y_zero": np.uint8(128),
    }  # fmt: skip
    return small_models.model(
        [
            node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["xq"]),
            node("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["xd"]),
            node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"]),
            node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
            node("QuantizeLinear", ["c", "y_scale", "y_zero"], ["yq"]),
            node("DequantizeLinear", ["yq", "y_scale", "y_zero"], ["y"]),
        ],
        [small_models.value("x", [1, 3, 16, 16])],
        [small_models.value("y", [1, 8, 16, 16])],
        [small_models.constant(name, np.asarray(array)) for name, array in constants.items()],
    )


def two_and_two(rows: int) -> onnx.ModelProto:
    """Two inputs and two outputs: a + b·w and Relu(b·w)."""
    weight = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    return small_models.model(
        [
            helper.make_node("MatMul", ["b", "w"], ["m"]),
            helper.make_node("Add", ["a", "m"], ["sum"]),
            helper.make_node("Relu", ["m"], ["positive"]),
        ],
        [small_models.value("a", [rows, 8]), small_models.value("b", [rows, 16])],
        [small_models.value("sum", [rows, 8]), small_models.value("positive", [rows, 8])],
        [small_models.constant("w", weight)],
    )


def wide_convs() -> onnx.ModelProto:
    """More activations than 2 MB of VTCM hold."""
    node = helper.make_node
    weight = np.random.default_rng(0).normal(size=(32, 32, 3, 3)).astype(np.float32) * 0.05
    return small_models.model(
        [
            node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
            node("Conv", ["a", "w"], ["b"], pads=[1] * 4),
            node("Softmax", ["b"], ["c"], axis=1),
            node("Conv", ["c", "w"], ["d"], pads=[1] * 4),
            node("Add", ["d", "a"], ["y"]),
        ],
        [small_models.value("x", [1, 32, 192, 192])],
        [small_models.value("y", [1, 32, 192, 192])],
        [small_models.constant("w", weight)],
    )


def session_request(model: Path, folder: Path, provider: dict[str, str], **session: str) -> dict[str, object]:
    plain: dict[str, object] = to_plain(
        SessionRequest(
            str(model),
            "",
            {"backend_type": "htp", **provider},
            {
                "ep.context_enable": "1",
                "ep.context_file_path": str(folder / f"{model.stem}_context.onnx"),
                "ep.context_embed_mode": "0",
                **{f"ep.{key}": value for key, value in session.items()},
            },
        )
    )
    return plain


def only(folder: Path) -> Path:
    (binary,) = folder.glob("*.bin")
    return binary


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile once for each model and set of options, past every check of hexport's own."""
    done: dict[object, Path] = {}

    def compile_(model: Callable[[], onnx.ModelProto], **options: str) -> Path:
        key = (model, *sorted(options.items()))
        if key not in done:
            folder = tmp_path_factory.mktemp("compiled")
            file = small_models.save(model(), folder / "m.onnx")
            with Worker("hexport.backend.jobs", folder / "native.log") as worker:
                worker.call("create_session", session_request(file, folder, options))
            done[key] = only(folder)
        return done[key]

    return compile_


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Worker(MODULE, tmp_path / "reader.log", limits=Limits(seconds=60)) as started:
        yield started


def read_all(worker: Worker, binary: Path) -> tuple[ContextBinary, ...]:
    reply = worker.call("read_context", to_plain(ContextRequest(str(binary))))
    return from_plain(ContextReply, reply).binaries


def read(worker: Worker, binary: Path) -> ContextBinary:
    (one,) = read_all(worker, binary)
    return one


# ── for which chip ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chip", ["SM8450", "SC8380XP", "SM8650", "SM8750", "SM8850", "SM8975"])
def test_a_float_model_reads_back_as_its_target(chip: str, compiled: Compile, worker: Worker) -> None:
    target = facts.find_target(chip)
    binary = read(worker, compiled(small_models.conv_relu, soc_model=str(target.soc_model)))
    assert (binary.soc_model, binary.htp_arch) == (target.soc_model, target.htp_arch)
    assert binary.backend_id == 6
    assert binary.sdk == facts.sdk_of(facts.installed_release() or "")
    (graph,) = binary.graphs
    assert graph.inputs == (ContextTensor("x", "float32", (1, 3, 16, 16)),)
    assert graph.outputs == (ContextTensor("y", "float32", (1, 8, 16, 16)),)


@pytest.mark.parametrize("chip", ["SM7325", "QCM6490", "SM6450", "SW6100"])
def test_a_quantised_model_reads_back_as_its_target(chip: str, compiled: Compile, worker: Worker) -> None:
    target = facts.find_target(chip)
    assert not target.float
    binary = read(worker, compiled(qdq_conv, soc_model=str(target.soc_model)))
    assert (binary.soc_model, binary.htp_arch) == (target.soc_model, target.htp_arch)
    (graph,) = binary.graphs
    assert [(t.dtype, t.shape) for t in graph.inputs] == [("ufixed8", (1, 3, 16, 16))]
    assert [(t.dtype, t.shape) for t in graph.outputs] == [("ufixed8", (1, 8, 16, 16))]


@pytest.mark.parametrize("options", [{"htp_arch": "85"}, {"soc_model": "SM9999"}, {}])
def test_the_silent_fall_back_to_v68_is_seen(
    options: dict[str, str], compiled: Compile, worker: Worker
) -> None:
    path = compiled(qdq_conv, **options)
    binary = read(worker, path)
    assert (binary.soc_model, binary.htp_arch) == (None, 68)
    with pytest.raises(WrongTarget, match="asked for SM8975"):
        _refuse_wrong_target((binary,), facts.find_target("SM8975"), path)


def test_the_wrapper_repeats_the_options_and_the_binary_does_not(compiled: Compile, worker: Worker) -> None:
    path = compiled(qdq_conv, soc_model="60", htp_arch="81")
    metadata = {
        entry.key: entry.value for entry in onnx.load(path.with_name("m_context.onnx")).metadata_props
    }
    # version : backend : SDK : API : archs : SoCs : VTCM : driver
    assert metadata["ep_compatibility_info.QNNExecutionProvider"].split(":")[4:6] == ["81", "60"]
    assert read(worker, path).htp_arch == facts.find_target(60).htp_arch == 73


def test_a_multi_soc_container_holds_one_binary_a_chip(compiled: Compile, worker: Worker) -> None:
    path = compiled(qdq_conv, soc_model="57,60,69")
    chips = sorted((b.soc_model, b.htp_arch) for b in read_all(worker, path))
    assert chips == [(57, 75), (60, 73), (69, 79)]


# ── what is inside ────────────────────────────────────────────────────────────────────────────────────────


def test_a_shared_binary_tells_every_graph_and_tensor(tmp_path: Path, worker: Worker) -> None:
    with Worker("hexport.backend.jobs", tmp_path / "native.log") as compiler:
        for rows, last in ((4, {}), (6, {"stop_share_ep_contexts": "1"})):
            model = small_models.save(two_and_two(rows), tmp_path / f"rows{rows}.onnx")
            request = session_request(model, tmp_path, {"soc_model": "57"}, share_ep_contexts="1", **last)
            compiler.call("create_session", request)
    binary = read(worker, only(tmp_path))
    assert [graph.inputs for graph in binary.graphs] == [
        (ContextTensor("a", "float32", (rows, 8)), ContextTensor("b", "float32", (rows, 16)))
        for rows in (4, 6)
    ]
    assert [sorted(t.name for t in graph.outputs) for graph in binary.graphs] == [["positive", "sum"]] * 2
    assert {t.shape for t in binary.graphs[1].outputs} == {(6, 8)}


def test_vtcm_and_spill_fill_are_what_the_compiler_logged(compiled: Compile, worker: Worker) -> None:
    path = compiled(wide_convs, soc_model="57", vtcm_mb="2")
    (graph,) = read(worker, path).graphs
    logged = re.findall(
        r"spillFillBufferSize=(\d+)", path.with_name("native.log").read_text(errors="replace")
    )
    assert graph.vtcm_mb == 2
    assert graph.spill_fill_bytes == int(logged[0]) > 0


def test_one_worker_may_compile_and_read_in_any_order(compiled: Compile, tmp_path: Path) -> None:
    # The order in which QNN's libraries and onnxruntime are loaded has crashed processes before.
    (tmp_path / "both_jobs.py").write_text(
        textwrap.dedent("""
            from hexport.backend.context_binary import read_context
            from hexport.backend.jobs import create_session
            from hexport.toolchain.serving import serve

            serve({"read_context": read_context, "create_session": create_session})
        """)
    )
    model = small_models.save(small_models.conv_relu(), tmp_path / "m.onnx")
    environment = {"PYTHONPATH": str(tmp_path)}
    with Worker("both_jobs", tmp_path / "native.log", environment=environment) as worker:
        assert read(worker, compiled(small_models.conv_relu, soc_model="57")).soc_model == 57
        worker.call("create_session", session_request(model, tmp_path, {"soc_model": "69"}))
        assert read(worker, only(tmp_path)).soc_model == 69


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 16, 200, 1000, 4096, 20000, -1])
def test_a_truncated_binary_is_refused(size: int, compiled: Compile, worker: Worker, tmp_path: Path) -> None:
    for number, options in enumerate(({"soc_model": "57"}, {"soc_model": "57,60,69"})):
        damaged = tmp_path / f"{number}.bin"
        damaged.write_bytes(compiled(qdq_conv, **options).read_bytes()[:size])
        with pytest.raises(JobFailed, match="not a sound context binary") as caught:
            read(worker, damaged)
        assert caught.value.kind == "ContextUnreadable"


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"PK\x03\x04" + b"\0" * 5000, b"\xff" * 64, b"hello"])
def test_garbage_is_refused(garbage: bytes, worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "g.bin").write_bytes(garbage)
    with pytest.raises(JobFailed) as caught:
        read(worker, tmp_path / "g.bin")
    assert caught.value.kind == "ContextUnreadable"


def test_a_missing_file_and_a_folder_are_refused(worker: Worker, tmp_path: Path) -> None:
    for path in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(JobFailed) as caught:
            read(worker, path)
        assert caught.value.kind == "ContextUnreadable"


def test_thirty_bit_flipped_binaries_harm_nobody(compiled: Compile, tmp_path: Path) -> None:
    sound = compiled(small_models.conv_relu, soc_model="57")
    data = sound.read_bytes()
    description = 40 + struct.unpack_from("<Q", data, 16)[0]  # header and table; the code is not looked at
    choose = random.Random(57)
    ends = []
    for number in range(30):
        mutant = bytearray(data)
        for _ in range(choose.choice((1, 1, 2, 8))):
            mutant[choose.randrange(description)] ^= 1 << choose.randrange(8)
        (tmp_path / "mutant.bin").write_bytes(mutant)
        ends.append(_end_of_reading(tmp_path / "mutant.bin", tmp_path / f"{number}.log"))
    assert "refused" in ends  # or the flips hit nothing
    with Worker(MODULE, tmp_path / "after.log") as worker:
        assert read(worker, sound).soc_model == 57


def _end_of_reading(binary: Path, log: Path) -> str:
    with Worker(MODULE, log, limits=Limits(seconds=20, memory_bytes=2**30)) as worker:
        try:
            read(worker, binary)
        except JobFailed as error:
            assert error.kind == "ContextUnreadable"  # noqa: PT017 - which of the ends it was is the result
            return "refused"
        except (WorkerCrashed, WorkerExited, WorkerTimeout, WorkerOutOfMemory):
            return "died"
    return "read"


@pytest.mark.parametrize("library", ["/no/such/libQnnSystem.so", _ctypes.__file__])
def test_a_library_that_is_none_is_named(library: str, worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as caught:
        worker.call("read_context", to_plain(ContextRequest(str(tmp_path / "any.bin"), library)))
    assert caught.value.kind == "SystemLibraryUnusable"


# ── descriptions that no compiler here makes, laid out by hand after QNN's headers ────────────────────────


class Memory:
    """Keeps what it is given at an address, as the library would."""

    def __init__(self) -> None:
        self._kept: list[object] = []

    def put(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, len(data))
        self._kept.append(buffer)
        return ctypes.addressof(buffer)

    def tensor(self, version: int = 1, rank: int = 2, dims: int | None = None) -> bytes:
        at = self.put(struct.pack("<2I", 5, 7)) if dims is None else dims
        head = struct.pack("<I4xI4xQ3I4x40x", version, 1, self.put(b"t\0"), 0, 0, 0x0416)
        return head + struct.pack("<I4xQ48x", rank, at)

    def graph(self, tensor: bytes, version: int = 1) -> bytes:
        lists = struct.pack("<I4xQI4xQ", 1, self.put(tensor), 0, 0)
        return struct.pack("<I4xQ", version, self.put(b"g\0")) + lists + bytes(40)

    def old_binary(self, graphs: int, count: int, version: int = 2) -> int:
        """Versions 1 and 2 of SDKs before 2.28, which name no chip."""
        head = struct.pack("<I4xI4xQ3I3IQ", version, 6, self.put(b"v2.20.1.2\0"), 2, 14, 0, 5, 20, 1, 0)
        rest = struct.pack("<3I3II4xQQI4xQI4xQQ", 0, 0, 1, 3, 1, 2, 0, 0, 100, 0, 0, count, graphs, 0)
        return self.put(head + rest)


def test_an_old_description_tells_all_but_the_chip() -> None:
    memory = Memory()
    address = memory.old_binary(memory.put(memory.graph(memory.tensor())), 1)
    assert context_binary._binary(address) == ContextBinary(
        build_id="v2.20.1.2",
        backend_id=6,
        backend_api="5.20.1",
        blob_version="3.1.2",
        blob_bytes=100,
        soc_model=None,
        htp_arch=None,
        graphs=(ContextGraph("g", (ContextTensor("t", "ufixed16", (5, 7)),), ()),),
    )


@pytest.mark.parametrize(
    ("binary", "graph", "tensor", "says"),
    [
        ({"version": 4}, {}, {}, "description has version 4"),
        ({"count": 10**6}, {}, {}, "claims 1000000 graphs"),
        ({"graphs": 0}, {}, {}, "claims 1 graphs, and has no list"),
        ({}, {"version": 9}, {}, "graph's description has version 9"),
        ({}, {}, {"version": 3}, "tensor's description has version 3"),
        ({}, {}, {"rank": 65}, "claims 65 dims"),
        ({}, {}, {"dims": 0}, "claims 2 dims, and has no list"),
    ],
)
def test_what_is_not_known_is_an_error_and_not_a_guess(
    binary: dict[str, int], graph: dict[str, int], tensor: dict[str, int], says: str
) -> None:
    memory = Memory()
    graphs = memory.put(memory.graph(memory.tensor(**tensor), **graph))
    address = memory.old_binary(**{"graphs": graphs, "count": 1, **binary})
    with pytest.raises(JobError, match=says):
        context_binary._binary(address)
