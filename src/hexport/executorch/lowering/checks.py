"""What is refused before anything is started, and what is said of options that this machine cannot try."""

from __future__ import annotations

from collections.abc import Sequence

from hexport.errors import UsageError
from hexport.executorch.lowering.failures import NotDelegated
from hexport.executorch.lowering.options import FLOAT, LoweringOptions
from hexport.executorch.lowering.overrides import CPU, Override
from hexport.executorch.lowering.requests import LowerReply
from hexport.executorch.lowering.training import Training, check_trainable

_MOST_TOLD = 6


def check_plan(
    scheme: str,
    methods: int,
    options: LoweringOptions,
    overrides: Sequence[Override],
    training: Training | None,
) -> None:
    """Combinations of scheme, methods and options that mean nothing."""
    compiling = options.compiling
    if training is not None:
        check_trainable(scheme)
    if scheme == FLOAT and (odd := [one for one in overrides if one.scheme not in (FLOAT, CPU)]):
        raise UsageError(
            f"the override of {odd[0]} is in integers, and the program in {FLOAT}",
            why="a program in float has no ranges",
            next="choose an integer scheme, and give what shall stay float an override",
        )
    if compiling.weight_sharing and methods < 2:
        raise UsageError("there is nothing to share weights with", why="the file has one method only")
    if compiling.dump_intermediates and methods > 1:
        raise UsageError(
            "intermediate tensors can be dumped of one method only",
            why="ExecuTorch numbers operators from the start in each method",
            next="lower the methods into a file each",
        )


def runs_here(options: LoweringOptions) -> bool:
    """Whether the simulator can load what is made."""
    compiling = options.compiling
    return not (compiling.online_prepare or compiling.weight_sharing or compiling.slc_allocator)


def remarks(scheme: str, options: LoweringOptions, overrides: Sequence[Override], methods: int) -> list[str]:
    """What is changed or cannot be tried here, in words."""
    compiling, said = options.compiling, []
    if "16a16w" in (scheme, *(one.scheme for one in overrides)):
        said.append("16a16w: a weight has one scale and not one a channel, which the NPU gets wrong (1 dB)")
    if compiling.online_prepare:
        said.append(
            "online_prepare: the device compiles it; it is not compiled here and cannot run here (the "
            "simulator would crash), so nothing about it is verified"
        )
    if compiling.weight_sharing:
        said.append("weight_sharing: the device can load it, and the simulator on x86 cannot")
    if compiling.slc_allocator:
        said.append("slc_allocator: the device can load it, and the simulator on x86 cannot")
    if compiling.shared_buffer:
        said.append("shared_buffer: the application must bring memory for inputs and outputs")
    if compiling.saver and methods > 1:
        said.append("saver: ExecuTorch records the first method only")
    return said


def refuse_cpu(reply: LowerReply, options: LoweringOptions) -> None:
    """A program that the NPU gets nothing of, or not all where that was asked for, is an error."""
    for method in reply.methods:
        partition = method.partition
        if partition.delegates and (options.allow_cpu or not partition.cpu):
            continue
        what = "some operators" if partition.delegates else "no operator"
        where = "would run on the CPU" if partition.delegates else "of the program would run on the NPU"
        told = [
            f"{one.op} in {one.module or 'the model itself'}"
            + (f" ({one.source})" if one.source else "")
            + f": {one.reason}"
            for one in partition.cpu[:_MOST_TOLD]
        ]
        more = len(partition.cpu) - len(told)
        raise NotDelegated(
            f"{what} {where}" + (f" in {method.name}" if len(reply.methods) > 1 else ""),
            why="\n".join([*told, f"and {more} more"] if more else told),
            next="\n".join(dict.fromkeys(one.advice for one in partition.cpu if one.advice))
            or "another scheme or chip, or other operators in the module",
        )
