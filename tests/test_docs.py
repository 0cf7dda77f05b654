"""The documents say what is true: commands run, tables are complete, links lead somewhere."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hexport
from hexport import HexportError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "docs").glob("*.md"),
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_commands_of_the_readme_run(line: str) -> None:
    command = line.replace("hexport", f"'{sys.executable}' -m hexport", 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("code", blocks("python"))
def test_python_of_the_readme_runs(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Clip" in done.stdout


def _errors() -> dict[str, type[HexportError]]:
    for module in pkgutil.walk_packages(hexport.__path__, "hexport."):
        if not module.name.endswith(("__main__", "windows_job", "export_torch")):
            importlib.import_module(module.name)
    found: dict[str, type[HexportError]] = {}
    waiting = [HexportError]
    while waiting:
        kind = waiting.pop()
        assert kind.code not in found, f"{kind.__name__} and {found[kind.code].__name__} share {kind.code}"
        found[kind.code] = kind
        waiting += kind.__subclasses__()
    return found


def test_every_error_is_explained() -> None:
    rows = re.findall(
        r"^\| (HX\d{3}) \| `(\w+)` \|", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE
    )
    assert dict(rows) == {code: kind.__name__ for code, kind in _errors().items()}
    assert len(rows) == len(dict(rows))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)", document.read_text("utf-8")):
        assert link.startswith("http") or (document.parent / link).exists(), link


def test_every_document_is_reachable_from_the_readme() -> None:
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(
        re.findall(r"\]\(([^)#]+)", README)
    )


def test_every_verb_is_documented() -> None:
    from hexport.cli.main import VERBS

    assert all(f"hexport {verb}" in README for verb in VERBS)
