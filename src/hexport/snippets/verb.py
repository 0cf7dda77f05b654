"""``snippet``: a working call of a package, in the language of the application."""

from __future__ import annotations

import string
from importlib import resources
from pathlib import Path

from hexport.packaging import open_package
from hexport.snippets.call import call_of
from hexport.snippets.failures import NoSnippet
from hexport.snippets.languages import LANGUAGES

__all__ = ["snippet"]


class _Template(string.Template):
    """``$`` and braces are of the languages themselves."""

    delimiter = "%%"


def snippet(package: str | Path, *, lang: str, target: str | None = None, bucket: str | None = None) -> str:
    """The source of a program that calls ``package``; the first target and bucket unless told otherwise."""
    if lang not in LANGUAGES:
        raise NoSnippet(f"there is no snippet for {lang!r}", why=f"there are: {', '.join(LANGUAGES)}")
    language = LANGUAGES[lang]
    call = call_of(open_package(package, verify=False), Path(package).as_posix(), target, bucket)
    text = resources.files("hexport.snippets").joinpath("templates", f"{lang}.txt").read_text("utf-8")
    notes = "\n".join(f"{language.comment} {_comment(note)}" for note in call.notes)
    if not notes:
        text = text.replace("%%{notes}\n", "")
    common = {"title": _comment(call.title), "notes": notes, "sdk": _comment(call.sdk)}
    return _Template(text).substitute(language.places(call), **common)


def _comment(text: str) -> str:
    """On one line, whatever names are in it; a backslash at its end would join the next one in C++."""
    return " ".join(text.split()).replace("\\", "/")
