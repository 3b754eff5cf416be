// Machines: the workers, what each one does, and how to add one.

import { api } from "./api.js";
import { ago, bytes, duration, moment, number } from "./format.js";
import { confirmed } from "./shell_confirm.js";
import { tableBox } from "./shell_parts.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const MB = 2 ** 20;
const LATE_SECONDS = 15;

class Machines extends View {
  state = { workers: null, leases: [], me: null, health: null, gone: false };

  async start() {
    this.every(2, async () => {
      const [{ workers }, { leases }, health, me] = await Promise.all([
        api.get(`/workers?gone=${this.state.gone}`),
        api.get("/leases"),
        api.get("/health"),
        this.state.me ?? api.get("/me"),
      ]);
      this.set({ workers, leases, health, me });
    });
  }

  render() {
    const { workers, error, health, gone } = this.state;
    return html`<div class="fg-stack"><h1>${t("page.machines")}</h1> ${errorBox(error)}
      ${workers === null ? html`<p class="fg-muted">${t("machines.loading")}</p>` : this.#workers(workers)}
      ${workers === null ? "" : html`<label class="fg-row"><input type="checkbox" id="fg-gone" data-on="change:showGone" ${gone ? html`checked` : ""}>
        <span>${t("machines.show_gone")}</span></label>`}
      ${health ? this.#parts(health) : ""} ${this.#leases()} ${this.#how()}</div>`;
  }

