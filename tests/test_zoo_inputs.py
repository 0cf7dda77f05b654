"""Real inputs, and every model run on the CPU with them.

It uses the user's own cache, so that all models cost a download once.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from hexport import zoo
from hexport.errors import UsageError
from hexport.zoo import catalogue, fetch
from hexport.zoo.files import features
from hexport.zoo.sentences import wordpieces

SMALL = "swift-f0"


def session(name: str) -> ort.InferenceSession:
    return ort.InferenceSession(str(zoo.get(name)), providers=["CPUExecutionProvider"])


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
