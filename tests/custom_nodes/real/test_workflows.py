"""The pack in a running ComfyUI: it loads cleanly, its workflows run, and bad input leaves the server usable."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from custom_nodes.generate import PACK
from flash_grpo.workflow import examples
from flash_grpo_studio.comfyui.pocket import DENOISER, aligned_adapters
from tests.custom_nodes.adapters import lora, named, write
from tests.custom_nodes.fake_studio import JOB, TOKEN, FakeStudio, fake_studio
from tests.custom_nodes.real.comfyui import Comfy, Failed

NODES = ("LoadCheckpoint", "PickCheckpoints", "SamplePair", "CompareVideos", "ScoreVideo", "PocketTextEncode")
NODES += ("LaunchJob", "JobStatus")
ADAPTER = aligned_adapters()[-1].name
IMPORT_SECONDS = 0.3


def example(comfy: Comfy, name: str) -> dict[str, Any]:
    """An example workflow as the page would queue it."""
    return comfy.api_form(json.loads((PACK / "example_workflows" / name).read_text(encoding="utf-8")))


def pocket(comfy: Comfy, steps: int = 4, **loader: Any) -> dict[str, Any]:
    """The pocket example with few steps, and changes to its loader."""
    graph = example(comfy, "1_pocket_before_after.json")
    one(graph, "SamplePair")["inputs"]["sampling_steps"] = steps
    one(graph, "LoadCheckpoint")["inputs"].update(loader)
    return graph


def one(graph: Mapping[str, Any], kind: str) -> Any:
    """The node of a kind of ours."""
    (found,) = (node for node in graph.values() if node["class_type"] == f"FlashGrpo{kind}")
    return found


def shown(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the players were told."""
    return [json.loads(text) for output in outputs.values() for text in output.get("flash_grpo", ())]


def size_of(comfy: Comfy, file: Mapping[str, str]) -> tuple[int, int, int]:
    """Frames, height and width of a file that ComfyUI's page would fetch."""
    from urllib.parse import urlencode
    from urllib.request import urlopen

    from flash_grpo.video import read_mp4

    with urlopen(f"{comfy.url}/view?{urlencode(file)}", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "video/mp4"
        path = comfy.base / "fetched.mp4"
        path.write_bytes(answer.read())
    frames, height, width, _ = read_mp4(path).shape
    return frames, height, width


# loading -------------------------------------------------------------------------------------------------------------


def test_the_pack_loads_without_a_warning_and_quickly(comfy: Comfy) -> None:
    log = comfy.log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in log.splitlines() if "flash_grpo" in line.lower()]
    (seconds,) = (float(found[1]) for line in lines if (found := re.search(r"([\d.]+) seconds: ", line)))
    assert len(lines) == 1 and "FAILED" not in lines[0] and "Traceback" not in log, "\n".join(lines)
    assert seconds <= IMPORT_SECONDS
    for node in NODES:
        assert comfy.about(f"FlashGrpo{node}")["category"] == "Flash-GRPO"
    assert set(comfy.call("/workflow_templates")["comfyui_flash_grpo"]) == {
        name.removesuffix(".json") for name in examples()
    }


# workflows -----------------------------------------------------------------------------------------------------------


def test_the_pocket_workflow_runs_as_it_is_shipped(comfy: Comfy) -> None:
    outputs = comfy.run(example(comfy, "1_pocket_before_after.json"))
    (told,) = shown(outputs)
    assert size_of(comfy, told["before"]) == size_of(comfy, told["after"]) == (9, 256, 256)
    assert size_of(comfy, told["composed"]) == (9, 288, 520)
    assert told["frames"] == 9 and told["fps"] == 8 and told["notices"] == []
    assert told["same"] == "same prompt, seed 2, 20 steps, cfg 3, uni_pc / simple"
    rewards = {row["name"]: row for row in told["rewards"]}
    assert rewards["subject_size"]["optimised"] and not rewards["sharpness"]["optimised"]
    assert rewards["subject_size"]["after"] > rewards["subject_size"]["before"]
    (info,) = (text for output in outputs.values() for text in output.get("text", ()) if "matched" in text)
    assert "base pocket: confirmed by its weights" in info and "unused 0 keys" in info


def test_the_sweep_compares_each_checkpoint(comfy: Comfy) -> None:
    graph = example(comfy, "3_pocket_two_checkpoints.json")
    one(graph, "SamplePair")["inputs"]["sampling_steps"] = 4
    told = shown(comfy.run(graph))
    assert [entry["checkpoint"] for entry in told] == [f"pocket-subject-size, update {update}" for update in (60, 80)]
    first, second = ({row["name"]: row for row in entry["rewards"]} for entry in told)
    assert first["sharpness"]["before"] == second["sharpness"]["before"]
    assert first["sharpness"]["after"] != second["sharpness"]["after"]


