"""From what the user names to calibration data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hexport import zoo
from hexport.errors import BadSamples, UsageError
from hexport.model.dims import Shape
from hexport.model.graph import Graph
from hexport.quantization.data.archive import Archive
from hexport.quantization.data.array_folder import ArrayFolder, InputFolders
from hexport.quantization.data.calibration import CalibrationData
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.live import Live, describe, load_named, looks_named
from hexport.quantization.data.picture_folder import SUFFIXES, PictureFolder
from hexport.quantization.data.preprocessing import IN_FOLDER, Preprocess, find_preprocess
from hexport.quantization.data.sample import Array, Source, reading

ZOO = "zoo:"
ZOO_COUNT = 8
FORMS = (
    "give an .npz, a folder of .npy, .npz or pictures, or MODULE:CALLABLE; docs/calibration.md has all of it"
)


def open_calibration(
    source: object,
    graph: Graph,
    shapes: Mapping[str, Shape],
    frozen: Mapping[str, Array],
    *,
    preprocess: Preprocess | Path | str | None = None,
    limit: int | None = None,
    fill: Mapping[str, Mapping[int, int | float | bool]] | None = None,
) -> CalibrationData:
    """Calibration data for the inputs of ``graph`` at ``shapes``, at most ``limit`` samples of it.

    ``fill``: axes of inputs along which smaller samples are filled up, and with what.
    ``source`` is a path, ``"MODULE:CALLABLE"``, ``"zoo:NAME"``, or any callable, iterable or reader.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"{limit} samples cannot be used", next="ask for at least one")
    fitting = Fitting(graph, shapes, frozen, fill)
    declared = Path(preprocess) if isinstance(preprocess, str) else preprocess
    found = find_source(source, fitting, declared, limit)
    if declared is not None and not isinstance(found, PictureFolder):
        raise UsageError(
            f"a preprocessing was given, and {found.description} holds no pictures",
            why="arrays are fed to the model as they are",
            next="leave --preprocess out",
        )
    return CalibrationData(found, fitting, limit)


def find_source(
    source: object, fitting: Fitting, declared: Preprocess | Path | None, limit: int | None
) -> Source:
    """What the samples are read from."""
    if not isinstance(source, (str, Path)):
        return Live(source, describe(source), fitting)
    text, path = str(source), Path(source)
    if text.startswith(ZOO):
        return _from_zoo(text, fitting, limit or ZOO_COUNT)
    with reading(text, form=FORMS):
        there, is_folder, is_file = path.exists(), path.is_dir(), path.is_file()
    if is_folder:
        return _from_folder(path, fitting, declared)
    if there:
        if path.suffix.lower() != ".npz" or not is_file:
            raise BadSamples(f"{path} is not an .npz file", next=FORMS)
        return Archive(path, fitting)
    if looks_named(text):
        return Live(load_named(text), text, fitting)
    raise BadSamples(f"there is no {path}", next=FORMS)


def holds_pictures(source: object) -> bool:
    """Whether it is a folder with pictures in it."""
    if not isinstance(source, (str, Path)) or not Path(source).is_dir():
        return False
    return any(path.suffix.lower() in SUFFIXES for path in _visible(Path(source))[0])


def _from_zoo(text: str, fitting: Fitting, count: int) -> Source:
    """The zoo's own inputs, which are made when they are first read."""
    name = text.removeprefix(ZOO)
    shapes = {i: wanted.shape for i, wanted in fitting.inputs.items()}
    if zoo.entry(name).input_shapes != shapes:
        raise BadSamples(
            f"the zoo's inputs for {name} do not fit these sizes",
            why=f"they are made for {zoo.entry(name).input_shapes}, and the model is given {shapes}",
            next="give no sizes, or inputs of your own with --calib",
        )
    return Live(lambda: zoo.inputs(name, count=count, split="calib"), text, fitting, count)


def _from_folder(folder: Path, fitting: Fitting, declared: Preprocess | Path | None) -> Source:
    entries, others = _visible(folder)
    arrays = [path for path in entries if path.suffix.lower() in (".npy", ".npz")]
    pictures = [path for path in entries if path.suffix.lower() in SUFFIXES]
    named = [path for path in others if path.name in fitting.inputs]
    kinds = [kind for kind in (arrays, pictures, named) if kind]
    if len(kinds) > 1:
        raise BadSamples(
            f"{folder} holds samples of two kinds: {kinds[0][0].name} and {kinds[1][0].name}",
            next="keep one kind in a folder",
        )
    if named:
        parts, left = _input_parts(others)
        return InputFolders(folder, parts, fitting, _left_out([*entries, *left]))
    samples = {*arrays, *pictures}
    left = [path for path in [*entries, *others] if path not in samples]
    if pictures:
        return PictureFolder(folder, pictures, fitting, find_preprocess(declared, folder), _left_out(left))
    if not arrays:
        raise BadSamples(
            f"{folder} holds no sample",
            why=f"it has {', '.join(path.name for path in left[:5])}" if left else "it is empty",
            next=FORMS,
        )
    return ArrayFolder(folder, arrays, fitting, _left_out(left))


def _input_parts(folders: list[Path]) -> tuple[dict[str, list[Path]], list[Path]]:
    """Sub-folder -> its .npy files, and what else is in there. Names are listed, never joined to a path."""
    parts: dict[str, list[Path]] = {}
    left: list[Path] = []
    for folder in folders:
        files, others = _visible(folder)
        parts[folder.name] = [path for path in files if path.suffix.lower() == ".npy"]
        samples = set(parts[folder.name])
        left += [path for path in [*files, *others] if path not in samples]
    return parts, left


def _visible(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files and sub-folders by name; hidden ones and the declaration of the preprocessing are no data."""
    with reading(str(folder), form=FORMS):
        every = sorted(folder.iterdir(), key=lambda path: path.name)
        seen = [path for path in every if not path.name.startswith(".") and path.name not in IN_FOLDER]
        return [path for path in seen if not path.is_dir()], [path for path in seen if path.is_dir()]


def _left_out(paths: list[Path]) -> tuple[str, ...]:
    if not paths:
        return ()
    named = ", ".join(path.name for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    return (f"{len(paths)} other file(s) or folder(s) are left out: {named}",)
