// <fg-run-config>: the exact configuration, and how it differs from another run's.

import "./run_choose.js";
import { api } from "./api.js";
import { Panel } from "./run_panel.js";
import { asked, go } from "./page_url.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

/** Keys whose values differ, as [key, this one's, the other's]; objects are compared key by key. */
export function differences(one, other, prefix = "") {
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  return names.flatMap((name) => {
    const [left, right] = [one[name], other[name]];
    const key = prefix + name;
    if (plain(left) && plain(right)) return differences(left, right, `${key}.`);
    return JSON.stringify(left) === JSON.stringify(right) ? [] : [[key, left, right]];
  });
}

function plain(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function shown(value) {
  return value === undefined ? html`<span class="fg-muted">${t("run.not_set")}</span>` : typeof value === "string" ? value : JSON.stringify(value);
}

class Config extends Panel {
  state = { config: null, other: null };

  async start() {
    const chosen = (event) => go({ with: event.detail });
    this.addEventListener("fg-run", chosen);
    this.onStop(() => this.removeEventListener("fg-run", chosen));
  }

  asks() {
    return asked("with");
  }

  async load() {
    const { id } = this.job;
    if (!this.state.config) this.set({ config: await api.get(`/jobs/${id}/config`) });
    const other = asked("with");
    if (other === (this.state.other?.id ?? "")) return;
    this.set({ other: null });
    if (!other) return;
    const address = `/jobs/${encodeURIComponent(other)}`;
    const [{ config }, { name }] = await Promise.all([api.get(`${address}/config`), api.get(address)]);
    this.set({ other: { id: other, config, name } });
  }

  render() {
    const { config, other, error } = this.state;
    if (!config) return html`${errorBox(error)}<p class="fg-muted">${t("run.loading")}</p>`;
    return html`<div class="fg-stack">${errorBox(error)}
      <section data-key="difference"><h2>${t("run.difference")}</h2>
        <fg-choose-run data-own data-key="with" label="${t("run.compare_with")}" except="${this.job.id}" value="${asked("with")}"></fg-choose-run>
        ${other ? this.#difference(other) : ""}</section>
      <section data-key="config"><h2>${t("run.exact_config")}</h2><p class="fg-small">${t("run.config_use")}</p>
        <p><button class="fg-button" data-on="click:copy">${t("run.copy_config")}</button>
          <span role="status" class="fg-small">${this.state.copied ? t("run.copied") : ""}</span></p>
        <pre id="fg-config" tabindex="0" aria-label="${t("run.exact_config")}">${config.yaml}</pre></section></div>`;
  }

  #difference(other) {
    const rows = differences(this.state.config.config, other.config);
    if (!rows.length) return html`<p id="fg-same">${t("run.same_config")}</p>`;
    return html`<div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.difference")}"><table id="fg-difference"><thead><tr>
      <th scope="col">${t("run.key")}</th><th scope="col">${this.job.name}</th><th scope="col"><a href="/run?id=${other.id}&tab=config">${other.name}</a></th></tr></thead>
      <tbody>${rows.map(([key, left, right]) => html`<tr data-key="${key}"><th scope="row"><code>${key}</code></th><td>${shown(left)}</td>
        <td>${shown(right)}</td></tr>`)}</tbody></table></div>`;
  }

  async copy() {
    await navigator.clipboard?.writeText(this.state.config.yaml);
    this.set({ copied: true });
  }
}

customElements.define("fg-run-config", Config);
