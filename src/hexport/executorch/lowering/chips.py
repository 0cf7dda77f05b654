"""Whether ExecuTorch can lower a scheme for a chip: asked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

from hexport import facts
from hexport.errors import UsageError
from hexport.executorch.lowering.failures import ChipUnknown, NoFloatOnChip
from hexport.executorch.lowering.options import BLOCK, FLOAT
from hexport.executorch.lowering.overrides import Override
from hexport.facts.executorch_chips import ExecutorchChip, executorch_chip, executorch_chips

_BLOCKS_FROM = 69
"""The first HTP generation that has weights in blocks."""


def find_chip(target: str | int) -> tuple[facts.Soc, ExecutorchChip]:
    """The chip by any of its names, with ExecuTorch's own for it."""
    soc = facts.find_target(target)
    chip = executorch_chip(soc)
    if chip is None:
        known = [one.name for one in executorch_chips()]
        same = [one.name for one in executorch_chips() if _arch(one) == soc.htp_arch]
        raise ChipUnknown(
            f"ExecuTorch has no name for {soc.chip}",
            why=f"it lowers for {', '.join(known)}",
            next=f"of the same HTP generation (v{soc.htp_arch}): {', '.join(same)}"
            if same
            else "`hexport build` without --format pte compiles for it",
        )
    return soc, chip


def check_schemes(soc: facts.Soc, chip: ExecutorchChip, scheme: str, overrides: Sequence[Override]) -> None:
    """Refuse what this chip cannot compute, and would leave to the CPU without a word."""
    if not chip.fp16 and FLOAT in (scheme, *(one.scheme for one in overrides)):
        able = [one.name for one in executorch_chips() if one.fp16]
        raise NoFloatOnChip(
            f"{soc.chip} does not compute fp16 on its NPU",
            why="ExecuTorch would leave the float operators to the CPU without a word: " + chip.source,
            next=f"quantise: --scheme 16a8w or 8a8w with samples; chips with fp16: {', '.join(able)}",
        )
    if soc.htp_arch < _BLOCKS_FROM and BLOCK in (scheme, *(one.scheme for one in overrides)):
        raise UsageError(
            f"{soc.chip} has no weights in blocks",
            why=f"they begin with HTP v{_BLOCKS_FROM}, and it has v{soc.htp_arch}",
            next="16a4w has 4-bit weights with a scale for each channel",
        )


def _arch(chip: ExecutorchChip) -> int:
    return next(soc.htp_arch for soc in facts.targets() if soc.soc_model == chip.soc_model)
