"""``prepare``: fix the shapes, clean up, rewrite until the backend takes every node; prove each change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import onnx_ir as ir

from hexport import facts, zoo
from hexport.backend.failures import ModelRejected
from hexport.backend.running import run_on_cpu
from hexport.errors import HexportError, UsageError
from hexport.model import Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.external import bring_along, external_bytes
from hexport.model.labels import PREPARED
from hexport.model.scheme import scheme_of
from hexport.model.soundness import UnusableGraph, random_nodes
from hexport.model.staging import stage
from hexport.preparation import fp16_watch
from hexport.preparation.densifying import densify
from hexport.preparation.fp16_watch import Fp16Danger, LazyRanges
from hexport.preparation.freezing import freeze as freeze_inputs
from hexport.preparation.freezing import parse_frozen
from hexport.preparation.large_bench import LargeBench
from hexport.preparation.outcome import Preparation, find_pins
from hexport.preparation.pipeline import RuleSource, Standing, clean, improve, stand
from hexport.preparation.ranges import Finding
from hexport.preparation.repro import save_repro
from hexport.preparation.rescue import rescue
from hexport.preparation.samples import Samples, find_samples
from hexport.preparation.saving import LARGE, data_file, save
from hexport.preparation.workbench import Workbench
from hexport.quantization.data import sized_by_samples
from hexport.rewrite.catalogue import rule_names, select_rules
from hexport.rewrite.rule import Purpose, Rule
from hexport.storage.sweeping import own_folder
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.whole_file import refuse_missing_folder
from hexport.zoo.defaults import zoo_defaults

__all__ = ["Preparation", "prepare"]

_RESCUE_SECONDS = 300.0
"""How long nodes are looked for that the NPU fails on or gets wrong."""
_REDUCE_SECONDS = 120.0
"""How long the smallest failing piece is looked for, when that was in vain."""


def prepare(
    model: str | Path,
    *,
    output: str | Path,
    target: str | int,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    freeze: Mapping[str, str] | None = None,
    calib: object = None,
    preprocess: str | Path | None = None,
    rules: str | None = None,
    cures: Collection[str] = (),
    limits: Limits | None = None,
) -> Preparation:
    """Write to ``output`` what ``model`` becomes for ``target``. The output is there whole or not at all.

    ``cures``: rules that were kept at another of the model's sizes, with which this one shares its weights.
    """
    output, soc = Path(output), facts.find_target(target)
    chosen = select_rules(rules)
    _refuse_unknown(cures)
    refuse_missing_folder(output)
    source = read(zoo.resolve(model))
    given, freeze, notes = zoo_defaults(model, input_shapes, freeze, sized=bool(dims))
    command = f"hexport prepare '{model}' -o '{output}' --target {soc.chip}"
    unsized = parse_frozen(source.graph, freeze, {})
    dims, given, said = sized_by_samples(source.graph, dims or {}, given, calib, unsized)
    notes += said
    shapes = fix_shapes(source.graph, dims, given, command)
    values = parse_frozen(source.graph, freeze, shapes)
    samples = find_samples(model, source.graph, shapes, values, calib, preprocess)
    notes += _notes(source, samples)
    judge = facts.float_twin(soc) if scheme_of(source.graph, {}) == "fp16" else soc
    if judge != soc:
        notes.append(
            f"{soc.chip} has no float on its NPU: the float model is judged on {judge.chip}, of the same "
            f"generation; to run on {soc.chip} it has to be quantised"
        )
    with _folder(source, output) as folder:
        bench = _workbench(source, judge, shapes, values, samples, folder, limits or Limits())
        before = stand(bench, bench.model)
        after, found = _improve(bench, chosen, clean(bench, chosen, before, cures), samples, notes)
        # A wrong number on a twin says nothing of the chip; a compiler that fails may well do so for both.
        if judge == soc or after.failure is not None:
            after = rescue(bench, after, _RESCUE_SECONDS)
        dangers = _look_again(bench, found, notes)
        result = _labelled(bench.model, source)
        save(result, output)
        repro = save_repro(bench, after, output, _REDUCE_SECONDS)
        return Preparation(
            str(model),
            str(output),
            soc,
            shapes,
            freeze,
            before,
            after,
            tuple(bench.attempts),
            (*notes, *fp16_watch.sentences(dangers), *after.remarks),
            find_pins(result),
            dangers,
            data_file(result, output) or "",
            repro,
        )


def _refuse_unknown(cures: Collection[str]) -> None:
    if unknown := sorted(set(cures) - rule_names()):
        raise UsageError(
            f"there is no rule {unknown[0]!r}",
            why="it is named among the cures of another size of the model",
            next="leave it out; if a package offered it, install that package",
        )


def _folder(source: Model, output: Path) -> AbstractContextManager[Path]:
    """Where the work is done; for large weights on the disk of the output, which must hold them anyway."""
    if external_bytes(source) > LARGE:
        return own_folder(output.parent, ".hexport-")
    return temporary_folder()


def _notes(source: Model, samples: Samples) -> list[str]:
    notes = list(samples.notes)
    if not samples.real:
        notes.append("proved on random inputs, which show little; give real ones with --calib")
    if samples.offered > len(samples.values):
        notes.append(f"proved on the first {len(samples.values)} of {samples.offered} samples")
    said = {bytes(entry.key): bytes(entry.value) for entry in source.proto.metadata_props}
    if maker := said.get(PREPARED.encode(), b"").decode(errors="replace"):
        notes.append(f"it was prepared before, by hexport {maker}: there may be nothing left to do")
    if source.defaults:
        more = f" and {len(source.defaults) - 3} more" if source.defaults[3:] else ""
        named = ", ".join(source.defaults[:3]) + more
        notes.append(f"inputs that have a default value become constants of that value: {named}")
    if found := random_nodes(source.graph):
        first = f"{found[0].op} `{found[0].name}`"
        notes.append(f"the model gives another result each time ({first}), so no change can be proved")
    return notes


def _improve(
    bench: Workbench, chosen: RuleSource, standing: Standing, samples: Samples, notes: list[str]
) -> tuple[Standing, Sequence[Finding]]:
    """Apply the rules, after a look at what fp16 cannot hold."""
    is_float = standing.verdict is None or standing.verdict.scheme == "fp16"
    try:
        found = fp16_watch.look(bench) if is_float and samples.values else ()
    except HexportError as error:
        notes.append(fp16_watch.not_measured(error))
        found = ()
    # Ranges of random numbers would mislead the rules that choose a scale by them.
    after = improve(bench, _with_ranges(chosen, bench) if samples.real else chosen, standing)
    return after, found


def _look_again(bench: Workbench, found: Sequence[Finding], notes: list[str]) -> tuple[Fp16Danger, ...]:
    try:
        return fp16_watch.look_again(bench, found)
    except HexportError as error:
        notes.append(fp16_watch.not_measured(error))
        return ()


def _with_ranges(chosen: RuleSource, bench: Workbench) -> RuleSource:
    """The same rules; those about fp16 are told what was measured."""

    def of(purpose: Purpose) -> Sequence[Rule]:
        rules = chosen(purpose)
        if purpose is Purpose.RANGE:
            ranges = LazyRanges(bench)
            for rule in rules:
                if hasattr(rule, "ranges"):
                    rule.ranges = ranges
        return rules

    return of


def _workbench(
    source: Model,
    soc: facts.Soc,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, object],
    samples: Samples,
    folder: Path,
    limits: Limits,
) -> Workbench:
    # The reference is the user's own file, with its dynamic dims: what it gives at these sizes is the truth.
    try:
        reference = run_on_cpu(source.path, samples.values, limits=limits).outputs
    except ModelRejected as error:
        error.what = f"ONNX Runtime cannot run {source.path} on the CPU, so no change to it could be proved"
        raise
    staged = _load(source, stage(source, shapes, folder).model)
    freeze_inputs(staged, frozen)  # type: ignore[arg-type]
    remaining = [{name: value for name, value in s.items() if name not in frozen} for s in samples.values]
    kind = LargeBench if external_bytes(source) > LARGE else Workbench
    return kind(staged, soc, folder, remaining, reference, limits, samples.real)


def _load(source: Model, staged: Path) -> ir.Model:
    """The staged file in onnx-ir, its nodes in order; large weights stay where they are."""
    bring_along(source, staged)
    densify(staged)
    try:
        model = ir.load(staged)
        if external_bytes(source) <= LARGE:
            ir.external_data.load_to_model(model)
        for graph in model.graphs():
            graph.sort()
        return model.clone()
    except Exception as error:
        # onnx-ir refuses with errors of many types, some of which print the whole graph.
        raise UnusableGraph(
            f"{source.path} cannot be changed: onnx-ir does not understand it",
            why=f"{type(error).__name__}: {error}"[:500],
            next="`hexport check` still tells what of it runs on the NPU",
        ) from error


def _labelled(model: ir.Model, source: Model) -> ir.Model:
    """The user's metadata, and that it was prepared; no times or paths, so that the same gives the same."""
    from hexport.version import __version__

    for entry in source.proto.metadata_props:
        model.metadata_props[entry.key.decode()] = entry.value.decode()
    model.metadata_props[PREPARED] = __version__
    return model
