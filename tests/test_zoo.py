"""The zoo's catalogue, its document and its command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hexport import zoo
from hexport.cli.zoo import command
from hexport.errors import UsageError
from hexport.zoo import catalogue

SMALL = "swift-f0"


def test_twenty_models_with_their_licences() -> None:
    entries = [zoo.entry(name) for name in zoo.names()]
    assert len(entries) == 20
    assert all(e.licence and e.about for e in entries)
    assert {e.name for e in entries if e.exported} == {"minilm", "efficientnet-lite0"}


def test_the_document_tells_of_every_model() -> None:
    text = (Path(__file__).parents[1] / "docs" / "zoo.md").read_text(encoding="utf-8")
    for name in zoo.names():
        entry = zoo.entry(name)
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"{entry.source.wheel.package} {entry.source.wheel.version}" in row
        assert entry.licence in row


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(zoo.UnknownZooModel) as caught:
        zoo.entry("pocrv4-det")
    assert caught.value.code == "HX201"
    assert "ppocrv4-det" in caught.value.why


def test_dims_by_name_only_where_a_name_means_one_size() -> None:
    assert zoo.entry("ppocrv4-rec").dims["?"] == 48
    assert zoo.entry("ppocrv2-cls").dims == {}  # ? is 48 and 192, the batch is −1
    assert zoo.entry("ppocrv2-cls").input_shapes == {"x": (1, 3, 48, 192)}
    assert zoo.entry("minilm").dims == {"batch": 1, "sequence": 64}


def test_calib_and_test_share_no_file() -> None:
    for group in ("photos", "pages", "files"):
        calib, test = (
            {m.sha256 for m in catalogue.assets(f"{group}-{split}")} for split in ("calib", "test")
        )
        assert calib
        assert test
        assert not calib & test


def test_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    listed = json.loads(runner.invoke(command, ["list", "--json"]).stdout)
    assert [m["name"] for m in listed["models"]] == zoo.names()
    assert SMALL in runner.invoke(command, ["list"]).stdout

    got = json.loads(runner.invoke(command, ["get", SMALL, "--json"]).stdout)
    assert got["models"][0]["path"] == str(zoo.get(SMALL))
    assert runner.invoke(command, ["get", SMALL]).stdout.strip() == str(zoo.get(SMALL))
    assert isinstance(runner.invoke(command, ["get"]).exception, UsageError)

    target = tmp_path / "inputs.npz"
    done = runner.invoke(command, ["inputs", SMALL, "-o", str(target), "--count", "3", "--split", "test"])
    assert done.exit_code == 0, done.output
    with np.load(target) as arrays:
        assert {k: arrays[k].shape for k in arrays.files} == {
            "audio": (3, 1, 16000),
            "fmin": (3,),
            "fmax": (3,),
        }
        expected = zoo.inputs(SMALL, count=3, split="test")[2]["audio"]
        assert np.array_equal(arrays["audio"][2], expected)
    assert [p.name for p in tmp_path.iterdir()] == ["inputs.npz"]
    missing = runner.invoke(command, ["inputs", SMALL, "-o", str(tmp_path / "no" / "x.npz")])
    assert isinstance(missing.exception, UsageError)
