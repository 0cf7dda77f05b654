"""``prepare``: fix the shapes, clean up, rewrite until the backend takes every node; prove each change."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from hexport import facts, zoo
from hexport.backend.running import run_on_cpu
from hexport.errors import UsageError
from hexport.model import Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.staging import stage
from hexport.observe.comparing import Comparison
from hexport.observe.verdict import Verdict
from hexport.preparation.freezing import freeze, parse_frozen
from hexport.preparation.pipeline import Standing, clean, improve, stand
from hexport.preparation.samples import Samples, find_samples
from hexport.preparation.workbench import Attempt, Workbench
from hexport.records import to_plain
from hexport.rewrite.catalogue import select_rules
from hexport.toolchain import Limits


@dataclass(frozen=True)
class Preparation:
    """What became of a model."""

    model: str
    output: str
    target: facts.Soc
    input_shapes: dict[str, Shape]
    before: Standing
    after: Standing
    attempts: tuple[Attempt, ...]
    warnings: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Every node is on the NPU."""
        return self.after.verdict is not None and self.after.verdict.full

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "model": self.model,
            "output": self.output,
            "target": {
                "name": self.target.chip,
                "soc_model": self.target.soc_model,
                "htp_arch": self.target.htp_arch,
            },
            "input_shapes": to_plain(self.input_shapes),
            "full": self.full,
            "before": _standing(self.before),
            "after": _standing(self.after),
            "attempts": to_plain(self.attempts),
            "warnings": list(self.warnings),
        }


def prepare(
    model: str | Path,
    *,
    output: Path,
    target: str | int,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    frozen: Mapping[str, str] | None = None,
    calib: Path | None = None,
    rules: str | None = None,
    limits: Limits | None = None,
) -> Preparation:
    """Write to ``output`` what ``model`` becomes for ``target``. The output is there whole or not at all."""
    soc = facts.find_target(target)
    chosen = select_rules(rules)
    if not output.parent.is_dir():
        raise UsageError(f"{output} cannot be written", why=f"there is no folder {output.parent}")
    source = read(zoo.resolve(model))
    given, frozen, notes = _zoo_defaults(model, dims, input_shapes, frozen)
    command = f"hexport prepare '{model}' -o '{output}' --target {soc.chip}"
    shapes = fix_shapes(source.graph, dims or {}, given or {}, command)
    values = parse_frozen(source.graph, frozen or {}, shapes)
    samples = find_samples(model, source.graph, shapes, values, calib)
    if not samples.real:
        notes.append("proved on random inputs, which show little; give real ones with --calib FILE.npz")
    if samples.offered > len(samples.values):
        notes.append(f"proved on the first {len(samples.values)} of {samples.offered} samples")
    with tempfile.TemporaryDirectory(prefix="hexport-") as folder:
        bench = _workbench(source, soc, shapes, values, samples, Path(folder), limits or Limits())
        before = stand(bench, bench.model)
        after = improve(bench, chosen, clean(bench, before))
        with _whole_or_absent(output) as part:
            ir.save(_labelled(bench.model, source), part)
    return Preparation(
        str(model), str(output), soc, shapes, before, after, tuple(bench.attempts), tuple(notes)
    )


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
    reference = run_on_cpu(source.path, samples.values, limits=limits).outputs
    staged = ir.load(stage(source, shapes, folder).model)
    ir.external_data.load_to_model(staged)
    freeze(staged, frozen)  # type: ignore[arg-type]
    remaining = [{name: value for name, value in s.items() if name not in frozen} for s in samples.values]
    return Workbench(staged, soc, folder, remaining, reference, limits)


def _zoo_defaults(
    model: str | Path,
    dims: Mapping[str, int] | None,
    input_shapes: Mapping[str, Shape] | None,
    frozen: Mapping[str, str] | None,
) -> tuple[Mapping[str, Shape] | None, Mapping[str, str] | None, list[str]]:
    if not str(model).startswith("zoo:"):
        return input_shapes, frozen, []
    entry = zoo.entry(str(model).removeprefix("zoo:"))
    notes: list[str] = []
    if not dims and not input_shapes:
        input_shapes = entry.input_shapes
        notes.append("no sizes were given; the zoo's own are used")
    if frozen is None and entry.frozen:
        frozen = entry.frozen
        notes.append(f"frozen as the zoo says: {', '.join(f'{k}={v}' for k, v in frozen.items())}")
    return input_shapes, frozen, notes


def _labelled(model: ir.Model, source: Model) -> ir.Model:
    """The user's metadata, and that it was prepared; no times or paths, so that the same gives the same."""
    from hexport.version import __version__

    for entry in source.proto.metadata_props:
        model.metadata_props[entry.key.decode()] = entry.value.decode()
    model.metadata_props["hexport.prepared"] = __version__
    return model


@contextmanager
def _whole_or_absent(output: Path) -> Iterator[Path]:
    """A file beside ``output`` that takes its place only when it is complete."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written", why=str(error), next="choose another -o") from error
    finally:
        part.unlink(missing_ok=True)


def _standing(standing: Standing) -> dict[str, object]:
    verdict: Verdict | None = standing.verdict
    htp: Comparison | None = standing.htp
    return {
        "verdict": verdict.to_json() if verdict else None,
        "failure": standing.failure.to_json() if standing.failure else None,
        "sqnr_db": _finite(htp.sqnr_db) if htp else None,
        "outputs": [to_plain(o) | {"sqnr_db": _finite(o.sqnr_db)} for o in htp.outputs] if htp else [],
    }


def _finite(value: float) -> float | str:
    """JSON has no infinities."""
    return value if abs(value) != float("inf") else ("exact" if value > 0 else "broken")
