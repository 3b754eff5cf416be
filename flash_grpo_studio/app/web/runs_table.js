// The table of runs. Its roles are written out, as rows become cards on a phone, where `display` would take them away.

import { moment, money, timeSpan } from "./format.js";
import { waiting } from "./run_words.js";
import { kindName, roughlyAgo } from "./runs_words.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { stateBadge } from "./view.js";

const MOVES = { top: "⤒", up: "↑", down: "↓" };
const SORTED_COLUMNS = { name: ["name", "-name"], state: ["state", "queue"], created: ["-created", "created"] };

function progressOf(job) {
  const { update, updates, phase } = job.progress;
  const { seconds_left: ahead, price } = job.estimate;
  if (!updates) return job.state === "running" && phase ? html`<span class="fg-small">${phase}</span>` : "";
  const left = ahead ? html` · ${t("runs.left", { time: timeSpan(ahead) })}` : "";
  const spent = price?.used ? html` · ${money(price.used, price.currency)}` : "";
  return html`<progress max="${updates}" value="${update}" aria-label="${t("runs.progress", { name: job.name })}"></progress>
    <span class="fg-small">${t("runs.updates", { update, updates })}${left}${spent}</span>`;
}

function stateOf(job) {
  const place = job.queue_position ? html`<span class="fg-badge">${t("runs.place", { place: job.queue_position })}</span>` : "";
  // A message is shown where it is news: a run that runs or is done has nothing to explain.
  const words = waiting(job.waiting_reason) || (["running", "succeeded"].includes(job.state) ? "" : said(job.message));
  return html`<div class="fg-row fg-tight">${stateBadge(job.state)} ${place}</div>
    ${words ? html`<p class="fg-small fg-clamp">${words}</p>` : ""}`;
}

function moves(job) {
  if (!job.actions.includes("reorder") || job.state !== "queued") return "";
  return html`<div class="fg-moves" role="group" aria-label="${t("runs.move.group", { name: job.name })}">${Object.entries(
    MOVES,
  ).map(
    ([where, sign]) => html`<button class="fg-button fg-move" data-on="click:move" data-move="${where}" data-id="${job.id}"
      title="${t(`runs.move.${where}`)}"><span aria-hidden="true">${sign}</span>
      <span class="fg-hidden">${t(`runs.move.${where}`)}: ${job.name}</span></button>`,
  )}</div>`;
}

function row(job, chosen, withOwner) {
  const owner = withOwner && !job.mine ? html` · ${job.owner.name}` : "";
  return html`<tr role="row" data-key="${job.id}" class="${chosen ? "fg-chosen" : ""}">
    <td role="cell" class="fg-pick"><label><input type="checkbox" data-on="change:pick" data-id="${job.id}">
      <span class="fg-hidden">${t("runs.pick", { name: job.name })}</span></label></td>
    <th role="rowheader" scope="row" class="fg-name"><a href="/run?id=${job.id}">${job.name}</a>
      <span class="fg-small">${kindName(job.kind)}${job.preset ? html` · ${job.preset}` : ""}${owner}</span></th>
    <td role="cell">${stateOf(job)}</td>
    <td role="cell" class="fg-bar">${progressOf(job)}</td>
    <td role="cell" class="fg-when"><span title="${moment(job.created)}">${roughlyAgo(job.created)}</span></td>
    <td role="cell" class="fg-actions">${moves(job)}</td>
  </tr>`;
}

function heading(name, sort) {
  const ways = SORTED_COLUMNS[name];
  if (!ways) return html`<th role="columnheader" scope="col">${t(`runs.column.${name}`)}</th>`;
  const order = sort === ways[0] ? "ascending" : sort === ways[1] ? "descending" : "none";
  const turned = name === "created" ? { ascending: "descending", descending: "ascending", none: "none" }[order] : order;
  const sign = { ascending: "▲", descending: "▼", none: "" }[turned];
  return html`<th role="columnheader" scope="col" aria-sort="${turned}"><button class="fg-sort" data-on="click:sortBy"
    data-sort="${order === "ascending" ? ways[1] : ways[0]}">${t(`runs.column.${name}`)} <span aria-hidden="true">${sign}</span></button></th>`;
}

/** All rows, with the boxes to choose them; `chosen` is a set of ids, `withOwner` tells whose each run is. */
export function runsTable(jobs, { chosen, sort, withOwner }) {
  return html`<div class="fg-table-box fg-cards"><table role="table" aria-label="${t("page.runs")}">
    <thead role="rowgroup"><tr role="row">
      <td role="cell" class="fg-pick"><label><input type="checkbox" id="fg-pick-all" data-on="change:pickAll">
        <span class="fg-hidden">${t("runs.pick_all")}</span></label></td>
      ${heading("name", sort)} ${heading("state", sort)} ${heading("progress", sort)} ${heading("created", sort)}
      <td role="cell"><span class="fg-hidden">${t("runs.column.queue")}</span></td>
    </tr></thead>
    <tbody role="rowgroup">${jobs.map((job) => row(job, chosen.has(job.id), withOwner))}</tbody>
  </table></div>`;
}
