"""Making one binary: compile, judge, read back. Nothing leaves the work folder from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hexport.backend.compiling import Batch, Order, Product, compile_batch, infer_all_types
from hexport.backend.failures import BackendError, CompileFailed, ModelRejected
from hexport.backend.probe import Evidence
from hexport.compiling.bodies import NO_FOLDING, with_own_constants
from hexport.compiling.options import CompileOptions
from hexport.compiling.outcome import Artefact, CompiledModel
from hexport.compiling.plan import Job
from hexport.compiling.reading_back import refuse_differences
from hexport.compiling.refusals import CompiledOtherwise, NothingCompiled
from hexport.compiling.sources import Source
from hexport.model import Model, TensorType
from hexport.model.dims import Shape
from hexport.model.scheme import scheme_of
from hexport.model.staging import StagedModel, stage
from hexport.observe.check import explained, make_verdict
from hexport.observe.verdict import Verdict
from hexport.toolchain import Limits, WorkerError
from hexport.toolchain.last_words import last_words

SECOND = "-bodies"
"""What the folder of a second attempt has after the name of the first."""
_MOST_REASONS = 5
_MENDED = (
    "ONNX Runtime could not save it compiled as it is; it was compiled with constants copied into the "
    "bodies that read them, and without further folding"
)


@dataclass(frozen=True)
class Settings:
    """What is the same for every job."""

    folder: Path
    """Where the work is done."""
    options: CompileOptions
    embed: bool
    share: bool
    limits: Limits
    custom_ops: tuple[str, ...] = ()
    """Libraries of operators that the models need."""


@dataclass(frozen=True)
class Stock:
    """The models as files for the compiler, by name, with the types of their tensors."""

    staged: Mapping[str, StagedModel]
    types: Mapping[str, Mapping[str, TensorType]]
    notes: tuple[str, ...]


def stock_up(sources: Sequence[Source], settings: Settings) -> Stock:
    """Write each model's copy with fixed shapes, and ask ONNX Runtime for the types."""
    models = settings.folder / "models"
    models.mkdir()
    staged = {s.name: _stage(s.model, s.shapes, models / s.name) for s in sources}
    types, notes = infer_all_types(
        list(staged.values()), settings.folder, custom_ops=settings.custom_ops, limits=settings.limits
    )
    said = (*(note for source in sources for note in source.notes), *notes)
    return Stock(staged, dict(zip(staged, types, strict=True)), said)


def make(job: Job, stock: Stock, settings: Settings, workdir: Path) -> Artefact:
    """Compile ``job``; raises unless what came out is what was asked for."""
    without_float = next((chip for chip in job.chips if not chip.float), job.chips[0])
    try:
        attempt = _compile(job, stock, settings, workdir)
        batch, log = attempt.batch, attempt.log
        size = _binary_size(batch)
        pairs = list(zip(job.sources, batch.products, strict=True))
        verdicts = [_verdict(job, source, product, attempt, stock) for source, product in pairs]
        for (source, product), verdict in zip(pairs, verdicts, strict=True):
            if not product.model.calls:
                raise nothing_compiled(source, verdict, log)
    except BackendError as error:
        raise explained(error, job.sources[0].model.graph, without_float) from error
    refuse_differences(batch, job.sources, job.chips, settings.options, log)
    _refuse_cpu_io(verdicts, settings.options, log)
    models = tuple(
        _model(source, product, verdict) for (source, product), verdict in zip(pairs, verdicts, strict=True)
    )
    order = [chip.soc_model for chip in job.chips]
    contexts = tuple(sorted(batch.contexts, key=lambda context: order.index(context.soc_model or 0)))
    return Artefact(job.chips, models, batch.binary, size, contexts)


@dataclass(frozen=True)
class _Attempt:
    batch: Batch
    log: Path
    note: str = ""


def _compile(job: Job, stock: Stock, settings: Settings, workdir: Path) -> _Attempt:
    """Models with bodies get a second chance, in a form that ONNX Runtime can save."""
    staged = [stock.staged[source.name] for source in job.sources]
    try:
        return _attempt(job, staged, settings, workdir)
    except (CompileFailed, ModelRejected):
        if not any(node.bodies for source in job.sources for node in source.model.graph.nodes):
            raise
        mended = [with_own_constants(one) for one in staged]
        try:
            again = _attempt(job, mended, settings, workdir.with_name(workdir.name + SECOND), NO_FOLDING)
        except WorkerError:
            again = None
        if again is None:
            raise
        return replace(again, note=_MENDED)


