// What happened in a run, in words: its events, and its warnings with what to do about them.

import { moment, number } from "./format.js";
import { adviceFor, causeOf } from "./run_words.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { stateBadge } from "./view.js";

const KNOWN = [
  "state", "run_started", "evaluation", "samples", "checkpoint", "warning", "request", "resumed", "finished", "failed",
];
export const FILTERS = ["state", "warning", "evaluation", "samples", "checkpoint", "request", "resumed", "failed"];

export function typeName(type) {
  return KNOWN.includes(type) ? t(`run.event.${type}`) : type;
}

const scores = (rewards) => Object.entries(rewards ?? {}).map(([name, found]) => `${name} ${number(found?.mean)}`).join(", ");

const SENTENCES = {
  state: ({ data }) => html`${data.from ? html`${stateBadge(data.from)} → ` : ""}${stateBadge(data.to)} ${said(data.message)}`,
  run_started: ({ data }) => t("run.told.run_started", { torch: data.versions?.torch ?? "?" }),
  evaluation: ({ data }) => html`${["validation", "heldout"].includes(data.split) ? t(`curve.${data.split}`) : data.split}: ${scores(data.rewards)}${
    data.best ? html` <strong>${t("run.told.best")}</strong>` : ""}`,
  samples: ({ data }) => t("run.told.samples", { count: data.files?.length ?? 0 }),
  checkpoint: ({ data }) => html`${data.path}${data.best ? html` <strong>${t("run.told.best")}</strong>` : ""}`,
  warning: ({ data }) => html`${said(data.message)} <em>${adviceFor(data.code)}</em>`,
  request: ({ data }) => t("run.told.request", { request: data.request }),
  resumed: ({ data }) => t("run.told.resumed", { update: data.from_update }),
  finished: ({ data }) => said(data.message),
  failed: ({ data }) => html`${said(data.message)} <em>${t(`run.remedy.${causeOf(data.message ?? "")}`)}</em>`,
};

function sentence(event) {
  const known = SENTENCES[event.type];
  if (known) return known(event);
  const rest = Object.entries(event.data ?? {}).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return rest.join(", ").slice(0, 500);
}

export function eventTable(events) {
  const rows = events.map((event) => html`<tr data-key="${event.id}" data-type="${event.type}"><td class="fg-when">${moment(event.time)}</td>
    <td>${typeName(event.type)}</td><td>${event.update ?? ""}</td><td>${sentence(event)}</td></tr>`);
  return html`<div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.events")}"><table id="fg-events">
    <thead><tr>${["time", "type", "update", "what"].map((name) => html`<th scope="col">${t(`run.event_column.${name}`)}</th>`)}</tr></thead>
    <tbody>${rows}</tbody></table></div>`;
}

/** The doctor's warnings, each with what to do; empty without any. */
export function warningList(warnings) {
  if (!warnings.length) return "";
  return html`<section class="fg-card fg-warnings" id="fg-warnings" data-key="warnings"><h2>${t("run.warnings", { count: warnings.length })}</h2>
    <ul>${warnings.map(({ id, data, update }) => html`<li data-key="${id}"><p>${said(data.message)}${
      update ? html` <span class="fg-muted">(${t("chart.update", { update })})</span>` : ""}</p>
      <p><strong>${t("run.what_to_do")}</strong> ${adviceFor(data.code)}</p></li>`)}</ul></section>`;
}
