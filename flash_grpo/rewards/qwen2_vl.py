"""Qwen2-VL with a head that scores: the model behind HPSv3 and VideoReward (VideoAlign)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import Qwen2VLConfig, Qwen2VLModel

from flash_grpo.errors import InputError

_UNUSED = ("lm_head.",)
"""Parts of upstream's files that only write text."""


def preference_head(width: int) -> nn.Module:
    """HPSv3's head: mean and spread of how much people prefer a picture, from a hidden state."""
    return nn.Sequential(
        nn.Linear(width, 1024), nn.ReLU(), nn.Dropout(0.05), nn.Linear(1024, 16), nn.ReLU(), nn.Linear(16, 2)
    )


def dimension_head(width: int) -> nn.Module:
    """VideoReward's head: one number at the token of each dimension."""
    return nn.Linear(width, 1, bias=False)


class Qwen2VLReward(nn.Module):
    """Hidden states at the reward tokens, read by a head.

    Source: the published inference code of HPSv3 and VideoAlign on transformers 4.45. As there, positions simply count
    tokens: neither passes Qwen2-VL's positions in time, height and width, and their weights were trained without.
    """

    def __init__(self, config: Qwen2VLConfig, head: nn.Module) -> None:
        super().__init__()
        self.model = Qwen2VLModel(config)
        self.head = head.float()
        self._visual_tokens = (config.image_token_id, config.video_token_id)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        pixels: torch.Tensor,
        grid: torch.Tensor,
        reward_tokens: Sequence[int],
    ) -> torch.Tensor:
        """Scores [B, T * K]: K numbers of the head at each of the T reward tokens, in the order of the text.

        `input_ids` and `attention_mask` are [B, L], padded on the right; `pixels` [P, C] and `grid` [N, 3] are the
        processor's patches of all pictures or clips. Raises InputError when patches and their places, or the reward
        tokens of the sequences, do not agree in number.
        """
        visual: Any = self.model.visual
        states: Any = self.model.get_input_embeddings()(input_ids)
        seen: Any = visual(pixels.to(visual.dtype), grid_thw=grid)
        seen = getattr(seen, "pooler_output", seen).to(states.dtype)
        places = torch.isin(input_ids, input_ids.new_tensor(self._visual_tokens))
        if int(places.sum()) != len(seen):
            raise InputError(
                f"the text has {int(places.sum())} places for the {len(seen)} parts of its pictures; make both with "
                "one processor"
            )
        states = states.masked_scatter(places[..., None], seen)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(3, len(input_ids), -1)
        answer: Any = self.model.language_model(
            inputs_embeds=states, attention_mask=attention_mask, position_ids=positions, use_cache=False
        )
        asked = torch.isin(input_ids, input_ids.new_tensor(list(reward_tokens)))
        counts = set(asked.sum(1).tolist())
        if counts != {len(reward_tokens)}:
            raise InputError(
                f"expected each text to hold {len(reward_tokens)} reward tokens, got {sorted(counts)}; keep them out "
                "of prompts"
            )
        scores: torch.Tensor = self.head(answer.last_hidden_state[asked].float())
        return scores.reshape(len(input_ids), -1)

    def load_upstream(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take weights under the names of upstream's files.

        Raises InputError naming the first weight that is missing, of another shape, or not known here.
        """
        named = {_here(name): value for name, value in state.items() if not name.startswith(_UNUSED)}
        own = self.state_dict()
        for name in sorted(own.keys() | named.keys()):
            got = tuple(named[name].shape) if name in named else None
            expected = tuple(own[name].shape) if name in own else None
            if got != expected:
                raise InputError(
                    f"the weights do not fit the model: expected {name} of shape {expected}, got {got}; "
                    "use the weights and the configuration of one release"
                )
        self.load_state_dict(named)


def _here(name: str) -> str:
    """The name of one of upstream's weights in this model."""
    for there, here in (("rm_head.", "head."), ("visual.", "model.visual."), ("model.", "model.language_model.")):
        if name.startswith(there):
            return here + name.removeprefix(there)
    return name
