"""Options checked before the provider sees them.

The provider ignores keys it does not know, and answers most bad values with one line in a log and a
default. Here each of those is an error that names the right spelling, and all are told at once.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from hexport.backend.given_options import Given, known_options
from hexport.backend.op_affinity import affinity_problem, whole_path
from hexport.backend.op_packages import packages_problem, with_whole_paths
from hexport.errors import HexportError
from hexport.facts import (
    UnknownTarget,
    combinations,
    current_platform,
    find_target,
    installed_release,
    on_platform,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hexport.facts import Combination, Option, Soc

_NONE: Mapping[str, str] = MappingProxyType({})
_SESSION_PREFIX = "ep.qnnexecutionprovider."
"""onnxruntime stores provider options in the session under this prefix; some code sets them there."""
_FILES = {"op_affinity": affinity_problem, "op_packages": packages_problem}
"""Options whose files are looked into here."""
_WHOLE = {"op_affinity": whole_path, "op_packages": with_whole_paths}


class InvalidOption(HexportError, ValueError):
    """Options that the provider would ignore, misread or refuse; all of them, in ``problems``."""

    code = "HX103"

    problems: tuple[str, ...] = ()


def validate_options(
    provider: Mapping[str, str],
    session: Mapping[str, str] = _NONE,
    run: Mapping[str, str] = _NONE,
    dynamic: Mapping[str, str] = _NONE,
    *,
    platform: str = "current",
    release: str | None = "installed",
) -> Mapping[str, str]:
    """The provider options, ready to hand over; raises :class:`InvalidOption` listing all problems.

    Chips named in ``soc_model`` come back as ids, which every release reads, and files that are read here
    with their whole path. ``platform`` is of the form ``linux-x86_64``; ``release`` is the onnxruntime-qnn
    version that will read them.
    """
    prefixed = {key for key in session if key.startswith(_SESSION_PREFIX)}
    given = Given(
        {
            "provider": {**{k.removeprefix(_SESSION_PREFIX): session[k] for k in prefixed}, **provider},
            "session": {k: v for k, v in session.items() if k not in prefixed},
            "run": run,
            "dynamic": dynamic,
        },
        current_platform() if platform == "current" else platform,
        installed_release() if release == "installed" else release,
    )
    wrong = {key: problem for key, problem in _entry_problems(given) if problem}
    problems = [*wrong.values(), *_combination_problems(given), *_chip_problems(given.without(wrong))]
    if problems:
        raise _invalid(problems)
    return MappingProxyType(
        {key: _plain(key, value, given) for key, value in given.by_kind["provider"].items()}
    )


def _entry_problems(given: Given) -> Iterator[tuple[str, str]]:
    """Each key with what is wrong with it by itself, or nothing."""
    for kind, entries in given.by_kind.items():
        for key, value in entries.items():
            option = known_options().get(key)
            yield key, _option_problem(option, value, kind, given) if option else _unknown_key(key, kind)


def _unknown_key(key: str, kind: str) -> str:
    names = [name for name, option in known_options().items() if not option.replaced_by]
    # onnxruntime has many more session and run keys of its own: of those only a slip is a problem.
    ours = kind in ("provider", "dynamic") or key.startswith("qnn.")
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6 if ours else 0.9)
    if near:
        return f"{key}: there is no such {kind} option; did you mean {_addressed(near[0], kind)}?"
    return f"{key}: there is no such {kind} option" if ours else ""


def _addressed(key: str, kind: str) -> str:
    known = known_options()[key].kind
    return key if known == kind else f"the {known} option {key}"


def _option_problem(option: Option, value: object, kind: str, given: Given) -> str:
    key = option.key
    if option.replaced_by:
        return f"{key}: no longer read; use {_addressed(option.replaced_by, kind)}"
    if option.kind != kind:
        return f"{key}: is a {option.kind} option, not a {kind} option, and would be ignored there"
    if not isinstance(value, str):
        return f"{key}: give text, {str(value)!r} instead of {value!r}"
    if not on_platform(option.platforms, given.platform):
        return f"{key}: has an effect only on {', '.join(option.platforms)}; this is for {given.platform}"
    if given.before(option.since):
        return f"{key}: came with onnxruntime-qnn {option.since}; {given.release} ignores it"
    return (
        _value_problem(option, value)
        or _newer_value_problem(option, value, given)
        or (_FILES[key](value, given) if key in _FILES else "")
    )


def _newer_value_problem(option: Option, value: str, given: Given) -> str:
    since = option.newer_values.get(value, "")
    if given.before(since):
        return f"{option.key}: {value} came with onnxruntime-qnn {since}; this is {given.release}"
    if "," in value and given.before(option.list_since):
        several = f"several values came with onnxruntime-qnn {option.list_since}"
        return f"{option.key}: {several}; this is {given.release}"
    return ""


def _value_problem(option: Option, value: str) -> str:
    key = option.key
    if option.type in ("bool", "enum"):
        allowed = option.values or ("0", "1")
        return "" if value in allowed else f"{key}: {value!r} is not a value{_choices(value, allowed)}"
    if option.type in ("path", "text"):
        return "" if value.strip() else f"{key}: is empty"
    items = _split(value) if option.list_since else [value]
    return next((problem for item in items if (problem := _item_problem(option, item))), "")


def _split(value: str) -> list[str]:
    return [item.strip() for item in value.split(",")]


def _item_problem(option: Option, item: str) -> str:
    key = option.key
    if option.type == "socs":
        return "" if item == "0" else _chip_name_problem(key, item)
    if option.values:
        return (
            "" if item in option.values else f"{key}: {item!r} is not a value{_choices(item, option.values)}"
        )
    if not (item.isascii() and item.isdecimal()):
        return f"{key}: {item!r} is not a whole number"
    if option.minimum is not None and int(item) < option.minimum:
        return f"{key}: {item} is below {option.minimum}, the least it takes"
    return ""


def _chip_name_problem(key: str, item: str) -> str:
    try:
        find_target(item)
    except UnknownTarget as error:
        return f"{key}: {error.what}; {error.why}"
    return ""


def _choices(value: str, allowed: tuple[str, ...]) -> str:
    spelling = {choice.lower(): choice for choice in allowed}
    near = difflib.get_close_matches(value.lower(), spelling, n=1, cutoff=0.5)
    meant = f"; did you mean {spelling[near[0]]}?" if near else ";"
    return f"{meant} it takes {', '.join(allowed)}"


def _combination_problems(given: Given) -> Iterator[str]:
    for rule in combinations():
        applies = on_platform(rule.platforms, given.platform) and not given.before(rule.since)
        if applies and all(map(given.has, rule.when)):
            yield from _broken(rule, given)


def _broken(rule: Combination, given: Given) -> Iterator[str]:
    subject = " with ".join(rule.when)
    if not rule.needs and not rule.forbids:
        yield f"{subject}: {rule.why}"
    for condition in rule.needs:
        if not given.amounts_to(condition):
            yield f"{subject}: needs {condition}; {rule.why}"
    for condition in rule.forbids:
        if given.has(condition):
            yield f"{subject}: does not go with {condition}; {rule.why}"


def _chip_problems(given: Given) -> Iterator[str]:
    chips = _chips(given.value("soc_model") or "0")
    archs = [int(arch) for arch in _split(given.value("htp_arch") or "0") if arch != "0"]
    if len(chips) > 1 or len(archs) > 1:
        yield from _several_chips_problems(given, len(chips), len(archs))
    for chip, arch in zip(chips, archs, strict=False):
        if chip.htp_arch != arch:
            yield f"htp_arch: {arch} is not {chip.chip}'s, v{chip.htp_arch}; soc_model wins, leave it out"
    for chip in chips:
        yield from _too_new_for(chip, given)
    yield from _vtcm_problems(given, chips)


def _chips(value: str) -> list[Soc]:
    return [find_target(item) for item in _split(value) if item != "0"]


def _several_chips_problems(given: Given, chips: int, archs: int) -> Iterator[str]:
    if chips and archs and chips != archs:
        yield f"htp_arch: has {_counted(archs)} for the {chips} of soc_model"
    if not given.amounts_to("ep.context_enable=1"):
        yield "soc_model: several chips need ep.context_enable=1; only a context binary can serve them"
    if given.has("ep.share_ep_contexts=1"):
        yield "soc_model: several chips do not go with ep.share_ep_contexts=1"
    if not given.platform.endswith("x86_64"):
        yield f"soc_model: several chips can be compiled for on x86_64 only; this is {given.platform}"


def _counted(values: int) -> str:
    return "1 value" if values == 1 else f"{values} values"


def _too_new_for(chip: Soc, given: Given) -> Iterator[str]:
    for key in given.by_kind["provider"]:
        option = known_options()[key]
        if option.min_arch is None or not given.has(f"{key}=1"):
            continue
        if chip.htp_arch < option.min_arch:
            yield f"{key}: needs HTP v{option.min_arch} or newer; {chip.chip} is v{chip.htp_arch}"
        elif option.min_soc_model is not None and chip.soc_model < option.min_soc_model:
            first = f"the provider takes it from soc_model {option.min_soc_model} on"
            yield f"{key}: {first}; {chip.chip} is {chip.soc_model}"


def _vtcm_problems(given: Given, chips: list[Soc]) -> Iterator[str]:
    sizes = [int(size) for size in _split(given.value("vtcm_mb") or "0")]
    if len(sizes) > 1 and len(sizes) != len(chips):
        yield f"vtcm_mb: has {_counted(len(sizes))} for the {len(chips)} of soc_model"
        return
    for chip, size in zip(chips, sizes if len(sizes) > 1 else sizes * len(chips), strict=True):
        if chip.vtcm_mb is not None and size > chip.vtcm_mb:
            yield f"vtcm_mb: {size} is more than {chip.chip} has, {chip.vtcm_mb}"


def _plain(key: str, value: str, given: Given) -> str:
    if key in _WHOLE and given.platform == current_platform():
        return _WHOLE[key](value)
    if known_options()[key].type != "socs" or value == "0":
        return value
    return ",".join(str(chip.soc_model) for chip in _chips(value))


def _invalid(problems: list[str]) -> InvalidOption:
    count = "an option" if len(problems) == 1 else f"{len(problems)} options"
    error = InvalidOption(
        f"{count} would not do what was asked",
        why="\n".join(problems),
        next="correct or leave out what is named; docs/options.md has them all",
    )
    error.problems = tuple(problems)
    return error
