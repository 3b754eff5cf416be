// Head of the Run page: what it is, where it stands, what can be done with it.

import { bytes, duration, moment, money, moneySpan, number, timeSpan } from "./format.js";
import { phaseName } from "./run_charts.js";
import { ACTIVE, causeOf, ENDED, situation } from "./run_words.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { stateBadge } from "./view.js";

const SHOWN = ["resume", "retry", "pause", "cancel", "save", "sample", "clone", "delete"];
const DANGER = ["cancel", "delete"];
const FIRST = ["resume", "retry"];

export function header(job, state) {
  return html`<header class="fg-run-head fg-stack">
    ${title(job, state)}
    <p class="fg-row fg-run-badges">${stateBadge(job.state)}
      ${job.kind === "alignment" ? "" : html`<span class="fg-badge">${t(`run.kind.${job.kind}`)}</span>`}
      ${job.preset ? html`<span class="fg-badge">${t("run.preset", { preset: job.preset })}</span>` : ""}
      ${job.mine ? "" : html`<span class="fg-badge">${t("run.owner", { name: job.owner.name })}</span>`}
      ${job.shared ? html`<span class="fg-badge">${t("run.shared")}</span>` : ""}
      ${parent(job)}</p>
    <div id="fg-situation">${situation(job).map((sentence) => html`<p>${sentence}</p>`)}
      ${job.state === "running" ? html`<p class="fg-muted">${t("run.close_tab")}</p>` : ""}</div>
    ${failure(job)} ${progress(job, state.plan)} ${actions(job, state)}
    ${state.notice ? html`<p class="fg-notice" role="status">${state.notice}</p>` : ""}
  </header>`;
}

function title(job, { naming }) {
  if (!naming) {
    const edit = html`<button class="fg-button fg-quiet" id="fg-rename" data-on="click:rename">${t("run.rename")}</button>`;
    return html`<div class="fg-row fg-run-title"><h1 data-key="name">${job.name}</h1>${job.actions.includes("edit") ? edit : ""}</div>`;
  }
  return html`<form class="fg-row fg-run-title" data-key="naming" data-on="submit:saveName"><h1 class="fg-hidden">${job.name}</h1>
    <label class="fg-run-name"><span class="fg-hidden">${t("run.name")}</span>
      <input name="name" value="${job.name}" maxlength="200" required autocomplete="off" data-on="keydown:nameKey"></label>
    <button class="fg-button fg-primary">${t("run.save_name")}</button>
    <button class="fg-button" type="button" data-on="click:keepName">${t("run.keep")}</button></form>`;
}

function parent(job) {
  const [id, key] = job.parent_id ? [job.parent_id, "run.made_from"] : [job.cloned_from, "run.cloned_from"];
  return id ? html`<a class="fg-small" href="/run?id=${id}">${t(key)}</a>` : "";
}

/** Seconds an update takes, by its newest measurement. */
export function secondsPerUpdate(job) {
  const parts = Object.entries(job.last_values).filter(([name]) => name.startsWith("seconds/"));
  return parts.length ? parts.reduce((sum, [, value]) => sum + value, 0) : null;
}

function progress(job, plan) {
  const { update, updates, phase, elapsed_seconds: elapsed } = job.progress;
  const left = job.estimate.seconds_left;
  const { cost, nfe } = job.result.cost ? job.result : job.progress; // the report counts its own evaluations too
  const active = ACTIVE.includes(job.state);
  const bar = updates
    ? html`<div><label class="fg-row fg-spread" for="fg-progress"><span id="fg-updates">${t(job.kind === "alignment" ? "run.updates" : "run.steps", { update: number(update), updates: number(updates) })}</span>
        ${left ? html`<span id="fg-left">${t("run.left", { time: timeSpan(left) })}</span>` : ""}</label>
        <progress id="fg-progress" max="${updates}" value="${update}"></progress></div>`
    : "";
  const memory = job.last_values.peak_memory_mb;
  const facts = [
    ["phase", active && phase ? phaseName(phase) : null],
    ["per_update", secondsPerUpdate(job) === null ? null : t("time.seconds", { n: number(secondsPerUpdate(job), 2) })],
    ["elapsed", elapsed ? duration(elapsed) : null],
    ["device_time", deviceTime(job, plan?.plan)],
    ["budget", job.budget ? duration(job.budget * 60) : null],
    ["price", price(job, plan)],
    ["cost", cost ? t("run.cost_value", { cost: number(Math.round(cost)), nfe: number(nfe) }) : null],
    ["memory", memory ? bytes(memory * 1e6) : null],
    ["devices", devices(job)],
    ["started", job.started ? moment(job.started) : null],
    ["ended", job.ended && !active ? moment(job.ended) : null],
  ].filter(([, value]) => value !== null);
  return html`${bar}<dl class="fg-run-facts">${facts.map(
    ([name, value]) => html`<div data-key="${name}"><dt>${t(`run.fact.${name}`)}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}

