"""Passwords and tokens are taken out of what people see, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_grpo_studio.app.redaction import PIECE, redact, redacted_pieces


@pytest.mark.parametrize(
    ("text", "kept", "hidden"),
    [
        ("postgresql://ann:pa55word@host/db", "postgresql://ann:***@host/db", "pa55word"),
        ("Authorization: Bearer abcdef123456", "Authorization", "abcdef123456"),
        ("api_key='abcdef123456'", "api_key", "abcdef123456"),
        ("using hf_abcdefghijklmnop", "using hf_***", "abcdefghijklmnop"),
        ("curl -H 'bearer abc.def-ghi' x", "x", "abc.def-ghi"),
        ("fgs_abcdefghijklmnop of the studio", "fgs_*** of the studio", "abcdefghijklmnop"),
        ('{"password": "pa55word", "seed": 3}', '"seed": 3}', "pa55word"),
        ("update 12/80: reward 0.5, 3 min left", "update 12/80: reward 0.5, 3 min left", "\0"),
    ],
)
def test_secrets_are_taken_out_and_nothing_else(text: str, kept: str, hidden: str) -> None:
    assert kept in redact(text) and hidden not in redact(text)


def test_a_long_file_loses_its_secrets_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    lines = [f"line {number} " + "x" * 80 + " token=abcdef123456" for number in range(3 * PIECE // 100)]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = b"".join(redacted_pieces(path)).decode()
    assert "abcdef" not in found and found.count("token=***") == len(lines)
    assert found == path.read_text(encoding="utf-8").replace("abcdef123456", "***")
