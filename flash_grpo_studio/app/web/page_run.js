// Run: one job, from the queue to its result. One poll of the job feeds the head and the tab that is shown.

import { api } from "./api.js";
import "./run_charts.js";
import "./run_config.js";
import "./run_files.js";
import "./run_log.js";
import "./run_overview.js";
import "./run_samples.js";
import { address, asked, follow, link } from "./page_url.js";
import { Curves } from "./run_curves.js";
import { budgetForm } from "./run_budget.js";
import { header } from "./run_header.js";
import { tab, TABS } from "./run_url.js";
import { ENDED } from "./run_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const REST_TICKS = 5; // a job at rest is asked for less often
const NOTICE_MS = 8000;
const OTHER_TABS = ["overview", "samples", "log", "files"]; // of jobs that train nothing

class Run extends View {
  state = { job: null, gone: "", notice: "", confirm: "", naming: false, announced: "" };
  #stop = () => {};
  #ticks = 0;

  async start() {
    const changed = () => this.#moved();
    address.addEventListener("change", changed);
    this.onStop(() => address.removeEventListener("change", changed));
    this.#open(asked("id"));
  }

  #open(id) {
    this.#stop();
    this.jobId = id;
    this.curves = new Curves(id);
    this.#ticks = 0;
    this.set({ job: null, plan: null, gone: id ? "" : "missing", confirm: "", naming: false });
    if (id) this.#stop = this.every(1, () => this.#look(id));
  }

  #moved() {
    if (asked("id") !== this.jobId) this.#open(asked("id"));
    else this.update();
  }

  async #look(id) {
    const { job } = this.state;
    if (job && ENDED.includes(job.state) && this.#ticks++ % REST_TICKS) return;
    try {
      const found = await api.get(`/jobs/${encodeURIComponent(id)}`);
      if (!job) this.#show(found); // before its curves, which take longest
      if (found.kind === "alignment") await this.curves.look(found);
      this.#show(found);
      await this.#lookAtPlan(found);
    } catch (error) {
      if (error.status !== 404) throw error;
      this.#stop();
      this.set({ gone: job ? "deleted" : "missing", announced: t(job ? "run.deleted_title" : "run.missing_title") });
    }
  }

  /** Until a run has told of its pace, what was planned of it stands in; asked for once. */
  async #lookAtPlan({ id, kind, state, progress, estimate }) {
    if (this.planOf === id || kind !== "alignment" || progress.update || estimate.device_minutes || ENDED.includes(state)) return;
    this.planOf = id;
    const plan = await api.get(`/jobs/${id}/plan`);
    if (this.jobId === id) this.set({ plan });
  }

  #show(job) {
    const before = this.state.job;
    this.fresh = true;
    const announced = before && before.state !== job.state ? t("run.announce", { state: t(`state.${job.state}`) }) : this.state.announced;
    const confirm = job.actions.includes(this.state.confirm) ? this.state.confirm : "";
    this.set({ job, announced, confirm });
    document.title = `${job.name} · ${t(`state.${job.state}`)} · Flash-GRPO`;
  }

  render() {
    const { job, gone, announced, error } = this.state;
    const live = html`<div class="fg-hidden" role="status" aria-live="polite" id="fg-announce" data-key="live">${announced}</div>`;
    if (gone) return html`${live} ${goneText(gone, this.jobId)}`;
    if (!job) return html`${live}<h1>${t("page.run")}</h1><p class="fg-muted">${t("run.loading")}</p>${errorBox(error)}`;
    return html`${live} ${errorBox(error)} ${header(job, this.state)} ${budgetForm(job)} ${errorBox(this.state.problem)} ${tabs(job)} ${panel(job)}`;
  }

  rendered() {
    const { job, gone } = this.state;
    if (!job || gone) return;
    const fresh = this.fresh;
    this.fresh = false;
    for (const element of this.querySelectorAll("[data-panel]")) element.take(job, this.curves, fresh);
    if (this.focusNext) {
      this.querySelector(this.focusNext)?.focus();
      this.focusNext = "";
    }
  }

  /** What a person asked for and did not get stays said until they ask again; the polls would clear `error`. */
  async act(work, button) {
    const result = await super.act(work, button);
    this.set({ problem: this.state.error, error: null });
    return result;
  }

  tab(event, anchor) {
    follow(event, anchor);
  }

  rename() {
    this.focusNext = "input[name=name]";
    this.set({ naming: true });
  }

  nameKey(event) {
    if (event.key === "Escape") this.keepName();
  }

  keepName() {
    this.focusNext = "#fg-rename";
    this.set({ naming: false });
  }

  async saveName(event) {
    const name = event.target.elements.name.value.trim();
    const job = await this.act(() => api.patch(`/jobs/${this.jobId}`, { name }), event.target.querySelector("button"));
    if (!job) return;
    this.set({ job: { ...this.state.job, name: job.name } });
    this.keepName();
  }

  /** A larger budget, then on; an empty field takes the limit away. */
  async raiseBudget(event, form) {
    const budget = form.elements.budget.value.trim() === "" ? null : Number(form.elements.budget.value);
    const more = async () => {
      await api.patch(`/jobs/${this.jobId}`, { budget });
      return api.post(`/jobs/${this.jobId}/${form.dataset.action}`);
    };
    const job = await this.act(more, form.querySelector("button"));
    if (job) this.#show({ ...this.state.job, ...job });
  }

  ask(event, button) {
    this.focusNext = "#fg-confirm-no";
    this.set({ confirm: button.dataset.action });
  }

  unask() {
    this.focusNext = `#fg-${this.state.confirm}`;
    this.set({ confirm: "" });
  }

  confirmKey(event) {
    if (event.key === "Escape") this.unask();
  }

  async doAction(event, button) {
    const { action } = button.dataset;
    if (action === "delete") return this.#delete(button);
    const job = await this.act(() => api.post(`/jobs/${this.jobId}/${action}`), button);
    if (!job) return;
    this.#ticks = 0;
    this.#show({ ...this.state.job, ...job });
    this.set({ confirm: "" });
    if (action === "save" || action === "sample") this.#notice(t(`run.asked.${action}`));
  }

  async #delete(button) {
    const done = await this.act(() => api.remove(`/jobs/${this.jobId}`), button);
    if (done) location.assign("/runs");
  }

  #notice(text) {
    this.set({ notice: text });
    clearTimeout(this.noticeTimer);
    this.noticeTimer = setTimeout(() => this.set({ notice: "" }), NOTICE_MS);
  }

  async copyId(event, button) {
    await navigator.clipboard?.writeText(button.dataset.id);
    this.set({ copied: true });
  }
}

