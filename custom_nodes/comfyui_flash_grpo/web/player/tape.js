// A copy of flash_grpo_studio/app/web/player/tape.js, made by `make comfyui-pack`; edit that file instead.
// One video element: which frame is on the screen, a seek that ends when the frame asked for is there, what is buffered.

import { frameAt } from "./math.js";

const SHOWN_WITHIN = 120; // ms after `seeked`; no frame is reported where nothing changed, or the page is hidden
const FRESH = 0.7; // part of a frame's time for which it is surely there still
const GONE = ["error", "emptied", "abort"];

export class Tape {
  fps = 24;
  /** Media time of the frame on the screen; -1 before the first. */
  shown = -1;
  /** When it came there, as performance.now() counts. */
  since = 0;
  #checks = new Set();
  #presented;

  /** `presented` is called at each frame that comes on the screen. */
  constructor(video, presented) {
    this.video = video;
    this.#presented = presented;
    video.addEventListener("emptied", () => (this.shown = -1));
    if (video.requestVideoFrameCallback) this.#watch();
    else video.addEventListener("play", () => this.#watchByAnimation());
  }

  #watch() {
    this.video.requestVideoFrameCallback((_, { mediaTime, presentationTime }) => {
      this.#watch();
      this.since = presentationTime;
      this.#seen(mediaTime);
    });
  }

  #watchByAnimation() {
    const { video } = this;
    if (video.paused) return;
    requestAnimationFrame(() => this.#watchByAnimation());
    if (video.seeking) return;
    if (frameAt(video.currentTime, this.fps) !== this.frame) {
      this.since = performance.now();
      this.#seen(video.currentTime);
    }
  }

  #seen(time) {
    this.shown = time;
    for (const check of this.#checks) check();
    this.#presented();
  }

  /** The frame on the screen, of its own rate; -1 before the first. */
  get frame() {
    return this.shown < 0 ? -1 : frameAt(this.shown, this.fps);
  }

  /**
   * The frame that is there now, {time, picture, close()}, or null. Where the browser can keep a frame it is one that
   * knows its own time. Elsewhere (a page without https) it is the video and the time last told, unless the page was
   * told so late that the next frame may be there.
   */
  take(speed) {
    const { video } = this;
    if (video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) return null;
    if (window.VideoFrame) {
      const picture = new VideoFrame(video);
      return { time: picture.timestamp / 1e6, picture, close: () => picture.close() };
    }
    const late = performance.now() - this.since > (FRESH * 1000) / (this.fps * speed);
    return late ? null : { time: this.shown, picture: video, close: () => {} };
  }

  /** Seek; resolves when the frame at that time is on the screen, or there is none to wait for. */
  seek(time) {
    const { video } = this;
    if (video.readyState < HTMLMediaElement.HAVE_METADATA || video.error) return Promise.resolve();
    return new Promise((resolve) => {
      let [arrived, timer] = [false, 0];
      const done = () => {
        clearTimeout(timer);
        this.#checks.delete(check);
        video.removeEventListener("seeked", seeked);
        for (const type of GONE) video.removeEventListener(type, done);
        resolve();
      };
      const check = () => {
        if (arrived && this.frame === frameAt(time, this.fps)) done();
      };
      const seeked = () => {
        arrived = true;
        if (!video.requestVideoFrameCallback) this.shown = video.currentTime;
        timer = setTimeout(done, SHOWN_WITHIN);
        check();
      };
      this.#checks.add(check);
      video.addEventListener("seeked", seeked);
      for (const type of GONE) video.addEventListener(type, done);
      video.currentTime = time;
    });
  }

  /** Seconds of video there are after the present place; Infinity if all of the rest is there. */
  ahead() {
    const { buffered, currentTime, duration } = this.video;
    for (let place = 0; place < buffered.length; place++) {
      const end = buffered.end(place);
      if (buffered.start(place) <= currentTime + 0.01 && currentTime <= end) {
        return end >= duration - 0.05 ? Infinity : end - currentTime;
      }
    }
    return 0;
  }

  /** Whether it could play now. */
  get ready() {
    return this.video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA;
  }
}
