// The two pictures: one pane each, beside or above each other. The videos play unseen, what is seen is drawn from them.

import { element } from "./dom.js";
import { failed } from "./source.js";

const SIDES = ["first", "second"];

export class Stage {
  #values = new Map();

  /** `again(place)` is called by the button of a video that could not be loaded. */
  constructor(again) {
    this.panes = SIDES.map((name, place) => new Pane(name, () => again(place)));
    this.divider = element("div", { className: "divider", "aria-hidden": "true" }, element("span"));
    this.caption = element("span", { className: "label middle" });
    this.text = element("p");
    this.bar = element("progress", { max: 1 });
    this.cover = element("div", { className: "cover", hidden: true }, this.text, this.bar);
    const panes = element("div", { className: "panes" }, this.panes.map((pane) => pane.root));
    this.root = element(
      "div",
      { className: "stage", tabIndex: 0, role: "group" },
      panes,
      this.divider,
      this.caption,
      this.cover,
    );
  }

  get videos() {
    return this.panes.map((pane) => pane.video);
  }

  /** Put a frame of each side on the screen, both in one step. */
  draw(pictures) {
    this.panes.forEach((pane, place) => pane.draw(pictures[place]));
  }

  /** Show nothing of the pair before. */
  clear() {
    for (const pane of this.panes) pane.clear();
  }

  /** What is on the screen of each side. */
  get pictures() {
    return this.panes.map((pane) => pane.picture);
  }

  render(view, words) {
    const broken = view.sides.some(failed);
    this.#attribute("data-mode", broken ? "side" : view.mode);
    this.#attribute("data-layout", broken || view.mode === "side" ? "side" : "over");
    this.#attribute("data-swapped", view.swapped ? "" : null);
    this.#attribute("data-zoomed", view.zoom.scale > 1 ? "" : null);
    this.#attribute("data-peek", view.peek ? "" : null);
    this.#attribute("data-pixelated", view.pixelated ? "" : null);
    this.#attribute("data-blind", view.blind ? "" : null);
    this.#attribute("data-wide", view.box && view.box.width > view.box.height * 1.2 ? "" : null);
    this.#attribute("aria-label", view.prompt && !view.blind ? words.say("stage_of", { prompt: view.prompt }) : words.say("stage"));
    if (view.box) this.style("--ratio", String(view.box.width / view.box.height));
    this.place(view);
    view.sides.forEach((side, place) => this.panes[place].render(side, words));
    this.#captioned(view, words);
    this.#covered(view, words, broken);
  }

  /** The part of `render` that a drag changes. */
  place({ zoom, wipe, onion, gain }) {
    this.style("--scale", String(zoom.scale));
    this.style("--x", `${zoom.x * 100}%`);
    this.style("--y", `${zoom.y * 100}%`);
    this.style("--wipe", `${wipe}%`);
    this.style("--onion", String(onion / 100));
    this.style("--gain", String(gain));
  }

  style(name, value) {
    if (this.#values.get(name) === value) return;
    this.#values.set(name, value);
    this.root.style.setProperty(name, value);
  }

  #attribute(name, value) {
    if (this.root.getAttribute(name) === value) return;
    if (value === null) this.root.removeAttribute(name);
    else this.root.setAttribute(name, value);
  }

  #captioned({ mode, gain, sides }, words) {
    const [before, after] = sides.map((side) => side.label);
    const shown = mode === "difference" || mode === "onion";
    this.caption.hidden = !shown;
    if (shown) this.caption.textContent = words.say(`${mode}_label`, { before, after, gain });
  }

  #covered({ sides, starved }, words, broken) {
    const loading = !broken && sides.some((side) => side.state === "loading");
    this.cover.hidden = !loading && !starved;
    if (this.cover.hidden) return;
    const progress = Math.min(...sides.map((side) => (side.state === "ready" ? 1 : side.progress)));
    const slow = sides.some((side) => side.slow);
    this.bar.hidden = !loading;
    this.bar.value = progress;
    this.bar.setAttribute("aria-label", words.say("said_loading"));
    const percent = Math.floor(progress * 100);
    this.text.textContent = loading ? words.say(slow ? "slow" : "loading", { percent }) : words.say("waiting");
  }
}

class Pane {
  constructor(name, again) {
    const plain = { muted: true, playsInline: true, preload: "auto", disablePictureInPicture: true, tabIndex: -1 };
    this.video = element("video", { ...plain, defaultMuted: true, "aria-hidden": "true" });
    this.picture = element("canvas", { role: "img", width: 1, height: 1 });
    this.context = this.picture.getContext("2d", { alpha: false });
    this.label = element("span", { className: "label" });
    this.reason = element("p");
    this.button = element("button", { type: "button", onclick: again });
    this.cover = element("div", { className: "cover failed", hidden: true }, this.reason, this.button);
    const content = element("div", { className: "content" }, this.picture);
    this.root = element("div", { className: `pane ${name}` }, this.video, content, this.label, this.cover);
  }

  draw(source) {
    const { video, picture, context } = this;
    if (video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA || !video.videoWidth) return;
    if (picture.width !== video.videoWidth || picture.height !== video.videoHeight) {
      [picture.width, picture.height] = [video.videoWidth, video.videoHeight];
    }
    context.drawImage(source, 0, 0, picture.width, picture.height);
  }

  clear() {
    this.context.clearRect(0, 0, this.picture.width, this.picture.height);
  }

  render(side, words) {
    this.label.textContent = side.label;
    this.picture.setAttribute("aria-label", words.say("video", { side: side.label }));
    this.root.dataset.state = side.state;
    this.cover.hidden = !failed(side);
    if (!failed(side)) return;
    this.reason.textContent = words.say(side.state);
    this.button.textContent = words.say("retry");
  }
}
