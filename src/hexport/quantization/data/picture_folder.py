"""A folder of pictures, one a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hexport.errors import BadSamples, MissingDependency
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.preprocessing import Preprocess
from hexport.quantization.data.sample import Found, reading

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})


class PictureFolder:
    """Pictures for a model with one input."""

    once = False

    def __init__(
        self,
        folder: Path,
        files: Sequence[Path],
        fitting: Fitting,
        declared: Preprocess,
        notes: tuple[str, ...] = (),
    ) -> None:
        if len(fitting.free) != 1:
            raise BadSamples(
                f"{folder} holds pictures, which fill one input",
                why=f"the model has {len(fitting.free)}: {', '.join(fitting.free)}",
                next="freeze the others with --freeze, or give an .npz with all of them",
            )
        self.description = str(folder)
        self.count: int | None = len(files)
        self.notes = notes
        self._files = tuple(files)
        self._name = fitting.free[0]
        self._declared = declared
        wanted = fitting.inputs[self._name]
        self._size = declared.size(self._name, wanted.shape, str(wanted.dtype))
        try:
            import hexport.quantization.data.pixels  # noqa: F401 - only whether it can be
        except ModuleNotFoundError as error:
            raise MissingDependency(
                f"{folder} holds pictures, and reading them needs Pillow",
                why=str(error),
                next="pip install 'hexport[images]'",
            ) from error

    def read(self) -> Iterator[Found]:
        from hexport.quantization.data.pixels import load_picture

        form = "leave the picture out, or save it again as an 8-bit PNG or JPEG"
        for number, path in enumerate(self._files):
            with reading(f"{path}, sample {number}, input {self._name!r}", form=form):
                array = load_picture(path, self._declared, self._size)
            yield Found({self._name: array}, str(path))
