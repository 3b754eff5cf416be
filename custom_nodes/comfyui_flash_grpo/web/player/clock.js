// A copy of flash_grpo_studio/app/web/player/clock.js, made by `make comfyui-pack`; edit that file instead.
// Two videos in lock-step. The first is the master: at each of its frames the second is nudged by up to 3 %, and where
// it is further off than half a frame both seek to the same one. Paused, stepped or at the seam of a loop, both show
// the same frame: the last picture is held until both have the new one.

import { clamp, correction, frameAt, loopWithin, timeOf, untilWrap } from "./math.js";
import { Tape } from "./tape.js";

const LOW_SECONDS = 0.35; // less than this ahead, and both wait: a video that runs dry stops before the other is told
const ENOUGH_SECONDS = 1.5;
const CALM_MS = 400; // after a start or a seek a drift is given this long to be nudged away
const LOOK_MS = 200;

export class Clock {
  /** Whether somebody wants it to play; it may wait for data meanwhile. */
  playing = false;
  /** Whether it waits for data. */
  starved = false;
  /** Without the link the videos run as they like; only the tests that show what the link does want that. */
  linked = true;
  /** Seeks that were needed because nudging was not enough. */
  resyncs = 0;
  frame = 0;
  frames = 0;
  fps = 24;
  #hooks;
  #tapes;
  #loop = null;
  #speed = 1;
  #turn = 0;
  #target = 0;
  #moving = null;
  #calm = 0;
  #timer = 0;
  #looking = 0;

  /**
   * hooks: hold() and release() keep and let go the picture on the screen, frame(number) and change() tell, lap() is
   * called at the end of each round, refused() where the browser lets nothing play.
   */
  constructor(videos, hooks) {
    this.#hooks = hooks;
    this.#tapes = videos.map((video, place) => new Tape(video, () => place === 0 && this.#tick()));
    for (const video of videos) {
      video.addEventListener("waiting", () => this.#dry());
      video.addEventListener("ended", () => this.#ended());
    }
  }

  /** Both videos can play: `fps` is the grid, `rates` are their own. Shows `frame`. */
  async open({ fps, frames, rates, loop, speed, frame }) {
    this.close();
    Object.assign(this, { fps, frames });
    rates.forEach((rate, place) => (this.#tapes[place].fps = rate));
    this.#speed = speed;
    this.#loop = loop;
    await this.seek(frame);
  }

  /** Nothing to play any more. */
  close() {
    this.#turn++;
    this.#halt();
    clearInterval(this.#looking);
    Object.assign(this, { frames: 0, frame: 0, playing: false, starved: false });
    this.#moving = null;
    this.#hooks.release();
  }

  get opened() {
    return this.frames > 0;
  }

  /** First and last frame of a round. */
  get loop() {
    return loopWithin(this.#loop, this.frames);
  }

  set loop(wanted) {
    this.#loop = wanted;
    const [first, last] = this.loop;
    if (this.playing && (this.frame < first || this.frame > last)) this.seek(first);
  }

  set speed(value) {
    this.#speed = value;
    this.#tapes[0].video.playbackRate = value;
    this.#tapes[1].video.playbackRate = value;
  }

  play() {
    if (!this.opened || this.playing) return;
    const [first, last] = this.loop;
    if (first === last) {
      this.#hooks.lap(); // a round of one frame is over at once
      this.seek(first);
      return;
    }
    this.playing = true;
    if (this.frame < first || this.frame >= last) this.seek(first);
    else if (!this.#moving) this.#start();
    this.#hooks.change();
  }

  /** Stop, both on the master's frame. */
  pause() {
    if (!this.playing) return;
    Object.assign(this, { playing: false, starved: false });
    this.#halt();
    this.#hooks.change();
    if (!this.#moving) this.seek(frameAt(this.#tapes[0].video.currentTime, this.fps));
  }

  /** Show a frame on both sides; of many calls in a row the last one counts. Resolves when both show it. */
  seek(frame) {
    if (!this.opened) return Promise.resolve();
    this.#target = clamp(Math.round(frame), 0, this.frames - 1);
    this.#tell(this.#target);
    this.#moving ??= this.#move();
    return this.#moving;
  }

  /** The numbers of the frames on the screen, each in its own rate. */
  get shown() {
    return this.#tapes.map((tape) => tape.frame);
  }

  async #move() {
    const turn = this.#turn;
    this.#halt();
    for (let reached = null; reached !== this.#target; ) {
      this.#hooks.hold();
      reached = this.#target;
      const time = timeOf(reached, this.fps);
      await Promise.all(this.#tapes.map((tape) => tape.seek(time)));
      if (turn !== this.#turn) return;
    }
    this.#moving = null;
    this.#hooks.release();
    if (this.playing) this.#start();
  }

  #tell(frame) {
    this.frame = frame;
    this.#hooks.frame(frame);
  }

  #halt() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    for (const { video } of this.#tapes) video.pause();
  }

  async #start() {
    if (!this.#fed(ENOUGH_SECONDS)) return this.#dry();
    const turn = this.#turn;
    this.#calm = performance.now() + CALM_MS;
    this.speed = this.#speed;
    try {
      await Promise.all(this.#tapes.map(({ video }) => video.play()));
    } catch (error) {
      // A pause or a new pair interrupts a start; only a browser that plays nothing without a click refuses it.
      if (error.name !== "NotAllowedError" || turn !== this.#turn) return;
      this.pause();
      this.#hooks.refused();
    }
  }

  #tick() {
    if (!this.playing || this.starved || this.#moving || !this.opened) return;
    const [master, follower] = this.#tapes;
    const [, last] = this.loop;
    const frame = Math.min(frameAt(master.shown, this.fps), this.frames - 1);
    if (frame !== this.frame) this.#tell(frame);
    if (frame >= last) return this.#plan(last);
    if (!this.#fed(LOW_SECONDS)) return this.#dry();
    if (this.linked) this.#follow(master.video, follower.video);
  }

  #follow(master, follower) {
    const wanted = correction((follower.currentTime - master.currentTime) * this.fps);
    if (wanted.seek && performance.now() > this.#calm) {
      this.resyncs++;
      this.seek(frameAt(master.currentTime, this.fps));
      return;
    }
    const rate = this.#speed * wanted.factor;
    if (Math.abs(follower.playbackRate - rate) > 1e-6) follower.playbackRate = rate;
  }

  #plan(last) {
    if (this.#timer) return;
    const wait = untilWrap(this.#tapes[0].video.currentTime, last, this.fps, this.#speed);
    this.#timer = setTimeout(() => this.#wrap(), wait * 1000);
  }

  #wrap() {
    this.#timer = 0;
    if (!this.playing || this.#moving) return;
    this.#hooks.lap();
    this.seek(this.loop[0]);
  }

  #ended() {
    if (this.playing && !this.#moving) this.#wrap();
  }

  #fed(seconds) {
    return this.#tapes.every((tape) => tape.ready && tape.ahead() >= seconds * this.#speed);
  }

  /** One of them runs out of data: both wait until both have enough. */
  #dry() {
    if (!this.playing || this.starved || this.#moving) return;
    this.starved = true;
    this.#halt();
    this.#hooks.change();
    const turn = this.#turn;
    clearInterval(this.#looking);
    this.#looking = setInterval(() => {
      const over = turn !== this.#turn || !this.starved;
      if (!over && !this.#fed(ENOUGH_SECONDS)) return;
      clearInterval(this.#looking);
      if (over) return;
      this.starved = false;
      this.#hooks.change();
      this.seek(frameAt(this.#tapes[0].video.currentTime, this.fps));
    }, LOOK_MS);
  }
}
