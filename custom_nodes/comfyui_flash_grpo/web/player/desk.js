// A copy of flash_grpo_studio/app/web/player/desk.js, made by `make comfyui-pack`; edit that file instead.
// What the player does: the pair on show, the state a link keeps, and every action that a key, a button or a finger asks
// for. It knows neither words nor markup.

import { Clock } from "./clock.js";
import { clamp, loopWithin, nextStep } from "./math.js";
import { factsOf, pairOf, sharp } from "./pair.js";
import { failed, Source } from "./source.js";
import { fresh, frameOf, GAINS, merged, MODES, SPEEDS, told } from "./state.js";
import { panned, toggled } from "./zoom.js";

const PLAYED_ONCE = 0.75; // of the seconds; seams and seeks are not counted as played

export class Desk {
  pair = pairOf({});
  /** What both videos share, once they are loaded. */
  facts = null;
  /** Something to tell beside the pictures, by the name of its words. */
  hint = "";
  state = fresh();
  #ask;
  #stage;
  #sources;
  #peek = false;
  #wanted = null; // a frame asked for before there was one
  #eager = null; // whether it should play; null: nobody has said
  #ended = false;
  #hidden = false;
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #sighted = () => this.#look();

  /**
   * ask: update() draws what has changed, tell() lets the page know, frame(number) is called at each frame, say(name,
   * values) speaks, failed(place, reason) and emit(type) report, full(), help() and asking() are the windows.
   */
  constructor(stage, ask) {
    [this.#stage, this.#ask] = [stage, ask];
    this.#sources = stage.videos.map((video, place) => new Source(video, () => this.#loaded(place)));
    this.clock = new Clock(stage.videos, {
      draw: (pictures) => stage.draw(pictures),
      frame: (frame) => ask.frame(frame),
      change: () => this.#moved(),
      lap: () => this.#lapped(),
      refused: () => this.notice("blocked"),
    });
  }

  /** The page has it now; what was let go is loaded again. */
  enter() {
    document.addEventListener("visibilitychange", this.#sighted);
    this.#still.addEventListener("change", this.#sighted);
    if (this.pair.given && this.#sources[0].state === "idle") this.#load();
  }

  leave() {
    document.removeEventListener("visibilitychange", this.#sighted);
    this.#still.removeEventListener("change", this.#sighted);
    this.clock.close();
    for (const source of this.#sources) source.release();
  }

  show(given, now) {
    this.pair = pairOf(given ?? {});
    this.state = { ...this.state, loop: null, zoom: fresh().zoom };
    [this.facts, this.#wanted, this.#ended, this.hint, this.#peek] = [null, null, false, "", false];
    if (now) this.#load();
  }

  #load() {
    this.clock.close();
    this.#stage.clear();
    this.pair.sides.forEach(({ frames, src }, place) => {
      if (frames === 0) this.#sources[place].fail("empty");
      else this.#sources[place].load(src);
    });
    if (this.#sources.every((source) => !failed(source))) this.#ask.say("said_loading");
  }

  again(place) {
    this.#sources[place].again();
  }

  get mode() {
    return this.pair.blind ? "side" : this.state.mode;
  }

  get frame() {
    return this.#wanted ?? this.clock.frame;
  }

  told() {
    return told({ ...this.state, mode: this.mode }, this.frame, this.clock.frames);
  }

  /** Take what can be used of `wanted`. */
  take(wanted) {
    if (!wanted || typeof wanted !== "object") return;
    const { loop } = this.state;
    this.state = merged(this.state, wanted, this.#modes());
    const [first, last] = this.state.loop ?? [null, null];
    if (wanted.loopIn !== undefined) this.state.loop = [frameOf(wanted.loopIn), last];
    if (wanted.loopOut !== undefined) this.state.loop = [first, frameOf(wanted.loopOut)];
    const frame = frameOf(wanted.frame);
    if (this.clock.opened) {
      if (this.state.loop !== loop) this.clock.loop = this.state.loop;
      this.clock.speed = this.state.speed;
      if (frame !== null) this.clock.seek(frame);
    } else if (frame !== null) {
      this.#wanted = frame;
    }
    this.#changed();
  }

  /** Take back a link's state: a frame stops there. */
  restore(state) {
    const stop = frameOf(state?.frame) !== null;
    if (stop) this.#eager = false;
    this.take(state);
    if (stop) this.clock.pause();
  }

  play() {
    this.#eager = true;
    this.clock.play();
  }

  pause() {
    this.#eager = false;
    this.clock.pause();
  }

  notice(name) {
    this.hint = name;
    this.#ask.say(name);
    this.#ask.update();
  }

  /** All that the parts of the player need to show themselves. */
  view(labels) {
    const { blind, prompt } = this.pair;
    const { frame, frames, loop, playing, starved, opened: open } = this.clock;
    const sides = this.#sources.map(({ state, progress, slow }, place) => ({ state, progress, slow, label: labels[place] }));
    const looped = frames > 0 && (loop[0] > 0 || loop[1] < frames - 1);
    const shown = { sides, blind, prompt, pixelated: sharp(this.pair, this.facts), box: this.facts, peek: this.#peek };
    const swapped = this.state.swapped && !blind;
    return { ...this.state, ...shown, frame, frames, loop, looped, playing, starved, open, mode: this.mode, swapped };
  }

  /** What keys, buttons and fingers may ask for. */
  actions() {
    const ask = this.#ask;
    return { ...this.#timeActions(), ...this.#lookActions(), full: ask.full, help: ask.help, asking: ask.asking };
  }

  #timeActions() {
    const step = (frames) => () => {
      this.pause();
      this.clock.seek(clamp(this.clock.frame + frames, 0, this.clock.frames - 1));
    };
    const speed = (direction) => () => this.take({ speed: nextStep(SPEEDS, this.state.speed, direction) });
    return {
      toggle: () => (this.clock.playing ? this.pause() : this.play()),
      back: step(-1),
      forward: step(1),
      backTen: step(-10),
      forwardTen: step(10),
      frame: (frame) => this.take({ frame }),
      loopIn: () => this.take({ loopIn: this.clock.frame }),
      loopOut: () => this.take({ loopOut: this.clock.frame }),
      loopClear: () => this.take({ loop: null }),
      speed: (value) => this.take({ speed: value }),
      slower: speed(-1),
      faster: speed(1),
    };
  }

  #lookActions() {
    return {
      mode: (mode) => this.#choose(mode),
      swap: () => this.pair.blind || this.take({ swapped: !this.state.swapped }),
      gain: (gain) => this.take({ gain }),
      wipe: (wipe) => this.#slide({ wipe: clamp(wipe, 0, 100) }),
      onion: (onion) => this.#slide({ onion }),
      zoom: () => this.take({ zoom: toggled(this.state.zoom) }),
      zoomTo: (zoom) => this.#slide({ zoom }),
      pan: (right, down) => this.#pan(right, down),
      peek: (peek) => this.#peeked(peek),
      next: () => this.#ask.emit("fg-player-next"),
      previous: () => this.#ask.emit("fg-player-previous"),
    };
  }

  #choose(mode) {
    if (mode === "flicker" && this.#still.matches) return this.notice("still");
    this.hint = "";
    this.#peek = false;
    const again = mode === "difference" && this.mode === mode;
    this.take(again ? { gain: GAINS[(GAINS.indexOf(this.state.gain) + 1) % GAINS.length] } : { mode });
    this.#ask.say(`mode_${mode}`);
  }

  #modes() {
    return this.#still.matches ? MODES.filter((mode) => mode !== "flicker") : MODES;
  }

  #peeked(peek) {
    if (this.#peek === peek || (peek && this.mode !== "flicker")) return;
    this.#peek = peek;
    this.#ask.update();
  }

  #pan(right, down) {
    if (this.state.zoom.scale <= 1) return false;
    this.#slide({ zoom: panned(this.state.zoom, right, down) });
    return true;
  }

  /** A drag: only what it moves is drawn at once, the rest follows. */
  #slide(changes) {
    Object.assign(this.state, changes);
    this.#stage.place(this.state);
    this.#changed();
  }

  #changed() {
    this.#ask.update();
    this.#ask.tell();
  }

  #moved() {
    const { starved, playing, frame } = this.clock;
    const name = playing ? "said_playing" : "said_paused";
    this.#ask.say(starved ? "waiting" : name, { frame });
    this.#changed();
  }

  #loaded(place) {
    const source = this.#sources[place];
    if (failed(source)) {
      this.clock.close();
      this.#ask.failed(place, source.state);
    } else if (this.#sources.every((one) => one.state === "ready")) {
      this.#open();
    }
    this.#ask.update();
  }

  async #open() {
    const facts = (this.facts = factsOf(this.pair, this.#stage.videos));
    const { fps, frames, rates } = facts;
    const { loop, speed } = this.state;
    const frame = this.#wanted ?? loopWithin(loop, frames)[0];
    this.#wanted = null;
    await this.clock.open({ fps, frames, rates, loop, speed, frame });
    if (this.facts !== facts || !this.clock.opened) return;
    this.#ask.say("said_ready", { frames });
    if (this.#eager ?? !this.#still.matches) this.clock.play();
    this.#changed();
  }

  #lapped() {
    if (this.#ended || !this.facts) return;
    const seconds = this.facts.frames / this.facts.fps;
    const enough = ({ played }) => {
      let sum = 0;
      for (let place = 0; place < played.length; place++) sum += played.end(place) - played.start(place);
      return sum >= PLAYED_ONCE * seconds || this.facts.frames === 1;
    };
    if (!this.#stage.videos.every(enough)) return;
    this.#ended = true;
    this.#ask.emit("fg-player-ended-once");
  }

  /** The page was hidden or is seen again, or the system's wish for less motion has changed. */
  #look() {
    if (document.hidden && this.clock.playing) {
      this.#hidden = true;
      this.clock.pause();
    } else if (!document.hidden && this.#hidden) {
      this.#hidden = false;
      if (this.#eager !== false) this.clock.play();
    }
    if (!this.#modes().includes(this.state.mode)) this.take({ mode: "wipe" });
  }
}
