"""``build --format pte``: lower a PyTorch model, run the file on the simulator, and compare with PyTorch."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import BadSamples, UsageError
from hexport.executorch.building.outcome import Goal, PteBuilt, Verified
from hexport.executorch.building.samples import Samples, split_samples
from hexport.executorch.lowering.chips import find_chip
from hexport.executorch.lowering.options import FLOAT, LoweringOptions
from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.publishing import FORWARD
from hexport.executorch.lowering.session import Session
from hexport.executorch.lowering.training import Training
from hexport.executorch.lowering.verb import Source, lower
from hexport.executorch.pte.sidecar import Method, file_sha256, write_sidecar
from hexport.executorch.running.loading import load_pte
from hexport.observe.decibels import finite
from hexport.quantization.metric import find_metric
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.torch.fixing import FixedModel, Sizes, fix_sizes
from hexport.torch.naming import PROGRAM
from hexport.torch.opening import as_description, is_torch, read_description
from hexport.verification.measuring import find
from hexport.whole_file import refuse_missing_folder, whole_or_absent

if TYPE_CHECKING:
    from torch import nn

    from hexport.quantization.judging import Metric
    from hexport.torch.description import TorchModel

AUTO = "auto"
_WITH_SAMPLES = "16a8w"
_AUTO_DB = 30.0
_BY_SIZE = ("8a8w", "16a8w", FLOAT)
"""What auto tries, the smallest first."""


@dataclass(frozen=True)
class _Part:
    """One method, ready to be lowered."""

    name: str
    model: FixedModel
    program: Path
    samples: Samples


def build_pte(
    model: str | Path | TorchModel | nn.Module,
    example_inputs: object = None,
    *,
    output: str | Path,
    target: str | int,
    scheme: str | None = None,
    calib: object = None,
    preprocess: str | Path | None = None,
    samples: int | None = None,
    min_sqnr: float | None = None,
    metric: str | Metric | None = None,
    max_drop: float | None = None,
    dims: Sizes | None = None,
    dynamic_shapes: Any = None,
    methods: Mapping[str, Sizes] | None = None,
    method_calib: Mapping[str, object] | None = None,
    options: LoweringOptions | None = None,
    overrides: Sequence[Override] = (),
    training: Training | None = None,
    toolchain: str | None = None,
    qnn_sdk: str | Path | None = None,
    sidecar: bool = True,
    keep_quantised: bool = False,
    native_log: str | Path | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> PteBuilt:
    """Write ``output``, a ``.pte`` for the NPU of ``target``, with its description beside it.

    ``model`` is ``"MODULE:FACTORY"``, a ``.pt2``, or a module with ``example_inputs``. ``dims``: dim → size,
    or input → shape; by default they are the example's. ``methods``: name → such sizes, each a method of the
    file; by default there is ``forward`` alone.
    ``metric(outputs, inputs)`` and ``max_drop`` as for ``hexport build``.
    """
    began = time.perf_counter()
    output = Path(output)
    model = as_description(model, example_inputs, dynamic_shapes)
    _refuse_place(model, output, options)
    find_chip(target)  # said before the model is opened
    description = read_description(model)
    own = metric is None and min_sqnr is None and description.max_drop is not None
    measure, most = find_metric(
        description.metric if own else metric, description.max_drop if own else max_drop, min_sqnr
    )
    with temporary_folder() as folder:
        say(f"{description}: capturing the program")
        sizes = methods or {FORWARD: dict(dims or {})}
        parts = [
            _part(
                name,
                description,
                wanted,
                folder,
                (method_calib or {}).get(name, calib),
                preprocess,
                samples,
                in_float=scheme == FLOAT,
            )
            for name, wanted in sizes.items()
        ]
        schemes, notes = _schemes(scheme, parts, target)
        goal = Goal(min_sqnr if len(schemes) == 1 or measure else min_sqnr or _AUTO_DB, most)
        tries: list[tuple[Lowered, dict[str, Verified]]] = []
        with Session(toolchain, None if qnn_sdk is None else Path(qnn_sdk), limits) as session:
            for name in schemes:
                (folder / name).mkdir()
                say(f"{description}: lowering for {target}, {name}")
                lowered = lower(
                    {part.name: _source(part) for part in parts},
                    folder / name / output.name,
                    target=target,
                    scheme=name,
                    min_sqnr=goal.min_sqnr,
                    options=options,
                    overrides=overrides,
                    training=training,
                    session=session,
                    keep_quantised=keep_quantised,
                    native_log=None if native_log is None else Path(native_log),
                    say=say,
                )
                tries.append((lowered, _verify(lowered, parts, measure, session, limits, say)))
                if all(goal.met_by(one) for one in tries[-1][1].values()):
                    break
            else:
                tries.sort(key=lambda one: _worst(one[1]))
        lowered, verified = tries[-1]
        lowered = replace(
            lowered,
            description=replace(
                lowered.description,
                methods=tuple(_made_of(method, model) for method in lowered.description.methods),
                verified={name: finite(one.sqnr_db) for name, one in verified.items()},
                notes=tuple(dict.fromkeys([*parts[0].model.notes, *notes, *lowered.notes])),
            ),
        )
        published = _publish(lowered, output, sidecar=sidecar)
    tried = {one.description.scheme: _worst(found) for one, found in tries} if len(tries) > 1 else {}
    return PteBuilt(published, verified, goal, tried, time.perf_counter() - began)


def _refuse_place(model: object, output: Path, options: LoweringOptions | None) -> None:
    if not is_torch(model):
        raise UsageError(
            f"--format pte takes PyTorch models, and {model} is none",
            why="ExecuTorch lowers torch programs: MODULE:FACTORY, path/to/file.py:FACTORY, or a .pt2",
            next="build a package without --format pte; `hexport convert` makes a .pte of what is compiled",
        )
    if output.suffix.lower() != ".pte" or output.is_dir():
        raise UsageError(f"-o {output} is no name of a .pte file", next=f"-o {output.with_suffix('.pte')}")
    refuse_missing_folder(output)
    recorded = output.with_name(f"{output.stem}.saver")
    if options is not None and options.compiling.saver and recorded.exists():
        raise UsageError(f"{recorded} is there already", next="remove it, or choose another -o")


def _part(
    name: str,
    model: TorchModel,
    sizes: Sizes,
    folder: Path,
    calib: object,
    preprocess: str | Path | None,
    limit: int | None,
    *,
    in_float: bool,
) -> _Part:
    fixed = fix_sizes(model, sizes)
    program = folder / f"{name}.pt2"
    fixed.save(program)
    given = calib if calib is not None else fixed.calibration
    try:
        found = split_samples(fixed, given, preprocess, limit)
    except BadSamples as error:
        if calib is not None or not in_float:
            raise
        # Nothing needs them: a model brings samples of one size, and may be lowered for another.
        alone = split_samples(fixed, None, None, None)
        found = replace(alone, origin=f"{alone.origin} (its samples do not fit: {error.what})")
    return _Part(name, fixed, program, found)


def _schemes(
    scheme: str | None, parts: Sequence[_Part], target: str | int
) -> tuple[tuple[str, ...], list[str]]:
    """Those to try, and what to say of it."""
    sampled = all(part.samples.fit is not None for part in parts)
    if scheme == AUTO and sampled:
        _, chip = find_chip(target)
        return tuple(one for one in _BY_SIZE if one != FLOAT or chip.fp16), []
    if scheme is not None and scheme != AUTO:
        return (scheme,), []
    if sampled:
        return (_WITH_SAMPLES,), [f"no --scheme was given; with samples it is {_WITH_SAMPLES}"]
    return (FLOAT,), [f"there are no samples to quantise with, so it is lowered in {FLOAT}"]


def _source(part: _Part) -> Source:
    return Source(part.program, {}, part.samples.fit, part.model.input_names, part.model.output_names)


def _verify(
    lowered: Lowered,
    parts: Sequence[_Part],
    metric: Metric | None,
    session: Session,
    limits: Limits | None,
    say: Callable[[str], None],
) -> dict[str, Verified]:
    """Every method on the samples that were held back; nothing, if it cannot run here."""
    if not lowered.compiled or not lowered.description.runs_on_simulator:
        return {}
    found = {}
    for part in parts:
        say(f"running {part.name} on the simulator")
        held = part.samples.held
        expected = [part.model.answer(sample) for sample in held]
        loaded = load_pte(lowered.output, method=part.name, toolchain=session.interpreter.name, limits=limits)
        outputs = loaded.run(held).outputs
        drop = None if metric is None else metric(expected, held) - metric(outputs, held)
        found[part.name] = Verified(find(expected, outputs), len(held), part.samples.origin, drop)
    return found


def _worst(verified: Mapping[str, Verified]) -> float:
    return min((one.sqnr_db for one in verified.values()), default=float("-inf"))


def _made_of(method: Method, model: object) -> Method:
    """What the user named, and not the copy of it at fixed sizes."""
    path = Path(str(model))
    if path.suffix.lower() == PROGRAM:
        return replace(method, program=path.name, program_sha256=file_sha256(path))
    return replace(method, program=str(model), program_sha256="")


def _publish(lowered: Lowered, output: Path, *, sidecar: bool) -> Lowered:
    """From hexport's folder to the user's; the description last, when what it describes is there."""
    if not lowered.compiled:
        recorded = output.with_name(lowered.output.name)
        shutil.move(lowered.output, recorded)
        return replace(lowered, output=recorded)
    quantised = {name: output.with_name(path.name) for name, path in (lowered.quantised or {}).items()}
    made = {lowered.output: output, **{path: quantised[n] for n, path in (lowered.quantised or {}).items()}}
    for source, place in made.items():
        with whole_or_absent(place) as part:
            shutil.copyfile(source, part)
    written = write_sidecar(output, lowered.description) if sidecar else None
    return replace(lowered, output=output, quantised=quantised, sidecar=written)
