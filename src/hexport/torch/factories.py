"""``MODULE:FACTORY``: the user's own code gives the model. What goes wrong in it is said with its line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hexport.errors import HexportError
from hexport.torch.description import FORM, TorchModel, checked, describe
from hexport.torch.failures import FactoryFailed
from hexport.torch.installed import is_module, need_torch
from hexport.torch.naming import split_factory
from hexport.torch.quiet import users_turn
from hexport.torch.user_code import place_of_error

_FEWEST, _MOST = 2, 3


def from_factory(text: str) -> TorchModel:
    """The model that ``MODULE:FACTORY`` or ``file.py:FACTORY`` gives."""
    parts = split_factory(text)
    assert parts is not None
    need_torch(text)
    with users_turn():
        found = _find(*parts)
        if isinstance(found, TorchModel):
            return _named(checked(found), text)
        if not callable(found) or is_module(found):
            raise FactoryFailed(
                f"{text} is a {type(found).__name__}, and nothing that can be called", next=FORM
            )
        made = _call(text, found)
    return _described(made, text)


def _find(source: str, factory: str) -> object:
    try:
        found: object = _from_file(Path(source)) if source.lower().endswith(".py") else _imported(source)
    except HexportError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(f"{source} cannot be imported", error, source) from error
    for attribute in factory.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            raise FactoryFailed(
                f"{source} has no {factory!r}",
                why=f"it has: {', '.join(_callables(found)) or 'nothing that can be called'}",
                next=f"name one of them: {source}:NAME",
            ) from error
    return found


def _imported(name: str) -> ModuleType:
    """The module; those in the current folder are found, after the installed ones."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    """A file as a module; its neighbours can be imported, as when it is run as a script."""
    if not path.is_file():
        raise FactoryFailed(f"{path} does not exist", next="check the path")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    # Not its bare name: a user's queue.py would stand in for Python's.
    name = f"_hexport_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Classes look themselves up there, dataclasses and torch among others.
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def _call(text: str, factory: Any) -> object:
    try:
        return factory()
    except HexportError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(f"{text} failed", error) from error


def _described(made: object, text: str) -> TorchModel:
    if isinstance(made, TorchModel):
        return _named(checked(made), text)
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    if not _FEWEST <= len(parts) <= _MOST and not (len(parts) == 1 and _is_program(parts[0])):
        what = "a module without example inputs" if is_module(made) else f"a {type(made).__name__}"
        raise FactoryFailed(f"{text} gave {what}", next=FORM)
    extras = parts[2] if len(parts) == _MOST else {}
    if not isinstance(extras, Mapping):
        raise FactoryFailed(f"{text} gave a {type(extras).__name__} as its third part", next=FORM)
    return describe(parts[0], parts[1] if len(parts) > 1 else None, extras, text)


def _is_program(thing: object) -> bool:
    from torch.export import ExportedProgram

    return isinstance(thing, ExportedProgram)


def _named(model: TorchModel, text: str) -> TorchModel:
    """Called as the user called it."""
    return replace(model, name=text)


def _callables(found: object) -> list[str]:
    module = getattr(found, "__name__", None)
    own = (n for n, v in vars(found).items() if callable(v) and getattr(v, "__module__", None) == module)
    return [name for name in own if not name.startswith("_")][:8]


def _failed(what: str, error: BaseException, module: str = "") -> FactoryFailed:
    place = str(place_of_error(error))
    if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
        return FactoryFailed(
            what,
            why=f"there is no module {error.name}, neither installed nor in {Path.cwd()}",
            next="go to the folder that it is in, or name its file: path/to/file.py:FACTORY",
        )
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return FactoryFailed(
        what, why=f"{reason}\n{place}" if place else reason, next="mend it; python runs it by itself, too"
    )
