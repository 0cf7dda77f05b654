"""A text file of inputs, one inference a line, as ExecuTorch's qnn_executor_runner takes it.

# pictures of the second camera
frame_0.raw mask_0.raw
image:=frame_1.npy mask:="with spaces/mask 1.npy"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.packaging.manifest import Tensor
from hexport.runtime.failures import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_NAMED = ":="
_COMMENT = "#"
_NUMPY = ".npy"
_OTHERS = frozenset((".npz", ".pt", ".pth", ".jpg", ".jpeg", ".png", ".txt", ".json"))
"""Not taken for raw numbers, whatever their size."""


class BadInputList(BadInput):
    """A line of an input list cannot be used; its number is in the message."""

    code = "HX454"


@dataclass(frozen=True)
class InputList:
    """The inferences of a list, in its order."""

    samples: tuple[dict[str, Array], ...]
    raw: bool
    """Whether no file of it is an .npy."""


@dataclass(frozen=True)
class _Line:
    path: Path
    number: int
    words: tuple[str, ...]

    def wrong(self, what: str, why: str = "", next_: str = "") -> BadInputList:
        return BadInputList(f"{self.path}, line {self.number}: {what}", why=why, next=next_)


def read_input_list(path: Path, inputs: Sequence[Tensor]) -> InputList:
    """Every inference of the list, for a model that takes ``inputs``, in their order."""
    lines = list(_lines(path))
    if not lines:
        raise BadInputList(f"{path} has no line with inputs", next="one line an inference: a file an input")
    suffixes: set[str] = set()
    samples = []
    for line in lines:
        files = _assigned(line, inputs)
        suffixes |= {file.suffix.lower() for file in files.values()}
        taken = {tensor.name: tensor for tensor in inputs}
        samples.append({name: _read(line, taken[name], file) for name, file in files.items()})
    return InputList(tuple(samples), _NUMPY not in suffixes)


def _lines(path: Path) -> Iterator[_Line]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputList(
            f"{path} cannot be read", why=str(error), next="give a text file: one line an inference"
        ) from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(_COMMENT):
            words = tuple(_WORD.findall(line))
            if line.count('"') % 2:
                raise _Line(path, number, words).wrong("a quotation mark is not closed", line.strip())
            yield _Line(path, number, words)


def _assigned(line: _Line, inputs: Sequence[Tensor]) -> dict[str, Path]:
    """name of the input → its file."""
    named = [_NAMED in word for word in line.words]
    if all(named):
        return _by_name(line, inputs)
    if any(named):
        raise line.wrong("some files have a name and some have none", next_="name all of them, NAME:=FILE")
    needed = [tensor for tensor in inputs if not tensor.optional]
    if len(line.words) not in (len(needed), len(inputs)):
        names = ", ".join(tensor.name for tensor in needed)
        raise line.wrong(f"{len(line.words)} files for {len(needed)} inputs", f"it takes: {names}")
    taken = inputs if len(line.words) == len(inputs) else needed
    return {tensor.name: _found(line, word) for tensor, word in zip(taken, line.words, strict=True)}


def _by_name(line: _Line, inputs: Sequence[Tensor]) -> dict[str, Path]:
    known = {tensor.name for tensor in inputs}
    files: dict[str, Path] = {}
    for word in line.words:
        name, _, file = word.partition(_NAMED)
        name = name.strip('"')
        if name not in known or name in files:
            said = "is given twice" if name in files else "is no input"
            raise line.wrong(f"{name!r} {said}", f"there is: {', '.join(tensor.name for tensor in inputs)}")
        files[name] = _found(line, file)
    if missing := [one.name for one in inputs if one.name not in files and not one.optional]:
        raise line.wrong(f"there is no file for input {missing[0]!r}")
    return files


def _found(line: _Line, word: str) -> Path:
    """Beside the list, as the runner's own tools put them, else from the current folder on."""
    name = word.replace('"', "")
    beside = line.path.parent / name
    file = beside if beside.is_file() else Path(name)
    if not name or not file.is_file():
        raise line.wrong(f"there is no file {name!r}", f"neither {beside} nor in the current folder")
    return file


def _read(line: _Line, tensor: Tensor, file: Path) -> Array:
    suffix = file.suffix.lower()
    if suffix in _OTHERS:
        raise line.wrong(
            f"{file.name} is neither raw nor .npy",
            next_="write it with numpy.save, or array.tofile for raw numbers",
        )
    array = _read_numpy(line, file) if suffix == _NUMPY else _read_raw(line, tensor, file)
    dims = tensor.dims
    fits = dims is None or (
        len(dims) == array.ndim
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(dims, array.shape, strict=True))
    )
    if array.dtype.name != tensor.dtype or not fits:
        raise line.wrong(
            f"{file.name} is {array.dtype.name}{list(array.shape)}",
            f"input {tensor.name!r} is {tensor.dtype}{_shown(tensor)}",
        )
    return array


def _read_numpy(line: _Line, file: Path) -> Array:
    import numpy as np

    try:
        with file.open("rb") as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise line.wrong(f"{file.name} cannot be read", str(error) or type(error).__name__) from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_raw(line: _Line, tensor: Tensor, file: Path) -> Array:
    """Numbers of the input's own type, in C order, the lowest byte first."""
    import numpy as np

    try:
        dtype = np.dtype(tensor.dtype).newbyteorder("<")
    except TypeError as error:
        raise line.wrong(f"input {tensor.name!r} is {tensor.dtype}", next_="give an .npy") from error
    size = file.stat().st_size
    shape = _shape(line, tensor, file, size // dtype.itemsize)
    if prod(shape) * dtype.itemsize != size:
        raise line.wrong(
            f"{file.name} has {size} bytes",
            f"input {tensor.name!r} is {tensor.dtype}{list(shape)}: {prod(shape) * dtype.itemsize} bytes",
        )
    return np.fromfile(file, dtype).astype(np.dtype(tensor.dtype), copy=False).reshape(shape)


def _shape(line: _Line, tensor: Tensor, file: Path, elements: int) -> tuple[int, ...]:
    """Of a raw file, whose size settles one open dim and no more."""
    dims = tensor.dims
    open_dims = [dim for dim in dims or () if not isinstance(dim, int)]
    if dims is None or len(open_dims) > 1:
        raise line.wrong(
            f"{file.name} does not tell its shape",
            f"input {tensor.name!r} is {tensor.dtype}{_shown(tensor)}",
            "give an .npy",
        )
    rest = prod(dim for dim in dims if isinstance(dim, int))
    return tuple(dim if isinstance(dim, int) else elements // max(rest, 1) for dim in dims)


def _shown(tensor: Tensor) -> str:
    return "" if tensor.dims is None else str(["?" if dim is None else dim for dim in tensor.dims])
