"""What comes out as files of a folder: ``output_<inference>_<output>``, as qnn_executor_runner names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import UsageError
from hexport.whole_file import whole_or_absent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_NAME = re.compile(r"output_\d+_\d+\.(raw|npy)")


def refuse_folder(folder: Path) -> None:
    """Say at once, and not after the work, that nothing can be written there."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", next="name a folder for --output-folder")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder} cannot be made", why=f"there is no folder {folder.parent}")


def write_outputs(folder: Path, results: Sequence[Mapping[str, Array]], *, raw: bool) -> tuple[str, ...]:
    """One file an output and inference. Tells of files that an earlier run left between them."""
    import numpy as np

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made", why=str(error)) from error
    written = set()
    for number, outputs in enumerate(results):
        for index, array in enumerate(outputs.values()):
            path = folder / f"output_{number}_{index}.{'raw' if raw else 'npy'}"
            written.add(path.name)
            with whole_or_absent(path) as part, part.open("wb") as file:
                if raw:
                    plain = np.ascontiguousarray(array)
                    file.write(plain.astype(plain.dtype.newbyteorder("<"), copy=False).tobytes())
                else:
                    np.save(file, array, allow_pickle=False)
    older = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    left = [name for name in older if name not in written]
    return (f"{folder} still holds files of an earlier run: {', '.join(left[:3])}",) if left else ()
