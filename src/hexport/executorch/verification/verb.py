"""``verify`` of a ``.pte``: on the simulator beside the torch program that it was made of, run as it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hexport.executorch.lowering.publishing import FORWARD, QUANTISED
from hexport.executorch.pte.sidecar import Method, file_sha256
from hexport.executorch.running.loading import LoadedPte, load_pte
from hexport.executorch.verification.program import run_programs
from hexport.model.graph import TensorType
from hexport.toolchain import Limits
from hexport.torch.naming import split_factory
from hexport.verification import inputs as given_inputs
from hexport.verification.failures import NotVerifiable
from hexport.verification.inputs import Inputs
from hexport.verification.measuring import OutputFinding, find
from hexport.verification.outcome import Match, Rule, make_rule
from hexport.verification.subject import SIMULATOR


@dataclass(frozen=True)
class PteMatch(Match):
    """Also beside the quantised program: what the NPU adds to what quantising cost."""

    qdq: str = ""
    """The quantised program; empty: there is none to compare with."""
    qdq_outputs: tuple[OutputFinding, ...] = ()

    @property
    def failing(self) -> tuple[OutputFinding, ...]:
        short = [one for one in self.qdq_outputs if not self.rule.met_by(one)]
        return (*super().failing, *(replace(one, name=f"{one.name} (beside QDQ)") for one in short))

    def to_json(self) -> dict[str, object]:
        findings = [{**one.to_json(), "passed": self.rule.met_by(one)} for one in self.qdq_outputs]
        return {**super().to_json(), "qdq_outputs": findings}


def verify_pte(
    thing: str | Path,
    program: str | Path | None,
    qdq: str | Path | None,
    inputs: str | Path | None,
    samples: int | None,
    wishes: tuple[float | None, float | None, float | None],
    method: str | None,
    target: str | int | None,
    limits: Limits | None,
) -> PteMatch:
    """Run ``thing`` on the simulator and ``program`` by torch, and tell how far they are apart.

    ``wishes`` are the least SQNR, rtol and atol. ``program`` is a ``.pt2`` or ``"MODULE:FACTORY"``; without
    it the ``.pt2`` that the description beside the ``.pte`` names, if that is there.
    """
    started = time.perf_counter()
    loaded = load_pte(thing, method=method, target=target, limits=limits)
    quantised = Path(qdq) if qdq is not None else _beside(loaded)
    found = find_inputs(loaded, inputs, samples)
    # Before the .pte is run: what torch gives does not depend on it, and a wrong program is said sooner.
    programs = [quantised] if quantised is not None else []
    notes: list[str] = []
    eager: list[tuple[dict[str, NDArray[Any]], ...]] = []
    if program is not None and split_factory(str(program)) is not None:
        source = str(program)
        eager = [_by_factory(loaded, source, found)]
    else:
        path, notes = _program(loaded, program)
        source = str(path)
        programs.insert(0, path)
    names = loaded.signature.output_names
    ran_by_torch = (
        run_programs(programs, found.samples, names, loaded.interpreter, limits) if programs else []
    )
    expected, *between = [*eager, *ran_by_torch]
    ran = loaded.run(found.samples)
    rule: Rule = make_rule(*wishes, otherwise=None)
    judge = partial(find, rtol=rule.rtol or 0.0, atol=rule.atol or 0.0, real=found.real)
    return PteMatch(
        str(thing),
        str(loaded.path),
        source,
        SIMULATOR,
        ran.chip or None,
        None,
        len(found.samples),
        found.origin,
        found.real,
        {},
        ran.npu_parts,
        ran.cpu_operators,
        rule,
        judge(expected, ran.outputs),
        (*notes, *found.notes, *ran.notes),
        time.perf_counter() - started,
        str(quantised) if quantised is not None else "",
        judge(between[0], ran.outputs) if between else (),
    )


def _by_factory(loaded: LoadedPte, factory: str, inputs: Inputs) -> tuple[dict[str, NDArray[Any]], ...]:
    """What the user's own module gives, by the names that the ``.pte`` has, in the same order."""
    from hexport.torch.factories import from_factory
    from hexport.torch.fixing import fix_sizes

    model = fix_sizes(from_factory(factory), sizes_of(loaded))
    names = loaded.signature.output_names
    if (len(model.example), len(model.output_names)) != (len(inputs.samples[0]), len(names)):
        raise NotVerifiable(
            f"{loaded.path} was not made of {factory}",
            why=f"{factory} takes {len(model.example)} tensors and gives {len(model.output_names)}",
            next="name what it was made of: --program MODULE:FACTORY",
        )
    answers = (model.answer(dict(zip(model.example, one.values(), strict=True))) for one in inputs.samples)
    return tuple(dict(zip(names, answer.values(), strict=True)) for answer in answers)


def find_inputs(loaded: LoadedPte, inputs: str | Path | None, samples: int | None) -> Inputs:
    """Of a file, or random ones, which is said."""
    wanted = wanted_of(loaded)
    if inputs is not None:
        return given_inputs.read_inputs(Path(inputs), wanted, {}, samples)
    return given_inputs.random_inputs(wanted, sizes_of(loaded), samples)


def wanted_of(loaded: LoadedPte) -> dict[str, TensorType]:
    """What samples must hold."""
    return {one.name: TensorType(one.dtype, one.dims) for one in loaded.signature.contract.inputs}


def sizes_of(loaded: LoadedPte) -> dict[str, tuple[int, ...]]:
    """Shapes for random inputs; where sizes may vary, the largest."""
    tensors = zip(loaded.signature.contract.inputs, loaded.signature.method.inputs, strict=True)
    return {named.name: one.sizes if one is not None else () for named, one in tensors}


def _program(loaded: LoadedPte, given: str | Path | None) -> tuple[Path, list[str]]:
    sidecar = loaded.signature.sidecar
    described: Method | None = sidecar.method(loaded.signature.method.name) if sidecar is not None else None
    if given is not None:
        path = Path(given)
        other = described is not None and path.is_file() and file_sha256(path) != described.program_sha256
        note = f"{path.name} is not the very file that {loaded.path.name} was made of"
        return path, [note] if other else []
    if described is not None and split_factory(described.program) is not None:
        raise NotVerifiable(
            f"{loaded.path} was made of {described.program}, which is code",
            why="it is run only when you name it",
            next=f"--program {described.program}",
        )
    if described is not None and described.program:
        name = Path(described.program).name
        for path in (loaded.path.parent / name, Path(name)):
            if path.is_file() and file_sha256(path) == described.program_sha256:
                return path, []
    raise NotVerifiable(
        f"there is nothing to compare {loaded.path} with",
        why="the program that it was made of is neither beside it nor in the current folder",
        next="name it: --program MODEL.pt2; or an ONNX form of it: --reference MODEL.onnx",
    )


def _beside(loaded: LoadedPte) -> Path | None:
    """Where lowering keeps it: ``model.qdq.pt2`` beside ``model.pte``."""
    method, path = loaded.signature.method.name, loaded.path
    middle = "" if method == FORWARD else f".{method}"
    kept = path.with_name(f"{path.stem}{middle}{QUANTISED}")
    return kept if kept.is_file() else None
