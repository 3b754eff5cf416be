"""Adapter files as strangers may hand them in: read within limits, refused in one sentence, shown as plain text."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from custom_nodes.comfyui_flash_grpo.logic.adapter_file import MAX_HEADER, read_header
from custom_nodes.comfyui_flash_grpo.logic.facts import describe, read_facts
from custom_nodes.comfyui_flash_grpo.logic.problem import Problem, plain
from tests.custom_nodes.adapters import write, write_raw

ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
GAINS = {"subject_size": {"before": 0.5, "after": 0.75}, "sharpness": {"before": 3.0, "after": 2.5}}


def test_a_header_tells_shapes_and_metadata(tmp_path: Path) -> None:
    file = write(tmp_path / "a.safetensors", {"x": torch.zeros(2, 3), "y": torch.zeros(4)}, {"about": "this"})
    header = read_header(file)
    assert header.shapes == {"x": (2, 3), "y": (4,)}
    assert header.metadata == {"about": "this"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no whole safetensors file"),
        (b"PK\x03\x04 a zip, or a torch checkpoint with a pickle", "header would take"),
        (struct.pack("<Q", MAX_HEADER + 1) + b"{}", "header would take"),
        (struct.pack("<Q", 90) + b'{"x": ', "no whole safetensors file"),
        (struct.pack("<Q", 4) + b"null", "header cannot be read"),
        (struct.pack("<Q", 2) + b"[]", "header cannot be read"),
        (struct.pack("<Q", 6) + b"[" * 6, "header cannot be read"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.safetensors"
    file.write_bytes(content)
    with pytest.raises(Problem, match=sentence) as caught:
        read_header(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"shape": [-2, -3]}, {"dtype": "F33"}, {"data_offsets": [0, 9]}, {"shape": "x"}])
def test_a_header_that_lies_about_a_tensor_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    file = write_raw(tmp_path / "a.safetensors", {"x": {**ENTRY, **change}}, bytes(24))
    with pytest.raises(Problem, match="header cannot be read"):
        read_header(file)


def test_a_file_that_is_cut_off_says_so(tmp_path: Path) -> None:
    file = write_raw(tmp_path / "a.safetensors", {"x": ENTRY}, bytes(24))
    read_header(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Problem, match="cut off or damaged: it has .* download it again"):
        read_header(file)


def test_a_file_that_is_gone_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="gone.safetensors .*deleted or moved since the list was made: press R"):
        read_header(tmp_path / "gone.safetensors")


def test_huge_metadata_is_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "a.safetensors", {"x": torch.zeros(1)}, {"big": "x" * 10_000_000, "small": "1"})
    assert read_header(file).metadata == {"small": "1"}


def test_metadata_is_shown_as_text_whatever_it_holds() -> None:
    evil = '<img src=x onerror="alert(1)">\n\x1b[31m\u202e'
    facts = read_facts(evil, {"flash_grpo.run": evil, "flash_grpo.update": "20", "flash_grpo.base_model": "x" * 5000})
    (line,) = describe(facts)
    # Markup stays as it was written, for a page that shows text; what steers a terminal or a line does not.
    assert line.startswith('<img src=x onerror="alert(1)">') and len(facts.base) == 300
    assert not set(line) & set("\n\x1b\u202e")
    assert plain("a\tb\r\n c") == "a b c"


def test_the_facts_of_our_exports_are_read() -> None:
    said = {"run": "first", "update": "20", "expert": "none", "format_version": "1", "base_model": "pocket"}
    said |= {"rewards": '{"subject_size": 1.0, "sharpness": 0}', "gains": json.dumps(GAINS)}
    facts = read_facts("first.safetensors", {f"flash_grpo.{key}": value for key, value in said.items()})
    assert (facts.run, facts.update, facts.optimised) == ("first", 20, ["subject_size"])
    assert describe(facts) == [
        "first.safetensors: run first, update 20",
        "subject_size (optimised): 0.500 → 0.750 (+0.250, held-out prompts)",
        "sharpness (watched): 3.000 → 2.500 (-0.500, held-out prompts)",
    ]
    newer = read_facts("x", {"flash_grpo.format_version": "2"})
    assert "update this node pack" in describe(newer)[-1]


@pytest.mark.parametrize(
    "value", ["", "{", "[1]", '{"a": 1}', '{"a": {"before": "x"}}', '{"a": NaN}', "[" * 9000, "null"]
)
def test_malformed_facts_count_as_not_said(value: str) -> None:
    keys = ("update", "rewards", "reward_options", "gains", "base_sketch", "judged_at", "format_version")
    facts = read_facts("x", {f"flash_grpo.{key}": value for key in keys})
    assert facts.update is None and not facts.gains and not facts.sketch
    describe(facts)
