// The player shared with other programs, told what the studio knows: words in the user's language, and what to show.

import { differenceTexts } from "./compare_summary.js";
import { currentLanguage } from "./texts.js";

let chinese = null;

/** Say it in the user's language; the player's own words are English. */
export async function speak(player) {
  if (currentLanguage() !== "zh") return;
  chinese ??= fetch(new URL("./player_zh.json", import.meta.url)).then((answer) => answer.json());
  player.words = await chinese;
}

/** Show a pair of a comparison; `labels` name its sides. */
export function showPair(player, pair, labels, comparison) {
  const optimised = new Set(comparison.rewards.filter((reward) => reward.optimised).map((reward) => reward.name));
  const differences = differenceTexts([...comparison.differences, ...pair.differences]);
  player.show({
    before: { src: pair.before?.url ?? "", label: labels[0] },
    after: { src: pair.after?.url ?? "", label: labels[1] },
    fps: pair.fps,
    frames: pair.frames,
    rewards: Object.entries(pair.scores).map(([name, { before, after }]) => ({ name, before, after, optimised: optimised.has(name) })),
    same: !differences.length,
    differences,
    prompt: pair.prompt,
    seed: pair.seed,
  });
}

/** Show the two videos of a ballot, of which nobody here knows which is which. */
export function showBallot(player, ballot) {
  player.show({ left: { src: ballot.left }, right: { src: ballot.right }, blind: true, fps: ballot.fps, frames: ballot.frames });
}
