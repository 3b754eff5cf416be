// A copy of flash_grpo_studio/app/web/player/math.js, made by `make comfyui-pack`; edit that file instead.
// Pure figures of the player: frames and times, what to do about drift, what two videos have in common, loops, zoom.

/** Part of a frame by which a frame's start, rounded to microseconds by a browser, may seem to lie in the one before. */
const ROUNDING = 0.02;
export const NUDGE_MOST = 0.03;
export const SEEK_ABOVE = 0.5;
export const ZOOM_MOST = 16;
const NUDGE_FROM = 0.04;
const NUDGE_FULL = 0.2;

/** The frame on the screen at a time in seconds. */
export function frameAt(time, fps) {
  return Math.max(0, Math.floor(time * fps + ROUNDING));
}

/** The middle of a frame: a seek that lands a little beside it still lands on the frame. */
export function timeOf(frame, fps) {
  return (frame + 0.5) / fps;
}

export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

/**
 * What to do about a follower that is `drift` frames ahead (negative: behind): {seek} both to the same frame, or play
 * the follower at `factor` times the speed of the master.
 */
export function correction(drift) {
  const size = Math.abs(drift);
  if (size > SEEK_ABOVE) return { seek: true, factor: 1 };
  if (size < NUDGE_FROM) return { seek: false, factor: 1 };
  // Whole percents: a rate is set when it differs, not at each frame.
  const percent = Math.ceil(Math.min(1, size / NUDGE_FULL) * NUDGE_MOST * 100);
  return { seek: false, factor: 1 - (Math.sign(drift) * percent) / 100 };
}

/** Whether two frames, told by when they begin and their rates, are to be seen at the same time. */
export function overlap(one, fps, other, otherFps) {
  if (one < 0 || other < 0) return false;
  return one + (1 - ROUNDING) / fps > other && other + (1 - ROUNDING) / otherFps > one;
}

/** Frames of a video of so many seconds; the last one counts if most of it is there. */
export function framesIn(duration, fps) {
  return Math.round(duration * fps);
}

/**
 * What two videos {duration, width, height, fps} share: {fps, frames, width, height, notices}. The grid of frames is that
 * of the faster one; they end with the shorter one; they stand in the box that holds both.
 */
export function common(one, other) {
  const fps = Math.max(one.fps, other.fps);
  const [mine, theirs] = [framesIn(one.duration, one.fps), framesIn(other.duration, other.fps)];
  const frames = Math.min(framesIn(one.duration, fps), framesIn(other.duration, fps));
  const notices = [];
  if (one.fps !== other.fps) notices.push({ code: "fps", one: one.fps, other: other.fps });
  // A difference of less than a frame is no difference: containers round durations.
  if (Math.abs(one.duration - other.duration) * fps >= 0.75) notices.push({ code: "length", one: mine, other: theirs, frames });
  if (one.width !== other.width || one.height !== other.height) {
    notices.push({ code: "size", one: `${one.width} × ${one.height}`, other: `${other.width} × ${other.height}` });
  }
  return { fps, frames, width: Math.max(one.width, other.width), height: Math.max(one.height, other.height), notices };
}

/** A loop [in, out] within so many frames; what lies outside or is no number becomes the whole. */
export function loopWithin(wanted, frames) {
  const last = Math.max(0, frames - 1);
  const [first, end] = Array.isArray(wanted) ? wanted : [];
  const low = Number.isInteger(first) ? clamp(first, 0, last) : 0;
  const high = Number.isInteger(end) ? clamp(end, 0, last) : last;
  return low <= high ? [low, high] : [0, last];
}

/** Seconds from now until a loop begins again: late in its last frame, before the next one could show. */
export function untilWrap(time, last, fps, speed) {
  return Math.max(0, (last + 0.7) / fps - time) / speed;
}

/** The next of rising `steps` above (direction 1) or below (-1) a value. */
export function nextStep(steps, value, direction) {
  const ordered = direction > 0 ? steps : [...steps].reverse();
  return ordered.find((step) => (step - value) * direction > 1e-9) ?? ordered.at(-1);
}

/** A zoom {scale, x, y} kept so that the picture covers its pane; x and y are parts of the pane's size. */
export function zoomWithin({ scale, x, y }) {
  const kept = clamp(Number.isFinite(scale) ? scale : 1, 1, ZOOM_MOST);
  const room = (kept - 1) / 2;
  const along = (value) => clamp(Number.isFinite(value) ? value : 0, -room, room) || 0; // never -0
  return { scale: kept, x: along(x), y: along(y) };
}

/** Zoom by a factor about a point given in parts of the pane, from its centre; that point stays where it is. */
export function zoomAbout({ scale, x, y }, factor, point) {
  const next = clamp(scale * factor, 1, ZOOM_MOST);
  const moved = (offset, place) => place - ((place - offset) / scale) * next;
  return zoomWithin({ scale: next, x: moved(x, point.x), y: moved(y, point.y) });
}
