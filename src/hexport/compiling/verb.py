"""``compile``: models to context binaries, read back and compared with what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from hexport import facts
from hexport.backend.custom_ops import find_libraries
from hexport.compiling.given_files import library_notes, unmet_pins
from hexport.compiling.making import SECOND, Settings, layout_notes, make, stock_up
from hexport.compiling.options import CompileOptions
from hexport.compiling.outcome import Artefact, Compiled, CompiledModel
from hexport.compiling.plan import Job, plan_jobs
from hexport.compiling.publishing import HIDDEN, publish, refuse_unwritable
from hexport.compiling.sources import Source, read_sources
from hexport.model.dims import Shape
from hexport.model.external import external_bytes
from hexport.observe.verdict import parse_percent
from hexport.storage.sweeping import own_folder
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.toolchain.kept_log import keep_logs

__all__ = ["Artefact", "CompileOptions", "Compiled", "CompiledModel", "compile", "compile_models"]

_LARGE = 2**30
"""Models with more data than this are worked on beside the output, whose disk must hold them anyway."""
_SHARED = (
    "the models share one binary: load each with the session option ep.share_ep_contexts=1 on the device; "
    "the simulator cannot load it"
)
_MULTI = "the binary serves several chips; the simulator cannot load it"


def compile_models(
    models: Sequence[str | Path],
    targets: Sequence[str | int],
    out_dir: str | Path,
    *,
    options: CompileOptions | None = None,
    share_weights: bool = False,
    multi_soc: bool = False,
    embed: bool = False,
    nhwc_inputs: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    custom_ops: Sequence[str | Path] = (),
    require: str | None = None,
    limits: Limits | None = None,
    native_log: str | Path | None = None,
) -> Compiled:
    """Write to ``out_dir`` what ``models`` become for each of ``targets``: all of it, or nothing.

    Each model and target has a binary of its own, but with ``share_weights`` all models have one together,
    and with ``multi_soc`` all targets. ``custom_ops`` are ONNX Runtime's libraries with operators that the
    models have. ``require`` only has its form checked; ``Compiled.meets`` decides.
    """
    if require not in (None, "full"):
        parse_percent(str(require))
    out_dir, options = Path(out_dir), options or CompileOptions()
    chips = tuple(dict.fromkeys(facts.find_target(target) for target in targets))
    nhwc = tuple(dict.fromkeys(nhwc_inputs))
    libraries = find_libraries(custom_ops)
    sources = read_sources(models, dims or {}, input_shapes or {}, nhwc, any_operator=bool(libraries))
    jobs = plan_jobs(sources, chips, options, share_weights=share_weights, multi_soc=multi_soc, embed=embed)
    refuse_unwritable(out_dir)
    with work_folder(sources, out_dir) as folder:
        settings = Settings(folder, options, embed, share_weights, limits or Limits(), libraries)
        try:
            stock = stock_up(sources, settings)
            made = [make(job, stock, settings, folder / f"job{n}") for n, job in enumerate(jobs)]
            notes = [*stock.notes, *(layout_notes(jobs[0], made[0], settings, nhwc) if nhwc else ())]
        finally:
            if native_log is not None:
                _keep_logs(folder, jobs, Path(native_log))
        publish([a.binary for a in made if a.binary], [m.path for a in made for m in a.models], out_dir)
    notes += [w for a in made for m in a.models for w in m.verdict.warnings]
    notes += [note for note, said in ((_SHARED, share_weights), (_MULTI, multi_soc)) if said]
    notes += [*unmet_pins(options, sources), *library_notes(libraries)]
    return Compiled(out_dir, tuple(_moved(a, out_dir) for a in made), tuple(dict.fromkeys(notes)))


compile = compile_models  # noqa: A001 - the verb's own name, for `hexport.compile`


def work_folder(sources: Sequence[Source], out_dir: Path) -> AbstractContextManager[Path]:
    """Where to compile; gone afterwards."""
    if out_dir.is_dir() and sum(external_bytes(source.plain) for source in sources) > _LARGE:
        return own_folder(out_dir, HIDDEN)
    return temporary_folder()


def _keep_logs(folder: Path, jobs: Sequence[Job], destination: Path) -> None:
    logs: dict[str, Path] = {}
    for number, job in enumerate(jobs):
        first, second = folder / f"job{number}" / "native.log", folder / f"job{number}{SECOND}" / "native.log"
        logs |= {f"{job}": first} if first.exists() else {}
        logs |= {f"{job}, second form": second} if second.exists() else {}
    keep_logs(logs, destination)


def _moved(artefact: Artefact, folder: Path) -> Artefact:
    return replace(
        artefact,
        binary=folder / artefact.binary.name if artefact.binary else None,
        models=tuple(replace(model, path=folder / model.path.name) for model in artefact.models),
    )
