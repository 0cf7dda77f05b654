"""Inputs that are another run's outputs: states of a stream, and features from a front end.

A voice detector is called with the state that its last call left. Zeros for it would calibrate a
state that is only ever zero, so the stream is really run, on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.model.reference import cpu_session
from hexport.zoo.models import get
from hexport.zoo.speech import RATE, pcm, sound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hexport.zoo.samples import Feed, Request

_CHUNK, _CONTEXT = 512, 64
_MEL_MODEL = "oww-melspectrogram"


def vad_frames(ask: Request) -> list[Feed]:
    """Silero: 64 samples of context and 512 new ones, the state so far, the sample rate."""
    rate = np.array(RATE, np.int64)
    session = _session(ask.entry.name, ask)

    def stream(frames: NDArray[np.float32]) -> Iterator[Feed]:
        state = np.zeros(ask.shape(1), np.float32)
        for frame in frames:
            feed = ask.named(frame[None], state, rate)
            yield feed
            _, state = session.run(None, feed)

    return _from_streams(ask, stream)


def vad_blocks(ask: Request) -> list[Feed]:
    """Silero v6: the same, many frames a call, with the LSTM's two states."""
    block = ask.shape()[0]
    session = _session(ask.entry.name, ask)

    def stream(frames: NDArray[np.float32]) -> Iterator[Feed]:
        hidden, cell = (np.zeros(ask.shape(i), np.float32) for i in (1, 2))
        for start in range(0, len(frames) - block + 1, block):
            feed = ask.named(frames[start : start + block], hidden, cell)
            yield feed
            _, hidden, cell = session.run(None, feed)

    return _from_streams(ask, stream)


def mel_windows(ask: Request) -> list[Feed]:
    """openWakeWord's embedding: 76 frames of the mel model's output, moved as its package does."""
    from dataclasses import replace

    from hexport.zoo.catalogue import entry

    session = _session(_MEL_MODEL, ask)
    _, frames, bands, _ = ask.shape()
    feeds = []
    for feed in pcm(replace(ask, entry=entry(_MEL_MODEL))):
        mel = session.run(None, feed)[0].reshape(-1, bands) / 10 + 2
        start = int(ask.rng.integers(len(mel) - frames + 1))
        feeds.append(ask.named(mel[None, start : start + frames, :, None].astype(np.float32)))
    return feeds


def _session(name: str, ask: Request) -> Any:
    return cpu_session(get(name, say=ask.say))


def _from_streams(ask: Request, stream: Any) -> list[Feed]:
    """``ask.count`` calls out of as many streams as that takes, each begun somewhere else."""
    signal = sound(ask)
    feeds: list[Feed] = []
    while len(feeds) < ask.count:
        begin = int(ask.rng.integers(_CONTEXT, 16 * _CHUNK))
        feeds += stream(_frames(signal, begin))
    chosen = ask.rng.permutation(len(feeds))[: ask.count]
    return [feeds[i] for i in sorted(chosen)]


def _frames(signal: NDArray[np.float32], begin: int) -> NDArray[np.float32]:
    """Each chunk after ``begin`` with the samples just before it."""
    windows = np.lib.stride_tricks.sliding_window_view(signal[begin - _CONTEXT :], _CONTEXT + _CHUNK)
    return np.ascontiguousarray(windows[::_CHUNK])
