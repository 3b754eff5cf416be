// What `show` is given, read once: labels, rates, rewards; a vote's pair tells nothing but left and right.

import { common } from "./math.js";

const FPS = 24;
const SMALL = 256; // pixels: videos up to this wide show their pixels, unless the page says otherwise
const positive = (value) => (Number.isFinite(value) && value > 0 ? value : null);

/** The pair as the parts of the player use it. */
export function pairOf(given) {
  const blind = Boolean(given.blind);
  const sides = blind ? [given.left, given.right] : [given.before, given.after];
  return {
    given: Object.keys(given).length > 0,
    blind,
    sides: sides.map((side, place) => sideOf(side ?? {}, given, blind, place)),
    fps: positive(given.fps),
    pixelated: given.pixelated,
    rewards: blind ? [] : (given.rewards ?? []),
    same: blind ? undefined : given.same,
    differences: blind ? [] : (given.differences ?? []),
    prompt: String(given.prompt ?? ""),
    seed: given.seed,
  };
}

function sideOf(side, given, blind, place) {
  return {
    name: blind ? ["left", "right"][place] : ["before", "after"][place],
    src: side.src ?? "",
    label: blind ? "" : (side.label ?? ""),
    fps: positive(side.fps) ?? positive(given.fps),
    frames: side.frames ?? given.frames,
  };
}

/** Whether pixels stay sharp: as the page says, else where both videos are small. */
export function sharp({ pixelated }, facts) {
  return Boolean(pixelated ?? (facts && facts.width <= SMALL));
}

/** What two loaded videos share; without a rate it is frames by seconds, or that of film. */
export function factsOf(pair, videos) {
  const measures = videos.map((video, place) => {
    const { fps, frames } = pair.sides[place];
    const { duration, videoWidth: width, videoHeight: height } = video;
    return { duration, width, height, fps: fps ?? (positive(frames) ? frames / duration : FPS) };
  });
  return { ...common(...measures), rates: measures.map((measure) => measure.fps) };
}
