// Checkpoints of all runs, newest first, with links to the run they are of.

import { api } from "./api.js";
import { moment } from "./format.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { stateBadge } from "./view.js";

const PAGE = 50;

export function checkpointsTab(page) {
  const { checkpoints, next, total, bestOnly } = page.state;
  const rows = checkpoints.map((row) => html`<tr data-key="${row.id}"><th scope="row"><a href="/run?id=${row.job_id}">${row.job_name}</a></th><td data-label="${t("library.checkpoints.state")}">${stateBadge(row.job_state)}</td>
    <td data-label="${t("library.checkpoints.update")}">${row.update}${row.best ? html` <span class="fg-badge fg-good">★ ${t("library.checkpoints.best")}</span>` : null}</td><td data-label="${t("library.checkpoints.saved")}">${moment(row.created)}</td>
    <td><a class="fg-button" href="/compare?before=${row.job_id}@0&after=${row.job_id}@${row.update}">${t("compare.link")}<span class="fg-hidden"> ${row.job_name}, ${row.update}</span></a>
      <a class="fg-button" href="/run?id=${row.job_id}&tab=files">${t("library.checkpoints.files")}<span class="fg-hidden"> ${row.job_name}, ${row.update}</span></a></td></tr>`);
  const filter = html`<label class="fg-check" data-key="filter"><input type="checkbox" data-sync id="best-only" data-on="change:filterBest" ${bestOnly ? html`checked` : ""}>
    <span>${t("library.checkpoints.best_only")}</span></label>`;
  if (!rows.length) {
    return html`${filter}<div class="fg-card" data-key="empty"><p>${t("library.checkpoints.empty")}</p><a class="fg-button fg-primary" href="/new">${t("library.checkpoints.begin")}</a></div>`;
  }
  return html`${filter}<div class="fg-table-box" data-key="table"><table class="fg-stacked"><caption class="fg-hidden">${t("library.tab.checkpoints")}</caption><thead><tr>
      ${["checkpoints.run", "checkpoints.state", "checkpoints.update", "checkpoints.saved", "actions"].map((key) => html`<th scope="col">${t(`library.${key}`)}</th>`)}
    </tr></thead><tbody>${rows}</tbody></table></div>
    <p class="fg-row" data-key="more"><span class="fg-small">${t("library.checkpoints.shown", { count: rows.length, total })}</span>
    ${next ? html`<button type="button" class="fg-button" data-on="click:moreCheckpoints">${t("library.more")}</button>` : null}</p>`;
}

export const checkpointsActions = {
  async loadCheckpoints(cursor = null) {
    const query = new URLSearchParams({ limit: PAGE, best: Boolean(this.state.bestOnly) });
    if (cursor) query.set("cursor", cursor);
    const found = await api.get(`/checkpoints?${query}`);
    const before = cursor ? this.state.checkpoints : [];
    this.set({ checkpoints: [...before, ...found.checkpoints], next: found.next, total: found.total });
  },

  filterBest(event) {
    this.state.bestOnly = event.target.checked;
    this.act(() => this.loadCheckpoints());
  },

  moreCheckpoints(event, button) {
    this.act(() => this.loadCheckpoints(this.state.next), button);
  },
};
