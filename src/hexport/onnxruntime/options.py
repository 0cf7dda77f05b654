"""``SessionOptions`` and ``RunOptions`` that remember what they were told.

The real ones cannot be asked for all of their entries nor be copied, and a session on the NPU needs both:
its entries are checked, and what it is made with differs from what the caller set.
"""

from __future__ import annotations

from typing import Any

from hexport.backend.options import validate_options
from hexport.backend.sessions import import_onnxruntime
from hexport.facts import options as known_options

_ort = import_onnxruntime()
_REPLAYED = (
    "add_external_initializers",
    "add_external_initializers_from_files_in_memory",
    "add_free_dimension_override_by_denotation",
    "add_initializer",
    "register_custom_ops_library",
    "set_load_cancellation_flag",
)


class SessionOptions(_ort.SessionOptions):  # type: ignore[misc, name-defined]  # onnxruntime has no types
    """The real options; entries and sizes that were added can be read back."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, str] = {}
        self.dims: dict[str, int] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        """As the real one; the last value of a key counts."""
        super().add_session_config_entry(key, value)
        self.entries[key] = value

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """As the real one: a dynamic dim of this name has this size."""
        super().add_free_dimension_override_by_name(name, size)
        self.dims[name] = size

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _REPLAYED:
            return found

        def noted(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            return found(*arguments)

        return noted


class RunOptions(_ort.RunOptions):  # type: ignore[misc, name-defined]  # onnxruntime has no types
    """The real options; an entry that QNN would ignore or misread is refused."""

    def add_run_config_entry(self, key: str, value: str) -> None:
        """As the real one, checked first."""
        validate_options({}, run={key: value})
        super().add_run_config_entry(key, value)


def entries_of(options: Any) -> dict[str, str]:
    """The session's entries; of the real package's own options those that hexport knows the names of."""
    if isinstance(options, SessionOptions):
        return dict(options.entries)
    found = {}
    for key in (option.key for option in known_options() if option.kind == "session"):
        try:
            found[key] = options.get_session_config_entry(key)
        except RuntimeError:
            continue  # it was not set
    return found


def dims_of(options: Any) -> dict[str, int]:
    """Sizes of dynamic dims, by name."""
    return dict(options.dims) if isinstance(options, SessionOptions) else {}


def copy_of(options: Any, entries: dict[str, str]) -> Any:
    """New options of the real package: the same but for the entries, which are these."""
    copy = _ort.SessionOptions()
    for name, kind in vars(_ort.SessionOptions).items():
        if isinstance(kind, property) and kind.fset is not None:
            setattr(copy, name, getattr(options, name))
    if isinstance(options, SessionOptions):
        for name, arguments in options.calls:
            getattr(copy, name)(*arguments)
    for key, value in entries.items():
        copy.add_session_config_entry(key, value)
    return copy
