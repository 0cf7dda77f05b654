"""``verify``: a package, a model or a ``.pte`` beside its reference, on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.errors import UsageError
from hexport.model import Graph, Model, TensorType, read
from hexport.model.dims import Shape
from hexport.toolchain import Limits
from hexport.verification import inputs as given_inputs
from hexport.verification.failures import NotVerifiable
from hexport.verification.measuring import find
from hexport.verification.model_subject import open_model
from hexport.verification.outcome import Match, make_rule
from hexport.verification.package_subject import open_subject
from hexport.verification.reference import read_reference, run_reference
from hexport.verification.subject import BACKENDS, CPU, SIMULATOR, Subject

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs
    from hexport.verification.inputs import Inputs

__all__ = ["Match", "verify"]

_NO_NUMBERS = frozenset(("string", "sequence", "map", "optional", "sparse tensor"))


def verify(
    thing: str | Path,
    *,
    reference: str | Path | None = None,
    program: str | Path | None = None,
    qdq: str | Path | None = None,
    inputs: str | Path | None = None,
    backend: str = SIMULATOR,
    min_sqnr: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    target: str | int | None = None,
    bucket: str | None = None,
    method: str | None = None,
    samples: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    limits: Limits | None = None,
) -> Match:
    """Run ``thing`` on ``backend``, the reference on the CPU, and tell how far they are apart.

    Without ``reference`` a package is compared with the CPU model inside it, a plain model with itself. A
    ``.pte`` is compared with the torch ``program`` that it was made of, and with its quantised form ``qdq``.
    """
    started, limits = time.perf_counter(), limits or Limits()
    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: not known", next=f"use one of {', '.join(BACKENDS)}")
    make_rule(min_sqnr, rtol, atol, otherwise=None)  # a wrong wish is said before the work
    given_inputs.check_count(samples)
    sized = bool(dims or input_shapes)
    is_pte = _is_pte(thing)
    _refuse_for_kind(thing, is_pte, {"--program": program, "--qdq": qdq, "--method": method})
    if is_pte:
        _refuse_sizes("the program of a .pte has its own", sized)
        _refuse_for_pte(thing, backend, bucket)
        if reference is None:
            from hexport.executorch.verification.verb import verify_pte

            wishes = (min_sqnr, rtol, atol)
            return verify_pte(thing, program, qdq, inputs, samples, wishes, method, target, limits)
        _refuse_program(program, qdq)
        from hexport.executorch.verification.subject import open_pte

        subject: Subject = open_pte(thing, target, method, limits)
    elif Path(thing).is_dir():
        _refuse_sizes("a package has its own: choose one with --bucket", sized)
        _refuse_other_backends(thing, backend)
        subject = open_subject(thing, backend, target, bucket)
    else:
        if bucket is not None:
            raise UsageError(f"--bucket {bucket}: {thing} is a model, and only packages have buckets")
        subject = open_model(thing, backend, target, dims or {}, input_shapes or {}, limits)
    source, name = _reference(thing, subject, reference)
    _refuse_other_than_tensors(name, source)
    wanted = _wanted(subject, source)
    if inputs is not None:
        _refuse_sizes("the inputs have their own", sized)
        found = given_inputs.read_inputs(Path(inputs), wanted, subject.frozen, samples)
    else:
        found = _made_inputs(reference, subject, wanted, samples, sized)
    with _place_of_reference(is_pte):
        expected = run_reference(name, source, subject.frozen, found, limits)
    ran = subject.run(found, limits)
    _refuse_strangers(name, source, str(thing), ran.outputs)
    rule = make_rule(min_sqnr, rtol, atol, otherwise=subject.asked_db)
    return Match(
        str(thing),
        ran.what,
        name,
        backend,
        ran.target,
        ran.bucket,
        len(found.samples),
        found.origin,
        found.real,
        dict(ran.true_dims),
        ran.npu_nodes,
        ran.cpu_nodes,
        rule,
        find(expected, ran.outputs, rtol=rtol or 0.0, atol=atol or 0.0, real=found.real),
        (*found.notes, *ran.notes),
        time.perf_counter() - started,
    )


def _reference(thing: str | Path, subject: Subject, given: str | Path | None) -> tuple[Model, str]:
    if given is None:
        own = subject.own_reference
        if own is None:
            raise NotVerifiable(
                f"there is nothing to compare {thing} with",
                why="it holds no other form of the model that could be run there",
                next="name the original: --reference MODEL",
            )
        return read(own), str(own)
    return read_reference(given), str(given)


def _refuse_other_backends(package: str | Path, backend: str) -> None:
    if backend not in (SIMULATOR, CPU):
        raise NotVerifiable(
            f"{package} is a package, and those are not verified on {backend}",
            why="it holds code for the NPU, which the simulator runs, and a model for the CPU",
            next="give the model that it was made from",
        )


def _is_pte(thing: str | Path) -> bool:
    from hexport.executorch.pte.program import is_pte  # its room stands on this one

    return is_pte(thing)


def _place_of_reference(is_pte: bool) -> AbstractContextManager[None]:
    """ONNX Runtime is not in the toolchain that runs a ``.pte``."""
    if not is_pte:
        return nullcontext()
    from hexport.executorch.pte.toolchain import with_onnxruntime

    return with_onnxruntime()


def _refuse_for_kind(thing: str | Path, is_pte: bool, wishes: Mapping[str, object]) -> None:
    for name, value in wishes.items():
        if value is not None and not is_pte:
            raise UsageError(f"{name} {value}: {thing} is no .pte, and that is for those")


def _refuse_for_pte(thing: str | Path, backend: str, bucket: str | None) -> None:
    if bucket is not None:
        raise UsageError(f"--bucket {bucket}: {thing} is a .pte, and only packages have buckets")
    if backend != SIMULATOR:
        raise NotVerifiable(
            f"{thing} is a .pte, and those are not verified on {backend}",
            why="it holds code for the NPU, which the simulator runs",
            next="leave --backend out",
        )


def _refuse_program(program: object, qdq: object) -> None:
    if program is not None or qdq is not None:
        raise UsageError("--reference and --program both name what to compare with", next="give one of them")


def _refuse_sizes(why: str, sized: bool) -> None:
    if sized:
        raise UsageError("--dim and --input-shape are for random inputs of a model", why=why)


def _wanted(subject: Subject, reference: Model) -> dict[str, TensorType]:
    """What samples must hold: the inputs of both sides, with the sizes that either fixes."""
    wanted = dict(subject.inputs)
    for name, tensor in reference.graph.inputs.items():
        if name not in subject.frozen:
            wanted[name] = _narrower(wanted[name], tensor) if name in wanted else tensor
    return wanted


def _narrower(one: TensorType, other: TensorType) -> TensorType:
    """What is wrong between the two is found when each is held against a sample."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return replace(one, shape=other.shape if one.shape is None else one.shape)
    pairs = zip(one.shape, other.shape, strict=True)
    return replace(
        one, shape=tuple(a if isinstance(a, int) or not isinstance(b, int) else b for a, b in pairs)
    )


def _made_inputs(
    reference: str | Path | None,
    subject: Subject,
    wanted: Mapping[str, TensorType],
    count: int | None,
    sized: bool,
) -> Inputs:
    for name in (subject.made_from, str(reference)) if not sized else ():
        found = given_inputs.zoo_inputs(name, wanted, count)
        if found is not None and subject.takes(found.shapes):
            return found
    shapes = subject.sizes(Graph((), wanted, {}, {}))
    return given_inputs.random_inputs(wanted, shapes, count)


def _refuse_other_than_tensors(name: str, source: Model) -> None:
    for output, tensor in source.graph.outputs.items():
        if tensor.dtype in _NO_NUMBERS:
            raise NotVerifiable(
                f"output {output!r} of the reference {name} is a {tensor.dtype}",
                why="only tensors of numbers are compared",
                next="cut the part of the model that makes it away, and compare the rest",
            )


def _refuse_strangers(name: str, source: Model, thing: str, got: tuple[Outputs, ...]) -> None:
    if not set(source.graph.outputs) & set(got[0]):
        raise UsageError(
            f"{thing} and the reference {name} have no output in common",
            why=f"{', '.join(got[0])} on one side, {', '.join(source.graph.outputs)} on the other",
            next="name the model that it was made from",
        )
