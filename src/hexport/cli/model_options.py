"""Options that several verbs share: sizes of a model's dims, and where and how long workers may run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hexport.cli.light_imports import import_lightly, without_collecting
from hexport.cli.toolchain_option import toolchain_option
from hexport.errors import MissingDependency

if TYPE_CHECKING:
    from hexport.toolchain import Limits

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _parse_dims(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    result: dict[str, int] = {}
    for value in values:
        # Dim names may hold "=" themselves; sizes never do.
        name, _equals, size = value.rpartition("=")
        if not name or not size.strip().isdigit():
            raise click.BadParameter(f"{value!r} is not NAME=N, for example batch=1")
        if name in result and result[name] != int(size):
            raise click.BadParameter(f"{name!r} is given twice")
        result[name] = int(size)
    return result


def _parse_shapes(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    result: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _equals, text = value.rpartition("=")
        sizes = [part.strip() for part in text.replace("x", ",").split(",")] if text.strip() else []
        if not name or not all(part.isdigit() for part in sizes):
            raise click.BadParameter(f"{value!r} is not INPUT=SIZES, for example x=1,3,224,224")
        if name in result:
            raise click.BadParameter(f"{name!r} is given twice")
        result[name] = tuple(int(part) for part in sizes)
    return result


def _parse_freeze(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    result: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not equals or not text:
            raise click.BadParameter(f"{value!r} is not INPUT=VALUE, for example sr=16000")
        result[name] = text
    return result


def _parse_provider(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    result: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE; docs/options.md has them all")
        if key in result:
            raise click.BadParameter(f"{key!r} is given twice")
        result[key] = text
    return result


def output_option(help_text: str) -> Decorator:
    """``-o``, a file."""
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", required=True, type=path, help=help_text)


def target_option(*, required: bool = True) -> Decorator:
    """``--target``, a chip by any of its names."""
    return click.option("--target", required=required, help="The chip: SM8650, 57 or 'snapdragon 8 gen 3'.")


@contextmanager
def build_parts(verb: str) -> Iterator[None]:
    """For imports of what only ``hexport[build]`` installs."""
    import_lightly()
    # Of those that are imported late, by which time a traceback would be all there is to see.
    if find_spec("onnx_ir") is None:
        raise _missing(verb, "onnx_ir")
    try:
        with without_collecting():
            yield
    except ModuleNotFoundError as error:
        raise _missing(verb, error.name) from error


def _missing(verb: str, module: str | None) -> MissingDependency:
    return MissingDependency(
        f"{verb} needs {module}, which is not in the core install", next="pip install 'hexport[build]'"
    )


dims_option: Decorator = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    callback=_parse_dims,
    help="Size of a named dim. Repeatable.",
)
input_shapes_option: Decorator = click.option(
    "--input-shape",
    "input_shapes",
    multiple=True,
    metavar="INPUT=1,3,224,224",
    callback=_parse_shapes,
    help="Whole shape of an input. Repeatable.",
)
provider_option: Decorator = click.option(
    "--option",
    "more",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_provider,
    help="Any other provider option. Repeatable.",
)
custom_ops_option: Decorator = click.option(
    "--custom-ops",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="LIBRARY",
    help="ONNX Runtime's library with operators that the model has of its own. Repeatable.",
)
freeze_option: Decorator = click.option(
    "--freeze",
    multiple=True,
    metavar="INPUT=VALUE",
    callback=_parse_freeze,
    help="An input that always has this value. Repeatable.",
)
preprocess_option: Decorator = click.option(
    "--preprocess",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="How pictures of a --calib folder become inputs.",
)


def calib_option(help_: str) -> Decorator:
    """Where real inputs are; every verb takes them in the same forms."""
    return click.option("--calib", metavar="SOURCE", help=help_)


_timeout: Decorator = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=900.0,
    show_default=True,
    metavar="S",
    help="Seconds the compiler may take.",
)
_memory: Decorator = click.option(
    "--memory-limit",
    type=click.IntRange(min=64),
    metavar="MIB",
    help="Memory the compiler may take. [default: 3/4 of the machine]",
)
inputs_option: Decorator = click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="F.npz",
    help="One array an input; the first axis counts samples.",
)
bucket_option: Decorator = click.option(
    "--bucket", metavar="NAME", help="Of a package. [default: the smallest that fits]"
)
samples_option: Decorator = click.option(
    "--samples", type=int, metavar="N", help="How many to use. [default: all of F.npz, else 3]"
)
native_log_option: Decorator = click.option(
    "--native-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what the native libraries said.",
)


def limits_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """For verbs that start workers: ``--timeout``, ``--memory-limit`` and ``--toolchain``."""
    return worker_limits_options(toolchain_option(function))


def worker_limits_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The first two alone, for a verb that has toolchains of its own."""
    return _timeout(_memory(function))


def make_limits(timeout: float, memory_limit: int | None) -> Limits:
    """The limits that these options ask for."""
    from hexport.toolchain import Limits

    return Limits(seconds=timeout, memory_bytes=None if memory_limit is None else memory_limit * 2**20)
