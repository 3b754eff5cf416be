// <fg-run-charts kind="rewards|training|key">: the charts of a run, with log scale, smoothing and band in the address.

import "./chart.js";
import { api } from "./api.js";
import { Panel } from "./run_panel.js";
import { asked, go } from "./page_url.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const BANDS = ["range", "group", "none"];
const one = (curves, key, name, more = {}) => {
  const found = curves.get(name);
  return { key, lines: found ? [{ name: t(`curve.${key}`), ...found }] : [], ...more };
};

function trained(curves, reward) {
  const name = `reward/${reward}`;
  const band = asked("band", BANDS[0]);
  const ends = band === "range" ? [`${name}/min`, `${name}/max`] : [null, null];
  const line = curves.banded(`${name}/mean`, ...ends, band === "group" ? `${name}/group_spread` : null);
  return {
    key: "reward", id: `reward-${reward}`, title: t("run.reward_training", { reward }),
    lines: line ? [{ name: t("curve.mean"), ...line }] : [],
  };
}

function evaluated(curves, reward) {
  const lines = ["validation", "heldout"]
    .map((split) => ({ name: t(`curve.${split}`), ...curves.evaluated(reward, split) }))
    .filter((line) => line.update.length);
  return { key: "evaluation", id: `evaluation-${reward}`, title: t("run.reward_evaluated", { reward }), lines };
}

function branches(curves, what) {
  const lines = curves.between("branch", what).map((step) => {
    const { update, value } = curves.get(`branch/${step}/${what}`);
    return { name: t("curve.step", { step }), update, value };
  });
  return { key: `branch_${what}`, lines };
}

function phases(curves) {
  const names = curves.between("seconds");
  const lines = names.map((phase) => {
    const { update, value } = curves.get(`seconds/${phase}`);
    return { name: phaseName(phase), update, value };
  });
  if (lines.length > 1) lines.unshift({ name: t("curve.total"), ...curves.sum(names.map((name) => `seconds/${name}`)) });
  return { key: "seconds", lines, zero: true };
}

/** A phase of an update in words; one this page does not know is shown as it is. */
export function phaseName(phase) {
  const known = ["setup", "rollout", "decode", "reward", "replay", "evaluate", "save", "other"];
  return known.includes(phase) ? t(`run.phase.${phase}`) : phase;
}

const TRAINING = (curves) => [
  one(curves, "grad_norm", "grad_norm", { zero: true }),
  branches(curves, "weight"),
  branches(curves, "reward"),
  one(curves, "drift", "drift", { zero: true }),
  one(curves, "clip_fraction", "clip_fraction", { zero: true }),
  one(curves, "kl", "kl", { zero: true }),
  one(curves, "dead_groups", "dead_groups", { zero: true }),
  one(curves, "loss", "loss"),
  phases(curves),
  one(curves, "memory", "peak_memory_mb", { zero: true }),
  one(curves, "learning_rate", "learning_rate", { zero: true }),
];

/** Both charts of each reward, those that are optimised first and named as such. */
function rewardCharts(curves, rewards, weights) {
  const ordered = [...rewards].sort((one, other) => Boolean(weights?.[other]) - Boolean(weights?.[one]));
  return ordered.flatMap((reward) => {
    const role = weights ? t(`run.role.${weights[reward] ? "optimised" : "watched"}`) : "";
    return [trained(curves, reward), evaluated(curves, reward)].map((chart) => ({ ...chart, role }));
  });
}

function chartsOf(kind, curves, optimised, weights) {
  const rewards = curves.rewards();
  if (kind === "training") return TRAINING(curves);
  if (kind === "rewards") return rewardCharts(curves, rewards, weights);
  const shown = rewards.filter((reward) => optimised.includes(reward));
  return rewardCharts(curves, (shown.length ? shown : rewards).slice(0, 2), null);
}

class Charts extends Panel {
  static observedAttributes = ["optimised"];
  #drawn = "";

