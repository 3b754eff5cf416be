// Compare: two models on the same prompts and seeds, pair by pair in one player. All of what is shown stands in the
// address: before, after, reward, sort, search, pair, mode and frame.

import { api } from "./api.js";
import "./compare_downloads.js";
import "./compare_list.js";
import "./compare_render.js";
import "./player/player.js";
import { sidesOfRuns } from "./compare_choose.js";
import { Moments } from "./compare_moments.js";
import { PairPages } from "./compare_pages.js";
import { missingOffer } from "./compare_offer.js";
import { parseSide, sideLabels, sideText } from "./compare_sides.js";
import { summary } from "./compare_summary.js";
import { address, asked, go } from "./page_url.js";
import { pageKeys } from "./player_keys.js";
import { showPair, speak } from "./player_words.js";
import { choices } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const SORTS = ["-gain", "gain", "prompt", "newest"];
const LOOK_SECONDS = 15;
const TYPING_MS = 250;
const MOST_SEARCHED = 200;
const STEPS = { n: 1, p: -1 };

class Compare extends View {
  state = { pages: null, pair: null, place: -1, empty: false, gone: "", said: "", picked: [] };
  #moments = new Moments();

  async start() {
    const moved = () => this.#arrive();
    address.addEventListener("change", moved);
    this.onStop(() => address.removeEventListener("change", moved));
    this.onStop(pageKeys(this, (event) => this.#move(STEPS[event.key.toLowerCase()])));
    this.addEventListener("fg-sides", ({ detail }) => go({ ...detail, pair: null, frame: null }));
    this.addEventListener("fg-pair", ({ detail }) => this.#choose(detail.place, detail.step));
    this.addEventListener("fg-picked", ({ detail }) => this.set({ picked: detail }));
    this.addEventListener("fg-unpick", () => this.#unpick());
    this.addEventListener("fg-rendered", ({ detail }) => this.#rendered(detail));
    this.addEventListener("fg-list-failed", ({ detail }) => this.#failed(detail));
    this.addEventListener("fg-player-change", ({ detail }) => this.#moments.keep(detail));
    this.addEventListener("fg-player-next", () => this.#move(1));
    this.addEventListener("fg-player-previous", () => this.#move(-1));
    await this.#arrive();
    this.every(LOOK_SECONDS, () => this.#look());
  }

  /** The address changed, or the page is new: show what it asks for. */
  async #arrive() {
    const [before, after] = [asked("before"), asked("after")];
    if (!before || !after) return this.#find();
    if (!parseSide(before) || !parseSide(after)) return this.set({ gone: "strange", pages: null });
    const query = { before, after, reward: asked("reward"), sort: sortAsked(), search: asked("search") };
    const known = JSON.stringify(query);
    if (known === this.known) return this.#arriveAtPair();
    this.known = known;
    await this.#load(new PairPages(query));
  }

  /** No sides are named: those of the runs that are, or the newest there are. */
  async #find() {
    await this.act(async () => {
      const jobs = new URLSearchParams(location.search).getAll("job");
      const newest = jobs.length ? [] : (await api.get("/sides")).sides;
      if (!jobs.length && newest.length) jobs.push(newest[0].job_id);
      if (!jobs.length) return this.set({ empty: true });
      const [before, after] = await sidesOfRuns(jobs);
      go({ before, after, job: null }, { step: false });
    });
    if (this.state.error?.status === 404) this.set({ gone: "missing", error: null });
  }

  async #load(pages) {
    this.wanted = pages;
    try {
      await this.#fetchFirst(pages);
      if (this.wanted !== pages) return;
      pages.query.reward ||= pages.comparison.reward ?? "";
      this.set({ pages, gone: "", error: null, empty: false, offer: null });
      this.querySelector("fg-choose-sides")?.take(pages.query.before, pages.query.after);
      await this.#arriveAtPair();
      if (isBare(pages)) this.set({ offer: await missingOffer(pages.query) });
    } catch (error) {
      if (this.wanted === pages) this.#failed(error);
    }
  }

  /** The first page; a reward that these videos lack gives way to one they have. */
  async #fetchFirst(pages) {
    try {
      await pages.fetch(0);
    } catch (error) {
      if (error.status !== 422 || !pages.query.reward) throw error;
      pages.query.reward = "";
      await pages.fetch(0);
    }
  }

  async #arriveAtPair() {
    const { pages } = this.state;
    const key = asked("pair");
    if (!pages || pages !== this.wanted || (key && key === this.state.pair?.key)) return this.update();
    const place = key ? pages.placeOf(key) : 0;
    if (place >= 0) return this.set({ place, pair: pages.at(place) ?? null });
    await this.act(async () => {
      const pair = await pages.find(key);
      this.set({ place: pair.place ?? -1, pair });
    });
    // A pair that is gone since: the first one is there instead.
    if (this.state.error?.status !== 404) return;
    this.set({ error: null, said: t("compare.pair_gone") });
    go({ pair: null, frame: null }, { step: false });
  }

  /** Whether there is more by now, or nothing any more. */
  async #look() {
    const { pages } = this.state;
    if (!pages) return;
    try {
      const count = await pages.count();
      if (pages !== this.wanted || count === pages.total) return;
      if (this.state.pair) go({ pair: this.state.pair.key }, { step: false }); // the one that is looked at stays
      await Promise.all([this.#load(new PairPages(pages.query)), this.querySelector("fg-choose-sides")?.refresh()]);
    } catch (error) {
      if (error.status !== 404) throw error;
      this.#failed(error);
    }
  }

  #failed(error) {
    if (error.status === 404) this.set({ gone: this.state.pages ? "deleted" : "missing", pages: null, pair: null, error: null });
    else if (error.status === 422) this.set({ gone: "strange", pages: null, pair: null, error });
    else this.fail(error);
  }

  render() {
    const { empty, gone, pages, error } = this.state;
    const body = gone ? this.#gone() : empty ? this.#empty() : pages ? this.#found(pages) : html`<p class="fg-muted">${t("compare.loading")}</p>`;
    return html`<div class="fg-stack"><div class="fg-compare-head" data-key="head"><h1>${t("page.compare")}</h1>
        ${pages ? html`<fg-choose-sides data-own data-key="sides"></fg-choose-sides>` : ""}
        ${pages?.total ? html`<a class="fg-button" href="${this.#voteLink()}">${t("compare.vote")}</a>` : ""}</div>
      ${errorBox(error)} ${body}
      <p class="fg-hidden" role="status" data-key="said">${this.state.said}</p></div>`;
  }

  #voteLink() {
    const { before, after } = this.state.pages.query;
    return `/vote?before=${before}&after=${after}`;
  }

  #gone() {
    return html`<section class="fg-card fg-empty" data-key="gone" id="fg-gone"><h2>${t(`compare.${this.state.gone}_title`)}</h2>
      <p>${t(`compare.${this.state.gone}_text`)}</p><a class="fg-button fg-primary" href="/compare">${t("compare.to_newest")}</a></section>`;
  }

  #empty() {
    return html`<section class="fg-card fg-empty" data-key="empty"><h2>${t("compare.empty_title")}</h2><p>${t("compare.empty_text")}</p>
      <a class="fg-button fg-primary" href="/new">${t("runs.new")}</a> <a class="fg-button" href="/example">${t("home.see_example")}</a></section>`;
  }

  #found(pages) {
    const { query, comparison, total } = pages;
    const twice = query.before === query.after ? html`<p class="fg-notice">${t("compare.twice")}</p>` : "";
    const none = isBare(pages);
    return html`${twice}
      ${none ? "" : html`<div class="fg-compare" data-key="compare">${this.#main()} ${this.#side(query, comparison)}</div>`}
      ${none ? html`<section class="fg-card fg-empty" data-key="none"><h2>${t("compare.none_title")}</h2><p>${t("compare.none_text")}</p></section>` : ""}
      ${total ? html`<section data-key="summary" aria-labelledby="fg-summary"><h2 id="fg-summary">${t("compare.summary")}</h2>${summary(comparison)}</section>` : ""}
      <section class="fg-card" data-key="render" aria-labelledby="fg-render"><h2 id="fg-render">${t("compare.render_title")}</h2>
        <fg-compare-render data-own></fg-compare-render></section>
      ${total ? html`<section class="fg-card" data-key="downloads" aria-labelledby="fg-downloads"><h2 id="fg-downloads">${t("compare.downloads")}</h2>
        <fg-compare-downloads data-own></fg-compare-downloads></section>` : ""}`;
  }

  #main() {
    return html`<div class="fg-compare-main" data-key="main"><fg-player facts="below" data-own data-key="player"></fg-player>
      ${this.#missing(this.state.pair)}</div>`;
  }

  #steps() {
    const { pair, place, pages } = this.state;
    const where = place >= 0 ? t("compare.place", { place: place + 1, count: pages.total }) : "";
    return html`<div class="fg-row fg-spread fg-pair-steps" data-key="steps"><span>${where}</span>
      <span class="fg-row fg-tight"><button type="button" class="fg-button" data-on="click:previous" ${place > 0 ? "" : html`disabled`}>
          ${t("compare.previous")} <kbd aria-hidden="true">P</kbd></button>
        <button type="button" class="fg-button" data-on="click:next" ${pair && place < pages.total - 1 ? "" : html`disabled`}>
          ${t("compare.next")} <kbd aria-hidden="true">N</kbd></button></span></div>`;
  }

  /** Files that are gone or cut off can be made again from what is known of them. */
  #missing(pair) {
    if (!pair?.missing.length) return "";
    const sides = pair.missing.map((side) => t(`compare.side.${side}`)).join(", ");
    return html`<p class="fg-notice fg-row" data-key="missing"><span>${t("compare.file_gone", { sides })}</span>
      <button type="button" class="fg-button" data-on="click:renderAgain">${t("compare.render_again")}</button></p>`;
  }

  #side(query, { rewards }) {
    const names = rewards.map((found) => found.name);
    return html`<div class="fg-compare-side" data-key="side">${this.#steps()}<div class="fg-row fg-tight">
        <label><span class="fg-hidden">${t("compare.reward")}</span><select id="fg-reward" data-on="change:reward">
          ${choices(names, query.reward, (name) => name)}</select></label>
        <label><span class="fg-hidden">${t("compare.sort")}</span><select id="fg-sort" data-on="change:sort">
          ${choices(SORTS, query.sort, (name) => t(`compare.sort.${name}`))}</select></label>
        <label class="fg-grow"><span class="fg-hidden">${t("compare.search")}</span><input id="fg-search" type="search" maxlength="200"
          placeholder="${t("compare.search")}" data-on="input:search"></label></div>
      ${this.state.pages.total ? "" : html`<p class="fg-muted" data-key="nothing">${t("compare.nothing")}</p>`}
      <fg-compare-list data-own data-key="list"></fg-compare-list></div>`;
  }

