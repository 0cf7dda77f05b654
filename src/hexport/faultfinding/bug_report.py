"""``debug record``: the calls that a model becomes, for whoever has Qualcomm's SDK to make them again.

Nothing is compiled or computed: the Saver backend writes the calls that the compiler would have got. So a
model can be recorded that ends the compiler's process.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from hexport import facts, zoo
from hexport.backend.custom_ops import find_libraries
from hexport.backend.dumping import dump, saver_library
from hexport.backend.failures import BackendError, CompileFailed
from hexport.backend.options import validate_options
from hexport.errors import UsageError
from hexport.faultfinding.call_record import RECORD, CallRecord, Versions, file_entry, record_bytes
from hexport.faultfinding.saver_dump import DATA, FOLDER, RecordingIncomplete, read_dump
from hexport.model import Model, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.external import data_files, external_bytes
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.check import explained, make_verdict
from hexport.observe.verdict import Verdict
from hexport.storage.sweeping import own_folder, sweep
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.toolchain.interpreter import in_force
from hexport.toolchain.kept_log import keep_logs
from hexport.whole_file import refuse_missing_folder
from hexport.zoo.defaults import zoo_defaults

_HIDDEN = ".hexport-"
_LARGE = 2**30
_MOST_REASONS = 5
# Options that recording itself decides.
_OURS = (
    "backend_type", "backend_path", "soc_model", "htp_arch", "qnn_saver_path", "dump_qnn_ir_dlc",
    "dump_qnn_ir_dlc_dir", "qnn_ir_backend_path", "enable_framework_op_trace", "framework_op_trace_dir",
)  # fmt: skip
_WEIGHTS = f"{DATA} holds the weights of the model: give it only to those who may have them"


@dataclass(frozen=True)
class _Asked:
    """What was asked for."""

    model: str
    folder: Path
    target: facts.Soc
    dims: Mapping[str, int]
    input_shapes: Mapping[str, Shape]
    options: Mapping[str, str]
    custom_ops: Sequence[str | Path]

    @property
    def command(self) -> str:
        """The same once more."""
        return shlex.join(["hexport", "debug", "record", self.model, *self._arguments()])

    def _arguments(self) -> Iterator[str]:
        yield from ("--target", self.target.chip, "-o", str(self.folder))
        for name, size in self.dims.items():
            yield from ("--dim", f"{name}={size}")
        for name, shape in self.input_shapes.items():
            yield from ("--input-shape", f"{name}={','.join(map(str, shape))}")
        for key, value in self.options.items():
            yield from ("--option", f"{key}={value}")
        for library in self.custom_ops:
            yield from ("--custom-ops", str(library))
        if (chosen := in_force()) is not None:
            yield from ("--toolchain", chosen.name)


def debug_record(
    model: str | Path,
    *,
    output: Path,
    target: str | int,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str | Path] = (),
    limits: Limits | None = None,
    native_log: Path | None = None,
) -> CallRecord:
    """Write the folder ``output``: QNN's calls for ``model``, their data, and what a bug report has to say.

    There are no results: the Saver backend computes nothing. The folder appears whole or not at all.
    """
    soc, folder = facts.find_target(target), Path(output)
    asked = _Asked(str(model), folder, soc, dims or {}, input_shapes or {}, options or {}, custom_ops)
    provider = _provider(asked)
    libraries = find_libraries(custom_ops)
    _refuse_place(folder)
    source = read(zoo.resolve(model), any_operator=bool(libraries))
    given, _, said = zoo_defaults(model, asked.input_shapes, {}, sized=bool(asked.dims))
    shapes = fix_shapes(source.graph, asked.dims, given, asked.command)
    with _work_folder(source, folder) as workdir:
        try:
            verdict = _record(asked, source, shapes, provider, libraries, workdir, limits)
            _refuse_nothing(verdict)
            dumped = read_dump(workdir / FOLDER, len(verdict.partitions))
        finally:
            if native_log is not None:
                keep_logs({"record": workdir / "native.log"}, native_log)
        record = CallRecord(
            folder=str(folder),
            command=asked.command,
            model=file_entry(source.path),
            external=tuple(map(file_entry, data_files(source))),
            target=soc,
            versions=Versions.now(),
            options=provider,
            custom_ops=tuple(map(file_entry, map(Path, libraries))),
            graphs=dumped.graphs,
            calls=dumped.calls,
            verdict=verdict,
            files=(file_entry(dumped.program), file_entry(dumped.data)),
            notes=(_WEIGHTS, *said, *verdict.warnings),
        )
        _publish(record, (dumped.program, dumped.data), folder)
    return record


def _work_folder(source: Model, folder: Path) -> AbstractContextManager[Path]:
    """Large models are worked on beside the output, whose disk must hold them anyway."""
    large = external_bytes(source) > _LARGE
    return own_folder(folder.absolute().parent, _HIDDEN) if large else temporary_folder()


def _provider(asked: _Asked) -> dict[str, str]:
    for key in asked.options:
        if key in _OURS:
            raise UsageError(f"--option {key}: recording sets it itself", next="leave it out")
    given = {"backend_type": "htp", "soc_model": str(asked.target.soc_model), **asked.options}
    return dict(validate_options({**given, "qnn_saver_path": saver_library()}))


def _record(
    asked: _Asked,
    source: Model,
    shapes: dict[str, Shape],
    provider: Mapping[str, str],
    libraries: Sequence[str],
    workdir: Path,
    limits: Limits | None,
) -> Verdict:
    try:
        staged = stage(source, shapes, workdir)
        evidence = dump(staged, provider, workdir, custom_ops=libraries, limits=limits)
    except CompileFailed as error:
        raise RecordingIncomplete(
            "the provider stopped while the calls were recorded",
            why=explained(error, source.graph, asked.target).why,
            next="nothing was kept; `hexport debug reduce` finds the node, and another onnxruntime-qnn may "
            "record it (--toolchain)",
            native_log=error.native_log,
        ) from error
    except BackendError as error:
        raise explained(error, source.graph, asked.target) from error
    scheme = scheme_of(source.graph, evidence.types)
    return make_verdict(asked.model, source, asked.target, scheme, shapes, evidence, [])


def _refuse_nothing(verdict: Verdict) -> None:
    if not verdict.partitions:
        reasons = dict.fromkeys(f"{node.op} `{node.name}`: {node.reason}" for node in verdict.cpu_nodes)
        raise RecordingIncomplete(
            f"there is nothing to record: {verdict.target.chip} takes no node of {verdict.model}",
            why="\n".join(list(reasons)[:_MOST_REASONS]),
            next=f"hexport check '{verdict.model}' --target {verdict.target.chip} tells why",
        )


def _refuse_place(folder: Path) -> None:
    """Say at once, and not after the work, that the folder cannot be there."""
    refuse_missing_folder(folder)
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise UsageError(
            f"{folder} is there already", why="a record is a folder of its own", next="choose another -o"
        )


def _publish(record: CallRecord, files: Sequence[Path], folder: Path) -> None:
    """Everything goes into a folder beside ``folder`` first, which then takes its place in one step."""
    parent = folder.absolute().parent
    try:
        sweep(parent, _HIDDEN)  # what a process left that was killed at this
        with own_folder(parent, _HIDDEN) as part:
            whole = part / "whole"
            whole.mkdir()
            for file in files:
                shutil.move(file, whole / file.name)
            (whole / RECORD).write_bytes(record_bytes(record))
            if folder.is_dir():
                folder.rmdir()  # it is empty, and Windows renames onto nothing
            whole.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written", why=str(error), next="choose another -o") from error
