// What a node has to say, as text on the node: what it did, how far it is, or why it failed.

import { shareWithCanvas } from "./canvas.js";
import { element } from "./player/dom.js";

const MARGIN = 8;
const WIDTH = 320;
const PADDING = 12;
const MOST = 220; // px; longer texts scroll

export class NoteView {
  #height = 60;
  #lasting = "";

  constructor(node) {
    this.node = node;
    this.text = element("p", { role: "status" });
    this.bar = element("progress", { hidden: true });
    this.inner = element("div", {}, this.text, this.bar);
    this.root = element("div", { className: "flash-grpo flash-grpo-note" }, this.inner);
    const height = () => this.#height + 2 * MARGIN;
    const options = { serialize: false, hideOnZoom: true, margin: MARGIN, getMinHeight: height, getMaxHeight: height };
    this.widget = node.addDOMWidget("note", "flash_grpo_note", this.root, options);
    this.widget.serialize = false;
    node.setSize([Math.max(node.size[0], WIDTH), node.size[1]]);
    shareWithCanvas(this.root);
    new ResizeObserver(() => this.#measure()).observe(this.inner);
    this.#say("");
  }

  /** The output of a node that ran: one text, or one for each of several runs. */
  show(output) {
    const texts = Array.isArray(output?.text) ? output.text : [];
    this.say(texts.filter((text) => typeof text === "string" && text).join("\n\n"));
  }

  say(text) {
    this.#lasting = text;
    this.#say(text);
  }

  /** How far it is, while it runs. */
  progress({ text, done, total }) {
    this.#say(String(text));
    this.bar.hidden = !(total > 0);
    if (total > 0) Object.assign(this.bar, { max: total, value: done });
  }

  fail(message) {
    this.#say(String(message).trim(), true);
  }

  /** A new run: what failed in the last one is over. */
  begin() {
    this.#say(this.#lasting);
  }

  #say(text, failed = false) {
    this.text.textContent = text;
    this.text.classList.toggle("flash-grpo-failed", failed);
    this.bar.hidden = true;
    this.widget.hidden = !text;
    this.#fit();
  }

  /** The node is at least as high as all that is in it. */
  #fit() {
    const { node } = this;
    node.setSize([node.size[0], Math.max(node.size[1], node.computeSize()[1])]);
    node.setDirtyCanvas?.(true, true);
  }

  #measure() {
    const height = this.inner.offsetHeight; // 0 while the page does not show it
    const wanted = Math.min(MOST, height + PADDING);
    if (!height || wanted === this.#height) return;
    this.#height = wanted;
    this.#fit();
  }
}
