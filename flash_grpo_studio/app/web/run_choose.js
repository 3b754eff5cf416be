// <fg-choose-run label="…" value="ID" except="ID">: one run of all there are, found by a part of its name or by its id.
// Tells a choice by the event `fg-run`, whose detail is the run's id, "" where it was taken back.

import { api } from "./api.js";
import { moment } from "./format.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, stateBadge, View } from "./view.js";

const SHOWN = 20;
const ASK_AFTER = 200;

class ChooseRun extends View {
  static observedAttributes = ["value"];
  state = { open: false, runs: [], total: 0, at: -1, text: "", chosen: null };

  async start() {
    const left = (event) => this.contains(event.relatedTarget) || this.close();
    const pressed = (event) => event.target.closest("[role=listbox]") && event.preventDefault(); // the field keeps the focus
    this.addEventListener("focusout", left);
    this.addEventListener("mousedown", pressed);
    this.onStop(() => {
      this.removeEventListener("focusout", left);
      this.removeEventListener("mousedown", pressed);
    });
    await this.#know();
  }

  attributeChangedCallback() {
    if (this.isConnected && this.state.chosen?.id !== this.getAttribute("value")) this.#know();
  }

  /** The name of the run that is chosen already. */
  async #know() {
    const id = this.getAttribute("value");
    const run = id ? await this.act(() => api.get(`/jobs/${encodeURIComponent(id)}`)) : null;
    if (id === this.getAttribute("value")) this.set({ chosen: run, text: run?.name ?? "" });
  }

  render() {
    const { open, at, text, chosen, error } = this.state;
    const label = this.getAttribute("label");
    return html`${errorBox(error)}<div class="fg-field fg-choose-run"><label for="fg-choose-run">${label}</label>
      <div class="fg-row"><input id="fg-choose-run" role="combobox" autocomplete="off" aria-autocomplete="list" aria-expanded="${String(open)}"
        aria-controls="fg-choose-list" ${at >= 0 ? html`aria-activedescendant="fg-choose-${at}"` : ""} placeholder="${t("run.choose_run")}"
        value="${text}" data-on="input:typed click:ask keydown:key">
        ${chosen ? html`<button type="button" class="fg-button" data-on="click:clear">${t("run.choose.clear")}</button>` : ""}</div>
      <ul id="fg-choose-list" role="listbox" aria-label="${label}" ${open ? "" : html`hidden`}>${open ? this.#options() : ""}</ul>
      <p class="fg-small" role="status">${open ? this.#summary() : ""}</p></div>`;
  }

  #options() {
    const { runs, at } = this.state;
    return runs.map((run, place) => html`<li role="option" id="fg-choose-${place}" data-key="${run.id}" data-place="${place}"
      aria-selected="${String(place === at)}" data-on="click:choose"><strong>${run.name}</strong>
      <span class="fg-small">${stateBadge(run.state)} ${moment(run.created)} · ${run.id.slice(0, 6)}</span></li>`);
  }

  #summary() {
    const { runs, total, asked } = this.state;
    if (!runs.length) return t(asked ? "run.choose.none" : "run.no_other_run");
    return total > runs.length ? t("run.choose.more", { count: total - runs.length }) : t("run.choose.found", { count: runs.length });
  }

  rendered() {
    const input = this.querySelector("input");
    if (input !== document.activeElement || !this.state.open) input.value = this.state.text;
    this.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  typed(event) {
    this.state.text = event.target.value;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#search(this.state.text.trim()), ASK_AFTER);
  }

  /** All runs, the newest first, until something is typed. */
  ask() {
    if (!this.state.open) this.#search("");
  }

  async #search(text) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const except = this.getAttribute("except");
    const query = new URLSearchParams({ kind: "alignment", limit: SHOWN + 1, ...(text ? { text } : {}) });
    const found = await this.act(() => api.get(`/jobs?${query}`));
    if (!found || turn !== this.turn) return;
    const others = found.jobs.filter((job) => job.id !== except);
    const left = found.jobs.length - others.length;
    this.set({ open: true, asked: text, runs: others.slice(0, SHOWN), total: found.total - left, at: -1 });
  }

  key(event) {
    const { open, at, runs } = this.state;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (open) this.set({ at: runs.length ? (at + step + runs.length) % runs.length : -1 });
      else this.#search("");
    } else if (event.key === "Enter" && open && at >= 0) {
      event.preventDefault();
      this.#take(runs[at]);
    } else if (event.key === "Escape" && open) this.close();
  }

  choose(event, option) {
    this.#take(this.state.runs[Number(option.dataset.place)]);
  }

  clear() {
    this.#take(null);
    this.querySelector("input").focus();
  }

  #take(run) {
    this.turn = (this.turn ?? 0) + 1;
    this.set({ open: false, at: -1, chosen: run, text: run?.name ?? "" });
    this.dispatchEvent(new CustomEvent("fg-run", { bubbles: true, detail: run?.id ?? "" }));
  }

  /** Without a choice, what was chosen before stays. */
  close() {
    clearTimeout(this.timer);
    this.turn = (this.turn ?? 0) + 1;
    this.set({ open: false, at: -1, text: this.state.chosen?.name ?? "" });
  }
}

customElements.define("fg-choose-run", ChooseRun);
