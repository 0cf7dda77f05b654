"""Compile-time options: named here, checked by ``backend.options`` before the provider sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hexport.backend.options import validate_options
from hexport.errors import UsageError
from hexport.facts import Soc

# Options that compile itself decides, and what to use instead.
_OURS = {
    "soc_model": "--target",
    "htp_arch": "--target",
    "backend_type": "nothing: compile is for the NPU",
    "backend_path": "nothing: compile is for the NPU",
    "qnn_saver_path": "hexport debug record: the Saver backend compiles nothing",
    "dump_qnn_ir_dlc": "--format dlc",
    "dump_qnn_ir_dlc_dir": "--format dlc",
    "qnn_ir_backend_path": "--format dlc",
    "enable_framework_op_trace": "nothing: it is always on",
    "framework_op_trace_dir": "nothing: compile reads the trace itself",
}
_IO_QUANTIZATION = {"npu": "0", "cpu": "1"}
_FLAGS = {
    "htp_graph_finalization_optimization_mode": "--finalization",
    "vtcm_mb": "--vtcm",
    "enable_htp_fp16_precision": "--fp16",
    "qnn_context_priority": "--priority",
    "enable_htp_prepare_only": "--prepare-only",
}
# What changes the graph itself, and so a DLC; all others are about making code of it or running that.
# Measured with onnxruntime-qnn 2.7.0 on models that have what each is for. op_packages is refused elsewhere.
_FOR_DLC = frozenset(
    {
        "enable_block_quant_weight_optimization",
        "enable_htp_monolithic_lstm",
        "htp_bf16_enable",
        "offload_graph_io_quantization",
        "op_affinity",
        "op_packages",
        "skip_backend_op_validation",
        "skip_qnn_version_check",
    }
)


@dataclass(frozen=True)
class CompileOptions:
    """What the compiler is told. None leaves a choice to it."""

    finalization: int | None = None
    """How long it may look for a better graph: 1 shortest, 3 longest."""
    vtcm_mb: int | None = None
    """How much of the NPU's fast memory a graph may use; 4 when not given, whatever the chip has."""
    fp16: bool | None = None
    """Say that float graphs compute in fp16; with a chip named they do so anyway."""
    priority: str | None = None
    """Of the context among those that share the NPU."""
    io_quantization: str | None = None
    """Where graph inputs are quantised and outputs dequantised: ``npu`` or ``cpu``."""
    prepare_only: bool = False
    """Write the binary and prepare no session."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Any other option of the provider, by its own name."""

    def provider(self, chips: Sequence[Soc], *, embed: bool = False, share: bool = False) -> dict[str, str]:
        """The provider options for ``chips``; raises ``InvalidOption`` for what would not do as it says."""
        session = {"ep.context_enable": "1", "ep.context_embed_mode": str(int(embed))}
        if share:
            session["ep.share_ep_contexts"] = "1"
        provider = {
            "backend_type": "htp",
            "soc_model": ",".join(str(chip.soc_model) for chip in chips),
            **self._named(len(chips)),
            **self._others(),
        }
        return dict(validate_options(provider, session))

    def dlc_provider(self, chip: Soc, folder: str) -> dict[str, str]:
        """The provider options for DLC files in ``folder`` of what the NPU of ``chip`` takes."""
        given = {**self._named(1), **self._others()}
        if lost := [_FLAGS.get(key, f"--option {key}") for key in given if key not in _FOR_DLC]:
            raise UsageError(
                f"{', '.join(lost)}: has no meaning for a DLC",
                why="a DLC is the graph before it becomes code for a chip; this is about the code or its run",
                next="leave it out",
            )
        where = {"backend_type": "htp", "soc_model": str(chip.soc_model)}
        dlc = {"dump_qnn_ir_dlc": "1", "dump_qnn_ir_dlc_dir": folder}
        return dict(validate_options({**where, **given, **dlc}))

    def _named(self, chips: int) -> dict[str, str]:
        size = None if self.vtcm_mb is None else ",".join([str(self.vtcm_mb)] * chips)
        given = {
            "htp_graph_finalization_optimization_mode": _text(self.finalization),
            "vtcm_mb": size,
            "enable_htp_fp16_precision": None if self.fp16 is None else str(int(self.fp16)),
            "qnn_context_priority": self.priority,
            "offload_graph_io_quantization": self._offload(),
            "enable_htp_prepare_only": "1" if self.prepare_only else None,
        }
        return {key: value for key, value in given.items() if value is not None}

    def _offload(self) -> str | None:
        if self.io_quantization is None:
            return None
        if self.io_quantization not in _IO_QUANTIZATION:
            raise UsageError(
                f"--io-quantization {self.io_quantization}: not understood",
                next=f"use {' or '.join(_IO_QUANTIZATION)}",
            )
        return _IO_QUANTIZATION[self.io_quantization]

    def _others(self) -> Mapping[str, str]:
        for key in self.more:
            if key in _OURS:
                raise UsageError(f"--option {key}: compile sets it itself", next=f"use {_OURS[key]}")
            if key in self._named(1):
                raise UsageError(f"--option {key}: is given twice, by its own option too", next="give one")
        return self.more


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
