// Runs: queue and history in one table. What is shown stands in the address, so that a reload, Back and a link agree.

import { api } from "./api.js";
import { move } from "./runs_queue.js";
import { addressOf, GROUPS, isFiltered, KINDS, readQuery, requestOf, SORTS, toggledStates } from "./runs_query.js";
import { runsTable } from "./runs_table.js";
import { bulkSummary, kindName } from "./runs_words.js";
import { confirmed } from "./shell_confirm.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const PAGE = 50;
const MOST_PER_REQUEST = 500;
const MOST_IN_BULK = 1000;
const BULK_ACTIONS = ["pause", "resume", "retry", "cancel", "delete"];
const ACTIVE = [...GROUPS.running, "queued"];
const TYPING_MS = 250;
const CALM_TURNS = 3; // with nothing under way, every third look is enough

class Runs extends View {
  state = { query: readQuery(location.search), jobs: null, total: 0, next: null, states: {}, result: null, said: "" };
  #chosen = new Map(); // id -> the job as it was last seen
  #wanted = PAGE;
  #asked = 0;
  #turn = 0;
  #focus = null;

  async start() {
    const back = () => this.#go(readQuery(location.search), null);
    window.addEventListener("popstate", back);
    this.onStop(() => window.removeEventListener("popstate", back));
    this.every(1, async () => {
      const busy = !this.state.jobs || this.state.jobs.some((job) => ACTIVE.includes(job.state));
      if (this.#turn++ % (busy ? 1 : CALM_TURNS) === 0) await this.#load();
    });
  }

  /** Show another wish; `how` says what becomes of the address: pushState, replaceState, or null to leave it. */
  #go(query, how) {
    if (how) history[how](null, "", addressOf(query));
    this.#wanted = PAGE;
    this.set({ query, moreOf: null });
    this.act(() => this.#load());
  }

  /** Load as many rows as are shown; an answer that was overtaken by a later wish is dropped. */
  async #load() {
    const asked = ++this.#asked;
    const limit = Math.min(this.#wanted, MOST_PER_REQUEST);
    const page = await api.get(requestOf(this.state.query, limit));
    let { jobs, next } = page;
    while (next && jobs.length < this.#wanted) {
      const more = await api.get(requestOf(this.state.query, MOST_PER_REQUEST, next));
      jobs = jobs.concat(more.jobs);
      next = more.next;
    }
    if (asked !== this.#asked) return;
    for (const job of jobs) if (this.#chosen.has(job.id)) this.#chosen.set(job.id, job);
    this.set({ jobs, next, total: page.total, states: page.states });
  }

  render() {
    const { jobs, query, total, states, error } = this.state;
    const none = Object.values(states).reduce((sum, count) => sum + count, 0) === 0;
    const table = { chosen: this.#chosen, sort: query.sort, withOwner: true };
    return html`<div class="fg-row fg-spread"><h1>${t("page.runs")}</h1>
        ${jobs && none ? "" : html`<a class="fg-button fg-primary" href="/new">${t("runs.new")}</a>`}</div>
      ${errorBox(error)}
      ${jobs && none && !isFiltered(query) ? this.#empty() : html`${this.#filters()} ${this.#bulk()} ${
        jobs === null ? this.#waiting() : jobs.length ? runsTable(jobs, table) : this.#nothing()
      } ${jobs?.length ? this.#foot(jobs.length, total) : ""}`}
      <p class="fg-hidden" role="status">${this.state.said}</p>`;
  }

  rendered() {
    // What a box shows once it was touched is its own affair; the choice and the address decide.
    for (const box of this.querySelectorAll("input[data-id]")) box.checked = this.#chosen.has(box.dataset.id);
    const all = this.querySelector("#fg-pick-all");
    const { jobs, query } = this.state;
    if (all) {
      const count = jobs.filter((job) => this.#chosen.has(job.id)).length;
      all.checked = count === jobs.length;
      all.indeterminate = count > 0 && count < jobs.length;
    }
    for (const [name, value] of [["kind", query.kinds[0] || ""], ["sort", query.sort]]) {
      const select = this.querySelector(`#fg-${name}`);
      if (select) select.value = value;
    }
    const text = this.querySelector("#fg-text");
    if (text && text !== document.activeElement) text.value = query.text;
    this.#keepFocus();
  }

  /** A row that moves takes its button out of the document for a moment, and the browser forgets that it had the focus. */
  #keepFocus() {
    const active = document.activeElement;
    if (active?.dataset?.move) this.#focus = [active.dataset.id, active.dataset.move];
    else if (this.#focus && (active === document.body || active === null)) {
      const [id, where] = this.#focus;
      this.querySelector(`[data-id="${CSS.escape(id)}"][data-move="${where}"]`)?.focus();
    } else this.#focus = null;
  }

  #empty() {
    return html`<div class="fg-card fg-empty"><h2>${t("runs.empty.title")}</h2><p>${t("runs.empty.text")}</p>
      <a class="fg-button fg-primary" href="/new">${t("runs.new")}</a></div>`;
  }

  #nothing() {
    return html`<div class="fg-card fg-empty"><p>${t("runs.nothing")}</p>
      <button class="fg-button" data-on="click:clear">${t("runs.show_all")}</button></div>`;
  }

  #waiting() {
    return html`<p class="fg-muted fg-empty">${t("runs.loading")}</p>`;
  }