def test_the_wan_workflow_runs_with_stand_ins_of_its_models(comfy: Comfy) -> None:
    graph = example(comfy, "2_wan2.1_1.3b_before_after.json")
    models = comfy.base / "models"
    # The real files have gigabytes: the pocket model under their names, and its text encoder in place of UMT5-XXL.
    for source, target in ((DENOISER, "diffusion_models/wan2.1_t2v_1.3B_fp16.safetensors"),):
        shutil.copyfile(models / source, models / target)
    shutil.copyfile(models / "vae" / "flash-grpo-pocket-vae.safetensors", models / "vae" / "wan_2.1_vae.safetensors")
    shutil.copyfile(models / "loras" / ADAPTER, models / "loras" / "your-run-000100.safetensors")
    encoder = {"class_type": "FlashGrpoPocketTextEncode", "text_encoder": "flash-grpo-pocket-text.safetensors"}
    for number, node in list(graph.items()):
        if node["class_type"] == "CLIPTextEncode":
            inputs = {"text_encoder": encoder["text_encoder"], "text": node["inputs"]["text"]}
            graph[number] = {"class_type": encoder["class_type"], "inputs": inputs}
        elif node["class_type"] == "EmptyHunyuanLatentVideo":
            node["inputs"].update(width=48, height=32, length=5)
    graph = {number: node for number, node in graph.items() if node["class_type"] != "CLIPLoader"}
    one(graph, "SamplePair")["inputs"]["sampling_steps"] = 2
    (told,) = shown(comfy.run(graph))
    assert size_of(comfy, told["before"]) == (5, 256, 384) and told["fps"] == 16


# bad input -----------------------------------------------------------------------------------------------------------


def test_every_bad_file_is_one_sentence_and_the_next_graph_runs(comfy: Comfy) -> None:
    folder = comfy.base / "models" / "loras"
    whole = (folder / ADAPTER).read_bytes()
    layers = {"blocks.0.self_attn.q": (256, 256)}
    odd = named(lora(layers), "native")
    odd["diffusion_model.blocks.0.self_attn.q.lora_B.weight"] = torch.zeros(256, 9)
    html = {"flash_grpo.run": "<script>alert(1)</script>", "flash_grpo.update": "1", "big": "x" * 3_000_000}
    bad = {
        "cut.safetensors": (whole[:-9], "is cut off or damaged"),
        "text.safetensors": (b"this is a text", "is no adapter|no whole safetensors"),
        "ranks.safetensors": (odd, "have different ranks"),
        "family.safetensors": (
            {"unet.down.0.lora_A.weight": torch.zeros(4, 4)},
            "holds no layer of the connected model",
        ),
    }
    for name, (content, sentence) in bad.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            write(folder / name, content)
        with pytest.raises(Failed, match=sentence):
            comfy.run(pocket(comfy, checkpoint=name))
    write(folder / "html.safetensors", named(lora(layers), "native"), html)
    outputs = comfy.run(pocket(comfy, checkpoint="html.safetensors"))
    texts = [text for output in outputs.values() for text in output.get("text", ())]
    assert any("run <script>alert(1)</script>, update 1" in text for text in texts)
    for name in (*bad, "html.safetensors"):
        (folder / name).unlink()


def test_a_wrong_base_is_refused(comfy: Comfy) -> None:
    from safetensors.torch import load_file, save_file

    file = comfy.base / "models" / DENOISER
    tensors = load_file(file)
    torch.manual_seed(1)
    for name in [name for name in tensors if name.endswith("self_attn.q.weight")]:
        tensors[name] = torch.randn_like(tensors[name])
    save_file(tensors, file.with_name("relative.safetensors"))
    graph = pocket(comfy)
    next(node for node in graph.values() if node["class_type"] == "UNETLoader")["inputs"]["unet_name"] = (
        "relative.safetensors"
    )
    with pytest.raises(Failed, match="trained on pocket, and the connected model has other weights"):
        comfy.run(graph)
    one(graph, "LoadCheckpoint")["inputs"]["check_base"] = False
    assert shown(comfy.run(graph))


def test_a_checkpoint_deleted_while_its_graph_waits_is_said_to_be_gone(comfy: Comfy) -> None:
    folder = comfy.base / "models" / "loras"
    shutil.copyfile(folder / ADAPTER, folder / "soon-gone.safetensors")
    first = comfy.queue(pocket(comfy, 60, strength=0.9))
    second = comfy.queue(pocket(comfy, checkpoint="soon-gone.safetensors"))
    (folder / "soon-gone.safetensors").unlink()
    assert shown(comfy.wait(first))
    with pytest.raises(Failed, match="soon-gone.safetensors is not in ComfyUI's loras folder; it was deleted or moved"):
        comfy.wait(second)


def test_an_interrupt_ends_the_sampler_and_leaves_the_server_usable(comfy: Comfy) -> None:
    prompt = comfy.queue(pocket(comfy, 1000))
    until = time.monotonic() + 60
    while "1000" not in comfy.tail().rpartition("got prompt")[2] and time.monotonic() < until:
        time.sleep(0.1)
    comfy.call("/interrupt", {})
    with pytest.raises(Failed, match="interrupted"):
        comfy.wait(prompt, 60)
    assert shown(comfy.run(pocket(comfy, 3)))


