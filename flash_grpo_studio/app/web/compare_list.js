// <fg-compare-list>: the pairs as a list of which only what is in sight has elements, so that ten thousand scroll as ten
// do. Tells a choice by `fg-pair` (detail {place, key}) and the boxes by `fg-picked` (detail: the keys).

import { number, signed } from "./format.js";
import { PAGE } from "./compare_pages.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { View } from "./view.js";

const ROW = 72; // height of a row, as studio.css has it
const SPARE = 4; // rows drawn beyond the edges
const MOST_PICKED = 64;

class List extends View {
  state = { top: 0, height: 0, place: -1 };
  picked = new Set();

  async start() {
    this.addEventListener("scroll", () => this.#scrolled(), { capture: true, passive: true });
    const size = new ResizeObserver(() => this.#scrolled());
    size.observe(this);
    this.onStop(() => size.disconnect());
  }

  /** Show these pairs (PairPages), the one at `place` as chosen. */
  take(pages, place, key) {
    const fresh = pages !== this.pages;
    this.pages = pages;
    if (fresh) this.box?.scrollTo(0, 0);
    if (fresh || place !== this.state.place) this.reveal = place >= 0;
    this.set({ place, key });
  }

  get box() {
    return this.querySelector(".fg-pair-list");
  }

  #scrolled() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const { box } = this;
      if (box) this.set({ top: box.scrollTop, height: box.clientHeight });
    });
  }

  render() {
    const { pages } = this;
    if (!pages?.total) return html``;
    const { top, height } = this.state;
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const last = Math.min(pages.total, Math.ceil((top + (height || 600)) / ROW) + SPARE);
    const places = Array.from({ length: last - first }, (_, at) => first + at);
    this.#need(first, last);
    const room = `padding:${first * ROW}px 0 ${(pages.total - last) * ROW}px`;
    return html`<div class="fg-pair-list" data-key="list"><ul aria-label="${t("compare.pairs")}" style="${room}">
      ${places.map((place) => this.#row(place))}</ul></div>`;
  }

  #row(place) {
    const pair = this.pages.at(place);
    const where = html`aria-setsize="${this.pages.total}" aria-posinset="${place + 1}" data-key="${place}"`;
    if (!pair) return html`<li class="fg-pair-row" ${where}><span class="fg-muted">…</span></li>`;
    const chosen = pair.key === this.state.key;
    const { reward } = this.pages.query;
    const score = pair.scores?.[reward];
    const box = html`<label class="fg-pick"><input type="checkbox" data-key="pick" data-on="change:pick" data-pair="${pair.key}">
      <span class="fg-hidden">${t("compare.pick", { prompt: pair.prompt })}</span></label>`;
    const figures = score
      ? html`<span class="fg-small">${number(score.before)} → ${number(score.after)} ${gain(pair.gain)}</span>`
      : html`<span class="fg-small">${t("compare.no_score")}</span>`;
    return html`<li class="fg-pair-row ${chosen ? "fg-chosen" : ""}" ${where}>${box}
      <button type="button" class="fg-pair-button" data-on="click:choose keydown:key" data-place="${place}" ${chosen ? html`aria-current="true"` : ""}>
        <span class="fg-pair-prompt" title="${pair.prompt}">${pair.prompt}</span>
        <span class="fg-row fg-tight">${figures} <span class="fg-small">${t("compare.seed", { seed: pair.seed ?? "–" })}</span></span></button></li>`;
  }

  /** Fetch what comes into sight and is not here yet. */
  #need(first, last) {
    const { pages } = this;
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) {
      if (pages.at(page * PAGE)) continue;
      pages.fetch(page).then(
        () => pages === this.pages && this.update(),
        (error) => this.dispatchEvent(new CustomEvent("fg-list-failed", { bubbles: true, detail: error })),
      );
    }
  }

  rendered() {
    const { box } = this;
    if (!box) return;
    for (const input of box.querySelectorAll("input[data-pair]")) input.checked = this.picked.has(input.dataset.pair);
    if (!this.state.height) this.#scrolled();
    if (this.reveal) {
      this.reveal = false;
      this.#reveal(this.state.place);
    }
    if (this.focusPlace !== undefined) {
      const button = box.querySelector(`[data-place="${this.focusPlace}"]`);
      button?.focus({ preventScroll: true });
      if (button) this.focusPlace = undefined;
    }
  }

  #reveal(place) {
    const { box } = this;
    const y = place * ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + ROW - box.clientHeight;
    else return;
    this.set({ top: box.scrollTop, height: box.clientHeight });
  }

  choose(event, button) {
    this.#tell(Number(button.dataset.place), true);
  }

  /** Arrows move through the list; the page's own keys work everywhere. */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const place = Math.min(this.pages.total - 1, Math.max(0, this.state.place + step));
    this.focusPlace = place;
    this.#tell(place, false);
  }

  #tell(place, step) {
    this.dispatchEvent(new CustomEvent("fg-pair", { bubbles: true, detail: { place, step } }));
  }

  pick(event, input) {
    const { pair } = input.dataset;
    if (!input.checked) this.picked.delete(pair);
    else if (this.picked.size < MOST_PICKED) this.picked.add(pair);
    else input.checked = false;
    this.dispatchEvent(new CustomEvent("fg-picked", { bubbles: true, detail: [...this.picked] }));
  }
}

/** A difference with its direction in shape, colour and sign. */
export function gain(value) {
  if (value === null || value === undefined) return "";
  const way = value > 0 ? "up" : value < 0 ? "down" : "same";
  return html`<span class="fg-way-${way}"><span aria-hidden="true">${{ up: "▲", down: "▼", same: "◆" }[way]}</span> ${signed(value)}</span>`;
}

customElements.define("fg-compare-list", List);