/** Time on all devices together, used and expected; as planned, until the run has told of its pace. */
function deviceTime(job, planned) {
  const { device_minutes: whole } = job.estimate;
  const used = duration(job.device_minutes * 60);
  if (whole) return t("run.used_of", { used, whole: timeSpan({ low: whole.low * 60, high: whole.high * 60 }) });
  if (!isPlanned(job) || !planned?.time) return job.device_minutes ? used : null;
  const { low_seconds: low, high_seconds: high } = planned.time;
  return t("run.planned_of", { used, whole: timeSpan({ low: low * planned.devices, high: high * planned.devices }) });
}

function price(job, plan) {
  const found = job.estimate.price;
  if (!found) return null;
  const used = money(found.used, found.currency);
  if (found.expected) return t("run.used_of", { used, whole: moneySpan(found.expected, found.currency) });
  return isPlanned(job) && plan?.price ? t("run.planned_of", { used, whole: moneySpan(plan.price, found.currency) }) : used;
}

/** Whether nothing is known of a run but its plan. */
function isPlanned(job) {
  return !job.progress.update && !ENDED.includes(job.state);
}

function devices(job) {
  const newest = job.attempts.at(-1);
  if (ACTIVE.includes(job.state) && newest) return t("run.on_devices", { devices: newest.devices.join(", "), host: newest.host });
  return job.machines > 1 ? `${job.machines} × ${job.devices}` : String(job.devices);
}

function failure(job) {
  const last = job.attempts.at(-1);
  if (job.state !== "failed" && job.state !== "lost") return "";
  const message = job.message || last?.message || "";
  const cause = causeOf(message);
  const id = `${job.id}${last ? `/${last.number}` : ""}`;
  return html`<div class="fg-error" role="group" aria-labelledby="fg-failed" id="fg-failure" data-cause="${cause}">
    <p id="fg-failed"><strong>${t(`run.cause.${cause}`)}</strong></p>
    <p class="fg-run-said">${said(message)}</p>
    <p>${t(`run.remedy.${cause}`)}</p>
    <p class="fg-small fg-row">${t("run.error_id")} <code>${id}</code>
      <button class="fg-button" data-on="click:copyId" data-id="${id}">${t("run.copy")}</button></p></div>`;
}

function actions(job, { confirm, copied }) {
  if (confirm) return confirmation(confirm, job);
  const buttons = SHOWN.filter((action) => job.actions.includes(action)).map((action) => {
    const kind = DANGER.includes(action) ? "fg-danger" : FIRST.includes(action) ? "fg-primary" : "";
    if (action === "clone") {
      return job.kind === "alignment"
        ? html`<a class="fg-button" data-key="clone" href="/new?clone=${job.id}">${t("run.action.clone")}</a>`
        : "";
    }
    return html`<button class="fg-button ${kind}" data-key="${action}" id="fg-${action}" data-action="${action}"
      data-on="click:${DANGER.includes(action) ? "ask" : "doAction"}">${t(`run.action.${action}`)}</button>`;
  });
  const compare = html`<a class="fg-button" data-key="compare" id="fg-compare-link" href="/compare?job=${job.id}">${t("compare.link")}</a>`;
  return html`<div class="fg-row fg-run-actions" data-key="actions">${buttons} ${job.kind === "alignment" ? compare : ""}
    ${copied ? html`<span role="status" class="fg-small">${t("run.copied")}</span>` : ""}</div>`;
}

function confirmation(action, job) {
  return html`<div class="fg-card fg-confirm" data-key="confirm" role="group" aria-labelledby="fg-confirm-title">
    <p id="fg-confirm-title"><strong>${t(`run.confirm.${action}.title`, { name: job.name })}</strong></p>
    <p>${t(`run.confirm.${action}.text`)}</p>
    <div class="fg-row"><button class="fg-button fg-danger" id="fg-confirm-yes" data-action="${action}" data-on="click:doAction keydown:confirmKey">
      ${t(`run.confirm.${action}.yes`)}</button>
      <button class="fg-button" id="fg-confirm-no" data-on="click:unask keydown:confirmKey">${t("run.keep")}</button></div></div>`;
}
