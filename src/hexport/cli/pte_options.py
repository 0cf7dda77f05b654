"""Options of verbs that write a ``.pte``: how it is quantised, compiled and made of several methods."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hexport.cli.model_options import native_log_option
from hexport.errors import UsageError

if TYPE_CHECKING:
    from hexport.executorch.lowering.options import LoweringOptions, OpPackage
    from hexport.executorch.lowering.overrides import Override
    from hexport.executorch.lowering.training import Training

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class PteWishes:
    """What the user asks of a ``.pte``, in the records of ``hexport.executorch``."""

    options: LoweringOptions
    overrides: tuple[Override, ...]
    training: Training | None
    qnn_sdk: Path | None
    sidecar: bool
    keep_quantised: bool
    native_log: Path | None = None
    methods: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Method → input → sizes; empty: one method, at the sizes of the program's example."""
    method_calib: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    """The options that were on the command line, for formats that have none of them."""


class GroupedCommand(click.Command):
    """A verb whose help has the options of a ``.pte`` under a title of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for one in self.get_params(ctx):
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)) is not None:
                (others if one.name in _names() else own).append(record)
        for title, records in (("Options", own), ("Options of --format pte", others)):
            with formatter.section(title):
                formatter.write_dl(records)


def _parse_methods(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, dict[str, tuple[int, ...]]]:
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for value in values:
        name, _colon, rest = value.partition(":")
        shapes: dict[str, tuple[int, ...]] = {}
        for part in filter(None, rest.split(";")):
            key, _equals, text = part.rpartition("=")
            sizes = [size.strip() for size in text.replace("x", ",").split(",")]
            if not key or not all(size.isdigit() for size in sizes):
                name = ""
                break
            shapes[key.strip()] = tuple(int(size) for size in sizes)
        if not name.isidentifier() or name in found:
            raise click.BadParameter(f"{value!r} is not NAME:INPUT=SIZES;…, for example seq64:ids=1,64")
        found[name] = shapes
    return found


def _parse_pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier() or not text or name in found:
            raise click.BadParameter(f"{value!r} is not NAME=SOURCE, for example seq64=samples/64")
        found[name] = text
    return found


def _flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, is_flag=True, help=text)


def _switch(name: str, text: str, default: bool | None) -> Callable[[Any], Any]:
    """``--name/--no-name``."""
    return click.option(f"--{name}/--no-{name}", default=default, help=text)


_QUANTIZING = (
    click.option(
        "--precision",
        "precisions",
        multiple=True,
        metavar="KIND:NAME=SCHEME",
        help="A node, module or op in another scheme, fp16 or cpu: module:head=fp16. Repeatable.",
    ),
    click.option("--precision-file", type=_FILE, metavar="FILE", help="The same as TOML or JSON."),
    click.option(
        "--observer",
        type=click.Choice(["auto", "minmax", "histogram", "moving-average"]),
        default="auto",
        show_default=True,
        help="How ranges are measured.",
    ),
    click.option(
        "--range-margin", type=float, metavar="X", help="Make ranges X times as wide as on the samples."
    ),
    click.option(
        "--per-channel/--per-tensor",
        default=None,
        help="A scale for every channel of a weight, or one. [default: as the scheme can]",
    ),
    _flag("--embedding-per-channel", "A scale for every row of an embedding."),
    _flag("--act-symmetric", "Ranges of activations around zero."),
    click.option("--eps", type=float, metavar="X", help="The smallest step of any range."),
    click.option(
        "--block-size", type=click.IntRange(min=1), default=32, show_default=True, help="Of 16a4w_block."
    ),
    click.option(
        "--qat", "qat_function", default="", metavar="MODULE:FUNC", help="Train with your function."
    ),
    click.option(
        "--qat-steps", type=click.IntRange(min=0), default=0, metavar="N", help="Train for N steps."
    ),
    click.option(
        "--qat-lr", type=float, default=1e-5, show_default=True, help="The learning rate of --qat-steps."
    ),
    click.option(
        "--qat-targets",
        type=_FILE,
        metavar="FILE.npz",
        help="What to train towards. [default: the float program]",
    ),
)
_COMPILING = (
    click.option("--optimization-level", type=int, default=3, help="ExecuTorch has level 3 only."),
    click.option(
        "--performance", default="burst", show_default=True, metavar="MODE", help="How the NPU is clocked."
    ),
    click.option(
        "--profile-level", type=click.Choice(["off", "detailed", "optrace"]), default="off", show_default=True
    ),
    _flag("--shared-buffer", "Inputs and outputs in memory that the NPU shares."),
    _flag("--multi-contexts", "Parts of one program share a spill-fill buffer."),
    _flag("--weight-sharing", "Methods share their weights."),
    _flag("--dump-intermediates", "The device can write every tensor."),
    _flag("--saver", "Record the calls of QNN instead: no .pte results."),
    _flag("--online-prepare", "The device compiles it when it is loaded."),
    _flag("--dlbc", "Compress what goes to and from memory."),
    _flag("--slc-allocator", "Use the system level cache."),
    _switch("conv-hmx", "Short convolutions on the matrix unit. [default: on]", default=True),
    _switch("fold-relu", "Relu as a part of a convolution. [default: on]", default=True),
    _flag("--signed-pd", "Run in the signed process domain."),
    _flag("--mha2sha", "Cut attention into its heads."),
    _switch("linear-to-conv2d", "Linear layers as convolutions. [default: if need be]", default=None),
    _flag("--skip-mutable-buffer", "Buffers that change stay with the CPU."),
    _flag("--qnn-debug", "QNN's own log in all detail."),
    click.option("--op-packages", type=_FILE, metavar="FILE.toml", help="Libraries with operators of yours."),
)
_MAKING = (
    click.option(
        "--qnn-sdk",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="PATH",
        help="Use this QNN SDK instead of the toolchain's libraries.",
    ),
    click.option(
        "--method",
        "methods",
        multiple=True,
        metavar="NAME:INPUT=SIZES;…",
        callback=_parse_methods,
        help="A method of the file, at these sizes. Repeatable.",
    ),
    click.option(
        "--method-calib",
        multiple=True,
        metavar="NAME=SOURCE",
        callback=_parse_pairs,
        help="Calibration data of one method. Repeatable.",
    ),
    _flag("--all-on-npu", "Operators on the CPU are an error."),
    _flag("--allow-missing-kernels", "The device brings kernels that this executorch has not."),
    _switch("sidecar", "NAME.pte.json: names, scheme, placement. [default: write it]", default=True),
    _flag("--keep-quantised", "NAME.qdq.pt2: the quantised program, for verify."),
    native_log_option,
)
_ALL = (*_QUANTIZING, *_COMPILING, *_MAKING)


def pte_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all of them; the verb gets one argument, ``pte``, with what they say."""

    @functools.wraps(function)
    def collected(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in _names()}
        return function(*args, pte=_wishes(own), **given)

    wrapped: Callable[..., Any] = collected
    for option in reversed(_ALL):
        wrapped = option(wrapped)
    return wrapped


