"""``compile --format dlc``: models as DLC files, the graphs that Qualcomm's own tools take.

A DLC is no code for a chip. The target only says whose NPU is asked which operators it takes: those become
graphs, one a partition, and each graph is a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hexport import facts
from hexport.backend.custom_ops import find_libraries
from hexport.backend.dumping import dump
from hexport.backend.failures import BackendError
from hexport.compiling.dlc_files import SUFFIX, name_files
from hexport.compiling.dlc_outcome import Exported, ExportedModel
from hexport.compiling.dlc_reading_back import refuse_other_content
from hexport.compiling.given_files import unmet_pins
from hexport.compiling.making import nothing_compiled
from hexport.compiling.options import CompileOptions
from hexport.compiling.publishing import publish, refuse_unwritable
from hexport.compiling.refusals import SeveralGraphs
from hexport.compiling.sources import Source, read_sources
from hexport.compiling.verb import work_folder
from hexport.errors import UsageError
from hexport.facts import Soc
from hexport.model.dims import Shape
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.check import explained, make_verdict
from hexport.observe.verdict import parse_percent
from hexport.toolchain import Limits
from hexport.toolchain.kept_log import keep_logs

_WRITTEN = "dlc"
_UNASKED = "skip_backend_op_validation: no chip was asked; what is in the DLC may not run on the NPU"


def compile_to_dlc(
    models: Sequence[str | Path],
    target: str | int,
    output: Path,
    *,
    options: CompileOptions | None = None,
    nhwc_inputs: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    custom_ops: Sequence[str | Path] = (),
    require: str | None = None,
    limits: Limits | None = None,
    native_log: Path | None = None,
) -> Exported:
    """Write what the NPU of ``target`` takes of ``models``: to a file, for one graph, or to a folder."""
    if require not in (None, "full"):
        parse_percent(str(require))
    output, options, chip = Path(output), options or CompileOptions(), facts.find_target(target)
    provider = options.dlc_provider(chip, _WRITTEN)
    nhwc = tuple(dict.fromkeys(nhwc_inputs))
    libraries = find_libraries(custom_ops)
    sources = read_sources(models, dims or {}, input_shapes or {}, nhwc, any_operator=bool(libraries))
    place = _place(output, sources)
    refuse_unwritable(place)
    with work_folder(sources, place) as folder:
        logs = {source.given: folder / f"model{n}" / "native.log" for n, source in enumerate(sources)}
        try:
            made = [
                _export(source, chip, provider, logs[source.given].parent, libraries, limits)
                for source in sources
            ]
        finally:
            if native_log is not None:
                keep_logs(logs, native_log)
        if place != output:
            made = [_as_one_file(made[0], output)]
        publish([file.path for model in made for file in model.files], (), place)
    notes = [*(n for s in sources for n in s.notes), *(w for m in made for w in m.verdict.warnings)]
    notes += [*_edge_notes(made), *unmet_pins(options, sources)]
    notes += [_UNASKED] if provider.get("skip_backend_op_validation") == "1" else []
    return Exported(output, tuple(_moved(model, place) for model in made), tuple(dict.fromkeys(notes)))


def _place(output: Path, sources: Sequence[Source]) -> Path:
    """The folder that files go to: ``output`` itself, or that of the one file that it names."""
    if output.suffix.lower() != SUFFIX or output.is_dir():
        return output
    if len(sources) > 1:
        raise UsageError(
            f"{output} is one file, and there are {len(sources)} models", next="name a folder with -o"
        )
    return output.parent


def _export(
    source: Source,
    chip: Soc,
    provider: Mapping[str, str],
    workdir: Path,
    libraries: Sequence[str],
    limits: Limits | None,
) -> ExportedModel:
    workdir.mkdir()
    log = workdir / "native.log"
    staged = stage(source.model, source.shapes, workdir)
    try:
        evidence = dump(staged, provider, workdir, custom_ops=libraries, limits=limits)
    except BackendError as error:
        raise explained(error, source.model.graph, chip) from error
    scheme = scheme_of(source.model.graph, evidence.types)
    verdict = make_verdict(source.given, source.model, chip, scheme, source.shapes, evidence, [])
    if not verdict.partitions:
        raise nothing_compiled(source, verdict, log)
    files = name_files(workdir / _WRITTEN, workdir, source.name)
    refuse_other_content(files, source, verdict, log)
    return ExportedModel(source.given, files, verdict)


def _as_one_file(model: ExportedModel, output: Path) -> ExportedModel:
    if len(model.files) > 1:
        raise _several(model, output)
    (file,) = model.files
    named = file.path.with_name(output.name)
    file.path.rename(named)
    return replace(model, files=(replace(file, path=named),))


def _several(model: ExportedModel, output: Path) -> SeveralGraphs:
    between = [f"{node.op} `{node.name}`: {node.reason}" for node in model.verdict.cpu_nodes if node.cuts]
    return SeveralGraphs(
        f"{model.source} falls into {len(model.files)} graphs, and {output.name} can hold one",
        why="\n".join(dict.fromkeys(between)) or "the NPU does not take what is between them",
        next=f"hexport prepare '{model.source}' --target {model.verdict.target.chip} -o prepared.onnx; "
        "or name a folder with -o for a file each",
    )


def _edge_notes(models: Sequence[ExportedModel]) -> list[str]:
    return [
        f"{model.source}: {len(model.verdict.io_quantization)} Q/DQ at its inputs and outputs are not in the "
        "DLC, which takes and gives integers, some under other names; --io-quantization npu keeps them in"
        for model in models
        if model.verdict.io_quantization
    ]


def _moved(model: ExportedModel, folder: Path) -> ExportedModel:
    return replace(model, files=tuple(replace(file, path=folder / file.path.name) for file in model.files))
