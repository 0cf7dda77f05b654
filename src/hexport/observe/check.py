"""``check``: ask Qualcomm's compiler what of a model a backend takes, and why not the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts, zoo
from hexport.backend.custom_ops import find_libraries
from hexport.backend.failures import BackendError
from hexport.backend.probe import Evidence, probe
from hexport.backend.where import HTP, Where, accept, choose_where, on_chip
from hexport.errors import UsageError
from hexport.model import Graph, Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.judgement import judge
from hexport.observe.verdict import Verdict, parse_percent
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.toolchain.kept_log import keep_logs

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample
    from hexport.observe.comparing import Outputs

__all__ = ["check", "check_and_run", "explained", "make_verdict"]


_OWN = (
    "soc_model",
    "htp_arch",
    "backend_type",
    "backend_path",
    "enable_framework_op_trace",
    "framework_op_trace_dir",
)


def check(
    model: str | Path,
    *,
    target: str | int | None = None,
    backend: str = HTP,
    scheme: str | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    require: str | None = None,
    options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str | Path] = (),
    limits: Limits | None = None,
    native_log: str | Path | None = None,
) -> Verdict:
    """What of ``model`` the NPU of ``target`` takes, or ``backend`` ``"qnn-cpu"`` or ``"gpu"``, without one.

    ``options``: further ones of the provider; ``custom_ops``: ONNX Runtime's libraries with the model's own
    operators. Raises a :class:`HexportError` when it cannot be found out.
    """
    _refuse_own(options or {})
    libraries = find_libraries(custom_ops)
    if require not in (None, "full"):
        parse_percent(str(require))
    where = choose_where(backend, target)
    source = read(zoo.resolve(model), any_operator=bool(libraries))
    notes = list(accept(where, source.graph, str(model)))
    if not dims and not input_shapes:
        input_shapes = _zoo_shapes(model, notes)
    command = f"hexport check '{model}' {where.arguments}"
    shapes = fix_shapes(source.graph, dims or {}, input_shapes or {}, command)
    evidence = _ask(source, shapes, where, (), limits, native_log, options or {}, libraries)
    found = _scheme(source, evidence, where)
    _refuse_other_scheme(scheme, found)
    return judge(str(model), source, where, found, shapes, evidence, notes)


def check_and_run(
    path: Path, soc: facts.Soc, samples: Sequence[Sample], *, limits: Limits | None = None
) -> tuple[Verdict, tuple[Outputs, ...]]:
    """The verdict on a model with fixed shapes, and what the NPU's own arithmetic gives for ``samples``.

    Both come from one session, because compiling can take minutes.
    """
    source, where = read(path), on_chip(soc)
    shapes = fix_shapes(source.graph, {}, {}, "")
    evidence = _ask(source, shapes, where, samples, limits)
    scheme = scheme_of(source.graph, evidence.types)
    return judge(str(path), source, where, scheme, shapes, evidence, []), evidence.outputs


def make_verdict(
    name: str,
    model: Model,
    soc: facts.Soc,
    scheme: str,
    shapes: dict[str, Shape],
    evidence: Evidence,
    notes: list[str],
) -> Verdict:
    """From what was found out about the NPU of ``soc``."""
    return judge(name, model, on_chip(soc), scheme, shapes, evidence, notes)


def _ask(
    source: Model,
    shapes: dict[str, Shape],
    where: Where,
    samples: Sequence[Sample],
    limits: Limits | None,
    native_log: str | Path | None = None,
    options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str] = (),
) -> Evidence:
    with temporary_folder() as workdir:
        try:
            return probe(
                stage(source, shapes, workdir),
                where,
                workdir,
                samples=samples,
                limits=limits,
                options=options,
                custom_ops=custom_ops,
            )
        except BackendError as error:
            if where.soc is None:
                raise
            raise explained(error, source.graph, where.soc) from error
        finally:
            if native_log is not None:
                keep_logs({"check": workdir / "native.log"}, Path(native_log))


def explained(error: BackendError, graph: Graph, soc: facts.Soc) -> BackendError:
    """The same error, with what only this side knows: the chip has no float, and the model is float."""
    if not soc.float and scheme_of(graph, {}) == "fp16":
        error.why = f"{soc.chip} has no float arithmetic on its NPU, and the model is float\n{error.why}"
        error.next = "quantise the model (8a8w or 16a8w) for this chip, or choose a target with float"
    return error


def _zoo_shapes(model: str | Path, notes: list[str]) -> Mapping[str, Shape] | None:
    if not str(model).startswith("zoo:"):
        return None
    entry = zoo.entry(str(model).removeprefix("zoo:"))
    listed = " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in entry.input_shapes.items())
    notes.append(f"no sizes were given; the zoo's own are used: {listed}")
    return entry.input_shapes


def _scheme(source: Model, evidence: Evidence, where: Where) -> str:
    """A float model is fp16 on the NPU and what it is elsewhere."""
    found = scheme_of(source.graph, evidence.types)
    return "float" if found == "fp16" and where.soc is None else found


def _refuse_own(options: Mapping[str, str]) -> None:
    if twice := [key for key in options if key in _OWN]:
        raise UsageError(
            f"--option {twice[0]}: check sets it itself", next="--target, --backend and --toolchain choose it"
        )


def _refuse_other_scheme(asked: str | None, found: str) -> None:
    if asked is not None and asked != found:
        raise UsageError(
            f"the model is {found}, --scheme asks for {asked}",
            why="check looks at the model as it is; it does not quantise",
            next=f"leave --scheme out, or give a model that is {asked} already",
        )
