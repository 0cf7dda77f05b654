"""With which options a QNN delegate was compiled, and what it asks of whoever runs it.

The compile spec is a FlatBuffer of its own (``qc_compiler_spec.fbs`` of executorch 1.5), without a version.
What does not make sense is therefore told as unknown, and not shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from hexport import facts
from hexport.inspection.flatbuffer import NotAFlatbuffer, Table, root

HTP = "htp"
_BACKENDS = ("undefined", "gpu", HTP, "dsp", "lpai")
_PERFORMANCE = (
    "default", "sustained_high_performance", "burst", "high_performance", "power_saver",
    "low_power_saver", "high_power_saver", "low_balanced", "balanced",
)  # fmt: skip
_PRECISIONS = ("quantized", "fp16")
_PROFILES = ("off", "basic", "detailed", "optrace")


@dataclass(frozen=True)
class QnnOptions:
    """What is told of a delegate beside its code."""

    soc_model: int
    htp_arch: int
    vtcm_mb: int
    backend: str
    """``htp``, ``gpu``, ``dsp``, ``lpai``."""
    precision: str
    performance: str
    profiling: str
    online_prepare: bool
    """The device shall compile it: there is no code in the file."""
    shared_buffer: bool
    weight_sharing: bool
    multi_contexts: bool
    dump_intermediate_outputs: bool
    from_context_binary: bool
    """The code was there before, and was only put into a ``.pte``."""
    dlbc: bool
    slc_allocator: bool
    mha2sha: bool
    op_packages: tuple[str, ...]
    max_spill_fill_bytes: int

    @property
    def chip(self) -> str:
        """The part number; the SoC's number where hexport knows none."""
        known = {soc.soc_model: soc.chip for soc in facts.targets()}
        return known.get(self.soc_model, f"SoC {self.soc_model}")

    @property
    def switched_on(self) -> tuple[str, ...]:
        """Those of the options that are on or off, by name."""
        return tuple(name for name, value in vars(self).items() if value is True)


def read_options(spec: bytes) -> QnnOptions | None:
    """The options; None: there are none, or they are of another executorch."""
    try:
        return _options(root(spec)) if spec else None
    except (NotAFlatbuffer, IndexError):
        return None


def _options(table: Table) -> QnnOptions | None:
    soc, backend = table.table(0), table.table(1)
    if soc is None or backend is None:
        return None
    htp_info, htp, packages = soc.table(1), backend.table(1), table.table(11)

    def flag(of: Table | None, number: int) -> bool:
        return of is not None and of.number(number, "<B") != 0

    def count(of: Table | None, number: int) -> int:
        return of.number(number, "<i") if of is not None else 0

    return QnnOptions(
        soc_model=soc.number(0),
        htp_arch=count(htp_info, 0),
        vtcm_mb=count(htp_info, 1),
        backend=_BACKENDS[backend.number(0)],
        precision=_PRECISIONS[count(htp, 2)],
        performance=_PERFORMANCE[count(htp, 1)],
        profiling=_PROFILES[table.number(6)],
        online_prepare=flag(table, 4),
        shared_buffer=flag(table, 7),
        weight_sharing=flag(htp, 8),
        multi_contexts=flag(htp, 7),
        dump_intermediate_outputs=flag(table, 5),
        from_context_binary=flag(table, 8),
        dlbc=flag(htp, 5),
        slc_allocator=flag(htp, 9),
        mha2sha=flag(table, 12),
        op_packages=tuple(one.text(0) for one in packages.tables(0)) if packages is not None else (),
        max_spill_fill_bytes=count(htp, 0),
    )
