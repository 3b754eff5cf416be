// A copy of flash_grpo_studio/app/web/player/source.js, made by `make comfyui-pack`; edit that file instead.
// Loading one video: how far it is, and if it fails, why, in a word a person can act on.

const FAILED = ["missing", "refused", "away", "broken", "empty"];

/** Whether a video, told by its state, cannot be shown. */
export const failed = ({ state }) => FAILED.includes(state);

export class Source {
  /** idle, loading, ready, missing, refused, away, broken or empty. */
  state = "idle";
  /** Part of the video that is there, 0 to 1. */
  progress = 0;
  /** Whether nothing has come for a while. */
  slow = false;
  #src = "";
  #turn = 0;
  #changed;

  constructor(video, changed) {
    this.video = video;
    this.#changed = changed;
    const on = (type, work) => video.addEventListener(type, work);
    on("progress", () => this.#grown());
    on("loadedmetadata", () => this.#grown());
    on("canplay", () => this.#ready());
    on("stalled", () => this.#slowed());
    on("error", () => this.#failed());
  }

  /** Load an address; the element stays the same. */
  load(src) {
    this.#src = src ?? "";
    this.#turn++;
    Object.assign(this, { progress: 0, slow: false });
    if (!this.#src) return this.fail("missing");
    this.#set("loading");
    this.video.src = this.#src;
    this.video.load();
  }

  /** Don't load it: it is known to be of no use. */
  fail(state) {
    this.release();
    this.#set(state);
  }

  again() {
    this.load(this.#src);
  }

  /** Let the decoder and the data go. */
  release() {
    this.#turn++;
    this.video.removeAttribute("src");
    this.video.load();
    this.state = "idle";
  }

  #set(state) {
    this.state = state;
    this.#changed();
  }

  #grown() {
    const { buffered, duration } = this.video;
    if (this.state !== "loading" || !buffered.length || !(duration > 0)) return;
    this.progress = Math.min(1, buffered.end(buffered.length - 1) / duration);
    this.slow = false;
    this.#changed();
  }

  #ready() {
    if (this.state !== "loading") return;
    const { videoWidth, duration } = this.video;
    this.#set(videoWidth > 0 && duration > 0 ? "ready" : "empty");
  }

  #slowed() {
    if (this.state !== "loading") return;
    this.slow = true;
    this.#changed();
  }

  /** A media error doesn't tell a missing file from a broken one; the server does. */
  async #failed() {
    if (!this.#src || !this.video.error) return;
    const turn = ++this.#turn;
    const state = await reasonOf(this.#src);
    if (turn === this.#turn) this.#set(state);
  }
}

async function reasonOf(src) {
  const stop = new AbortController();
  try {
    const answer = await fetch(src, { headers: { Range: "bytes=0-0" }, cache: "no-store", signal: stop.signal });
    stop.abort(); // a server that ignores the range sends all of it
    if (answer.ok) return "broken";
    if (answer.status === 416) return "empty";
    if (answer.status === 401 || answer.status === 403) return "refused";
    return answer.status >= 500 ? "away" : "missing";
  } catch {
    return "away";
  }
}
