"""The model card of an export says what there is to say, and nothing that users wrote in it means anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt
from PIL import Image

from flash_grpo import download
from flash_grpo.card_pictures import draw_pictures
from flash_grpo.export import export_run
from flash_grpo.export_files import write_record
from flash_grpo.markdown import code, plain
from flash_grpo.model_card import CURVES, SAMPLE, Subject, card
from flash_grpo.models.folder import SOURCE
from flash_grpo.video import write_mp4
from tests.test_export import RANK, save_run, settings, trained_model
from tests.test_report import write_run

HOSTILE = "<script>alert(1)</script> | `x` **b** [a](http://x) ![i](http://x/y.png) https://evil.example $a$ @you &lt;"
GAINS = {
    "colorfulness": {"before": 0.1, "after": 0.3, "gain": 0.2, "ci95": [0.1, 0.3], "win_rate": 0.9},
    "sharpness": {"before": 3.0, "after": 2.5, "gain": -0.5, "ci95": [-0.7, -0.2], "win_rate": 0.1},
    "flicker": {"before": 0.5, "after": 0.49, "gain": -0.01, "ci95": [-0.1, 0.08], "win_rate": 0.5},
}


def subject(run: Path, **changes: Any) -> Subject:
    facts = {
        "base_model": "someone/base",
        "base_licence": "Apache-2.0",
        "gains": json.dumps(GAINS),
        "base_sha256": "ab" * 32,
    }
    facts |= changes.pop("facts", {})
    named = {f"flash_grpo.{key}": value for key, value in facts.items() if value is not None}
    config = settings(Path("pocket-micro"), **changes.pop("config", {}))
    values: dict[str, Any] = {"name": "first", "update": 20, "kind": "adapter", "usage": ["Load it."], **changes}
    return Subject(run=run, config=config, facts=named, **values)


def front_matter(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


def body(text: str) -> str:
    return text.split("---\n", 2)[2]


def html(text: str) -> str:
    """As a hub shows it: HTML within Markdown is let through, so that escaping alone must keep it out."""
    return (
        MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"]).render(body(text))
    )


# what hubs read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "library", "relation"),
    [("adapter", "diffusers", "adapter"), ("peft", "peft", "adapter"), ("merged", "diffusers", "finetune")],
)
def test_the_metadata_is_what_a_hub_reads(tmp_path: Path, kind: str, library: str, relation: str) -> None:
    found = front_matter(card(subject(tmp_path, kind=kind)))
    assert (found["base_model"], found["base_model_relation"]) == ("someone/base", relation)
    assert (found["library_name"], found["pipeline_tag"], found["license"]) == (library, "text-to-video", "apache-2.0")
    assert "text-to-video" in found["tags"] and ("lora" in found["tags"]) == (relation == "adapter")


@pytest.mark.parametrize("base", ["pocket", "a folder", "../x/y", "a/b/c"])
def test_a_base_model_that_is_on_no_hub_is_named_in_the_text_alone(tmp_path: Path, base: str) -> None:
    text = card(subject(tmp_path, facts={"base_model": base}))
    assert "base_model" not in front_matter(text)
    assert f"Base model: `{base}`" in text


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        (None, {"license": "unknown"}),
        ("MIT", {"license": "mit"}),
        ("Tencent Hunyuan: Community", {"license": "other", "license_name": "tencent-hunyuan-community"}),
        ("evil\nbase_model: x", {"license": "other", "license_name": "evil-base-model-x"}),
    ],
)
def test_licences_are_passed_on_by_names_that_hubs_know(tmp_path: Path, licence: str | None, expected: Any) -> None:
    found = front_matter(card(subject(tmp_path, facts={"base_licence": licence})))
    assert {key: found[key] for key in found if key.startswith("license")} == expected
    assert found["base_model"] == "someone/base"


def test_a_downloaded_base_is_called_as_on_its_hub(tiny_folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "models" / "someone--small"
    shutil.copytree(tiny_folder, base)
    source = {"repo": "someone/small", "commit": "0123abc", "licence": "cc-by-4.0"}
    (base / SOURCE).write_text(json.dumps(source), encoding="utf-8")
    run = save_run(tmp_path / "run", trained_model(base), settings(base))
    folder = export_run(run, "adapter")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert front_matter(text).items() >= {"base_model": "someone/small", "license": "cc-by-4.0"}.items()
    assert "Base model: `someone/small`, revision `0123abc`" in text and str(tmp_path) not in text
    facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))["metadata"]
    assert (facts["flash_grpo.base_model"], facts["flash_grpo.base_revision"]) == ("someone/small", "0123abc")
    assert SOURCE == download.SOURCE


# what people read ----------------------------------------------------------------------------------------------------


def test_the_results_say_what_got_worse_too(tmp_path: Path) -> None:
    text = card(subject(tmp_path))
    assert "| colorfulness | optimised | 0.100 | 0.300 | +0.200 | +0.100 to +0.300 | 90 % |" in text
    assert "| sharpness | watched | 3.000 | 2.500 | -0.500 | -0.700 to -0.200 | 10 % |" in text
    assert text.index("| colorfulness | optimised") < text.index("| flicker | watched")
    assert "What got worse, beyond chance: sharpness by 0.500." in text, "flicker's interval holds 0"
    better = {name: {**figures, "ci95": [0.0, 1.0]} for name, figures in GAINS.items()}
    assert "No recorded reward fell beyond chance." in card(subject(tmp_path, facts={"gains": json.dumps(better)}))
    assert "recorded no held-out comparison" in card(subject(tmp_path, facts={"gains": None}))


def test_training_data_rewards_and_limits_are_told(tmp_path: Path) -> None:
    run = tmp_path / "job" / "run"
    run.mkdir(parents=True)
    (run.parent / "mine.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n', encoding="utf-8")
    (run / "summary.json").write_text(json.dumps({"updates": 40, "minutes": 12.34, "nfe": 5000}), encoding="utf-8")
    changed = {"prompts": "mine.jsonl", "validation_prompts": "starter:validation", "heldout_prompts": "gone.txt"}
    text = card(subject(run, config={**changed, "validation_limit": 5}))
    assert "| training | a set of one's own, mine.jsonl | 3 |" in text
    assert "| validation | starter:validation | 5 |" in text
    assert "| held-out | a set of one's own, gone.txt | not known |" in text
    assert "40 updates, 12.3 minutes and 5,000 network evaluations" in text
    assert "colorfulness can be gamed: Oversaturated" in text and "sharpness can be gamed" not in text
    assert "sha256sum -c SHA256SUMS" in text


def test_the_configuration_tells_no_place_of_this_machine_and_no_secret(tmp_path: Path) -> None:
    options = {"colorfulness": {"api_key": "hushhush", "url": "https://me:hushhush@host/x", "weights": "/home/me/w.pt"}}
    config = {"reward_options": options, "prompts": "/home/me/prompts.txt", "negative_prompt": "```\n# no title"}
    text = card(subject(tmp_path, config=config))
    assert "hushhush" not in text and "/home/me" not in text
    [block] = re.findall(r"^(`{3,})yaml\n(.*?)^\1$", text, re.DOTALL | re.MULTILINE)
    found = yaml.safe_load(block[1])
    assert found["model"] == "someone/base" and found["lora_rank"] == RANK
    assert found["reward_options"]["colorfulness"] == {"api_key": "***", "url": "https://***@host/x", "weights": "w.pt"}
    assert found["negative_prompt"] == "```\n# no title" and "<h1>no title" not in html(text)


# what users wrote ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile", [HOSTILE, "a\n\n# title\n---\nx: 1", "- item", "1. one", "``x", "`", "a|b", "\u202egnp.exe"]
)
def test_what_users_wrote_means_nothing(tmp_path: Path, hostile: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config = {"rewards": {"colorfulness": 1.0, f"own:{hostile}": 0.0}, "prompts": f"{hostile.replace('/', '')}.txt"}
    gains = {**GAINS, hostile: GAINS["sharpness"]}
    text = card(subject(run, name=hostile, config=config, facts={"base_model": hostile, "gains": json.dumps(gains)}))
    shown = html(text)
    allowed = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "strong"}
    assert set(re.findall(r"<([a-z0-9]+)", shown)) <= allowed, "a tag, link or picture came from a user's text"
    assert shown.count("<h1>") == 1 and shown.count("<h2>") == len(re.findall(r"^## ", text, re.MULTILINE))
    cells = [row.count("<td") for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)]
    assert set(cells) == {0, 3, 7}, "a user's text made a cell"
    assert "\u202e" not in text
    assert front_matter(text)["pipeline_tag"] == "text-to-video"


def test_the_check_sees_what_is_not_escaped(tmp_path: Path) -> None:
    """Negative control: the same words unescaped become tags."""
    unescaped = card(subject(tmp_path)) + f"\nSo: {HOSTILE}\n"
    assert {"script", "a", "img"} <= set(re.findall(r"<([a-z0-9]+)", html(unescaped)))


def test_escaped_text_is_shown_as_it_was() -> None:
    for text in (HOSTILE, "a red circle, 50 % larger (slowly)", "x_y*z", "1. first", "-5", "mailto:me@x.y www.x.y"):
        rendered = MarkdownIt("commonmark", {"html": True}).render(plain(text))
        bare = re.sub("<[^>]+>", "", rendered).replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
        assert bare.replace("&amp;", "&").strip() == text
        assert MarkdownIt("commonmark").render(f"a {code(text)} b").count("<code>") == 1


# pictures and sums ---------------------------------------------------------------------------------------------------


def write_videos(run: Path, gains: dict[str, float], update: int = 20) -> None:
    """Videos of both sides whose brightness and scores tell the gain."""
    for number in (0, update):
        folder = run / "videos" / f"{number:06d}"
        levels = {name: 40 + int(200 * gain) if number else 40 for name, gain in gains.items()}
        for name, level in levels.items():
            write_mp4(
                folder / f"{name}-0.mp4",
                np.full((3, 32, 32, 3), level, np.uint8) + 4 * np.arange(3, dtype=np.uint8)[:, None, None, None],
                8,
            )
        document = {
            "seed": 0,
            "prompts": [{"id": name, "text": f"{HOSTILE} {name}"} for name in gains],
            "rewards": {"colorfulness": [gain if number else 0.0 for gain in gains.values()]},
        }
        (folder / "scores-heldout.json").write_text(json.dumps(document), encoding="utf-8")


def test_the_pictures_are_the_run_s_curves_and_its_largest_middle_and_smallest_gain(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "export"
    write_run(run)
    write_videos(run, {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2, "e": 0.6})
    rewards = {"colorfulness": 1.0, "sharpness": 0.0}
    assert draw_pictures(run, 20, rewards, folder) == [CURVES, SAMPLE]
    with Image.open(folder / CURVES) as image:
        assert image.format == "PNG"
    assert (folder / SAMPLE).stat().st_size <= 1_500_000
    with Image.open(folder / SAMPLE) as image:
        assert (image.format, image.n_frames) == ("WEBP", 3)
        pixels = np.asarray(image.convert("L")).astype(int)
    column = pixels[:, 16 + 256 + 8 + 128]  # through the middle of the right videos
    levels = [level for level in (60, 80, 140, 160, 220) if (np.abs(column - level) < 8).sum() > 200]
    assert levels == [60, 140, 220], "the gains of 0.1, 0.5 and 0.9 are not those shown"
    # Nothing to show is nothing written, and a damaged video harms no export.
    (run / "videos" / "000020" / "b-0.mp4").write_bytes(b"damaged")
    (run / "events.jsonl").unlink()
    assert draw_pictures(run, 20, rewards, tmp_path / "other") == []
    assert draw_pictures(run, 40, rewards, tmp_path / "other") == []
    assert [path for path in (tmp_path / "other").rglob("*") if path.is_file()] == []


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sha256sum", "-c", "--strict", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_sums_prove_the_files_whole_whatever_their_names(tmp_path: Path) -> None:
    for name in ("a.txt", "b\\c.txt", "d\ne.txt", "f g.txt", "ü/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    write_record(tmp_path, {})
    done = checked(tmp_path)
    assert done.returncode == 0 and done.stdout.count("OK") == 6, done
    (tmp_path / "a.txt").write_text("b")
    assert checked(tmp_path).returncode == 1


@pytest.mark.parametrize("kind", ["adapter", "peft", "merged"])
def test_every_format_has_a_card_its_pictures_and_sums(kind: str, tmp_path: Path) -> None:
    base = Path("pocket-micro")
    run = save_run(tmp_path / "run", trained_model(base), settings(base))
    write_videos(run, {"a": 0.5})
    folder = export_run(run, kind, output=tmp_path / "out", name=f"../{HOSTILE}")
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == record["files"].keys() | {"export.json", "SHA256SUMS"} and SAMPLE in files
    assert checked(folder).returncode == 0
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "![Before and after" in text and SAMPLE in text and CURVES not in text
    assert "<script" not in html(text)
    assert record["metadata"]["flash_grpo.format"] == kind
    assert all("<" not in name and "/" not in name for name in (path.name for path in folder.rglob("*")))
    [python] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    compile(python, "README.md", "exec")
