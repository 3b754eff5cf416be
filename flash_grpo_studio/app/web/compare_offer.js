// What to render where two sides share no video: prompts that one of them, or the base model of its run, already shows.

import { api } from "./api.js";
import { parseSide, sideText } from "./compare_sides.js";

const MOST = 4;

/** {prompts, seeds, sides}: the sides, as texts, that lack videos of these prompts; null where nothing is known to show. */
export async function missingOffer({ before, after }) {
  const base = sideText({ job: parseSide(after).job, update: 0 });
  for (const source of new Set([before, after, base])) {
    const shown = await api.get(`/comparison?${new URLSearchParams({ before: source, after: source, limit: MOST })}`);
    if (!shown.pairs.length) continue;
    const { seed } = shown.pairs[0];
    const prompts = shown.pairs.filter((pair) => pair.seed === seed).map((pair) => pair.prompt);
    return { prompts: [...new Set(prompts)], seeds: [seed], sides: [before, after].filter((side) => side !== source) };
  }
  return null;
}
