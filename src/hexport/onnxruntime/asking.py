"""What a caller asks of a session: providers and options in ONNX Runtime's forms, checked and made plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport import facts
from hexport.backend.options import validate_options
from hexport.backend.sessions import PROVIDER
from hexport.errors import UsageError
from hexport.facts import Soc
from hexport.onnxruntime.fallback import warn
from hexport.onnxruntime.libraries import backend_of, library_file

CPU = "CPUExecutionProvider"
PREPARE = "hexport.prepare"
"""A session entry of hexport's own: 0 compiles the model as it is."""
DEFAULT_CHIP = "SC8380XP"
"""The chip that ONNX Runtime's QNN pages compile for in their own example (soc_model 60)."""
_SHARING = ("ep.share_ep_contexts", "ep.stop_share_ep_contexts")
# Entries that are no entries of the session: hexport's own, and options of the provider by another way.
_NOT_ENTRIES = ("hexport.", f"ep.{PROVIDER.lower()}.")


@dataclass(frozen=True)
class Wish:
    """One session on the QNN provider, as it was asked for."""

    backend: str
    provider: Mapping[str, str]
    """Options of the provider, checked."""
    session: Mapping[str, str]
    """Entries of the session, checked."""
    chip: Soc
    chip_given: bool

    @property
    def no_cpu(self) -> bool:
        return self.session.get("session.disable_cpu_ep_fallback") == "1"

    @property
    def recorded_only(self) -> bool:
        backend = facts.find_backend(self.backend)
        return (backend is not None and not backend.computes) or "qnn_saver_path" in self.provider

    @property
    def session_entries(self) -> dict[str, str]:
        """For the session in this process, which loads what is compiled already."""
        return {
            key: value
            for key, value in self.session.items()
            if not key.startswith(_NOT_ENTRIES) and _told_to_context(key)
        }

    @property
    def context_provider(self) -> dict[str, str]:
        """The provider's options for a session from a compiled context."""
        return {key: value for key, value in self.provider.items() if _told_to_context(key)}

    @property
    def sharing(self) -> dict[str, str]:
        """The entries by which sessions share a context."""
        return {key: value for key, value in self.session.items() if key in _SHARING}

    @property
    def compiler_options(self) -> dict[str, str]:
        """For the compiler, which is told the chip by other means."""
        chosen = {key: value for key, value in self.provider.items() if _told_to_compiler(key)}
        # A session that may not use the CPU quantises its inputs on the NPU: onnxruntime does the same.
        return {**chosen, "offload_graph_io_quantization": "0"} if self.no_cpu else chosen


def qnn_options(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> dict[str, str] | None:
    """The QNN provider's options, or None when it is not among ``providers``."""
    entries = [(one, {}) if isinstance(one, str) else (one[0], dict(one[1])) for one in providers or ()]
    names = [name for name, _ in entries]
    if PROVIDER not in names:
        return None
    if others := [name for name in names if name not in (PROVIDER, CPU)]:
        raise UsageError(
            f"{PROVIDER} together with {', '.join(others)} is not offered here",
            why="what QNN leaves over is the CPU's",
            next="leave the other provider out",
        )
    if provider_options is not None:
        if len(provider_options) != len(entries):
            raise UsageError(
                "providers and provider_options differ in length", next="give one dict for each provider"
            )
        entries = [
            (name, {**own, **given}) for (name, own), given in zip(entries, provider_options, strict=True)
        ]
    return dict(entries)[PROVIDER]


def understand(provider: Mapping[str, str], session: Mapping[str, str]) -> Wish:
    """The wish, or an error that says what in it would not do as asked."""
    # The real package takes numbers, too.
    provider = {str(key): str(value) for key, value in provider.items()}
    provider, session = _renewed(provider, dict(session))
    backend = provider.get("backend_type", "htp")
    if "backend_path" in provider and "backend_type" not in provider:
        backend = backend_of(provider.pop("backend_path"), "backend_path")
    for other in facts.backends():
        if given := provider.get(other.option):
            backend_of(given, other.option)
            provider[other.option] = str(library_file(other.name) or given)
    chip, chip_given = _chip(provider)
    if backend == "htp" and not chip_given:
        provider["soc_model"] = str(chip.soc_model)
    # QNN's own CPU backend is not in every package, which is for the session to say and not a bad option.
    checked = {**provider, **({"backend_type": backend} if backend != "cpu" else {})}
    if backend == "cpu":
        checked.pop("backend_type", None)
    entries = {key: value for key, value in session.items() if key != PREPARE}
    accepted = dict(validate_options(checked, entries))
    _warn_of_unread({**session, **accepted})
    return Wish(backend, {**_absolute(accepted), "backend_type": backend}, session, chip, chip_given)


def warn_of_chip(wish: Wish) -> None:
    """Said when something is compiled and nobody named a chip."""
    if not wish.chip_given:
        name = wish.chip.names[0] if wish.chip.names else wish.chip.chip
        warn(
            f"no soc_model was given: the model is compiled for {name} ({wish.chip.chip}, soc_model "
            f"{wish.chip.soc_model}), float in fp16. Without a chip the simulator would compute in fp32, "
            "which no NPU does, or fail. Give soc_model in provider_options to choose"
        )


def _warn_of_unread(given: Mapping[str, str]) -> None:
    """Said of options that would have an effect elsewhere; their defaults are none."""
    defaults = {option.key: option.default for option in facts.options()}
    for key, value in given.items():
        use = facts.use_of(key)
        if use is not None and use.instead and value != defaults[key]:
            warn(f"{key} has no effect here: {use.instead}")


def _told_to_compiler(key: str) -> bool:
    use = facts.use_of(key)
    return use is None or use.compiler


def _told_to_context(key: str) -> bool:
    use = facts.use_of(key)
    return use is None or use.context


def _renewed(provider: dict[str, str], session: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the first releases, under the names they have now."""
    for option in facts.options():
        if option.replaced_by and option.kind == "provider" and option.key in provider:
            value = provider.pop(option.key)
            session.setdefault(option.replaced_by, value)
            warn(f"{option.key} is no longer read; it is taken as the session entry {option.replaced_by}")
    return provider, session


def _chip(provider: Mapping[str, str]) -> tuple[Soc, bool]:
    named = provider.get("soc_model", "0")
    if named == "0":
        arch = provider.get("htp_arch", "0")
        same = [chip for chip in facts.targets() if str(chip.htp_arch) == arch and chip.float]
        default = facts.find_target(DEFAULT_CHIP)
        return (default if default in same or not same else same[0]), False
    if "," in named:
        raise UsageError(
            "soc_model names several chips, and a session runs for one",
            next="`hexport compile --multi-soc` makes one binary for several chips",
        )
    return facts.find_target(named), True


def _absolute(provider: Mapping[str, str]) -> dict[str, str]:
    """Paths are meant from the caller's folder; the compiler works in another."""
    paths = {option.key for option in facts.options() if option.type == "path"}
    return {key: str(Path(value).absolute()) if key in paths else value for key, value in provider.items()}
