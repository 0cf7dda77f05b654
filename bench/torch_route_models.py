"""The models of ``torch_routes.py``: each a factory which drives both routes.

    hexport build bench/torch_route_models.py:mobilenet -o PKG --target SM8650 --scheme 16a8w
    hexport build bench/torch_route_models.py:mobilenet -o M.pte --format pte --target SM8650 --scheme 16a8w

minilm and efficientnet_lite0 have their published weights and the zoo's real inputs. The others are trained
for some seconds on made-up tasks (torch_route_training.py), with a fixed seed. Calibration samples come with
the model; ``test_inputs`` are others of the same kind, which neither route sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import torch_route_checkpoints as checkpoints
from hexport import zoo
from torch_route_training import BANDS, DIRECTIONS, TONES, Task, images, sequences, trained

CALIBRATION = 16
SIDE, MOBILE_SIDE, STEPS = 32, 48, 24
_CALIB_SEED, _TEST_SEED = 2, 3
Sample = Mapping[str, Tensor]
Made = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


class Residual(nn.Module):
    """ResNet's block."""

    def __init__(self, width: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        changes = stride > 1 or width != out
        self.short = (
            nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if changes
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.short(x))


class Cnn(nn.Module):
    """A small ResNet: convolutions, BatchNorm, ReLU, max and mean pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 5, 1, 2, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.blocks = nn.Sequential(Residual(24, 24), Residual(24, 48, 2), Residual(48, 96, 2))
        self.head = nn.Linear(96, DIRECTIONS)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(image)).mean((2, 3)))


class Inverted(nn.Module):
    """MobileNetV2's block: wider, depthwise, narrow again without an activation."""

    def __init__(self, width: int, out: int, stride: int, wider: int = 4) -> None:
        super().__init__()
        inner = width * wider
        self.adds = stride == 1 and width == out
        self.layers = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNet(nn.Module):
    """MobileNetV2's kind, six blocks deep."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        shapes = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 64, 1))
        self.blocks = nn.Sequential(*(Inverted(*shape) for shape in shapes))
        self.last = nn.Sequential(nn.Conv2d(64, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU6())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, DIRECTIONS))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.stem(image))))


class Encoder(nn.Module):
    """PyTorch's own transformer layers: two, GELU, causal, with positions that are learnt."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.project = nn.Linear(BANDS, width)
        self.positions = nn.Parameter(0.1 * torch.randn(1, STEPS, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(STEPS))
        self.head = nn.Linear(width, TONES)

    def forward(self, frames: Tensor) -> Tensor:
        x = self.project(frames) + self.positions
        # Without is_causal the layers look into the mask, which no graph can.
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


class Lstm(nn.Module):
    """Two LSTM layers over frames."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.lstm = nn.LSTM(BANDS, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, TONES)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.lstm(frames)[0])


class Gru(nn.Module):
    """A convolution over time, then a GRU."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.front = nn.Conv1d(BANDS, 48, 3, padding=1)
        self.gru = nn.GRU(48, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, TONES)

    def forward(self, frames: Tensor) -> Tensor:
        heard = torch.relu(self.front(frames.transpose(1, 2))).transpose(1, 2)
        return self.head(self.norm(self.gru(heard)[0]))


def cnn() -> Made:
    """About 0.2 million weights, 32 by 32 pixels."""
    return _trained("cnn", Cnn, 200)


def mobilenet() -> Made:
    """Depthwise convolutions, ReLU6 and inverted residuals, 48 by 48 pixels."""
    return _trained("mobilenet", MobileNet, 200)


def encoder() -> Made:
    """nn.TransformerEncoderLayer, 24 steps."""
    return _trained("encoder", Encoder, 400)


def lstm() -> Made:
    """nn.LSTM, 24 steps."""
    return _trained("lstm", Lstm, 300)


def gru() -> Made:
    """nn.GRU, 24 steps."""
    return _trained("gru", Gru, 300)


def minilm() -> Made:
    """all-MiniLM-L6-v2 on sentences of up to 64 tokens."""
    outputs = ["last_hidden_state", "sentence_embedding"]
    return _published("minilm", checkpoints.minilm(), outputs)


def efficientnet_lite0() -> Made:
    """EfficientNet-Lite0 on photographs of 224 by 224 pixels."""
    return _published("efficientnet-lite0", checkpoints.efficientnet_lite0(), ["logits"])


MODELS: dict[str, Callable[[], Made]] = {
    "cnn": cnn,
    "mobilenet": mobilenet,
    "encoder": encoder,
    "lstm": lstm,
    "gru": gru,
    "minilm": minilm,
    "efficientnet_lite0": efficientnet_lite0,
}
_TASKS: dict[str, tuple[str, Task]] = {
    "cnn": ("image", images(SIDE)),
    "mobilenet": ("image", images(MOBILE_SIDE)),
    "encoder": ("frames", sequences(STEPS)),
    "lstm": ("frames", sequences(STEPS)),
    "gru": ("frames", sequences(STEPS)),
}
_ZOO = {"minilm": "minilm", "efficientnet_lite0": "efficientnet-lite0"}


def test_inputs(name: str, count: int) -> list[Sample]:
    """Inputs that gave no range."""
    return _from_zoo(_ZOO[name], count, "test") if name in _ZOO else _drawn(name, count, _TEST_SEED)


def _trained(name: str, make: Callable[[], nn.Module], steps: int) -> Made:
    torch.manual_seed(0)
    module = trained(name, make(), _TASKS[name][1], steps)
    return _described(module, _drawn(name, CALIBRATION, _CALIB_SEED), ["scores"])


def _published(name: str, module: nn.Module, outputs: list[str]) -> Made:
    return _described(module, _from_zoo(name, CALIBRATION, "calib"), outputs)


def _described(module: nn.Module, samples: list[Sample], outputs: list[str]) -> Made:
    return module, tuple(samples[0].values()), {"calibration": samples, "output_names": outputs}


def _drawn(name: str, count: int, seed: int) -> list[Sample]:
    key, task = _TASKS[name]
    inputs, _ = task(count, torch.Generator().manual_seed(seed))
    return [{key: one[None]} for one in inputs]


def _from_zoo(name: str, count: int, split: str) -> list[Sample]:
    found = zoo.inputs(name, count=count, split=split)
    return [{key: torch.from_numpy(array) for key, array in sample.items()} for sample in found]
