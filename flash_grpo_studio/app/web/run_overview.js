// <fg-run-overview>: what one wants to know first: the result, what to look at, the rewards, the newest videos.

import { api } from "./api.js";
import { number, percent, signed } from "./format.js";
import { warningList } from "./run_events.js";
import { Panel } from "./run_panel.js";
import { gridOf, updateName } from "./run_samples.js";
import { go, link } from "./page_url.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const NEWEST = 500;

class Overview extends Panel {
  state = { warnings: [], grid: null, config: null, pixel: false };

  async start() {
    const look = (event) => event.target.videoWidth && event.target.videoWidth <= 256 && this.set({ pixel: true });
    this.addEventListener("loadedmetadata", look, true);
  }

  async load() {
    if (!this.changed()) return;
    const { id, kind } = this.job;
    const [warnings, videos] = await Promise.all([
      api.get(`/jobs/${id}/events?type=warning&limit=50`),
      api.get(`/jobs/${id}/videos?limit=${NEWEST}`),
    ]);
    const config = this.state.config ?? (kind === "alignment" ? (await api.get(`/jobs/${id}/config`)).config : null);
    this.set({ warnings: warnings.events, grid: gridOf(videos.videos), config });
  }

  optimised() {
    return Object.entries(this.state.config?.rewards ?? {}).filter(([, weight]) => weight).map(([name]) => name);
  }

  render() {
    if (!this.job) return html``;
    const { warnings, error } = this.state;
    const alignment = this.job.kind === "alignment";
    return html`<div class="fg-stack">${errorBox(error)} ${this.#result()} ${warningList(warnings)}
      ${alignment ? html`<fg-run-charts kind="key" optimised="${JSON.stringify(this.optimised())}" data-own data-key="charts"></fg-run-charts>` : ""}
      ${this.#newest()} ${this.#attempts()}</div>`;
  }

  rendered() {
    this.querySelector("fg-run-charts")?.take(this.job, this.curves, false);
  }

  #result() {
    const { result } = this.job;
    if (result.heldout) return heldout(result);
    // Its videos are shown as such.
    const told = Object.entries(result).filter(([name]) => name !== "videos" || !this.state.grid?.rows.length);
    if (!told.length) return "";
    return html`<section class="fg-card" data-key="result"><h2>${t("run.result")}</h2>${nested(Object.fromEntries(told))}</section>`;
  }

  #newest() {
    const { grid, pixel } = this.state;
    if (!grid?.rows.length) return "";
    const many = grid.columns.length;
    const rows = grid.rows.filter((row) => row.cells.has(grid.columns.at(-1))).slice(0, 3);
    const alignment = this.job.kind === "alignment";
    return html`<section data-key="newest"><h2>${t("run.newest")}</h2><div class="fg-columns">${rows.map((row) => {
      const last = [...row.cells.keys()].at(-1);
      const pair = many > 1 && row.cells.size > 1 ? [grid.columns[0], last] : [last];
      return html`<div class="fg-card" data-key="${row.key}"><p>${row.prompt}</p><div class="fg-sample-pair">${pair
        .filter((update) => row.cells.has(update))
        .map((update) => html`<figure data-key="${update}"><video class="fg-video ${pixel ? "fg-pixel" : ""}" controls muted loop
          playsinline preload="metadata" src="${row.cells.get(update).url}" aria-label="${row.prompt}, ${updateName(update)}"></video>
          <figcaption>${alignment ? updateName(update) : ""}</figcaption></figure>`)}</div></div>`;
    })}</div><p><a href="${link({ tab: "samples" })}" data-on="click:samples">${t("run.all_samples")}</a></p></section>`;
  }

  samples(event) {
    event.preventDefault();
    go({ tab: "samples" });
  }

  #attempts() {
    const { attempts } = this.job;
    if (attempts.length < 2) return "";
    const rows = attempts.map((attempt) => html`<tr data-key="${attempt.number}"><td>${attempt.number}</td>
      <td>${attempt.host} (${attempt.devices.join(", ")})</td><td>${attempt.from_update ?? "–"}</td>
      <td>${attempt.outcome ?? t("run.attempt_active")}</td><td>${said(attempt.message)}</td></tr>`);
    return html`<section data-key="attempts"><h2>${t("run.attempts")}</h2><div class="fg-table-box" tabindex="0" role="region"
      aria-label="${t("run.attempts")}"><table><thead><tr>${["number", "where", "from", "outcome", "message"].map(
      (name) => html`<th scope="col">${t(`run.attempt.${name}`)}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div></section>`;
  }
}

/** The held-out comparison; a gain whose interval spans zero is no gain. */
function heldout(result) {
  const rows = Object.entries(result.heldout).map(([name, found]) => {
    const [low, high] = found.ci95 ?? [];
    const verdict = low > 0 ? "better" : high < 0 ? "worse" : "even";
    const role = result.rewards?.[name] ? "optimised" : "watched";
    return html`<tr data-key="${name}"><td>${name}</td>${result.rewards ? html`<td>${t(`run.role.${role}`)}</td>` : ""}
      <td>${number(found.before)} → ${number(found.after)}</td><td>${signed(found.gain)}</td>
      <td>${low === undefined ? "–" : `${signed(low)} … ${signed(high)}`}</td>
      <td>${found.win_rate === undefined ? "–" : percent(found.win_rate)}</td><td>${t(`run.verdict.${verdict}`)}</td></tr>`;
  });
  const heads = ["reward", ...(result.rewards ? ["role"] : []), "before_after", "gain", "interval", "wins", "verdict"];
  return html`<section class="fg-card" id="fg-result" data-key="result"><h2>${t("run.heldout_title")}</h2>
    <p>${result.best_update === undefined ? "" : t("run.best_update", { update: result.best_update })} ${t("run.heldout_text")}</p>
    <div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.heldout_title")}"><table class="fg-firm"><thead><tr>${heads.map(
      (name) => html`<th scope="col">${t(`run.column.${name}`)}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div></section>`;
}

/** Whatever a job of another kind found, as terms and values. */
function nested(value) {
  if (Array.isArray(value) && value.every((item) => typeof item !== "object")) return value.join(", ");
  if (value === null || typeof value !== "object") return typeof value === "number" ? number(value, 4) : String(value ?? "–");
  return html`<dl class="fg-nested">${Object.entries(value).map(([name, item]) => html`<dt>${name}</dt><dd>${nested(item)}</dd>`)}</dl>`;
}

customElements.define("fg-run-overview", Overview);
