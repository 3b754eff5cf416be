// The review of a new run: what it needs and spends, what to change where it does not fit, and how to run it elsewhere.

import { bytes, number, percent } from "./format.js";
import { plannedPrice, plannedTime, plannedUpdate, setRateLink } from "./new_estimate.js";
import { launchPanel } from "./new_launch.js";
import { section } from "./new_goal.js";
import { said, saidPlainly } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";

export function reviewSection(page) {
  const { plan, planError } = page.state;
  return section("review", 7, html`
    <div data-key="fit" id="new-fit" tabindex="-1">${plan ? fit(page, plan) : null}</div>
    ${plan ? html`${table(page, plan)} ${warnings(page, plan.plan)}` : html`<p class="fg-muted">${planError ? said(planError.message) : t("new.review.waiting")}</p>`}
    ${plan ? elsewhere(plan) : null} ${files(page)} ${launchPanel(page, "bottom")}`);
}

function fit(page, { plan, advice }) {
  const { available_gb: available, peak_gb: peak, peak_phase: phase, fits } = plan.memory;
  if (fits !== false) return null;
  const changes = [...(advice.combination ? [advice.combination] : []), ...advice.changes];
  return html`<div class="fg-error" role="alert"><p><strong>${t("new.plan.does_not_fit")}</strong></p>
    <p>${t("new.plan.needs", { peak: bytes(peak * 1e9), available: bytes(available * 1e9), phase: phaseName(phase) })}</p>
    <p>${changes.length ? t("new.plan.changes") : t("new.plan.no_changes")}</p></div>
    <ul class="fg-advice">${changes.map((change) => html`<li class="fg-row"><code>${change.set.join(" ")}</code>
      <span class="fg-small">${change.fits ? html`<strong class="fg-good">✓ ${t("new.plan.then_fits")}</strong> ` : null}${t("new.plan.saves", {
        saves: bytes(change.saves_gb * 1e9) })}${!change.extra_time ? null : html` · ${t("new.plan.extra_time", { share: signedPercent(change.extra_time) })}`}
        ${change.changes_result ? html` · ${t("new.plan.changes_result")}` : null}</span>
      <button type="button" class="fg-button" data-on="click:applyAdvice" data-set="${JSON.stringify(change.set)}">${t("new.plan.apply")}<span class="fg-hidden"> ${change.set.join(" ")}</span></button></li>`)}</ul>`;
}

function signedPercent(share) {
  return `${share < 0 ? "−" : "+"}${percent(Math.abs(share))}`;
}

function millions(count) {
  return t("new.plan.millions", { count: number(count / 1e6, 2) });
}

function phaseName(name) {
  const known = ["setup", "rollout", "decode", "replay", "reward", "step", "evaluate", "save"];
  return known.includes(name) ? t(`new.phase.${name}`) : name;
}

function table(page, plan) {
  const { time, memory, cost, disk, parameters } = plan.plan;
  const price = plannedPrice(plan) ?? setRateLink(page);
  const rows = [
    ["time", time ? html`${plannedTime(plan)}
      <span class="fg-small" title="${saidPlainly(time.speed.source)}">(${t(`new.plan.basis.${time.speed.basis}`)})</span>` : t("new.plan.no_time")],
    ...(price ? [["price", price]] : []),
    ["update", plannedUpdate(plan) ?? "–"],
    ["memory", html`${bytes(memory.peak_gb * 1e9)} <span class="fg-small">(${phaseName(memory.peak_phase)}${memory.available_gb === null ? "" : ` / ${bytes(memory.available_gb * 1e9)}`})</span>`],
    ["disk", bytes(disk.most_gb * 1e9)],
    ["cost", html`${number(cost.cost)} <span class="fg-small">(${t("new.plan.nfe", { nfe: number(cost.nfe) })})</span>`],
    ["trained", t("new.plan.parameters", { trained: millions(parameters.trained), all: millions(parameters.denoiser) })],
  ];
  return html`<div class="fg-table-box"><table><caption class="fg-hidden">${t("new.step.review")}</caption><tbody>${rows.map(
    ([name, value]) => html`<tr><th scope="row">${t(`new.plan.${name}`)}</th><td>${value}</td></tr>`,
  )}</tbody></table></div>`;
}

function warnings(page, plan) {
  const preset = page.state.presets[page.state.form.preset];
  const lines = [...plan.notes];
  if (!preset.verified) lines.unshift(t("new.review.unverified"));
  if (page.needsGpu()) lines.unshift(t("new.review.no_gpu"));
  if (plan.memory.available_gb === null) lines.push(t("new.review.no_memory"));
  return html`<ul class="fg-notes" aria-label="${t("new.review.notes")}">${lines.map((line) => html`<li>${said(line)}</li>`)}</ul>`;
}

function elsewhere(plan) {
  return html`<details class="fg-more" data-key="elsewhere"><summary>${t("new.review.elsewhere")}</summary>
    <h3>${t("new.review.command")}</h3><pre id="new-command" tabindex="0">${plan.command}</pre>
    <button type="button" class="fg-button" data-on="click:copy" data-copy="command">${t("new.copy")}<span class="fg-hidden">: ${t("new.review.command")}</span></button>
    <h3>${t("new.review.yaml")}</h3><pre id="new-yaml" class="fg-tall" tabindex="0">${plan.yaml}</pre>
    <button type="button" class="fg-button" data-on="click:copy" data-copy="yaml">${t("new.copy")}<span class="fg-hidden">: ${t("new.review.yaml")}</span></button></details>`;
}

function files(page) {
  const { fileError, copied } = page.state;
  return html`<details class="fg-more" data-key="files"><summary>${t("new.files.title")}</summary>
    <div class="fg-row"><button type="button" class="fg-button" data-on="click:saveJson">${t("new.files.json")}</button>
      <button type="button" class="fg-button" data-on="click:saveYaml" ${page.state.plan ? "" : html`disabled`}>${t("new.files.yaml")}</button>
      <label class="fg-button fg-upload">${t("new.files.load")}<input type="file" class="fg-hidden" accept=".json,.yaml,.yml" data-on="change:loadFile"></label>
      <button type="button" class="fg-button" data-on="click:copy" data-copy="link">${t("new.files.share")}</button></div>
    ${page.state.form.source === "own" ? html`<p class="fg-small">${t("new.files.no_own")}</p>` : null}
    ${fileError ? html`<p class="fg-problem" role="alert">${said(fileError)}</p>` : null}</details>
    <p class="fg-small" role="status">${copied ?? ""}</p>`;
}
