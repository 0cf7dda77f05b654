"""``reference``: what the float program and the quantised one give for the same samples, run by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.backend.sample_files import read_results, write_samples
from hexport.errors import UsageError
from hexport.executorch.lowering.calling import call
from hexport.executorch.lowering.chips import check_schemes, find_chip
from hexport.executorch.lowering.options import FLOAT, LoweringOptions, check_scheme
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.requests import (
    MODULE,
    DescribeReply,
    DescribeRequest,
    MethodRequest,
    QuantizeRequest,
    ReferenceReply,
    ReferenceRequest,
)
from hexport.executorch.lowering.samples import write_calibration
from hexport.executorch.pte.toolchain import find_executorch
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = tuple[dict[str, NDArray[Any]], ...]


@dataclass(frozen=True)
class References:
    """Outputs sample by sample, by name."""

    eager: Outputs
    quantised: Outputs
    """Of the program of Q and DQ, run by torch; empty for fp16."""
    notes: tuple[str, ...]


def reference(
    program: str | Path,
    inputs: Sequence[Mapping[str, NDArray[Any]]],
    *,
    target: str | int,
    scheme: str = FLOAT,
    samples: object = None,
    min_sqnr: float | None = None,
    options: LoweringOptions | None = None,
    overrides: Sequence[Override] = (),
    toolchain: str | None = None,
    limits: Limits | None = None,
) -> References:
    """Run ``program`` on ``inputs`` by torch: as it is, and quantised as ``lower`` would do it."""
    soc, chip = find_chip(target)
    check_schemes(soc, chip, check_scheme(scheme), overrides)
    if not inputs:
        raise UsageError("there is no sample to run on")
    if scheme != FLOAT and samples is None:
        raise UsageError(f"{scheme} needs calibration data", next="give those that the file was lowered with")
    path = str(Path(program).resolve())
    with temporary_folder() as folder:
        interpreter = find_executorch(toolchain)
        with Worker(MODULE, folder / "native.log", limits=limits, python=interpreter) as worker:
            about = from_plain(DescribeReply, call(worker, "describe", DescribeRequest(path)))
            named = [{one.name: sample[one.name] for one in about.inputs} for sample in inputs]
            files = write_samples(named, folder)
            method = MethodRequest("forward", path)
            quantised = folder / "quantised"
            quantised.mkdir()
            if scheme != FLOAT:
                written = write_calibration(samples, about, {}, folder / "calib")
                method = MethodRequest("forward", path, {}, str(written.folder), written.count)
            asked = QuantizeRequest(
                scheme, chip.name, soc.htp_arch, chip.fp16, tuple(overrides), min_sqnr=min_sqnr
            )
            request = ReferenceRequest(
                method,
                files.inputs,
                files.count,
                files.outputs,
                asked,
                options or LoweringOptions(),
                str(quantised),
            )
            reply = from_plain(ReferenceReply, call(worker, "reference", request))
        names = [one.name for one in reply.outputs]
        eager = read_results(files, names)
        if scheme == FLOAT:
            return References(eager, (), reply.notes)
        other = type(files)(files.inputs, str(quantised), files.count, files.input_names)
        return References(eager, read_results(other, names), reply.notes)
