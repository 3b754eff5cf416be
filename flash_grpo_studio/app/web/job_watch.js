// A job that a page began and shows in place: its state, how far it is, and a way to stop it.

import { api, poll } from "./api.js";
import { waiting } from "./run_words.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { stateBadge } from "./view.js";

const ENDED = ["succeeded", "failed", "cancelled", "lost"];

export function isOver(job) {
  return ENDED.includes(job.state);
}

/** Follow a job while `view` is there: `tell` hears every look, `done` is called where the job succeeded. */
export function watchJob(view, id, tell, done = () => {}) {
  const stop = poll(async () => {
    const job = await api.get(`/jobs/${id}`);
    tell(job);
    if (!isOver(job)) return;
    stop();
    if (job.state === "succeeded") done(job);
  }, 1);
  view.onStop(stop);
  return stop;
}

/** State, name, progress and what is said of a job; `more` stands beside it, such as a button to cancel. */
export function jobLine(job, more = "") {
  const { update: done = 0, updates: all } = job.progress ?? {};
  const bar = isOver(job)
    ? ""
    : all
      ? html`<progress max="${all}" value="${done}" aria-label="${job.name}"></progress>`
      : html`<progress aria-label="${job.name}"></progress>`;
  return html`<div class="fg-download" data-key="${job.id}"><p class="fg-row"><span role="status">${stateBadge(job.state)}</span>
    <a href="/run?id=${job.id}">${job.name}</a> <span class="fg-small">${waiting(job.waiting_reason)}</span> ${more}</p>
    ${bar} ${job.message && job.state !== "succeeded" ? html`<p class="${job.state === "failed" ? "fg-problem" : "fg-small"}">${said(job.message)}</p>` : ""}</div>`;
}

/** A button by which the job it stands beside is cancelled; the view answers it by `cancelJob`. */
export function cancelButton(job) {
  return isOver(job) || !job.actions?.includes("cancel")
    ? ""
    : html`<button type="button" class="fg-button" data-on="click:cancelJob" data-id="${job.id}">${t("compare.cancel")}</button>`;
}
