// Compare videos: the player, or a card that says why there is nothing to play.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { shareWithCanvas } from "./canvas.js";
import { element } from "./player/dom.js";
import "./player/player.js";

const SIZE = [720, 860];
const LEAST = 400; // px
const AGAIN = "Press Run to make it again.";
const WORDS = {
  missing: `ComfyUI no longer has this video: its temporary folder was cleared. ${AGAIN}`,
  refused: `ComfyUI does not hand out this video. ${AGAIN}`,
  away: "ComfyUI does not answer. Is it still running?",
  broken: `This video cannot be decoded; the file is damaged or cut off. ${AGAIN}`,
  empty: `This video holds no frame. ${AGAIN}`,
};
const UNKNOWN = "How the two were made is not known; connect settings of the sampler to see it here.";

export class CompareView {
  #results = [];

  constructor(node) {
    this.node = node;
    this.card = element("div", { className: "flash-grpo-card" });
    this.choice = element("select", { onchange: () => this.#choose(this.choice.selectedIndex) });
    this.only = element("span");
    this.choosing = element("label", { className: "flash-grpo-choice" }, "Checkpoint:", this.choice, this.only);
    this.notices = element("div");
    this.player = element("fg-player", { fit: "" });
    this.file = element("a", { target: "_blank", rel: "noopener" });
    this.kept = element("p", {}, "Side by side: ", this.file);
    const parts = [this.card, this.choosing, this.notices, this.player, this.kept];
    this.root = element("div", { className: "flash-grpo flash-grpo-compare" }, parts);
    const options = { serialize: false, hideOnZoom: false, getMinHeight: () => LEAST };
    this.widget = node.addDOMWidget("player", "flash_grpo_player", this.root, options);
    this.widget.serialize = false;
    node.setSize([Math.max(node.size[0], SIZE[0]), Math.max(node.size[1], SIZE[1])]);
    shareWithCanvas(this.root);
    this.player.addEventListener("fg-player-change", ({ detail }) => this.#keep(detail));
    this.#arrange();
  }

  /** The output of the node: one comparison, or one for each checkpoint of a sweep. */
  show(output) {
    const given = Array.isArray(output?.flash_grpo) ? output.flash_grpo : [];
    this.#results = given.map(parsed).filter(Boolean);
    const names = this.#results.map(({ checkpoint }, place) => checkpoint || `Comparison ${place + 1}`);
    this.choice.replaceChildren(...names.map((name) => element("option", {}, name)));
    this.only.textContent = this.#results.length === 1 ? this.#results[0].checkpoint : "";
    this.#arrange();
    if (this.#results.length) this.#play();
  }

  fail(message) {
    this.#arrange("Compare videos failed", String(message).trim());
  }

  begin() {
    this.#arrange();
  }

  progress() {}

  #arrange(title = "", text = "") {
    const empty = !this.#results.length;
    this.card.hidden = !empty && !title;
    const heading = title || "Nothing to compare yet";
    const explained = title ? text : "Press Run: before and after appear here, in lock-step.";
    this.card.replaceChildren(element("strong", {}, heading), element("p", {}, explained));
    this.card.classList.toggle("flash-grpo-failed", Boolean(title));
    this.card.setAttribute("role", title ? "alert" : "status");
    for (const part of [this.player, this.notices, this.kept]) part.hidden = empty;
    this.choice.hidden = this.#results.length < 2;
    this.choosing.hidden = this.choice.hidden && !this.only.textContent;
  }

  #play() {
    const { properties } = this.node;
    const place = Math.min(Number(properties.player_pair) || 0, this.#results.length - 1);
    const shown = this.#results[place];
    this.choice.selectedIndex = place;
    const notices = [...shown.notices, ...(shown.same ? [] : [UNKNOWN])];
    this.notices.replaceChildren(...notices.map((notice) => element("p", {}, notice)));
    this.#name(shown.composed);
    this.player.words = { ...WORDS, ...(shown.same ? { same: capital(shown.same) } : {}) };
    this.player.show({
      before: { src: addressOf(shown.before), label: "Before" },
      after: { src: addressOf(shown.after), label: "After" },
      fps: shown.fps,
      frames: shown.frames,
      rewards: shown.rewards,
      same: shown.same ? true : undefined,
    });
    this.player.restore({ mode: properties.player_mode, frame: properties.player_frame });
  }

  #name(file) {
    this.kept.hidden = !file;
    if (!file) return;
    this.file.textContent = [file.subfolder, file.filename].filter(Boolean).join("/");
    this.file.href = addressOf(file);
  }

  #choose(place) {
    this.#set({ player_pair: place });
    this.#play();
  }

  /** Keep in the workflow how the user looks at it; a frame only where it stands still. */
  #keep({ mode, frame }) {
    if (!this.player.frames || document.hidden) return;
    this.#set({ player_mode: mode, player_frame: this.player.playing ? null : frame });
  }

  #set(values) {
    const { properties } = this.node;
    const defaults = { player_mode: "wipe", player_frame: null, player_pair: 0 };
    const changed = Object.entries(values).filter(([name, value]) => (properties[name] ?? defaults[name]) !== value);
    if (!changed.length) return;
    app.canvas.emitBeforeChange?.();
    for (const [name, value] of changed) properties[name] = value;
    app.canvas.emitAfterChange?.();
  }
}

/** A comparison as the node told it; null where it is none. */
function parsed(text) {
  try {
    const { notices, rewards, ...rest } = JSON.parse(text);
    if (!rest.before || !rest.after) return null;
    return { checkpoint: "", ...rest, notices: list(notices).map(String), rewards: list(rewards) };
  } catch {
    return null;
  }
}

const list = (value) => (Array.isArray(value) ? value : []);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function addressOf({ filename, subfolder, type }) {
  return api.apiURL(`/view?${new URLSearchParams({ filename, subfolder, type })}`);
}