def _attempt(
    job: Job,
    staged: Sequence[StagedModel],
    settings: Settings,
    workdir: Path,
    session: Mapping[str, str] | None = None,
) -> _Attempt:
    workdir.mkdir()
    batch = compile_batch(
        [Order(one, job.file_of(source)) for one, source in zip(staged, job.sources, strict=True)],
        job.provider,
        workdir,
        embed=settings.embed,
        share=settings.share,
        session=session,
        custom_ops=settings.custom_ops,
        limits=settings.limits,
    )
    return _Attempt(batch, workdir / "native.log")


def layout_notes(job: Job, made: Artefact, settings: Settings, nhwc_inputs: Sequence[str]) -> Iterator[str]:
    """What channels-last inputs are worth: the Transposes on the NPU, counted with and without them."""
    for number, (source, model) in enumerate(zip(job.sources, made.models, strict=True)):
        workdir = settings.folder / f"plain{number}"
        workdir.mkdir()
        staged = _stage(source.plain, source.plain_shapes, workdir / "model")
        try:
            plain = compile_batch(
                [Order(staged, "p.onnx")],
                job.provider,
                workdir,
                custom_ops=settings.custom_ops,
                limits=settings.limits,
            )
        except WorkerError as error:
            yield f"{source.given}: what channels last saves is not known: without it, {error.what}"
            continue
        before, after = plain.products[0].transposes, model.transposes
        said = f"{source.given}: Transposes on the NPU with {', '.join(nhwc_inputs)} channels last: "
        told = f"{said}{after}, without: {before}"
        yield told if after < before else f"{told}; the NPU saves nothing by it"


def _stage(model: Model, shapes: Mapping[str, Shape], folder: Path) -> StagedModel:
    folder.mkdir()
    return stage(model, shapes, folder)


def _binary_size(batch: Batch) -> int:
    if batch.binary is not None:
        return batch.binary.stat().st_size
    mains = (product.model.main_call for product in batch.products)
    return sum(len(main.cache) for main in mains if main is not None)


def _verdict(job: Job, source: Source, product: Product, attempt: _Attempt, stock: Stock) -> Verdict:
    # The log has the figures of all models and chips of the job in one sum, which says nothing of any.
    alone = len(job.sources) == len(job.chips) == 1
    types = stock.types[source.name]
    evidence = Evidence(
        parts=product.parts,
        trace=product.trace,
        log=attempt.batch.log if alone else replace(attempt.batch.log, ddr=None),
        types=types,
        compile_seconds=product.seconds,
        context_bytes=_binary_size(attempt.batch),
        contexts=attempt.batch.contexts,
        notes=(f"{source.given}: {attempt.note}",) if attempt.note else (),
    )
    scheme = scheme_of(source.model.graph, types)
    return make_verdict(source.given, source.model, job.chips[0], scheme, source.shapes, evidence, [])


def nothing_compiled(source: Source, verdict: Verdict, log: Path) -> NothingCompiled:
    """The error for a model of which the compiler took no node."""
    reasons = {f"{node.op} `{node.name}`: {node.reason}": None for node in verdict.cpu_nodes}
    more = len(reasons) - _MOST_REASONS
    shown = [*list(reasons)[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]
    return NothingCompiled(
        f"nothing of {source.given} runs on the NPU of {verdict.target.chip}",
        why="\n".join(shown),
        next=f"hexport prepare '{source.given}' --target {verdict.target.chip} -o prepared.onnx",
        native_log=last_words(log),
    )


def _refuse_cpu_io(verdicts: Sequence[Verdict], options: CompileOptions, log: Path) -> None:
    left = [name for verdict in verdicts for name in verdict.io_quantization]
    if options.io_quantization == "npu" and left:
        raise CompiledOtherwise(
            "the compiler made something else than was asked for",
            why=f"inputs and outputs were to be quantised on the NPU; on the CPU are {', '.join(left)}",
            next="leave out --io-quantization npu",
            native_log=last_words(log),
        )


def _model(source: Source, product: Product, verdict: Verdict) -> CompiledModel:
    path = product.model.path
    return CompiledModel(
        source=source.given,
        path=path,
        size=path.stat().st_size,
        graphs=product.model.graphs,
        transposes=product.transposes,
        seconds=product.seconds,
        verdict=verdict,
    )
