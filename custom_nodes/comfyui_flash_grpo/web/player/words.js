// A copy of flash_grpo_studio/app/web/player/words.js, made by `make comfyui-pack`; edit that file instead.
// What the player says, in English; a page sets `player.words` to say it in another language. {names} are filled in.

const ENGLISH = {
  before: "Before",
  after: "After",
  left: "Left",
  right: "Right",
  optimised: "optimised",
  watched: "watched",
  rewards: "Rewards",
  better: "better",
  worse: "worse",
  equal: "unchanged",
  no_figures: "No difference is shown: the two were not made in the same way.",
  same: "Same prompt, seed, steps, size and sampler",
  differs: "Not made in the same way: {list}",
  seed: "seed {seed}",
  video: "{side} video",
  stage: "Comparison of two videos",
  stage_of: "Comparison of two videos: {prompt}",
  modes: "Ways to compare",
  mode_side: "Side by side",
  mode_wipe: "Wipe",
  mode_flicker: "Flicker",
  mode_difference: "Difference",
  mode_onion: "Blend",
  playback: "Playback",
  play: "Play",
  pause: "Pause",
  back: "Back one frame",
  forward: "Forward one frame",
  backTen: "Back ten frames",
  forwardTen: "Forward ten frames",
  loopIn: "Loop from here",
  loopOut: "Loop to here",
  loopClear: "Loop over all frames",
  swap: "Swap sides",
  zoom: "Zoom in or out",
  full: "Full screen",
  help: "Keys",
  slower: "Slower",
  faster: "Faster",
  flicker_key: "Show the other video",
  frame: "Frame",
  frame_of: "Frame {frame} of {last}",
  speed: "Speed",
  looped: "Loop {first} to {last}",
  divider: "Divider",
  divider_at: "{left} {percent} %",
  blend: "Share of {side}",
  gain: "Gain",
  hold: "Hold to show {side} (Space)",
  shows: "{side}",
  difference_label: "|{before} − {after}| × {gain}",
  onion_label: "{before} + {after}",
  loading: "Loading {percent} %",
  waiting: "Waiting for data …",
  slow: "Nothing has come for a while. Is the connection up?",
  missing: "This video is not there any more (404). It may have been deleted.",
  refused: "This video may not be seen, or its address has expired. Load the page again.",
  away: "The server does not answer. Try again in a moment.",
  broken: "This video cannot be decoded; the file is damaged or cut off. Render it again.",
  empty: "This video holds no frame. Render it again.",
  retry: "Try again",
  blocked: "The browser plays nothing unasked. Press Play.",
  still: "Flicker is off because your system asks for reduced motion. Wipe and Difference show the same.",
  still_play: "Nothing plays by itself because your system asks for reduced motion.",
  notice_length: "The videos differ in length ({one} and {other} frames); the first {frames} frames are compared.",
  notice_size: "The videos differ in size ({one} and {other} pixels); both are fitted into the larger box.",
  notice_fps: "The videos differ in frame rate ({one} and {other} a second); they are aligned by time.",
  said_ready: "Ready, {frames} frames",
  said_playing: "Playing",
  said_paused: "Paused at frame {frame}",
  said_loading: "Loading",
  said_failed: "{side}: {reason}",
  keys: "Keys of the player",
  close: "Close",
  key_modes: "the five ways to compare; 4 again changes the gain",
  key_play: "play or pause",
  key_space: "play or pause; held in Flicker: the other video",
  key_step: "back or forward one frame",
  key_leap: "back or forward ten frames",
  key_loop: "loop from here, loop to here",
  key_speed: "slower, faster",
  key_swap: "swap sides",
  key_zoom: "zoom in or out; drag or arrow keys move the picture",
  key_full: "full screen",
  key_help: "these keys",
};

export class Words {
  #own = {};

  set own(words) {
    this.#own = words && typeof words === "object" ? words : {};
  }

  get own() {
    return { ...this.#own };
  }

  /** A sentence with its values. */
  say(name, values = {}) {
    const text = this.#own[name] ?? ENGLISH[name] ?? name;
    return String(text).replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
  }
}

const LARGE = 100;

/** A figure as people read it: three significant digits, no rounding of what is large. */
export function figure(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) >= LARGE ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return new Intl.NumberFormat("en", { useGrouping: false, ...digits }).format(value || 0).replace("-", "−");
}

/** A difference: with its sign, and nothing for what rounds to nothing. */
export function signedFigure(value) {
  if (!Number.isFinite(value)) return "–";
  const text = figure(Math.abs(value));
  if (Number(text) === 0) return "±0";
  return (value > 0 ? "+" : "−") + text;
}
