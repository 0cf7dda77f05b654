"""``lower``: a saved torch program as a ``.pte`` for one chip's NPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hexport.errors import UsageError
from hexport.executorch.lowering.checks import check_plan, refuse_cpu, remarks, runs_here
from hexport.executorch.lowering.chips import check_schemes, find_chip
from hexport.executorch.lowering.options import FLOAT, LoweringOptions, check_scheme
from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.publishing import FORWARD, Made
from hexport.executorch.lowering.requests import (
    DescribeReply,
    DescribeRequest,
    LowerReply,
    LowerRequest,
    MethodRequest,
    QuantizeRequest,
)
from hexport.executorch.lowering.samples import Calibration, Shapes, write_calibration
from hexport.executorch.lowering.session import Session
from hexport.executorch.lowering.training import Training
from hexport.executorch.pte.failures import ProgramUnusable
from hexport.executorch.pte.sidecar import Method, Sidecar
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.version import __version__
from hexport.whole_file import refuse_missing_folder

Say = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """What one method is made of."""

    program: Path
    shapes: Shapes = field(default_factory=dict)
    """Input → sizes, of a program with dims that may vary; by default those of its example inputs."""
    samples: object = None
    """Calibration data, in any form that ``hexport quantize`` takes."""
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    """Other names than the program has, for whoever runs the file."""


def lower(
    program: str | Path | Source | Mapping[str, Source],
    output: str | Path,
    *,
    target: str | int,
    scheme: str = FLOAT,
    samples: object = None,
    min_sqnr: float | None = None,
    options: LoweringOptions | None = None,
    overrides: Sequence[Override] = (),
    training: Training | None = None,
    toolchain: str | None = None,
    qnn_sdk: Path | None = None,
    sidecar: bool = True,
    keep_quantised: bool = False,
    preprocess: Any = None,
    limit: int | None = None,
    native_log: Path | None = None,
    limits: Limits | None = None,
    session: Session | None = None,
    say: Say | None = None,
) -> Lowered:
    """Quantise, lower and compile ``program`` for ``target``; ``output`` appears whole or not at all.

    Several methods in one file: a mapping of their names to a :class:`Source` each. With a ``session``, which
    has its own toolchain, SDK and limits, several files are made by one worker. ``min_sqnr``: in 16a8w,
    layers get 16-bit weights that keep inputs unlike the samples from so many dB.
    """
    started = time.perf_counter()
    options = options or LoweringOptions()
    sources = _sources(program, samples)
    output = Path(output)
    soc, chip = find_chip(target)
    check_schemes(soc, chip, check_scheme(scheme), overrides)
    check_plan(scheme, len(sources), options, overrides, training)
    _refuse_without_samples(scheme, sources)
    refuse_missing_folder(output)
    saver = output.with_name(f"{output.stem}.saver")
    if options.compiling.saver and saver.exists():
        raise UsageError(f"{saver} is there already", next="remove it, or choose another -o")
    quantize = QuantizeRequest(
        scheme,
        chip.name,
        soc.htp_arch,
        chip.fp16,
        tuple(overrides),
        _from_here(training),
        (str(Path.cwd()),),
        min_sqnr,
    )
    tell = say or _unheard
    own = nullcontext(session) if session is not None else Session(toolchain, qnn_sdk, limits)
    with own as held, temporary_folder() as folder:
        held.try_sdk(quantize)
        with held.kept_log(native_log):
            methods, kept = _described(held, sources, scheme, folder, preprocess, limit, tell)
            paths = {name: str(folder / f"{number}.pt2") for number, name in enumerate(sources)}
            request = LowerRequest(
                methods,
                quantize,
                options,
                str(folder / "made.pte"),
                str(held.log),
                str(folder / "saver"),
                paths if keep_quantised and scheme != FLOAT else {},
            )
            tell(f"lowering for {soc.chip}, {scheme}")
            reply = from_plain(LowerReply, held.call("lower", request))
        refuse_cpu(reply, options)
        notes = (
            *remarks(scheme, options, overrides, len(sources)),
            *reply.notes,
            *(note for one in kept for note in one.notes),
        )
        description = Sidecar(
            hexport=__version__,
            executorch=held.interpreter.packages["executorch"],
            qnn=held.qnn,
            scheme=scheme,
            target=soc.chip,
            soc_model=soc.soc_model,
            htp_arch=soc.htp_arch,
            methods=tuple(_renamed(one, sources[one.name]) for one in reply.methods),
            options=reply.options.to_json(),
            calibration="; ".join(dict.fromkeys(one.description for one in kept)),
            notes=tuple(dict.fromkeys(notes)),
            runs_on_simulator=runs_here(options),
        )
        made = Made(description, reply, time.perf_counter() - started)
        if not reply.compiled:
            return made.recorded(Path(request.saver), saver)
        return made.published(request, output, sidecar=sidecar)


def _from_here(training: Training | None) -> Training | None:
    """With whole paths: the worker has a current folder of its own."""
    if training is None:
        return None
    place, _, name = training.function.rpartition(":")
    function = f"{Path(place).resolve()}:{name}" if place.endswith(".py") else training.function
    targets = str(Path(training.targets).resolve()) if training.targets else ""
    return replace(training, function=function, targets=targets)


def _sources(program: str | Path | Source | Mapping[str, Source], samples: object) -> dict[str, Source]:
    if isinstance(program, Mapping):
        if not program or samples is not None:
            raise UsageError("each method of a file has samples of its own", next="give them in its Source")
        found = dict(program)
    else:
        one = program if isinstance(program, Source) else Source(Path(program))
        found = {FORWARD: replace(one, samples=samples) if samples is not None else one}
    for name, source in found.items():
        if not name.isidentifier():
            raise UsageError(f"{name!r} cannot be a method's name", next="use letters, digits and _")
        if not source.program.is_file():
            raise ProgramUnusable(
                f"{source.program} is no file", next="name a .pt2 that torch.export.save wrote"
            )
    return found


def _refuse_without_samples(scheme: str, sources: Mapping[str, Source]) -> None:
    lacking = [name for name, source in sources.items() if source.samples is None]
    if scheme != FLOAT and lacking:
        raise UsageError(
            f"{scheme} needs calibration data" + (f" for {lacking[0]}" if len(sources) > 1 else ""),
            why="the ranges of integers are those of real inputs; random numbers give a useless model",
            next="give --calib FILE.npz, a folder, or MODULE:CALLABLE; or --scheme fp16",
        )


def _described(
    session: Session,
    sources: Mapping[str, Source],
    scheme: str,
    folder: Path,
    preprocess: Any,
    limit: int | None,
    tell: Say,
) -> tuple[tuple[MethodRequest, ...], list[Calibration]]:
    """What the worker needs of each method, with its samples as files; float programs need none."""
    requests, kept = [], []
    for number, (name, source) in enumerate(sources.items()):
        program = str(source.program.resolve())
        request = MethodRequest(name, program, dict(source.shapes))
        if scheme != FLOAT:
            tell(f"reading {source.program.name} and its samples")
            about = from_plain(DescribeReply, session.call("describe", DescribeRequest(program)))
            about = replace(about, inputs=_named(about.inputs, source.input_names))
            written = write_calibration(
                source.samples, about, source.shapes, folder / f"in-{number}", preprocess, limit
            )
            request = replace(request, samples=str(written.folder), count=written.count)
            kept.append(written)
        requests.append(request)
    return tuple(requests), kept


def _renamed(method: Method, source: Source) -> Method:
    return replace(
        method,
        inputs=_named(method.inputs, source.input_names),
        outputs=_named(method.outputs, source.output_names),
    )


def _named(tensors: tuple[Any, ...], names: tuple[str, ...]) -> tuple[Any, ...]:
    """With these names, if there are as many."""
    fits = len(names) == len(tensors)
    return (
        tuple(replace(one, name=name) for one, name in zip(tensors, names, strict=True)) if fits else tensors
    )


def _unheard(_: str) -> None:
    """Nobody asked for the progress."""
