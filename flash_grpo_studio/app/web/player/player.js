// <fg-player>: two videos of the same prompt in lock-step, five ways to compare them. README.md lists its doors.

import { badges } from "./badges.js";
import { Desk } from "./desk.js";
import { element } from "./dom.js";
import { fits } from "./fit.js";
import { Gestures } from "./gestures.js";
import { helpDialog, keys } from "./keys.js";
import { modes } from "./modes.js";
import { Stage } from "./stage.js";
import { dress } from "./style.js";
import { transport } from "./transport.js";
import { Words } from "./words.js";
import { wheelZoom } from "./zoom.js";

const TELL_MS = 250;
const ATTRIBUTES = { mode: "mode", frame: "frame", speed: "speed", loopin: "loopIn", loopout: "loopOut", gain: "gain", swapped: "swapped" };

class Player extends HTMLElement {
  static observedAttributes = Object.keys(ATTRIBUTES);

  #words = new Words();
  #stage = new Stage((place) => this.#desk.again(place));
  #dialog = helpDialog();
  #notices = element("div", { className: "notices" });
  #status = element("div", { className: "quiet", role: "status", "aria-live": "polite" });
  #desk = new Desk(this.#stage, this.#windows());
  #body = element("div", { className: "root" });
  #head = badges();
  #ways;
  #controls;
  #drawn = null; // the pair that the head shows
  #scheduled = false;
  #telling = 0;
  #untold = false;

  constructor() {
    super();
    const act = this.#desk.actions();
    [this.#ways, this.#controls] = [modes(act), transport(act)];
    const { root } = this.#stage;
    this.#body.append(this.#head.root, this.#ways.root, this.#notices, root, ...this.#controls.root, this.#status);
    const shadow = this.attachShadow({ mode: "open" });
    shadow.append(this.#body, this.#dialog.root);
    dress(shadow);
    fits(this, this.#body, root);
    const view = () => this.#view();
    keys(this, root, act, view);
    wheelZoom(this.#stage, this, () => this.zoom, act.zoomTo);
    new Gestures(this.#stage, this.#head.root, act, view);
  }

  connectedCallback() {
    this.#desk.enter();
    this.#update();
  }

  disconnectedCallback() {
    this.#desk.leave();
  }

  attributeChangedCallback(name, _, value) {
    if (value !== null) this.#desk.take({ [ATTRIBUTES[name]]: name === "swapped" ? value !== "false" : value });
  }

  /** Show a pair; README.md says what it may hold. Mode, speed, gain and sides stay; frame, loop and zoom begin anew. */
  show(pair) {
    this.#desk.show(pair, this.isConnected);
    this.#update();
  }

  /** What a link or a page keeps of it. */
  state() {
    return this.#desk.told();
  }

  /** Take back what `state` gave, or a part of it; what makes no sense is left out. A frame stops at that frame. */
  restore(state) {
    this.#desk.restore(state);
  }

  play() {
    this.#desk.play();
  }

  pause() {
    this.#desk.pause();
  }

  focus(options) {
    this.#stage.root.focus(options);
  }

  /** Whether it plays, or would if it had the data. */
  get playing() {
    return this.#desk.clock.playing;
  }

  /** Number of frames both videos have; 0 until they are loaded. */
  get frames() {
    return this.#desk.clock.frames;
  }

  /** What is on the screen of each side, as something a canvas can draw. */
  get pictures() {
    return this.#stage.pictures;
  }

  /** Whether the sides are held together; only tests and measurements switch it off, to see what it does. */
  get linked() {
    return this.#desk.clock.linked;
  }

  set linked(linked) {
    this.#desk.clock.linked = linked;
  }

  /** How often nudging was not enough, and both had to seek. */
  get resyncs() {
    return this.#desk.clock.resyncs;
  }

  get words() {
    return this.#words.own;
  }

  set words(words) {
    this.#words.own = words;
    this.#drawn = null;
    this.#update();
  }

  get mode() {
    return this.#desk.mode;
  }

  set mode(mode) {
    this.#desk.take({ mode });
  }

  get frame() {
    return this.#desk.frame;
  }

  set frame(frame) {
    this.#desk.take({ frame });
  }

  get speed() {
    return this.#desk.state.speed;
  }

  set speed(speed) {
    this.#desk.take({ speed });
  }

  get loopIn() {
    return this.state().loop[0];
  }

  set loopIn(loopIn) {
    this.#desk.take({ loopIn });
  }

  get loopOut() {
    return this.state().loop[1];
  }

  set loopOut(loopOut) {
    this.#desk.take({ loopOut });
  }

  get gain() {
    return this.#desk.state.gain;
  }

  set gain(gain) {
    this.#desk.take({ gain });
  }

  get swapped() {
    return this.#desk.state.swapped;
  }

  set swapped(swapped) {
    this.#desk.take({ swapped: Boolean(swapped) });
  }

  get zoom() {
    return { ...this.#desk.state.zoom };
  }

  set zoom(zoom) {
    this.#desk.take({ zoom });
  }

  #windows() {
    return {
      update: () => this.#update(),
      tell: () => this.#tell(),
      frame: (frame) => {
        this.#controls.tick(frame);
        this.#tell();
      },
      say: (name, values) => this.#say(name, values),
      failed: (place, reason) => {
        this.#say("said_failed", { side: this.#labels()[place], reason: this.#words.say(reason) });
        this.#emit("fg-player-error", { side: this.#desk.pair.sides[place].name, reason });
      },
      emit: (type) => this.#emit(type, this.state()),
      full: () => this.#fullScreen(),
      help: () => this.#dialog.open(this.#view(), this.#words),
      asking: () => this.#dialog.root.open,
    };
  }

  #fullScreen() {
    if (document.fullscreenElement === this) return document.exitFullscreen();
    const fill = () => this.#body.classList.toggle("filled"); // a phone whose browser fills the screen with nothing but a video
    return this.requestFullscreen ? this.requestFullscreen().catch(fill) : fill();
  }

  #labels() {
    const { blind, sides } = this.#desk.pair;
    const names = blind ? ["left", "right"] : ["before", "after"];
    return names.map((name, place) => sides[place].label || this.#words.say(name));
  }

  #view() {
    return this.#desk.view(this.#labels());
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
    const [desk, words] = [this.#desk, this.#words];
    const view = this.#view();
    if (this.#drawn !== desk.pair) this.#head.render(desk.pair, words);
    this.#drawn = desk.pair;
    for (const part of [this.#stage, this.#controls, this.#ways]) part.render(view, words);
    const texts = (desk.facts?.notices ?? []).map((notice) => words.say(`notice_${notice.code}`, notice));
    if (desk.hint) texts.push(words.say(desk.hint));
    this.#notices.replaceChildren(...texts.map((text) => element("p", { className: "notice" }, text)));
  }

  /** Tell assistive technology: changes of state, never frames. */
  #say(name, values) {
    const text = this.#words.say(name, values);
    if (this.#status.textContent !== text) this.#status.textContent = text;
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