  #filters() {
    const { query, states } = this.state;
    const group = (name) => {
      const count = GROUPS[name].reduce((sum, state) => sum + (states[state] || 0), 0);
      const on = GROUPS[name].every((state) => query.states.includes(state));
      return html`<button class="fg-button fg-chip" aria-pressed="${String(on)}" data-on="click:group" data-group="${name}">
        ${t(`runs.group.${name}`)} <span class="fg-count">${count}</span></button>`;
    };
    const mine = this.#hasOthers()
      ? html`<button class="fg-button fg-chip" aria-pressed="${String(query.mine)}" data-on="click:mine">${t("runs.mine")}</button>`
      : "";
    return html`<div class="fg-filters">
      <div class="fg-chips" role="group" aria-label="${t("runs.filter.state")}">${Object.keys(GROUPS).map(group)} ${mine}</div>
      <div class="fg-row fg-choose">
        <label class="fg-search"><span class="fg-hidden">${t("runs.filter.text")}</span>
          <input id="fg-text" type="search" placeholder="${t("runs.filter.text")}" maxlength="200" data-on="input:text"></label>
        <label><span class="fg-hidden">${t("runs.filter.kind")}</span><select id="fg-kind" data-on="change:kind">
          <option value="">${t("runs.filter.any_kind")}</option>
          ${KINDS.map((kind) => html`<option value="${kind}">${kindName(kind)}</option>`)}</select></label>
        <label><span class="fg-hidden">${t("runs.filter.sort")}</span><select id="fg-sort" data-on="change:sort">
          ${SORTS.map((sort) => html`<option value="${sort}">${t(`runs.sort.${sort}`)}</option>`)}</select></label>
      </div></div>`;
  }

  #hasOthers() {
    return this.state.query.mine || this.state.jobs?.some((job) => !job.mine);
  }

  #bulk() {
    const chosen = [...this.#chosen.values()];
    const button = (action) => {
      const count = chosen.filter((job) => job.actions.includes(action)).length;
      return html`<button class="fg-button ${action === "delete" ? "fg-danger" : ""}" data-on="click:bulk"
        data-action="${action}" ${count ? "" : html`disabled`}>${t(`runs.action.${action}`)} (${count})</button>`;
    };
    const bar = html`<div class="fg-card fg-bulk" role="group" aria-label="${t("runs.bulk.label")}">
      <strong>${t("runs.bulk.chosen", { count: chosen.length })}</strong> ${BULK_ACTIONS.map(button)}
      ${this.state.next && chosen.length < Math.min(this.state.total, MOST_IN_BULK) ? html`<button class="fg-button fg-quiet"
        data-on="click:pickFound">${t("runs.bulk.all", { count: Math.min(this.state.total, MOST_IN_BULK) })}</button>` : ""}
      ${compareLink(chosen)}
      <button class="fg-button fg-quiet" data-on="click:pickNone">${t("runs.bulk.none")}</button></div>`;
    return html`${chosen.length ? bar : ""} ${this.#result()}`;
  }

  #result() {
    const { result } = this.state;
    if (!result) return "";
    const refused = result.refused.map(
      ({ id, name, error }) => html`<li><a href="/run?id=${id}">${name}</a>: ${said(error?.message)}</li>`,
    );
    return html`<div class="fg-card fg-result" id="fg-result"><div class="fg-row fg-spread">
      <p>${t(`runs.done.${result.action}`, { count: result.done })}
        ${refused.length ? t("runs.refused", { count: refused.length }) : ""}</p>
      <button class="fg-button fg-quiet" data-on="click:closeResult">${t("runs.close")}</button></div>
      ${refused.length ? html`<ul>${refused}</ul>` : ""}</div>`;
  }

  #foot(shown, total) {
    const more = this.state.next
      ? html`<button class="fg-button" data-on="click:more">${t("runs.more", { count: Math.min(PAGE, total - shown) })}</button>`
      : "";
    return html`<div class="fg-row fg-foot"><span class="fg-small">${t("runs.shown", { shown, total })}</span> ${more}</div>`;
  }

  group(event, button) {
    const { query } = this.state;
    this.#go({ ...query, states: toggledStates(query.states, button.dataset.group) }, "pushState");
  }

  mine() {
    this.#go({ ...this.state.query, mine: !this.state.query.mine }, "pushState");
  }

  kind(event) {
    this.#go({ ...this.state.query, kinds: event.target.value ? [event.target.value] : [] }, "pushState");
  }

  sort(event) {
    this.#go({ ...this.state.query, sort: event.target.value }, "pushState");
  }

  sortBy(event, button) {
    this.#go({ ...this.state.query, sort: button.dataset.sort }, "pushState");
  }

  text(event) {
    clearTimeout(this.typing);
    const text = event.target.value;
    // One entry of the history for a search, not one for each letter.
    this.typing = setTimeout(() => this.#go({ ...this.state.query, text }, "replaceState"), TYPING_MS);
  }

  clear() {
    this.#go(readQuery(""), "pushState");
  }

  async more(event, button) {
    this.#wanted = this.state.jobs.length + PAGE;
    await this.act(() => this.#load(), button);
  }

  pick(event, box) {
    const job = this.state.jobs.find((one) => one.id === box.dataset.id);
    if (box.checked && job) this.#chosen.set(job.id, job);
    else this.#chosen.delete(box.dataset.id);
    this.update();
  }

  pickAll(event, box) {
    for (const job of this.state.jobs) {
      if (box.checked) this.#chosen.set(job.id, job);
      else this.#chosen.delete(job.id);
    }
    this.update();
  }

  pickNone() {
    this.#chosen.clear();
    this.update();
  }

  async pickFound(event, button) {
    await this.act(async () => {
      let next = null;
      do {
        const page = await api.get(requestOf(this.state.query, MOST_PER_REQUEST, next));
        for (const job of page.jobs) this.#chosen.set(job.id, job);
        next = page.next;
      } while (next && this.#chosen.size < MOST_IN_BULK);
    }, button);
  }

  closeResult() {
    this.set({ result: null });
  }

  async bulk(event, button) {
    const action = button.dataset.action;
    const jobs = [...this.#chosen.values()].filter((job) => job.actions.includes(action)).slice(0, MOST_IN_BULK);
    if (["cancel", "delete"].includes(action) && !(await this.#sure(action, jobs.length))) return;
    await this.act(async () => {
      const answer = await api.post("/jobs/bulk", { ids: jobs.map((job) => job.id), action });
      const names = new Map(jobs.map((job) => [job.id, job.name]));
      const result = bulkSummary(action, answer.results, names);
      for (const one of answer.results) if (one.ok) this.#chosen.delete(one.id);
      this.set({ result, said: t(`runs.done.${action}`, { count: result.done }) });
      await this.#load();
    }, button);
  }

  #sure(action, count) {
    return confirmed({
      title: t(`runs.ask.${action}`, { count }),
      text: t(`runs.ask.${action}_text`),
      yes: t(`runs.action.${action}`),
      no: t("runs.ask.no"),
      danger: true,
    });
  }

  async move(event, button) {
    const { id, move: where } = button.dataset;
    this.#focus = [id, where];
    await this.act(async () => {
      const place = await move(id, where);
      this.set({ said: place ? t("runs.moved", { place }) : t("runs.not_moved") });
      await this.#load();
    }, button);
  }
}

/** Two alignments, or one with its base model, can be compared. */
function compareLink(chosen) {
  if (chosen.length > 2 || chosen.some((job) => job.kind !== "alignment")) return "";
  const words = t(chosen.length > 1 ? "compare.link_two" : "compare.link");
  return html`<a class="fg-button" data-key="compare" href="/compare?${chosen.map((job) => `job=${job.id}`).join("&")}">${words}</a>`;
}

customElements.define("fg-runs", Runs);
