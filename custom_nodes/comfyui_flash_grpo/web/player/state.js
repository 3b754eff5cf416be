// A copy of flash_grpo_studio/app/web/player/state.js, made by `make comfyui-pack`; edit that file instead.
// What a player remembers and a link carries: mode, frame, speed, loop, gain, sides swapped, zoom, divider and blend.

import { clamp, loopWithin, zoomWithin } from "./math.js";

export const MODES = ["side", "wipe", "flicker", "difference", "onion"];
export const SPEEDS = [0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2];
export const GAINS = [1, 4, 8];

export function fresh() {
  return { mode: "wipe", speed: 1, loop: null, gain: 4, swapped: false, zoom: { scale: 1, x: 0, y: 0 }, wipe: 50, onion: 50 };
}

const number = (value) => (typeof value === "string" && value.trim() === "" ? NaN : Number(value));
const whole = (value) => (Number.isFinite(number(value)) ? Math.round(number(value)) : null);

const READERS = {
  mode: (value, { modes }) => (modes.includes(value) ? value : null),
  speed: (value) => (Number.isFinite(number(value)) ? clamp(number(value), SPEEDS[0], SPEEDS.at(-1)) : null),
  gain: (value) => (GAINS.includes(number(value)) ? number(value) : null),
  swapped: (value) => (typeof value === "boolean" ? value : null),
  zoom: (value) => (value && typeof value === "object" ? zoomWithin(value) : null),
  wipe: (value) => (Number.isFinite(number(value)) ? clamp(number(value), 0, 100) : null),
  onion: (value) => (Number.isFinite(number(value)) ? clamp(number(value), 0, 100) : null),
};

/** A state with what can be used of `wanted`, which may come from anybody's link; `modes` are those allowed now. */
export function merged(state, wanted, modes) {
  const found = { ...state };
  for (const [name, read] of Object.entries(READERS)) {
    if (wanted?.[name] === undefined || wanted[name] === null) continue;
    const value = read(wanted[name], { modes });
    if (value !== null) found[name] = value;
  }
  if (Array.isArray(wanted?.loop)) found.loop = wanted.loop.map(whole);
  if (wanted?.loop === null) found.loop = null;
  return found;
}

/** A frame number somebody asked for, or null. */
export function frameOf(wanted) {
  if (wanted === undefined || wanted === null || typeof wanted === "object") return null;
  const found = whole(wanted);
  return found !== null && found >= 0 ? found : null;
}

/** The state as a link or a page keeps it. */
export function told(state, frame, frames) {
  const { mode, speed, gain, swapped, zoom, wipe, onion } = state;
  return { mode, frame, speed, loop: loopWithin(state.loop, frames), gain, swapped, zoom: { ...zoom }, wipe, onion };
}
