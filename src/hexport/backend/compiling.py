"""Compiling models to context binaries, in a worker of their own, and reading back what came out.

A fresh process and a relative path make the same bytes out of the same model: the compiler counts its
operators over the life of a process, and ONNX Runtime hashes the path into the names of graphs (measured,
onnxruntime 1.31 with onnxruntime-qnn 2.7).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hexport.backend import failures
from hexport.backend.calling import MODULE, PROVIDER, call, cure
from hexport.backend.context_binary import ContextBinary, ContextReply, ContextRequest
from hexport.backend.context_model import ContextModel, read_context_model
from hexport.backend.custom_ops import use_custom_ops
from hexport.backend.native_log import NativeLog, read_native_log
from hexport.backend.op_trace import OpTrace, read_op_trace
from hexport.backend.probe import infer_types
from hexport.backend.requests import AssignedNode, AssignedPart, CompileReply, CompileRequest
from hexport.backend.tracing import refuse_untraced
from hexport.backend.where import refuse_not_cut
from hexport.model.graph import TensorType
from hexport.model.staging import StagedModel
from hexport.records import from_plain
from hexport.toolchain import Limits, Worker
from hexport.toolchain.last_words import last_words


@dataclass(frozen=True)
class Order:
    """One model to compile, and the name of the file that it becomes."""

    staged: StagedModel
    name: str


@dataclass(frozen=True)
class Product:
    """What became of one model."""

    model: ContextModel
    trace: OpTrace
    seconds: float

    @property
    def parts(self) -> tuple[AssignedPart, ...]:
        """Who took which node: the trace tells what was compiled, the model what was left over."""
        npu = (tuple(dict.fromkeys(s for op in graph for s in op.sources)) for graph in self.trace.graphs)
        return (
            *(AssignedPart(PROVIDER, tuple(AssignedNode(n, "", "") for n in names)) for names in npu),
            AssignedPart("CPUExecutionProvider", self.model.cpu_nodes),
        )

    @property
    def transposes(self) -> int:
        """Transposes that the NPU does."""
        return sum(op.op == "Transpose" for graph in self.trace.graphs for op in graph)


@dataclass(frozen=True)
class Batch:
    """What one worker made: the models, and the binary that they call."""

    products: tuple[Product, ...]
    binary: Path | None
    """None when the binary is inside the model, or when nothing was compiled."""
    contexts: tuple[ContextBinary, ...]
    """Read back from the binary, one a chip."""
    log: NativeLog


def compile_batch(
    orders: Sequence[Order],
    provider: Mapping[str, str],
    workdir: Path,
    *,
    embed: bool = False,
    share: bool = False,
    session: Mapping[str, str] | None = None,
    custom_ops: Sequence[str] = (),
    limits: Limits | None = None,
) -> Batch:
    """Compile ``orders`` one after the other; with ``share`` into one binary. ``workdir`` must be empty."""
    refuse_untraced("compile")
    log = workdir / "native.log"
    with Worker(MODULE, log, limits=limits) as worker:
        use_custom_ops(worker, custom_ops)
        seconds = []
        for number, order in enumerate(orders):
            (workdir / f"trace{number}").mkdir()
            request = CompileRequest(
                Path(os.path.relpath(order.staged.model, workdir)).as_posix(),
                order.staged.data_folder_if_needed,
                order.name,
                {
                    **provider,
                    "enable_framework_op_trace": "1",
                    "framework_op_trace_dir": f"trace{number}",
                },
                {**(session or {}), **_sharing(share, last=number == len(orders) - 1)},
                embed,
            )
            seconds.append(from_plain(CompileReply, call(worker, "compile_model", request)).seconds)
        models = [read_context_model(workdir / order.name) for order in orders]
        binary, contexts = _read_binary(worker, models, workdir)
    native = read_native_log(log)
    _refuse_dead_backend(native, len(orders), workdir)
    traces = [read_op_trace(workdir / f"trace{n}" / "qnn_op_trace.json") for n in range(len(orders))]
    products = map(Product, models, traces, seconds)
    return Batch(tuple(products), binary, contexts, native)


def _sharing(share: bool, *, last: bool) -> dict[str, str]:
    if not share:
        return {}
    return {"ep.share_ep_contexts": "1", **({"ep.stop_share_ep_contexts": "1"} if last else {})}


def infer_all_types(
    staged: Sequence[StagedModel],
    workdir: Path,
    *,
    custom_ops: Sequence[str] = (),
    limits: Limits | None = None,
) -> tuple[list[dict[str, TensorType]], list[str]]:
    """Every tensor's type, model by model; and what could not be told."""
    notes: list[str] = []
    with Worker(MODULE, workdir / "shapes.log", limits=limits) as worker:
        use_custom_ops(worker, custom_ops)
        return [infer_types(worker, one, notes) for one in staged], notes


def _read_binary(
    worker: Worker, models: Sequence[ContextModel], workdir: Path
) -> tuple[Path | None, tuple[ContextBinary, ...]]:
    main = next(filter(None, (model.main_call for model in models)), None)
    if main is None:
        return None, ()
    file = workdir / ("embedded.bin" if main.embedded else os.fsdecode(main.cache))
    if main.embedded:
        file.write_bytes(main.cache)
    reply = from_plain(ContextReply, call(worker, "read_context", ContextRequest(str(file))))
    return None if main.embedded else file, reply.binaries


def _refuse_dead_backend(native: NativeLog, count: int, workdir: Path) -> None:
    refuse_not_cut(native, workdir / "native.log")
    traced = all((workdir / f"trace{n}" / "qnn_op_trace.json").exists() for n in range(count))
    if native.setup_failure or not traced:
        raise failures.BackendNotInitialised(
            "the backend did not start, so nothing was compiled",
            why=native.setup_failure or "it wrote no trace",
            next=cure(native.setup_failure) or "run `hexport doctor`",
            native_log=last_words(workdir / "native.log"),
        )