@functools.cache
def _names() -> tuple[str, ...]:
    """Of the arguments that the options become."""

    def nothing() -> None:
        """Only carries the options."""

    for option in _ALL:
        option(nothing)
    return tuple(str(one.name) for one in nothing.__click_params__)  # type: ignore[attr-defined]


def _wishes(own: Mapping[str, Any]) -> PteWishes:
    from hexport.executorch.lowering.overrides import read_overrides
    from hexport.executorch.lowering.training import Training

    training = None
    if own["qat_function"] or own["qat_steps"]:
        targets = str(own["qat_targets"] or "")
        training = Training(own["qat_function"], own["qat_steps"], own["qat_lr"], targets)
    return PteWishes(
        _options(own),
        read_overrides(own["precision_file"], own["precisions"]),
        training,
        own["qnn_sdk"],
        own["sidecar"],
        own["keep_quantised"],
        own["native_log"],
        own["methods"],
        own["method_calib"],
        given_options(_names()),
    )


def _options(own: Mapping[str, Any]) -> LoweringOptions:
    from hexport.executorch.lowering.options import Compiling, LoweringOptions, Quantizing

    quantizing = Quantizing(
        own["observer"],
        own["range_margin"],
        own["per_channel"],
        own["per_channel"],
        own["embedding_per_channel"],
        own["act_symmetric"],
        own["eps"],
        own["block_size"],
    )
    plain = (
        "optimization_level", "performance", "shared_buffer", "multi_contexts", "weight_sharing",
        "dump_intermediates", "saver", "online_prepare", "dlbc", "slc_allocator", "conv_hmx", "fold_relu",
        "signed_pd", "mha2sha", "linear_to_conv2d", "skip_mutable_buffer",
    )  # fmt: skip
    compiling = Compiling(
        **{name: own[name] for name in plain},
        profile=own["profile_level"],
        debug=own["qnn_debug"],
        op_packages=_op_packages(own["op_packages"]),
    )
    return LoweringOptions(quantizing, compiling, not own["all_on_npu"], own["allow_missing_kernels"])


def _op_packages(file: Path | None) -> tuple[OpPackage, ...]:
    from hexport.executorch.lowering.options import OpPackage
    from hexport.records import from_plain

    if file is None:
        return ()
    try:
        document = tomllib.loads(file.read_text("utf-8"))
        return tuple(from_plain(OpPackage, entry) for entry in document["op_package"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        fields = "name, path, interface_provider, custom_op, qnn_op, target, platform"
        raise UsageError(
            f"{file} cannot be read", why=str(error), next=f"its form is [[op_package]] with {fields}"
        ) from error


def given_options(names: Collection[str]) -> tuple[str, ...]:
    """Those of ``names`` that the user wrote, as they are written."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ()
    source = click.core.ParameterSource.COMMANDLINE
    return tuple(
        one.opts[0]
        for one in context.command.params
        if one.name in names and context.get_parameter_source(one.name) is source
    )
