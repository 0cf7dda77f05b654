"""Tensors in .npz files, as ``numpy.savez`` writes them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.runtime.failures import BadInput
from hexport.whole_file import refuse_missing_folder, whole_or_absent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of the file; nothing in it is executed."""
    import numpy as np

    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, NotImplementedError) as error:
        raise BadInput(
            f"{path} cannot be read",
            why=str(error) or type(error).__name__,
            next="give an .npz as numpy.savez writes it: one array an input",
        ) from error


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """All of them, or no file."""
    import numpy as np

    refuse_missing_folder(path)
    # Names of tensors may be anything, and keyword arguments of numpy.savez may not: ``file``.
    with whole_or_absent(path) as part, zipfile.ZipFile(part, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def split_samples(arrays: Mapping[str, Array], path: Path) -> list[dict[str, Array]]:
    """One sample a row of the leading axis, which all arrays have in common."""
    if flat := [name for name, array in arrays.items() if array.ndim == 0]:
        raise BadInput(
            f"{path}: {flat[0]!r} has no axis that could count samples",
            next="give an array of one axis: one number a sample",
        )
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        listed = ", ".join(f"{size} of {name!r}" for name, size in counts.items()) or "nothing"
        raise BadInput(
            f"{path}: the numbers of samples differ, or there are none: {listed}",
            next="with --samples the leading axis of every array counts samples",
        )
    count = next(iter(counts.values()))
    return [{name: array[i] for name, array in arrays.items()} for i in range(count)]


def join_samples(results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The other way; an output whose shape differs between samples is ``NAME@0``, ``NAME@1``, ….

    A name that is in use already is an error, and not overwritten.
    """
    import numpy as np

    joined: dict[str, Array] = {}
    for name in results[0]:
        arrays = [np.asarray(result[name]) for result in results]
        if len({array.shape for array in arrays}) == 1:
            named = {name: np.stack(arrays)}
        else:
            named = {f"{name}@{i}": array for i, array in enumerate(arrays)}
        if taken := sorted(set(named) & set(joined)):
            raise BadInput(f"two outputs would both be stored as {taken[0]!r}", next="run without --samples")
        joined |= named
    return joined
