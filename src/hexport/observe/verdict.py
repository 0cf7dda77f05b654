"""The verdict of ``check``: what of a model runs on the NPU or another backend, and why not the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hexport import facts
from hexport.backend.native_log import DdrTraffic
from hexport.backend.where import Where
from hexport.errors import UsageError
from hexport.records import to_plain


@dataclass(frozen=True)
class Share:
    """An amount on each processor."""

    npu: int
    """On the backend that was asked about: the NPU's, if no other was named."""
    cpu: int
    """On ONNX Runtime's CPU."""

    @property
    def percent(self) -> float:
        """The backend's part; a model without any of it counts as wholly there."""
        total = self.npu + self.cpu
        return 100.0 * self.npu / total if total else 100.0


@dataclass(frozen=True)
class CpuNode:
    """A node that runs on the CPU: the backend's own reason, our class of it, and what to do."""

    name: str
    op: str
    reason: str
    cause: str
    advice: str
    macs: int | None
    cuts: bool
    """Whether it stands between NPU nodes, and so costs two crossings."""
    inside: str = ""
    """The If, Loop or Scan whose body it is in, when that is on the CPU as a whole."""


@dataclass(frozen=True)
class Partition:
    """A run of nodes compiled into one NPU graph."""

    nodes: int
    first: str
    last: str


@dataclass(frozen=True)
class Verdict:
    """All that ``check`` found."""

    model: str
    where: Where
    scheme: str
    input_shapes: dict[str, tuple[int, ...]]
    nodes: Share
    macs: Share
    uncounted: tuple[str, ...]
    """Nodes whose MACs could not be counted, because shapes are unknown."""
    partitions: tuple[Partition, ...]
    cpu_nodes: tuple[CpuNode, ...]
    io_quantization: tuple[str, ...]
    """QuantizeLinear / DequantizeLinear at the model's edges, which the CPU does on purpose."""
    folded: int
    """Nodes that ONNX Runtime folded into constants or fused into others."""
    added: int
    """Nodes that ONNX Runtime added on the NPU, mostly layout changes."""
    precisions: dict[str, int]
    compile_seconds: float
    ddr: DdrTraffic | None
    context_bytes: int | None
    vtcm_mb: int | None
    """The NPU's own memory that the compiler planned with."""
    warnings: tuple[str, ...]

    @property
    def target(self) -> facts.Soc:
        """The chip; only a verdict on the NPU has one."""
        assert self.where.soc is not None
        return self.where.soc

    @property
    def full(self) -> bool:
        """Every compute node is on the backend."""
        return not self.cpu_nodes and self.nodes.npu > 0

    @property
    def unknown_on_cpu(self) -> int:
        """CPU nodes whose MACs could not be counted: with any of them a share of MACs is not known."""
        return sum(node.macs is None for node in self.cpu_nodes)

    def meets(self, require: str | None) -> bool:
        """Whether ``--require`` holds: ``full``, or a percentage of MACs; what is not known does not hold."""
        if require is None:
            return True
        if require == "full" or self.full:
            return self.full
        return not self.unknown_on_cpu and self._percent_that_counts() >= parse_percent(require)

    def _percent_that_counts(self) -> float:
        # Without a single MAC counted, the nodes are the only measure there is.
        return self.macs.percent if self.macs.npu + self.macs.cpu else self.nodes.percent

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        plain = {key: to_plain(value) for key, value in vars(self).items() if key != "where"}
        soc = self.where.soc
        place = {
            "backend": self.where.backend.choice,
            "target": soc and {"name": soc.chip, "soc_model": soc.soc_model, "htp_arch": soc.htp_arch},
        }
        counted = {"partitions": len(self.partitions), "partition_nodes": plain["partitions"]}
        return {"schema_version": 1, **plain, **counted, **place, "full": self.full}


def parse_percent(require: str) -> float:
    """``"99"`` or ``"99%"`` as a number."""
    try:
        percent = float(require.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0.0 <= percent <= 100.0:
        raise UsageError(
            f"--require {require}: not understood", next="use `full`, or a percentage of MACs such as 99"
        )
    return percent
