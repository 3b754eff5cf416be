// <fg-player>: two videos of the same prompt in lock-step, five ways to compare them. `show` takes a pair; see README.md.

import { badges } from "./badges.js";
import { Clock } from "./clock.js";
import { element } from "./dom.js";
import { fits } from "./fit.js";
import { Gestures } from "./gestures.js";
import { helpDialog, keys } from "./keys.js";
import { clamp, loopWithin, nextStep } from "./math.js";
import { modes } from "./modes.js";
import { factsOf, pairOf, sharp } from "./pair.js";
import { Source } from "./source.js";
import { failed, Stage } from "./stage.js";
import { fresh, frameOf, GAINS, merged, MODES, SPEEDS, told } from "./state.js";
import { dress } from "./style.js";
import { transport } from "./transport.js";
import { Words } from "./words.js";
import { panned, toggled, wheelZoom } from "./zoom.js";

const TELL_MS = 250;
const PLAYED_ONCE = 0.75; // of the seconds; seams and seeks are not counted as played
const ATTRIBUTES = { mode: "mode", frame: "frame", speed: "speed", loopin: "loopIn", loopout: "loopOut", gain: "gain", swapped: "swapped" };

class Player extends HTMLElement {
  static observedAttributes = Object.keys(ATTRIBUTES);

  #words = new Words();
  #state = fresh();
  #pair = null;
  #facts = null;
  #sources;
  #stage;
  #clock;
  #parts;
  #dialog;
  #notices;
  #status;
  #peek = false;
  #wanted = null; // a frame asked for before there was one
  #eager = null; // whether it should play; null: nobody has said
  #hint = "";
  #ended = false;
  #scheduled = false;
  #newHead = true;
  #telling = 0;
  #untold = false;
  #hidden = false;
  #still = matchMedia("(prefers-reduced-motion: reduce)");