  attributeChangedCallback() {
    if (this.job) this.update();
  }

  async load() {
    if (this.getAttribute("kind") !== "rewards" || this.state.weights) return;
    const { config } = await api.get(`/jobs/${this.job.id}/config`);
    this.set({ weights: config.rewards });
  }

  render() {
    const { job, curves } = this;
    if (!job) return html``;
    const kind = this.getAttribute("kind");
    if (!curves.loaded) return html`<p class="fg-muted">${t("run.loading")}</p>`;
    this.charts = chartsOf(kind, curves, JSON.parse(this.getAttribute("optimised") || "[]"), this.state.weights);
    if (!this.charts.length) return html`<p class="fg-muted">${t("run.no_rewards")}</p>`;
    return html`${errorBox(this.state.error)} ${kind === "key" ? "" : this.#controls(kind)}
      <div class="fg-columns">${this.charts.map((chart) => card(chart))}</div>`;
  }

  #controls(kind) {
    const smoothing = Number(asked("smooth", "0"));
    const band = asked("band", BANDS[0]);
    const bands = html`<label class="fg-run-control">${t("run.band")}
      <select data-on="change:band" id="fg-band">${BANDS.map(
        (name) => html`<option value="${name}" ${name === band ? html`selected` : ""}>${t(`run.band.${name}`)}</option>`,
      )}</select></label>`;
    return html`<div class="fg-row fg-run-controls">
      <label class="fg-run-control"><input type="checkbox" id="fg-log" data-on="change:log" ${asked("log") ? html`checked` : ""}>
        ${t("run.log_scale")}</label>
      <label class="fg-run-control">${t("run.smoothing")}
        <input type="range" id="fg-smooth" min="0" max="0.98" step="0.02" value="${smoothing}" data-on="input:smooth">
        <output>${smoothing.toFixed(2)}</output></label>
      ${kind === "rewards" ? bands : ""}
    </div>`;
  }

  rendered() {
    if (!this.charts || !this.curves?.loaded) return;
    const options = { log: Boolean(asked("log")), smoothing: Number(asked("smooth", "0")) };
    const drawn = [this.curves.version, options.log, options.smoothing, asked("band"), ...this.charts.map(({ id, key }) => id || key)].join(" ");
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    for (const chart of this.charts) {
      const element = this.querySelector(`fg-chart[data-key="${CSS.escape(chart.id || chart.key)}"]`);
      element?.show(chart.lines, { ...options, label: titleOf(chart), zero: chart.zero });
    }
  }

  log(event) {
    go({ log: event.target.checked ? "1" : null }, { step: false });
  }

  smooth(event) {
    go({ smooth: Number(event.target.value) ? event.target.value : null }, { step: false });
  }

  band(event) {
    go({ band: event.target.value === BANDS[0] ? null : event.target.value }, { step: false });
  }
}

function titleOf(chart) {
  return chart.title || t(`curve.${chart.key}`);
}

function card(chart) {
  const id = chart.id || chart.key;
  return html`<section class="fg-card fg-chart-box" data-key="${id}" aria-label="${titleOf(chart)}">
    <h3>${titleOf(chart)} ${chart.role ? html`<span class="fg-badge">${chart.role}</span>` : ""}</h3>
    <fg-chart data-own data-key="${id}" height="200"></fg-chart>
    ${chart.lines.length ? "" : html`<p class="fg-small">${t(`curve.${chart.key}.empty`)}</p>`}
    <details class="fg-meaning"><summary>${t("curve.what")}</summary>
      <p>${t(`curve.${chart.key}.meaning`)}</p>
      <p><strong>${t("curve.healthy")}</strong> ${t(`curve.${chart.key}.healthy`)}</p>
      <p><a href="/help#curve-${chart.key}">${t("curve.more")}</a></p></details>
  </section>`;
}

customElements.define("fg-run-charts", Charts);
