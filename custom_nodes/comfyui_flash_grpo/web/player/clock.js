// A copy of flash_grpo_studio/app/web/player/clock.js, made by `make comfyui-pack`; edit that file instead.
// Two videos in lock-step. The first is the master: at each of its frames the second is nudged by up to 3 %, and where
// it is further off than half a frame both seek to the same one. The screen gets a new picture only when both videos
// stand at the same frame; a decoder that falls behind costs pictures, never the link.

import { clamp, correction, frameAt, loopWithin, overlap, timeOf, untilWrap } from "./math.js";
import { Tape } from "./tape.js";

const LOW_SECONDS = 0.35; // less than this ahead, and both wait: a video that runs dry stops before the other is told
const ENOUGH_SECONDS = 1.5;
const CALM_MS = 400; // after a start or a seek a drift is given this long to be nudged away
const LOOK_MS = 200;
const ASTRAY_MS = 400; // no common frame for so long: the decoders won't meet by themselves

export class Clock {
  /** Whether somebody wants it to play; it may wait for data meanwhile. */
  playing = false;
  /** Whether it waits for data. */
  starved = false;
  /** Without the link each side runs and shows as it likes; only to see what the link does. */
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
  #seen = 0;
  #on = "";
  #timer = 0;
  #looking = 0;

  /**
   * hooks: draw([picture, picture]) puts both sides on the screen, frame(number) and change() tell, lap() is called at the
   * end of each round, refused() where the browser lets nothing play.
   */
  constructor(videos, hooks) {
    this.#hooks = hooks;
    this.#tapes = videos.map((video, place) => new Tape(video, () => this.#presented(place)));
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

  /** Stop, both at the frame on the screen. */
  pause() {
    if (!this.playing) return;
    Object.assign(this, { playing: false, starved: false });
    this.#halt();
    this.#hooks.change();
    if (!this.#moving) this.seek(this.frame);
  }

  /** Show a frame on both sides; of many calls in a row the last one counts. Resolves when both show it. */
  seek(frame) {
    if (!this.opened) return Promise.resolve();
    this.#target = clamp(Math.round(frame), 0, this.frames - 1);
    this.#tell(this.#target);
    this.#moving ??= this.#move();
    return this.#moving;
  }

  /** The numbers of the frames the videos stand at, each in its own rate. */
  get shown() {
    return this.#tapes.map((tape) => tape.frame);
  }

  async #move() {
    const turn = this.#turn;
    this.#halt();
    for (let reached = null; reached !== this.#target; ) {
      reached = this.#target;
      const time = timeOf(reached, this.fps);
      await Promise.all(this.#tapes.map((tape) => tape.seek(time)));
      if (turn !== this.#turn) return;
      this.#on = "";
      this.#hooks.draw(this.#tapes.map(({ video }) => video));
    }
    this.#moving = null;
    if (this.playing && !this.starved) this.#start();
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
    this.#seen = performance.now();
    this.#calm = this.#seen + CALM_MS;
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

  /** A video has come to a new frame. */
  #presented(place) {
    if (this.#running && place === 0) this.#tick(...this.#tapes);
    if (this.#running && !this.#draw() && performance.now() - this.#seen > ASTRAY_MS) this.#rejoin();
  }

  get #running() {
    return this.playing && !this.starved && !this.#moving && this.opened;
  }

  /** Put both frames on the screen if they belong together. Whether they do. */
  #draw() {
    const taken = this.#tapes.map((tape) => tape.take(this.#speed));
    const fit = taken.every(Boolean) && (!this.linked || this.#fit(taken));
    if (fit) this.#show(taken);
    for (const frame of taken) frame?.close();
    return fit;
  }

  #fit([one, other]) {
    const [rate, otherRate] = this.#tapes.map((tape) => tape.fps);
    return overlap(one.time, rate, other.time, otherRate);
  }

  #show(taken) {
    const times = taken.map(({ time }) => time);
    const frame = frameAt(Math.max(...times), this.fps);
    // Where the seam comes late, nobody sees what lies behind it; and the second to come finds the pair on the screen.
    if (frame > this.loop[1] || String(times) === this.#on) return;
    this.#on = String(times);
    this.#seen = performance.now();
    this.#hooks.draw(taken.map(({ picture }) => picture));
    if (frame !== this.frame) this.#tell(frame);
  }

  #tick(master, follower) {
    const [, last] = this.loop;
    if (frameAt(master.shown, this.fps) >= last) return this.#plan(last);
    if (!this.#fed(LOW_SECONDS)) return this.#dry();
    if (this.linked) this.#follow(master.video, follower.video);
  }

  /** Both to the master's place. */
  #rejoin() {
    this.resyncs++;
    this.seek(frameAt(this.#tapes[0].video.currentTime, this.fps));
  }

  #follow(master, follower) {
    const wanted = correction((follower.currentTime - master.currentTime) * this.fps);
    if (wanted.seek && performance.now() > this.#calm) return this.#rejoin();
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

  /** One of them runs out of data: both wait, at the same frame, until both have enough. */
  #dry() {
    if (!this.#running) return;
    this.starved = true;
    this.seek(this.frame);
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
      this.seek(this.frame);
    }, LOOK_MS);
  }
}