def images(frames: int, width: int, height: int, color: int) -> dict[str, Any]:
    return {
        "class_type": "EmptyImage",
        "inputs": {"width": width, "height": height, "batch_size": frames, "color": color},
    }


def test_videos_that_differ_are_compared_with_a_notice(comfy: Comfy) -> None:
    graph = {
        "1": images(9, 64, 48, 0xFF0000),
        "2": images(5, 33, 33, 0x00FF00),
        "3": {"class_type": "CreateVideo", "inputs": {"images": ["2", 0], "fps": 16.0}},
        "4": {
            "class_type": "FlashGrpoCompareVideos",
            "inputs": {"before": ["1", 0], "after": ["3", 0], "fps": 8.0, "filename_prefix": "flash_grpo/differ"},
        },
    }
    (told,) = shown(comfy.run(graph))
    assert [notice.partition(" ")[0] for notice in told["notices"]] == ["rates", "lengths", "sizes"]
    assert size_of(comfy, told["after"]) == (2, 288, 384) and told["same"] == ""
    graph["1"], graph["2"] = images(1, 32, 32, 0), images(1, 32, 32, 255)
    graph["4"]["inputs"]["after"] = ["2", 0]
    (told,) = shown(comfy.run(graph))
    assert told["frames"] == 1 and "one frame" in told["notices"][0] and size_of(comfy, told["composed"])[0] == 1


# the studio ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def studio_file(comfy: Comfy) -> Iterator[Path]:
    """Where ComfyUI reads which studio to use; nothing is left there."""
    file = comfy.base / "user" / "__flash_grpo" / "studio.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def connect(file: Path, server: FakeStudio, token: str = TOKEN) -> None:
    file.write_text(json.dumps({"url": server.url, "token": token}), encoding="utf-8")


STATUS = {"1": {"class_type": "FlashGrpoJobStatus", "inputs": {"job": JOB, "wait_minutes": 1.0}}}


def test_a_studio_s_export_is_listed_downloaded_and_applied(comfy: Comfy, studio_file: Path) -> None:
    with fake_studio() as server:
        server.adapter = (comfy.base / "models" / "loras" / ADAPTER).read_bytes()
        connect(studio_file, server)
        name = f"studio: first, update 20 [{JOB}]"
        options: list[str] = []
        until = time.monotonic() + 30
        while name not in options and time.monotonic() < until:  # the list is asked again every ten seconds
            time.sleep(0.5)
            about = comfy.call("/object_info/FlashGrpoLoadCheckpoint")["FlashGrpoLoadCheckpoint"]
            options = about["input"]["required"]["checkpoint"][1]["options"]
        assert name in options and ADAPTER in options
        assert shown(comfy.run(pocket(comfy, 3, checkpoint=name)))
        (file,) = (comfy.base / "models" / "loras" / "flash_grpo_studio").iterdir()
        assert file.read_bytes() == server.adapter
        assert {token for _, token in server.asked} == {f"Bearer {TOKEN}"}
        launch = {"preset": "pocket", "name": "", "prompts": "", "changes": "updates = 2", "launch": 1}
        graph = {"1": {"class_type": "FlashGrpoLaunchJob", "inputs": launch}}
        outputs = comfy.run(graph)
        assert outputs["1"]["text"] == ["pocket: <i>size</i>: queued, 3 of 80 updates"]
        assert server.sent[0]["overrides"] == {"updates": 2}
        assert "succeeded" in comfy.run(STATUS)["1"]["text"][0]


def test_a_studio_that_is_away_or_a_wrong_token_fails_one_node_only(comfy: Comfy, studio_file: Path) -> None:
    with pytest.raises(Failed, match="no studio is configured; set FLASH_GRPO_STUDIO_URL"):
        comfy.run(STATUS)
    with fake_studio() as server:
        connect(studio_file, server, "wrong-secret")
        with pytest.raises(Failed, match="does not know this token") as caught:
            comfy.run(STATUS)
        assert "wrong-secret" not in str(caught.value)
    with pytest.raises(Failed, match="cannot reach the studio"):
        comfy.run(STATUS)
    score = {"video": ["1", 0], "fps": 8.0, "prompt": "", "rewards": "hpsv3", "options": ""}
    graph = {"1": images(3, 32, 32, 255), "2": {"class_type": "FlashGrpoScoreVideo", "inputs": score}}
    graph["3"] = {"class_type": "PreviewAny", "inputs": {"source": ["2", 1]}}
    with pytest.raises(Failed, match="cannot reach the studio"):
        comfy.run(graph)
    assert shown(comfy.run(pocket(comfy, 3)))
    assert "wrong-secret" not in comfy.log.read_text(encoding="utf-8", errors="replace")
