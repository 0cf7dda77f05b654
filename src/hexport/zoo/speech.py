"""Speech as waveforms and as what can be computed from them without a model."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.zoo.samples import Feed, Request

RATE = 16_000
# The recording is silent until 6.7 s; at 18.05 s one turn of speech ends and the next begins.
_SECONDS = {"calib": (6.7, 18.05), "test": (18.05, 30.0)}
FULL_SCALE = 32_768


def sound(ask: Request, rate: int = RATE) -> NDArray[np.float32]:
    """This split's stretch of the recording, −1…1, at ``rate``."""
    (path,) = ask.files("speech")
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise ValueError(f"{path} is not 16 kHz mono 16-bit")
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    start, end = (int(s * RATE) for s in _SECONDS[ask.split])
    signal = pcm[start:end].astype(np.float64) / FULL_SCALE
    return (signal if rate == RATE else _resample(signal, rate)).astype(np.float32)


def windows(ask: Request, length: int, rate: int = RATE) -> list[NDArray[np.float32]]:
    """``ask.count`` windows at random places."""
    signal = sound(ask, rate)
    starts = ask.rng.integers(0, len(signal) - length + 1, ask.count)
    return [signal[s : s + length] for s in starts]


def pcm(ask: Request) -> list[Feed]:
    """openWakeWord: floats with the values of 16-bit samples."""
    return [ask.named(np.round(w * FULL_SCALE)[None]) for w in windows(ask, ask.shape()[1])]


def waveforms(ask: Request) -> list[Feed]:
    """Whisper's front end: −1…1, and the length."""
    length = ask.shape()[1]
    return [ask.named(w[None], np.array([length], np.int64)) for w in windows(ask, length)]


def pitch(ask: Request) -> list[Feed]:
    """SwiftF0: −1…1, and the range of pitches its package searches."""
    low, high = np.array(46.875, np.float32), np.array(2093.75, np.float32)
    return [ask.named(w[None], low, high) for w in windows(ask, ask.shape()[1])]


def sound_22k(ask: Request) -> list[Feed]:
    """Basic Pitch: −1…1 at 22.05 kHz, one channel last."""
    return [ask.named(w[None, :, None]) for w in windows(ask, ask.shape()[1], 22_050)]


def log_power(ask: Request) -> list[Feed]:
    """NSNet2 at 48 kHz: log10 power of frames of 960 samples, every 512, FFT of 1,024.

    A denoiser expects noise, and the recording holds nothing over 8 kHz, so white noise is added at
    10 to 30 dB under the speech.
    """
    _, frames, _ = ask.shape()
    hann = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(960) / 960))
    feeds = []
    for window in windows(ask, 960 + (frames - 1) * 512, 48_000):
        level = np.sqrt(np.mean(window**2)) * 10 ** (-ask.rng.uniform(10, 30) / 20)
        noisy = window + level * ask.rng.standard_normal(len(window))
        framed = np.lib.stride_tricks.sliding_window_view(noisy, 960)[::512] * hann
        power = np.abs(np.fft.rfft(framed, 1024)) ** 2
        feeds.append(ask.named(np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)))
    return feeds


def _resample(signal: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """By the spectrum: exact for what the old rate can hold."""
    length = round(len(signal) * rate / RATE)
    return np.fft.irfft(np.fft.rfft(signal), length) * (length / len(signal))
