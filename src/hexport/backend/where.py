"""Where a model is asked about or run: one of QNN's backends, and on the NPU the chip.

The provider takes any of these wishes, and where it cannot fulfil one it leaves every node to ONNX Runtime's
CPU without a word. Here each such case is an error, before anything starts where that is possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexport import facts
from hexport.backend import failures
from hexport.errors import UsageError
from hexport.facts.backends import DOUBTFUL, REFUSED, chosen_backend
from hexport.toolchain.last_words import last_words

if TYPE_CHECKING:
    from pathlib import Path

    from hexport.backend.native_log import NativeLog
    from hexport.facts import QnnBackend, Soc
    from hexport.model.graph import Graph

HTP, QNN_CPU, GPU = "htp", "qnn-cpu", "gpu"
_NO_LIBRARY = "Unable to load backend"
_GPU_WORDS = re.compile(r"GPU ERROR: (.*)")


class BackendAbsent(failures.BackendNotInitialised):
    """The installed onnxruntime-qnn does not carry the library of that backend."""

    code = "HX515"


class BackendUnfit(failures.BackendError, ValueError):
    """The backend does not compute models of this kind."""

    code = "HX516"


class NotWhole(failures.BackendError):
    """Part of the model is not on the backend, and only the whole was wanted."""

    code = "HX517"


@dataclass(frozen=True)
class Where:
    """A backend, and on the NPU the chip whose code is made and whose arithmetic is simulated."""

    backend: QnnBackend
    soc: Soc | None = None

    @property
    def options(self) -> dict[str, str]:
        """The provider's."""
        chosen = {"backend_type": self.backend.name}
        # Without soc_model the simulator computes in fp32, which no NPU does.
        return {**chosen, "soc_model": str(self.soc.soc_model)} if self.soc else chosen

    @property
    def arguments(self) -> str:
        """Those of the command line."""
        return f"--target {self.soc.chip}" if self.soc else f"--backend {self.backend.choice}"

    @property
    def rest(self) -> str:
        """What computes the nodes that the backend leaves."""
        return "ONNX Runtime's CPU" if self.backend.choice == QNN_CPU else "the CPU"


def on_chip(soc: Soc) -> Where:
    """The NPU of that chip."""
    backend = chosen_backend(HTP)
    assert backend is not None
    return Where(backend, soc)


def choose_where(backend: str, target: str | int | None) -> Where:
    """By what ``--backend`` and ``--target`` say, if the installed release can do it."""
    found = chosen_backend(backend)
    if found is None:
        raise UsageError(f"backend {backend!r} is not known", next=f"use {HTP}, {QNN_CPU} or {GPU}")
    if backend == HTP:
        if target is None:
            raise UsageError(
                "for which chip?",
                why="what the NPU takes differs from chip to chip",
                next="give --target, for example SM8650 (`hexport targets` lists them)",
            )
        return on_chip(facts.find_target(target))
    if target is not None:
        raise UsageError(
            f"--target {target} has no meaning with --backend {backend}",
            why=f"a target is a chip's NPU, and a session is on that or on {found.title}, never on both",
            next="leave one of them out",
        )
    _refuse_absent(found)
    return Where(found)


def accept(where: Where, graph: Graph, name: str) -> tuple[str, ...]:
    """What to be careful about with this model there; raises if it is not for that backend at all."""
    backend = where.backend
    if not _quantises(graph):
        return ()
    if backend.quantised == REFUSED:
        raise BackendUnfit(
            f"{name} is quantised, and that is not for {backend.title}",
            why=backend.quantised_why,
            next="give the float model; the quantised one is for the NPU",
        )
    return (backend.quantised_why,) if backend.quantised == DOUBTFUL else ()


def not_whole(where: Where, name: str) -> NotWhole:
    """For those who want all of the model on the backend, or nothing."""
    return NotWhole(
        f"{name} is not wholly on {where.backend.title}",
        why=f"{where.rest} computes the rest, and --no-cpu forbids that",
        next=f"hexport check '{name}' {where.arguments} names the nodes; or leave --no-cpu out",
    )


def refuse_not_cut(native: NativeLog, log: Path) -> None:
    """Raises where the provider's parts of the model were refused, and with them all of it."""
    if native.cut_failure:
        raise failures.NotCut(
            "the provider's parts of the model do not fit together; every node would run on the CPU",
            why=f"an operator that stays on the CPU lies between nodes of one part: {native.cut_failure}",
            next="`hexport prepare` writes out what stays on the CPU, loops above all, where it can; "
            "`hexport debug reduce` finds the smallest piece that does it, for a report to onnxruntime-qnn",
            native_log=last_words(log),
        )


def dead(where: Where, failure: str, log: Path, cure: str) -> failures.BackendError:
    """The error for a backend that did not start, although the session is there."""
    backend, words = where.backend, last_words(log)
    if _NO_LIBRARY in failure and backend.library in failure:
        return _absent(backend, failure, words)
    why, next_ = failure or "it was asked about no node", cure or "run `hexport doctor`"
    if backend.choice == GPU:
        why, next_ = f"{why}{_gpu_words(log)}; it needs {backend.needs}; {_opencl()}", _NO_GPU
    return failures.BackendNotInitialised(
        f"the {backend.label} backend did not start; every node would run on the CPU",
        why=why,
        next=next_,
        native_log=words,
    )


_NO_GPU = (
    "on a device with an Adreno: install its OpenCL driver, `hexport doctor` tells more; "
    "elsewhere check for the NPU with --target, and run on the simulator or the cpu"
)


def _quantises(graph: Graph) -> bool:
    """Whether values that the model computes are quantised in it, and not only weights."""
    return any(
        (node.op == "QuantizeLinear" and any(name not in graph.constants for name in node.inputs[:1]))
        or any(map(_quantises, node.bodies))
        for node in graph.nodes
    )


def _refuse_absent(backend: QnnBackend) -> None:
    release = facts.installed_release()
    if backend.absent_from(release, facts.current_platform()):
        raise _absent(backend, f"onnxruntime-qnn {release} does not carry the library {backend.library}")


def _absent(backend: QnnBackend, why: str, words: tuple[str, ...] = ()) -> BackendAbsent:
    release = backend.last_release
    add = f"hexport toolchain add onnxruntime-qnn=={release}, then --toolchain onnxruntime-qnn-{release}"
    return BackendAbsent(
        f"{backend.title} is not there; every node would run on ONNX Runtime's CPU instead",
        why=why,
        next=add if release else "run `hexport doctor`",
        native_log=words,
    )


def _gpu_words(log: Path) -> str:
    """The library's own reason, which it gives at the verbose level only."""
    found = _GPU_WORDS.search(log.read_text("utf-8", errors="replace"))
    return f"; the library says: {found[1].strip()}" if found else ""


def _opencl() -> str:
    from hexport.diagnosis.opencl import look_for_opencl  # its room stands on this one

    return str(look_for_opencl())