  constructor() {
    super();
    const act = this.#actions();
    const view = () => this.#view();
    this.#stage = new Stage((place) => this.#sources[place].again());
    this.#sources = this.#stage.videos.map((video, place) => new Source(video, () => this.#loaded(place)));
    this.#clock = new Clock(this.#stage.videos, this.#hooks());
    const [head, ways, controls] = [badges(), modes(act), transport(act)];
    this.#parts = { head, ways, controls };
    this.#dialog = helpDialog();
    this.#notices = element("div", { className: "notices" });
    this.#status = element("div", { className: "quiet", role: "status", "aria-live": "polite" });
    const { root } = this.#stage;
    this.body = element("div", { className: "root" }, head.root, ways.root, this.#notices, root, controls.root, this.#status);
    const shadow = this.attachShadow({ mode: "open", delegatesFocus: false });
    shadow.append(this.body, this.#dialog.root);
    dress(shadow);
    fits(this, this.body, root);
    keys(this, root, act, view);
    wheelZoom(this.#stage, this, () => this.#state.zoom, act.zoomTo);
    new Gestures(this.#stage, head.root, act, view);
    this.seen = () => this.#sighted();
  }

  connectedCallback() {
    document.addEventListener("visibilitychange", this.seen);
    this.#still.addEventListener("change", this.seen);
    if (this.#pair && this.#sources[0].state === "idle") this.#load();
    this.#update();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.seen);
    this.#still.removeEventListener("change", this.seen);
    this.#clock.close();
    for (const source of this.#sources) source.release();
  }

  attributeChangedCallback(name, _, value) {
    if (value === null) return;
    this.#restore({ [ATTRIBUTES[name]]: name === "swapped" ? value !== "false" : value });
  }

  /** Show a pair; README.md says what it may hold. Mode, speed, gain and sides stay; frame, loop and zoom begin anew. */
  show(given) {
    this.#pair = pairOf(given ?? {});
    this.#newHead = true;
    this.#state = { ...this.#state, loop: null, zoom: fresh().zoom };
    [this.#facts, this.#wanted, this.#ended, this.#hint, this.#peek] = [null, null, false, "", false];
    if (this.isConnected) this.#load();
    this.#update();
  }

  #load() {
    this.#clock.close();
    this.#stage.clear();
    this.#pair.sides.forEach((side, place) => {
      if (side.frames === 0) this.#sources[place].fail("empty");
      else this.#sources[place].load(side.src, side.poster);
    });
    this.#say("said_loading");
  }

  /** What a link or a page keeps of it. */
  state() {
    return told({ ...this.#state, mode: this.mode }, this.#wanted ?? this.#clock.frame, this.#clock.frames);
  }

  /** Take back what `state` gave, or a part of it; what makes no sense is left out. A frame stops at that frame. */
  restore(state) {
    const frame = frameOf(state?.frame);
    if (frame !== null) this.#eager = false;
    this.#restore(state);
    if (frame !== null) this.#clock.pause();
  }

  #restore(wanted) {
    if (!wanted || typeof wanted !== "object") return;
    const { loop } = this.#state;
    this.#state = merged(this.#state, wanted, this.#modes());
    const [first, last] = this.#state.loop ?? [null, null];
    if (wanted.loopIn !== undefined) this.#state.loop = [frameOf(wanted.loopIn), last];
    if (wanted.loopOut !== undefined) this.#state.loop = [first, frameOf(wanted.loopOut)];
    const frame = frameOf(wanted.frame);
    if (this.#clock.opened) {
      if (this.#state.loop !== loop) this.#clock.loop = this.#state.loop;
      this.#clock.speed = this.#state.speed;
      if (frame !== null) this.#clock.seek(frame);
    } else if (frame !== null) {
      this.#wanted = frame;
    }
    this.#changed();
  }

  play() {
    this.#eager = true;
    this.#clock.play();
  }

  pause() {
    this.#eager = false;
    this.#clock.pause();
  }

  focus(options) {
    this.#stage.root.focus(options);
  }

  /** Whether it plays or would, if it had the data. */
  get playing() {
    return this.#clock.playing;
  }

  /** Number of frames both videos have; 0 until they are loaded. */
  get frames() {
    return this.#clock.frames;
  }

  /** What is on the screen of each side, as something a canvas can draw. */
  get pictures() {
    return this.#stage.pictures;
  }

  /** Whether the sides are held together; only tests and measurements switch it off, to see what it does. */
  get linked() {
    return this.#clock.linked;
  }

  set linked(linked) {
    this.#clock.linked = linked;
  }

  /** How often nudging was not enough, and both had to seek. */
  get resyncs() {
    return this.#clock.resyncs;
  }

  get words() {
    return this.#words.own;
  }

  set words(words) {
    this.#words.own = words;
    this.#newHead = true;
    this.#update();
  }

  get mode() {
    return this.#pair?.blind ? "side" : this.#state.mode;
  }

  set mode(mode) {
    this.#restore({ mode });
  }

  get frame() {
    return this.#wanted ?? this.#clock.frame;
  }

  set frame(frame) {
    this.#restore({ frame });
  }

  get speed() {
    return this.#state.speed;
  }

  set speed(speed) {
    this.#restore({ speed });
  }

  get loopIn() {
    return this.state().loop[0];
  }

  set loopIn(loopIn) {
    this.#restore({ loopIn });
  }

  get loopOut() {
    return this.state().loop[1];
  }

  set loopOut(loopOut) {
    this.#restore({ loopOut });
  }

  get gain() {
    return this.#state.gain;
  }

  set gain(gain) {
    this.#restore({ gain });
  }

  get swapped() {
    return this.#state.swapped;
  }

  set swapped(swapped) {
    this.#restore({ swapped: Boolean(swapped) });
  }

  get zoom() {
    return { ...this.#state.zoom };
  }

  set zoom(zoom) {
    this.#restore({ zoom });
  }

  #modes() {
    return this.#still.matches ? MODES.filter((mode) => mode !== "flicker") : MODES;
  }

  #hooks() {
    return {
      draw: (pictures) => this.#stage.draw(pictures),
      frame: (frame) => {
        this.#parts.controls.tick(frame);
        this.#tell();
      },
      change: () => {
        this.#say(this.#clock.starved ? "waiting" : this.#clock.playing ? "said_playing" : "said_paused", { frame: this.#clock.frame });
        this.#changed();
      },
      lap: () => this.#lapped(),
      refused: () => this.#notice("blocked"),
    };
  }

  #actions() {
    const set = (wanted) => this.#restore(wanted);
    const step = (frames) => () => {
      this.pause();
      this.#clock.seek(clamp(this.#clock.frame + frames, 0, this.#clock.frames - 1));
    };
    const emit = (name) => () => this.#emit(`fg-player-${name}`, this.state());
    return {
      mode: (mode) => this.#choose(mode),
      toggle: () => (this.#clock.playing ? this.pause() : this.play()),
      back: step(-1),
      forward: step(1),
      backTen: step(-10),
      forwardTen: step(10),
      frame: (frame) => set({ frame }),
      loopIn: () => set({ loopIn: this.#clock.frame }),
      loopOut: () => set({ loopOut: this.#clock.frame }),
      loopClear: () => set({ loop: null }),
      speed: (speed) => set({ speed }),
      slower: () => set({ speed: nextStep(SPEEDS, this.#state.speed, -1) }),
      faster: () => set({ speed: nextStep(SPEEDS, this.#state.speed, 1) }),
      swap: () => this.#pair?.blind || set({ swapped: !this.#state.swapped }),
      gain: (gain) => set({ gain }),
      wipe: (wipe) => this.#slide({ wipe: clamp(wipe, 0, 100) }),
      onion: (onion) => this.#slide({ onion }),
      zoom: () => set({ zoom: toggled(this.#state.zoom) }),
      zoomTo: (zoom) => this.#slide({ zoom }),
      pan: (right, down) => {
        if (this.#state.zoom.scale <= 1) return false;
        this.#slide({ zoom: panned(this.#state.zoom, right, down) });
        return true;
      },
      peek: (peek) => this.#peeked(peek),
      full: () => this.#fullScreen(),
      help: () => this.#dialog.open(this.#view(), this.#words),
      asking: () => this.#dialog.root.open,
      next: emit("next"),
      previous: emit("previous"),
    };
  }

  #choose(mode) {
    if (mode === "flicker" && this.#still.matches) return this.#notice("still");
    this.#hint = "";
    if (mode === "difference" && this.mode === mode) {
      this.#restore({ gain: GAINS[(GAINS.indexOf(this.#state.gain) + 1) % GAINS.length] });
      return;
    }
    this.#peek = false;
    this.#restore({ mode });
    this.#say(`mode_${mode}`);
  }

  #peeked(peek) {
    if (this.#peek === peek || (peek && this.mode !== "flicker")) return;
    this.#peek = peek;
    this.#update();
  }

  /** A drag: only what it moves is drawn at once, the rest follows. */
  #slide(changes) {
    Object.assign(this.#state, changes);
    this.#stage.place(this.#state);
    this.#changed();
  }

  #fullScreen() {
    if (document.fullscreenElement === this) return document.exitFullscreen();
    if (this.requestFullscreen) return this.requestFullscreen().catch(() => this.body.classList.toggle("filled"));
    return this.body.classList.toggle("filled"); // a phone whose browser shows only single videos full screen
  }

  #loaded(place) {
    const source = this.#sources[place];
    if (failed(source)) {
      const side = this.#pair.sides[place].name;
      this.#clock.close();
      this.#say("said_failed", { side: this.#labels()[place], reason: this.#words.say(source.state) });
      this.#emit("fg-player-error", { side, reason: source.state });
    } else if (source.state === "ready" && this.#sources.every((one) => one.state === "ready")) {
      this.#open();
    }
    this.#update();
  }

  async #open() {
    const facts = (this.#facts = factsOf(this.#pair, this.#stage.videos));
    const { fps, frames, rates } = facts;
    const { loop, speed } = this.#state;
    const frame = this.#wanted ?? loopWithin(loop, frames)[0];
    this.#wanted = null;
    await this.#clock.open({ fps, frames, rates, loop, speed, frame });
    if (this.#facts !== facts) return;
    this.#say("said_ready", { frames });
    if (this.#eager ?? !this.#still.matches) this.#clock.play();
    this.#changed();
  }

  #lapped() {
    if (this.#ended || !this.#facts) return;
    const seconds = this.#facts.frames / this.#facts.fps;
    const enough = ({ played }) => {
      let sum = 0;
      for (let place = 0; place < played.length; place++) sum += played.end(place) - played.start(place);
      return sum >= PLAYED_ONCE * seconds || this.#facts.frames === 1;
    };
    if (!this.#stage.videos.every(enough)) return;
    this.#ended = true;
    this.#emit("fg-player-ended-once", this.state());
  }

  /** The page was hidden or seen again, or the system's wish for less motion changed. */
  #sighted() {
    if (document.hidden && this.#clock.playing) {
      this.#hidden = true;
      this.#clock.pause();
    } else if (!document.hidden && this.#hidden) {
      this.#hidden = false;
      if (this.#eager !== false) this.#clock.play();
    }
    if (!this.#modes().includes(this.#state.mode)) this.#restore({ mode: "wipe" });
  }

  #labels() {
    const blind = this.#pair?.blind;
    const names = blind ? ["left", "right"] : ["before", "after"];
    return names.map((name, place) => this.#pair?.sides[place].label || this.#words.say(name));
  }

  #view() {
    const labels = this.#labels();
    const { blind = false, prompt = "" } = this.#pair ?? {};
    const pixelated = sharp(this.#pair ?? {}, this.#facts);
    const { frame, frames, loop, playing, starved, opened: open } = this.#clock;
    const sides = this.#sources.map(({ state, progress, slow }, place) => ({ state, progress, slow, label: labels[place] }));
    const looped = frames > 0 && (loop[0] > 0 || loop[1] < frames - 1);
    const more = { frame, frames, loop, looped, playing, starved, open, sides, blind, pixelated, prompt };
    const swapped = this.#state.swapped && !blind;
    return { ...this.#state, ...more, mode: this.mode, swapped, peek: this.#peek, box: this.#facts };
  }

  #update() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#render();
    });
  }

  #render() {
    const [view, words] = [this.#view(), this.#words];
    if (this.#newHead) this.#parts.head.render(this.#pair ?? pairOf({}), words);
    this.#newHead = false;
    this.#stage.render(view, words);
    this.#parts.controls.render(view, words);
    this.#parts.ways.render(view, words);
    const texts = (this.#facts?.notices ?? []).map((notice) => words.say(`notice_${notice.code}`, notice));
    if (this.#hint) texts.push(words.say(this.#hint));
    this.#notices.replaceChildren(...texts.map((text) => element("p", { className: "notice" }, text)));
  }

  #notice(name) {
    this.#hint = name;
    this.#say(name);
    this.#update();
  }

  /** Tell assistive technology: changes of state, never frames. */
  #say(name, values) {
    const text = this.#words.say(name, values);
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }

  #changed() {
    this.#update();
    this.#tell();
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
  }

  /** Tell the page, at most four times a second, and always the last state. */
  #tell() {
    if (this.#telling) {
      this.#untold = true;
      return;
    }
    this.#untold = false;
    this.#emit("fg-player-change", this.state());
    this.#telling = setTimeout(() => {
      this.#telling = 0;
      if (this.#untold) this.#tell();
    }, TELL_MS);
  }
}

customElements.define("fg-player", Player);