  rendered() {
    const { pages, pair, place, picked } = this.state;
    if (!pages) return;
    const { before, after, reward, sort, search } = pages.query;
    this.querySelector("fg-choose-sides").take(before, after);
    this.querySelector("fg-compare-list")?.take(pages, place, pair?.key);
    this.querySelector("fg-compare-render").take(pages.comparison, this.state.offer);
    const labels = sideLabels(pages.comparison.before, pages.comparison.after);
    this.querySelector("fg-compare-downloads")?.take({ pair, labels, before, after, picked, pages });
    for (const [id, value] of [["fg-reward", reward], ["fg-sort", sort], ["fg-search", search]]) {
      const control = this.querySelector(`#${id}`);
      if (control && (control !== document.activeElement || control.localName === "select")) control.value = value;
    }
    const player = this.querySelector("fg-player");
    if (pair && player && (pair !== this.played || player !== this.player)) this.#play(player, pair, labels, pages.comparison);
  }

  #play(player, pair, labels, comparison) {
    if (player !== this.player) speak(player);
    Object.assign(this, { player, played: pair });
    showPair(player, pair, labels, comparison);
    this.#moments.restore(player);
    document.title = `${pair.prompt.slice(0, 60)} · ${t("page.compare")} · Flash-GRPO`;
  }

  async #choose(place, step) {
    const { pages } = this.state;
    const pair = await this.act(() => pages.get(place));
    if (!pair || pages !== this.wanted) return;
    this.set({ place, pair, said: t("compare.now", { place: place + 1, count: pages.total, prompt: pair.prompt }) });
    // A click is a step that Back undoes; going through the list by keys is one way, not hundreds.
    go({ pair: pair.key, frame: null }, { step });
  }

  #move(step) {
    const { pages, place } = this.state;
    const next = place + step;
    if (step && pages?.total && next >= 0 && next < pages.total) this.#choose(next, false);
  }

  next() {
    this.#move(1);
  }

  previous() {
    this.#move(-1);
  }

  reward(event) {
    go({ reward: event.target.value, pair: null });
  }

  sort(event) {
    go({ sort: event.target.value, pair: null });
  }

  search(event) {
    clearTimeout(this.typing);
    const search = event.target.value.trim();
    this.typing = setTimeout(() => go({ search, pair: null }, { step: false }), TYPING_MS);
  }

  renderAgain() {
    const { prompt, seed } = this.state.pair;
    this.querySelector("fg-compare-render").askFor(prompt, seed);
  }

  #unpick() {
    this.querySelector("fg-compare-list").picked.clear();
    this.set({ picked: [] });
  }

  /** What was rendered is there: show it, where it is known what it was. */
  async #rendered(wanted) {
    await this.querySelector("fg-choose-sides").refresh();
    const { before, after, reward } = this.state.pages.query;
    const newest = new PairPages({ before, after, reward, sort: "newest", search: (wanted?.prompt ?? "").slice(0, MOST_SEARCHED) });
    await this.act(() => newest.fetch(0));
    const pairs = Array.from({ length: Math.min(newest.total ?? 0, 100) }, (_, place) => newest.at(place));
    const made = pairs.find((pair) => !wanted || (pair.prompt === wanted.prompt && pair.seed === wanted.seed));
    if (made) this.set({ said: t("compare.rendered", { prompt: made.prompt }) });
    this.known = null;
    go({ sort: "newest", search: null, pair: made?.key ?? null, frame: null }, { step: false });
    await this.#arrive();
  }
}

/** Whether the two sides share nothing at all. */
function isBare(pages) {
  return !pages.total && !pages.query.search;
}

function sortAsked() {
  return SORTS.includes(asked("sort")) ? asked("sort") : SORTS[0];
}

customElements.define("fg-compare", Compare);