  #workers(workers) {
    if (!workers.length) {
      return html`<div class="fg-card fg-empty"><h2>${t("machines.none")}</h2><p>${t("machines.none_text")}</p>
        <a class="fg-button fg-primary" href="#start-worker">${t("machines.how")}</a></div>`;
    }
    return html`<div class="fg-columns">${workers.map((worker) => this.#worker(worker))}</div>`;
  }

  #worker(worker) {
    const late = worker.state !== "gone" && worker.silent_seconds > LATE_SECONDS;
    const beat = html`<span class="${late ? "fg-bad" : "fg-small"}">${t(late ? "machines.late" : "machines.beat", {
      time: duration(worker.silent_seconds),
    })}</span>`;
    const badge = { active: "running", draining: "paused", gone: "cancelled" }[worker.state];
    return html`<section class="fg-card" data-key="${worker.id}" aria-label="${worker.host}">
      <div class="fg-row fg-spread"><h2>${worker.host}</h2>
        <span class="fg-state fg-state-${badge}"><span aria-hidden="true"></span>${t(`machines.state.${worker.state}`)}</span></div>
      <p>${beat}</p>
      <ul class="fg-strip">${worker.devices.map((device) => this.#device(worker, device))}</ul>
      ${this.#facts(worker)} ${this.#drain(worker)}</section>`;
  }

  #device(worker, device) {
    const lease = this.state.leases.find((one) => one.worker_id === worker.id && one.device === device.name);
    const gpu = worker.facts.gpus?.[device.name];
    const busy = gpu && t("machines.gpu_use", { use: gpu.utilization, used: bytes(gpu.memory_used_mb * MB) });
    const use = busy ? html`<span class="fg-small">${busy}</span>` : "";
    return html`<li class="fg-device" data-key="${device.name}" data-busy="${String(Boolean(lease))}"><strong>${device.name}</strong>
      <span class="fg-small">${[device.model, device.memory_mb ? bytes(device.memory_mb * MB) : ""].filter(Boolean).join(" · ")}</span>
      ${use} <span>${lease ? jobLink(lease) : t(worker.state === "active" ? "machines.free" : "machines.idle")}</span></li>`;
  }

  #facts(worker) {
    const { facts } = worker;
    const rows = [
      ["jobs", worker.jobs],
      ["load", facts.load === undefined || facts.load === null ? "–" : t("machines.load_of", { load: number(facts.load, 1), cores: facts.cores })],
      ["memory", facts.memory_mb ? t("machines.free_of", { free: bytes(facts.memory_free_mb * MB), all: bytes(facts.memory_mb * MB) }) : "–"],
      ["disk", facts.disk_free_mb ? t("machines.disk_free", { free: bytes(facts.disk_free_mb * MB) }) : "–"],
      ["version", worker.version],
      ["started", moment(worker.started)],
      ["system", [facts.system, facts.python ? `Python ${facts.python}` : ""].filter(Boolean).join(", ") || "–"],
    ];
    return html`<dl class="fg-facts">${rows.map(
      ([name, value]) => html`<div><dt>${t(`machines.fact.${name}`)}</dt><dd>${value}</dd></div>`,
    )}</dl>`;
  }

  #drain(worker) {
    if (worker.state === "gone" || !this.state.me?.scopes.includes("admin")) return "";
    const draining = worker.state === "draining";
    return html`<button class="fg-button" data-on="click:drain" data-id="${worker.id}" data-turn="${draining ? "off" : "on"}">
      ${t(draining ? "machines.undrain" : "machines.drain")}</button>
      <p class="fg-small">${t(draining ? "machines.undrain_text" : "machines.drain_text")}</p>`;
  }

  #parts(health) {
    const parts = ["database", "broker", "workers", "disk"];
    return html`<section class="fg-card" aria-labelledby="fg-parts"><h2 id="fg-parts">${t("machines.parts")}</h2>
      <dl class="fg-facts">${parts.map(
        (name) => html`<div><dt>${t(`machines.part.${name}`)}</dt>
          <dd><span class="fg-state fg-state-${health[name].ok ? "succeeded" : "failed"}"><span aria-hidden="true"></span>${t(
            health[name].ok ? "machines.ok" : "machines.away",
          )}</span> <span class="fg-small">${said(health[name].message)}</span></dd></div>`,
      )}</dl>${health.workspace ? html`<p class="fg-small">${t("machines.workspace")} <code>${health.workspace}</code></p>` : ""}</section>`;
  }

  #leases() {
    const { leases, workers } = this.state;
    if (workers === null) return "";
    const rows = leases.map(
      (lease) => html`<tr data-key="${lease.host} ${lease.device}"><td>${lease.host}</td><td>${lease.device}</td>
        <td>${jobLink(lease)}</td><td title="${moment(lease.since)}">${ago(lease.since)}</td></tr>`,
    );
    const columns = ["machine", "device", "run", "since"].map((name) => t(`machines.column.${name}`));
    return html`<section aria-labelledby="fg-leases"><h2 id="fg-leases">${t("machines.leases")}</h2>
      ${rows.length ? tableBox("fg-leases", columns, rows) : html`<p class="fg-muted">${t("machines.no_lease")}</p>`}</section>`;
  }

  #how() {
    return html`<section class="fg-card" id="start-worker" tabindex="-1"><h2>${t("machines.how")}</h2>
      <p>${t("machines.how_here")}</p><pre>flash-grpo worker</pre>
      <p>${t("machines.how_far")}</p>
      <pre>flash-grpo worker --workspace /shared/workspace --database-url postgresql://… --broker-url redis://…</pre>
      <p class="fg-small">${t("machines.how_note")}</p></section>`;
  }

  showGone(event) {
    this.set({ gone: event.target.checked });
    this.act(async () => this.set({ workers: (await api.get(`/workers?gone=${this.state.gone}`)).workers }));
  }

  async drain(event, button) {
    const on = button.dataset.turn === "on";
    const question = { title: t("machines.drain_ask"), text: t("machines.drain_text"), yes: t("machines.drain"), no: t("machines.keep") };
    if (on && !(await confirmed(question))) return;
    await this.act(async () => {
      await api.post(`/workers/${button.dataset.id}/drain`, { on });
      this.set({ workers: (await api.get(`/workers?gone=${this.state.gone}`)).workers });
    }, button);
  }
}

function jobLink(lease) {
  return lease.job_id ? html`<a href="/run?id=${lease.job_id}">${lease.job_name}</a>` : t("machines.other");
}

customElements.define("fg-machines", Machines);
