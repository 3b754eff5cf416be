"""An MP4 file shown so that nothing tells where it comes from, and files that are not as they should be."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from fastapi import Request

from flash_grpo.video import read_mp4, write_mp4
from flash_grpo_studio.app.api.boxes import Neutral, NotNeutral, neutral
from flash_grpo_studio.app.api.neutral import content, send
from flash_grpo_studio.app.jobs.change import NotFound

FRAMES = np.random.default_rng(0).integers(0, 255, (9, 32, 48, 3)).astype(np.uint8)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A video as runs write them."""
    write_mp4(tmp_path / "clip.mp4", FRAMES, 8.0)
    return tmp_path / "clip.mp4"


def look(path: Path) -> Neutral:
    handle = os.open(path, os.O_RDONLY)
    try:
        return neutral(handle)
    finally:
        os.close(handle)


def shown(path: Path, length: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return b"".join(content(file, look(path), length, 0, length))


def labelled(clip: Path, path: Path, title: str) -> Path:
    """The same pictures as another program would write them, with a title and the encoder's name."""
    rate = Fraction(8)
    with av.open(str(path), "w", format="mp4") as container:
        container.metadata["title"] = title
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for number, image in enumerate(read_mp4(clip)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def test_the_pictures_stay_and_the_words_go(clip: Path) -> None:
    before = clip.read_bytes()
    assert b"x264" in before and b"VideoHandler" in before
    facts = look(clip)
    assert (facts.frames, facts.fps) == (9, Fraction(8))
    out = clip.with_name("out.mp4")
    out.write_bytes(shown(clip, len(before) + 5000))
    assert len(out.read_bytes()) == len(before) + 5000
    assert np.array_equal(read_mp4(out), read_mp4(clip))
    for word in (b"x264", b"Lav", b"Handler", b"mdir", b"udta", b"meta"):
        assert word not in out.read_bytes(), word


def test_what_another_program_wrote_of_itself_goes_too(clip: Path) -> None:
    other = labelled(clip, clip.with_name("other.mp4"), "aligned, update 40")
    assert b"aligned, update 40" in other.read_bytes() and b"Lavf" in other.read_bytes()
    out = clip.with_name("out.mp4")
    out.write_bytes(shown(other, other.stat().st_size + 8))
    for word in (b"aligned", b"x264", b"Lav", b"isommp4", b"btrt"):
        assert word not in out.read_bytes(), word
    assert np.array_equal(read_mp4(out), read_mp4(other))


def test_times_are_nought(clip: Path) -> None:
    data = bytearray(clip.read_bytes())
    for kind in (b"mvhd", b"tkhd", b"mdhd"):
        place = data.index(kind) + 8
        data[place : place + 8] = struct.pack(">II", 3_900_000_000, 3_900_000_001)
    clip.write_bytes(data)
    out = shown(clip, len(data) + 8)
    for kind in (b"mvhd", b"tkhd", b"mdhd"):
        place = out.index(kind) + 8
        assert out[place : place + 8] == bytes(8), kind


def test_a_part_is_a_part_of_the_whole(clip: Path) -> None:
    length = clip.stat().st_size + 300_000
    whole = shown(clip, length)
    choose = random.Random(0)
    for _ in range(40):
        start = choose.randrange(length)
        end = choose.randrange(start, length) + 1
        with clip.open("rb", buffering=0) as file:
            assert b"".join(content(file, look(clip), length, start, end)) == whole[start:end]


def edited(change: Callable[[bytearray], bytes | bytearray | None]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        data = bytearray(content)
        return bytes(change(data) or data)

    return apply


def put(name: bytes, offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Other bytes at an offset after a box's name."""

    def change(data: bytearray) -> None:
        place = data.index(name) + 4 + offset
        data[place : place + len(value)] = value

    return edited(change)


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "no index"),
    "cut off in the frames": (lambda data: data[:-1], "cut off"),
    "cut off in the index": (lambda data: data[:200], "cut off"),
    "a few bytes more": (lambda data: data + b"abc", "cut off"),
    "no video at all": (lambda data: b"<html>" * 50, "cut off"),
    "fragments": (lambda data: data + struct.pack(">I4s", 8, b"moof"), "'moof'"),
    "two indices": (
        lambda data: data[:32] + data[32:] + data[32 : 32 + struct.unpack_from(">I", data, 32)[0]],
        "'moov'",
    ),
    "a box without end": (put(b"moov", -8, bytes(4)), "claims a size"),
    "a box in the index without end": (put(b"trak", -8, struct.pack(">I", 2**31)), "claims a size"),
    "a box smaller than its head": (put(b"stbl", -8, struct.pack(">I", 4)), "claims a size"),
    "no frames": (put(b"stsz", 8, bytes(4)), "0 frames"),
    "a billion frames": (put(b"stsz", 4, struct.pack(">II", 1, 10**9)), "frames"),
    "a table larger than its box": (put(b"stts", 4, struct.pack(">I", 19_000)), "more rows"),
    "a rate that changes": (put(b"stts", 8, struct.pack(">I", 8)), "constant rate"),
    "no clock": (put(b"mdhd", 12, bytes(4)), "constant rate"),
    "frames outside the file": (put(b"stco", 8, struct.pack(">I", 2**31)), "outside its media"),
    "frames inside the index": (put(b"stco", 8, struct.pack(">I", 40)), "outside its media"),
    "another codec": (put(b"stsd", 12, b"hvc1"), "not H.264"),
    "sound": (put(b"hdlr", 8, b"soun"), "no video"),
    "a frame that is no frame": (put(b"mdat", 0, b"\xff\xff\xff\xff"), "not made as H.264"),
    "a hidden tail in the media": (
        edited(
            lambda data: (
                data[: data.index(b"mdat") - 4]
                + struct.pack(">I", len(data) - data.index(b"mdat") + 8)
                + data[data.index(b"mdat") :]
                + b"tail"
            )
        ),
        "more than its frames",
    ),
    "a huge note": (lambda data: data + struct.pack(">I4s", 2**21, b"free") + bytes(2**21 - 8), "too much"),
    "a thousand boxes": (lambda data: data + struct.pack(">I4s", 8, b"free") * 1000, "too many"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_as_a_run_writes_it_is_refused_with_a_sentence(clip: Path, name: str) -> None:
    change, sentence = HOSTILE[name]
    clip.write_bytes(change(clip.read_bytes()))
    with pytest.raises(NotNeutral, match=sentence):
        look(clip)


def test_no_change_of_a_file_does_harm(clip: Path) -> None:
    """Whatever bytes are other, there is an answer or a sentence, and soon."""
    original, choose, refused = clip.read_bytes(), random.Random(0), 0
    index = original.index(b"mdat")
    for _ in range(800):
        data = bytearray(original)
        for _ in range(choose.choice((1, 1, 2, 8))):
            place = choose.randrange(index)
            data[place] = choose.choice((0, 1, 8, 127, 255, data[place] ^ 1 << choose.randrange(8)))
        clip.write_bytes(data[: choose.randrange(len(data))] if choose.random() < 0.1 else data)
        try:
            facts = look(clip)
        except NotNeutral:
            refused += 1
        else:
            assert sum(len(patch) for _, patch in facts.patches) < len(original)
    assert 80 < refused < 780


def test_a_file_that_was_written_anew_is_not_sent_by_what_was_known_of_the_old_one(clip: Path) -> None:
    request = Request({"type": "http", "headers": []})
    known = look(clip)
    assert send(request, clip, known, known.size + 1024).status_code == 200
    write_mp4(clip, FRAMES[::-1], 8.0)
    with pytest.raises(NotFound, match="anew"):
        send(request, clip, known, known.size + 1024)
