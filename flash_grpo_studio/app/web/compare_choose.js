// <fg-choose-sides>: which two models are compared: of each side the run, the base model or a checkpoint, and how strong
// its adapter is. Tells a choice by the event `fg-sides`, detail {before, after}.

import { api } from "./api.js";
import { number } from "./format.js";
import { choices } from "./shell_parts.js";
import { parseSide, sideText } from "./compare_sides.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

export const SIDES = ["before", "after"];
const STRONGEST = 2;
const STRENGTH_STEP = 0.05;

class Choose extends View {
  state = { before: null, after: null, runs: [], found: new Map() };

  /** Show these sides, given as texts. */
  take(before, after) {
    if (before === this.shown?.[0] && after === this.shown?.[1]) return;
    this.shown = [before, after];
    this.set({ before: parseSide(before), after: parseSide(after) });
    this.act(() => this.#load());
  }

  /** Ask again, as there are new videos or checkpoints. */
  async refresh() {
    this.state.found.clear();
    await this.act(() => this.#load());
  }

  async #load() {
    const { before, after, found } = this.state;
    const wanted = new Set([before?.job, after?.job].filter((job) => job && !found.has(job)));
    const newest = this.state.runs.length ? null : api.get("/sides");
    for (const job of wanted) found.set(job, await sidesOf(job));
    const runs = newest ? runsOf((await newest).sides) : this.state.runs;
    for (const job of [before?.job, after?.job]) {
      const name = job && found.get(job)?.[0]?.job_name;
      if (name && !runs.some((run) => run.id === job)) runs.unshift({ id: job, name });
    }
    this.set({ runs });
  }

  render() {
    if (!this.state.before || !this.state.after) return html`${errorBox(this.state.error)}`;
    return html`${errorBox(this.state.error)}<div class="fg-choose-sides">
      ${this.#side("before")}
      <button type="button" class="fg-button fg-swap" data-key="swap" data-on="click:swap" title="${t("compare.swap")}">
        <span aria-hidden="true">⇄</span><span class="fg-hidden">${t("compare.swap")}</span></button>
      ${this.#side("after")}</div>`;
  }

  #side(name) {
    const side = this.state[name];
    const sides = this.state.found.get(side.job) ?? [];
    const updates = new Map(sides.map((found) => [found.update, found]));
    for (const found of sides) if (found.best || found.latest) updates.set(found.update, found);
    if (!updates.has(side.update)) updates.set(side.update, { update: side.update, gone: sides.length > 0 });
    const shown = [...updates.values()].sort((one, other) => one.update - other.update);
    const runs = this.state.runs.some((run) => run.id === side.job) ? this.state.runs : [{ id: side.job, name: "…" }, ...this.state.runs];
    return html`<fieldset class="fg-plain fg-side-choice" data-key="${name}"><legend>${t(`compare.side.${name}`)}</legend>
      <label><span class="fg-hidden">${t("compare.run")}</span><select data-on="change:run" data-side="${name}" data-part="job">
        ${choices(runs.map((run) => run.id), side.job, (id) => runs.find((run) => run.id === id).name)}</select></label>
      <label><span class="fg-hidden">${t("compare.state")}</span><select data-on="change:state_" data-side="${name}" data-part="update">
        ${shown.map((found) => html`<option value="${found.update}" ${found.update === side.update ? html`selected` : ""}>${updateWords(found)}</option>`)}
      </select></label>
      ${side.update ? this.#strength(name, side, sides) : ""}</fieldset>`;
  }

  #strength(name, side, sides) {
    const there = sides.filter((found) => found.update === side.update && found.videos).map((found) => found.strength);
    const marks = [...new Set(there)].sort((one, other) => one - other);
    const id = `fg-strength-${name}`;
    return html`<div class="fg-strength" data-key="strength"><label for="${id}">${t("compare.strength")}</label>
      <input type="range" id="${id}" min="0" max="${STRONGEST}" step="${STRENGTH_STEP}" value="${side.strength}" list="${id}-marks"
        data-on="input:turn change:strength" data-side="${name}" data-part="strength">
      <output for="${id}">${number(side.strength, 2)}</output>
      <datalist id="${id}-marks">${marks.map((mark) => html`<option value="${mark}"></option>`)}</datalist></div>`;
  }

  rendered() {
    // What a control shows once it was touched is its own affair; the address decides.
    for (const control of this.querySelectorAll("[data-part]")) {
      if (control === this.turning) continue;
      const value = String(this.state[control.dataset.side][control.dataset.part]);
      if (control.value !== value) control.value = value;
    }
  }

  #choose(changes) {
    const next = { before: this.state.before, after: this.state.after, ...changes };
    const detail = { before: sideText(next.before), after: sideText(next.after) };
    // At once, as the next choice may come before the page has what this one asks for.
    this.shown = [detail.before, detail.after];
    this.set(next);
    this.dispatchEvent(new CustomEvent("fg-sides", { bubbles: true, detail }));
  }

  /** Another run: its base model where the base model was shown, else its best checkpoint. */
  async run(event, select) {
    const name = select.dataset.side;
    await this.act(async () => {
      const job = select.value;
      if (!this.state.found.has(job)) this.state.found.set(job, await sidesOf(job));
      const update = this.state[name].update ? bestOf(this.state.found.get(job)) : 0;
      this.#choose({ [name]: { job, update, strength: 1 } });
    });
  }

  state_(event, select) {
    const name = select.dataset.side;
    this.#choose({ [name]: { ...this.state[name], update: Number(select.value), strength: 1 } });
  }

  turn(event, range) {
    this.turning = range;
    range.parentElement.querySelector("output").textContent = number(Number(range.value), 2);
  }

  strength(event, range) {
    this.turning = null;
    const name = range.dataset.side;
    this.#choose({ [name]: { ...this.state[name], strength: Number(range.value) } });
  }

  swap() {
    this.#choose({ before: this.state.after, after: this.state.before });
  }
}

async function sidesOf(job) {
  return (await api.get(`/sides?job_id=${encodeURIComponent(job)}`)).sides;
}

function runsOf(sides) {
  return [...new Map(sides.map((side) => [side.job_id, { id: side.job_id, name: side.job_name }])).values()];
}

/** Update of a run's best checkpoint; the newest where none is called best, 0 where there is none. */
export function bestOf(sides) {
  const best = sides.find((side) => side.best && side.update) ?? sides.find((side) => side.latest);
  return best?.update ?? Math.max(0, ...sides.map((side) => side.update));
}

function updateWords({ update, best, gone }) {
  if (!update) return t("compare.base");
  const words = best ? t("compare.update_best", { update }) : t("compare.update", { update });
  return gone ? t("compare.update_gone", { update }) : words;
}

/** The sides of runs that an address names: base and best of one, or the best of each of two. */
export async function sidesOfRuns(jobs) {
  const found = await Promise.all(jobs.slice(0, 2).map(sidesOf));
  const best = jobs.slice(0, 2).map((job, place) => sideText({ job, update: bestOf(found[place]) }));
  return best.length > 1 ? best : [sideText({ job: jobs[0], update: 0 }), best[0]];
}

customElements.define("fg-choose-sides", Choose);