function goneText(gone, id) {
  return html`<section class="fg-stack" id="fg-gone"><h1>${t(`run.${gone}_title`)}</h1>
    <p>${t(`run.${gone}_text`)} ${id ? html`<code>${id}</code>` : ""}</p>
    <p class="fg-row"><a class="fg-button fg-primary" href="/runs">${t("run.to_runs")}</a>
      <a class="fg-button" href="/">${t("run.to_home")}</a></p></section>`;
}

function tabsOf(job) {
  return job.kind === "alignment" ? TABS : OTHER_TABS;
}

function tabs(job) {
  const shown = tabsOf(job);
  const present = shown.includes(tab()) ? tab() : shown[0];
  return html`<nav class="fg-tabs" aria-label="${t("run.tabs")}">${shown.map(
    (name) => html`<a href="${link({ tab: name === TABS[0] ? null : name })}" data-key="${name}" data-on="click:tab"
      ${name === present ? html`aria-current="page"` : ""}>${t(`run.tab.${name}`)}</a>`,
  )}</nav>`;
}

function panel(job) {
  const shown = tabsOf(job);
  const name = shown.includes(tab()) ? tab() : shown[0];
  const elements = {
    overview: html`<fg-run-overview data-panel data-own data-key="overview"></fg-run-overview>`,
    samples: html`<fg-run-samples data-panel data-own data-key="samples"></fg-run-samples>`,
    rewards: html`<fg-run-charts kind="rewards" data-panel data-own data-key="rewards"></fg-run-charts>`,
    training: html`<fg-run-charts kind="training" data-panel data-own data-key="training"></fg-run-charts>`,
    log: html`<fg-run-log data-panel data-own data-key="log"></fg-run-log>`,
    config: html`<fg-run-config data-panel data-own data-key="config"></fg-run-config>`,
    files: html`<fg-run-files data-panel data-own data-key="files"></fg-run-files>`,
  };
  return html`<div class="fg-stack" id="fg-panel">${elements[name]}</div>`;
}

customElements.define("fg-run", Run);
