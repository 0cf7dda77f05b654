"""Folders of pictures: the declared preprocessing is done exactly, and nothing is guessed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibration_inputs import Array, Forms, open_for
from hexport.errors import BadSamples, HexportError, MissingDependency, UsageError
from hexport.quantization.data import Preprocess
from hexport.quantization.data.preprocessing import EXAMPLE, read_preprocess

NCHW: Forms = {"image": ("float32", (1, 3, 6, 8))}
PLAIN: dict[str, Any] = {
    "resize": "stretch",
    "layout": "NCHW",
    "colour": "rgb",
    "scale": 1,
    "mean": 0.0,
    "std": 1.0,
    "dtype": "float32",
}


def declared(**changes: object) -> Preprocess:
    return Preprocess(**{**PLAIN, **changes})


def pixels(height: int, width: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def save(path: Path, array: Array) -> Array:
    Image.fromarray(array).save(path)
    return array


def only(forms: Forms, folder: Path, preprocess: Preprocess | Path | None = None) -> Array:
    """The one picture in a folder, as the model gets it."""
    (sample,) = open_for(forms, folder, preprocess=preprocess)
    (array,) = sample.values()
    return array


@pytest.mark.parametrize("suffix", ["png", "BMP", "webp"])
def test_pixels_are_scaled_and_normalised(tmp_path: Path, suffix: str) -> None:
    picture = pixels(6, 8)
    Image.fromarray(picture).save(tmp_path / f"a.{suffix}", lossless=True)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    rgb = only(NCHW, tmp_path, declared(scale="1/255", mean=mean, std=std))
    unit = picture.astype(np.float32) / 255
    wanted = (unit - np.array(mean, np.float32)) / np.array(std, np.float32)
    np.testing.assert_array_equal(rgb, wanted.transpose(2, 0, 1)[None], strict=True)
    # mean and std go with the channels as the model takes them, here blue first.
    bgr = only(
        {"image": ("float32", (1, 6, 8, 3))},
        tmp_path,
        declared(scale=1 / 255, mean=mean, std=std, colour="bgr", layout="NHWC"),
    )
    np.testing.assert_allclose(
        bgr[0], (unit[:, :, ::-1] - np.array(mean, np.float32)) / np.array(std, np.float32), rtol=1e-5
    )


def test_gray_and_layouts_without_a_batch(tmp_path: Path) -> None:
    gray = save(tmp_path / "a.png", pixels(6, 8)[:, :, 0])
    for layout, shape in (
        ("NCHW", (1, 1, 6, 8)),
        ("NHWC", (1, 6, 8, 1)),
        ("CHW", (1, 6, 8)),
        ("HWC", (6, 8, 1)),
    ):
        found = only({"x": ("float32", shape)}, tmp_path, declared(colour="gray", layout=layout))
        np.testing.assert_array_equal(found, gray.astype(np.float32).reshape(shape), strict=True)


@pytest.mark.parametrize(
    ("dtype", "mean"), [("uint8", 0.0), ("int8", 128.0), ("float16", 0.0), ("float64", 0.5)]
)
def test_other_element_types(tmp_path: Path, dtype: str, mean: float) -> None:
    picture = save(tmp_path / "a.png", pixels(6, 8))
    found = only({"image": (dtype, (1, 3, 6, 8))}, tmp_path, declared(dtype=dtype, mean=mean))
    wanted = (picture.astype(np.float64) - mean).transpose(2, 0, 1)[None].astype(dtype)
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_whole_numbers_are_not_rounded(tmp_path: Path) -> None:
    save(tmp_path / "a.png", pixels(6, 8))
    with pytest.raises(
        BadSamples, match=r"a\.png, sample 0, input 'image' (.|\n)*not all of which uint8 holds"
    ):
        only({"image": ("uint8", (1, 3, 6, 8))}, tmp_path, declared(dtype="uint8", scale="1/255"))


def halves() -> Array:
    """Twice as wide as the input: a dark left half, a light right half."""
    picture = np.zeros((6, 16, 3), np.uint8)
    picture[:, :8], picture[:, 8:] = 10, 200
    return picture


def test_stretch_keeps_all_of_the_picture(tmp_path: Path) -> None:
    save(tmp_path / "a.png", halves())
    found = only(NCHW, tmp_path, declared(filter="nearest"))
    np.testing.assert_array_equal(found[0, 0, 0], [10] * 4 + [200] * 4)


def test_crop_keeps_the_middle(tmp_path: Path) -> None:
    picture = pixels(6, 16)
    save(tmp_path / "a.png", picture)
    found = only(NCHW, tmp_path, declared(resize="crop"))
    np.testing.assert_array_equal(found[0], picture[:, 4:12].transpose(2, 0, 1))
    save(tmp_path / "a.png", np.repeat(np.repeat(pixels(12, 16), 2, 0), 2, 1))
    half = only(NCHW, tmp_path, declared(resize="crop", crop_fraction=0.5, filter="nearest"))
    np.testing.assert_array_equal(half[0], pixels(12, 16)[3:9, 4:12].transpose(2, 0, 1))


def test_fit_pad_fills_the_rest(tmp_path: Path) -> None:
    save(tmp_path / "a.png", np.full((6, 16, 3), 10, np.uint8))
    centred = only(NCHW, tmp_path, declared(resize="fit-pad", pad=114))
    np.testing.assert_array_equal(centred[0, 0, :, 0], [114, 10, 10, 10, 114, 114])
    top = only(NCHW, tmp_path, declared(resize="fit-pad", pad=0, anchor="top-left"))
    np.testing.assert_array_equal(top[0, 2, :, 7], [10, 10, 10, 0, 0, 0])
    gray = only({"x": ("float32", (1, 1, 6, 8))}, tmp_path, declared(resize="fit-pad", pad=7, colour="gray"))
    np.testing.assert_array_equal(gray[0, 0, :, 3], [7, 10, 10, 10, 7, 7])


def test_pictures_stand_as_the_camera_meant_them(tmp_path: Path) -> None:
    picture = pixels(8, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    found = only(NCHW, tmp_path, declared())
    np.testing.assert_array_equal(found[0], np.rot90(picture, -1).transpose(2, 0, 1))


def test_palettes_and_alpha_become_plain_colours(tmp_path: Path) -> None:
    picture = pixels(6, 8) // 128 * 255
    Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.png")
    np.testing.assert_array_equal(only(NCHW, tmp_path, declared())[0], picture.transpose(2, 0, 1))
    clear = np.dstack([picture, np.zeros((6, 8), np.uint8)])
    save(tmp_path / "a.png", clear)
    np.testing.assert_array_equal(only(NCHW, tmp_path, declared())[0], picture.transpose(2, 0, 1))


def test_the_declaration_lies_in_the_folder_or_is_given(tmp_path: Path) -> None:
    save(tmp_path / "b.jpg", pixels(6, 8))
    save(tmp_path / "a.png", pixels(6, 8, seed=1))
    with pytest.raises(UsageError, match=r"nothing says how they become inputs") as caught:
        open_for(NCHW, tmp_path)
    assert EXAMPLE in str(caught.value)
    (tmp_path / "preprocess.toml").write_text(EXAMPLE)
    inside = open_for(NCHW, tmp_path)
    assert len(list(inside)) == inside.count == 2
    assert inside.notes == ()
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**PLAIN, "mean": [1, 2, 3]}))
    given = open_for(NCHW, tmp_path, preprocess=other)
    assert given.notes == ("1 other file(s) or folder(s) are left out: other.json",)
    # By name, so a.png comes first; what is given goes before what lies in the folder.
    wanted = pixels(6, 8, seed=1).astype(np.float32) - np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(next(iter(given))["image"][0], wanted.transpose(2, 0, 1))
    assert given.fingerprint != inside.fingerprint
    other.rename(tmp_path / "preprocess.json")
    with pytest.raises(UsageError, match="two files say"):
        open_for(NCHW, tmp_path)


def test_the_example_is_a_declaration(tmp_path: Path) -> None:
    (tmp_path / "preprocess.toml").write_text(EXAMPLE)
    found = read_preprocess(tmp_path / "preprocess.toml")
    assert (found.resize, found.ratio, found.channels) == ("crop", (1.0, 255.0), 3)
    document = Path(__file__).parent.parent / "docs" / "calibration.md"
    assert EXAMPLE in document.read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"resize": "squash"}, "resize: 'squash' is none of"),
        ({"layout": "NWHC"}, "layout"),
        ({"colour": "hsv"}, "colour"),
        ({"filter": "magic"}, "filter"),
        ({"scale": "1/0"}, "scale: '1/0'"),
        ({"scale": "a/255"}, "scale"),
        ({"scale": 0}, "scale"),
        ({"mean": [1, 2]}, "mean: expected a number, or 3 of them"),
        ({"std": [1, 1, 0]}, "std: 0"),
        ({"std": float("nan")}, "std"),
        ({"resize": "fit-pad"}, "pad: fit-pad needs a value"),
        ({"resize": "fit-pad", "pad": 256}, "pad"),
        ({"pad": 3}, 'pad: goes with resize = "fit-pad" only'),
        ({"anchor": "centre"}, "anchor: goes with"),
        ({"crop_fraction": 0.5}, "crop_fraction: goes with"),
        ({"resize": "crop", "crop_fraction": 1.5}, "crop_fraction: 1.5"),
        ({"means": 3}, "unknown field 'means'"),
        ({"dtype": 3}, "dtype: expected str"),
    ],
)
def test_declarations_that_are_refused(changes: dict[str, object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "preprocess.json"
    path.write_text(json.dumps({**PLAIN, **changes}))
    with pytest.raises(UsageError) as caught:
        read_preprocess(path)
    assert says in caught.value.why
    assert EXAMPLE in caught.value.next


@pytest.mark.parametrize("key", PLAIN)
def test_nothing_is_assumed(key: str, tmp_path: Path) -> None:
    path = tmp_path / "preprocess.json"
    path.write_text(json.dumps({name: value for name, value in PLAIN.items() if name != key}))
    with pytest.raises(UsageError, match=f"field '{key}' is missing"):
        read_preprocess(path)


@pytest.mark.parametrize("text", [b"resize = ", b"\xff\xfe", b"[]"])
def test_files_that_declare_nothing(text: bytes, tmp_path: Path) -> None:
    for name in ("preprocess.toml", "preprocess.json"):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(UsageError, match="does not declare a preprocessing"):
            read_preprocess(tmp_path / name)
    with pytest.raises(UsageError, match="does not declare"):
        read_preprocess(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("forms", "changes", "says"),
    [
        ({"x": ("float32", (1, 6, 8, 3))}, {}, r"do not fit input 'x'"),
        ({"x": ("float32", (1, 3, 6, 8))}, {"colour": "gray"}, r"gives \[1, 1, H, W\]"),
        ({"x": ("float32", (4, 3, 6, 8))}, {}, "one picture a sample"),
        ({"x": ("float32", (3, 6, 8))}, {}, "do not fit input 'x'"),
        ({"x": ("uint8", (1, 3, 6, 8))}, {}, "input 'x' takes uint8"),
        ({**NCHW, "size": ("int64", (2,))}, {}, "the model has 2: image, size"),
    ],
)
def test_models_that_pictures_do_not_fit(
    forms: Forms, changes: dict[str, object], says: str, tmp_path: Path
) -> None:
    save(tmp_path / "a.png", pixels(6, 8))
    with pytest.raises(HexportError, match=says):
        open_for(forms, tmp_path, preprocess=declared(**changes))


def _unreadable(path: Path, case: str) -> None:
    if case == "cut":
        save(path, pixels(60, 80))
        path.write_bytes(path.read_bytes()[:2000])
    elif case == "text":
        path.write_text("not a picture")
    elif case == "deep":
        Image.fromarray(np.arange(48, dtype=np.uint16).reshape(6, 8) * 1000).save(path)
    else:
        frames = [Image.fromarray(pixels(6, 8, seed)) for seed in range(2)]
        frames[0].save(path, save_all=True, append_images=frames[1:])


@pytest.mark.parametrize(
    ("case", "says"),
    [("cut", ""), ("text", "cannot identify"), ("deep", "8 bits"), ("frames", "several frames")],
)
def test_pictures_that_cannot_be_read(case: str, says: str, tmp_path: Path) -> None:
    save(tmp_path / "a.png", pixels(6, 8))
    _unreadable(tmp_path / "b.png", case)
    with pytest.raises(BadSamples, match=rf"b\.png, sample 1, input 'image' cannot be read(.|\n)*{says}"):
        list(open_for(NCHW, tmp_path, preprocess=declared()))


def test_pictures_of_one_colour_are_refused(tmp_path: Path) -> None:
    for value in (0, 255):
        save(tmp_path / f"{value}.png", np.full((6, 8, 3), value, np.uint8))
    with pytest.raises(BadSamples, match="input 'image' is constant in every sample"):
        list(open_for(NCHW, tmp_path, preprocess=declared()))


def test_without_pillow_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", pixels(6, 8))
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "hexport.quantization.data.pixels", raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'hexport\[images\]'"):
        open_for(NCHW, tmp_path, preprocess=declared())
