"""Speech Commands: single words, spoken by thousands of people."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data_stack import IteratorMeta
from data_stack.io.archives import Archive
from data_stack_classics.folders import FoldersFactory

_RATE = 16_000


class SpeechCommandsFactory(FoldersFactory, dataset="speech-commands"):
    """Words of a second, 16,000 samples a second, in the splits of the publisher's two lists; the rest is ``train``.

    Samples are ``{"sound": array, "label": int, "speaker": str}``: int16 of shape ``(n,)``, n at most 16,000, the position in
    ``class_names``, and a code for who speaks.
    """

    spec = {"sound": "array", "label": "i64", "speaker": "utf8"}
    iterator_meta, column_kinds = (
        IteratorMeta("sound", "label", "speaker"),
        {"sound": f"audio {_RATE}"},
    )

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Noise, lists and license are not samples."""
        lists, listed = (
            {"validation_list.txt": "validation", "testing_list.txt": "test"},
            dict[str, str](),
        )
        for member in archive:  # once, since each list by its name would take a pass
            if member.name in lists:
                listed |= dict.fromkeys(
                    archive.read(member).decode("ascii").split(), lists[member.name]
                )
        return lambda name: listed.get(name, "train") if "_nohash_" in name else None

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        word, file = name.split("/")[-2:]
        with wave.open(io.BytesIO(data)) as sound:
            form = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            if form != (1, 2, _RATE):
                raise ValueError(f"channels, bytes and rate are {form}, expected (1, 2, {_RATE})")
            samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        return {
            "sound": samples,
            "label": (self.class_names or ()).index(word),
            "speaker": file.partition("_nohash_")[0],
        }
