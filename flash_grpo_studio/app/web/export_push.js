// <fg-push>: an export sent to a hub, when a person asks for it and says so twice. The token is kept in Settings, and no
// page ever sees it.

import { api } from "./api.js";
import { cancelButton, isOver, jobLine, watchJob } from "./job_watch.js";
import { confirmed } from "./shell_confirm.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const REPO = "[A-Za-z0-9][A-Za-z0-9._\\-]{0,95}/[A-Za-z0-9][A-Za-z0-9._\\-]{0,95}";

class Push extends View {
  state = { token: null, job: null, url: "" };

  /** The job whose export is sent. */
  take(job) {
    if (job.id === this.job?.id) return;
    this.job = job;
    this.set({ job: null, url: "" });
    this.act(async () => this.set({ token: (await api.get("/me")).hub_token }));
  }

  render() {
    const { token, job, url, error } = this.state;
    if (!this.job || token === null) return errorBox(error);
    const form = html`<form data-key="form" data-on="submit:push"><div class="fg-row fg-bottom">
        <label class="fg-field fg-grow"><span>${t("export.repo")}</span>
          <input name="repo" required pattern="${REPO}" placeholder="owner/name" autocomplete="off" spellcheck="false"></label>
        <label class="fg-tick"><input type="checkbox" name="private" checked> ${t("export.private")}</label>
        <button class="fg-button">${t("export.push")}</button></div></form>`;
    return html`<section><h3>${t("export.push_title")}</h3><p>${t("export.push_text")}</p> ${errorBox(error)}
      ${token ? form : html`<p class="fg-notice" data-key="no-token">${t("export.no_token")} <a href="/settings#hub">${t("page.settings")}</a></p>`}
      ${job ? jobLine(job, cancelButton(job)) : ""}
      ${url ? html`<p data-key="url" id="fg-pushed">${t("export.pushed")} <code>${url}</code></p>` : ""}</section>`;
  }

  async push(event) {
    const { repo, private: hidden } = event.target.elements;
    const present = this.state.job;
    if (present && !isOver(present)) return;
    const sure = await confirmed({
      title: t("export.ask", { repo: repo.value }),
      text: t(hidden.checked ? "export.ask_private" : "export.ask_public"),
      yes: t("export.push"),
      no: t("runs.ask.no"),
    });
    if (!sure) return;
    const ask = { kind: "push", job_id: this.job.id, repo: repo.value, private: hidden.checked };
    const job = await this.act(() => api.post("/jobs", ask), event.target.querySelector("button"));
    if (!job) return;
    this.set({ job, url: "" });
    watchJob(this, job.id, (now) => this.set({ job: now }), (now) => this.set({ url: now.result.url ?? "" }));
  }

  async cancelJob(event, button) {
    await this.act(() => api.post(`/jobs/${button.dataset.id}/cancel`), button);
  }
}

customElements.define("fg-push", Push);
