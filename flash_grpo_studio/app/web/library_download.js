// Downloading a base model from the hub as a job, with its progress; used by New run and by the Library.

import { api } from "./api.js";
import { jobLine, watchJob } from "./job_watch.js";
import { saidPlainly } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

export function downloadForm(page) {
  const { download, downloadError } = page.state;
  return html`<div data-key="download">
    <p class="fg-small">${t("library.download.note")}</p>
    <div class="fg-row fg-bottom"><div class="fg-field"><label for="download-repo">${t("library.download.repo")}</label>
      <input id="download-repo" autocomplete="off" spellcheck="false" placeholder="owner/name"></div>
    <div class="fg-field"><label for="download-revision">${t("library.download.revision")}</label>
      <input id="download-revision" autocomplete="off" spellcheck="false" placeholder="main"></div>
    <button type="button" class="fg-button" data-on="click:startDownload">${t("library.download.start")}</button></div>
    ${errorBox(downloadError)} ${download ? jobLine(download) : null}</div>`;
}

export const downloadActions = {
  async startDownload(event, button) {
    const repo = this.querySelector("#download-repo").value.trim();
    const revision = this.querySelector("#download-revision").value.trim();
    if (!/^[\w.-]+\/[\w.-]+$/.test(repo)) {
      this.set({ downloadError: { message: t("library.download.form") } });
      this.querySelector("#download-repo").focus();
      return;
    }
    this.set({ downloadError: null });
    button.setAttribute("aria-busy", "true");
    try {
      const job = await api.post("/jobs", { kind: "download", repo, ...(revision ? { revision } : {}) });
      this.set({ download: job });
      watchJob(this, job.id, (now) => this.set({ download: now }), () => this.downloaded({ repo }));
    } catch (error) {
      this.set({ downloadError: fieldError(error, { repo: t("library.download.repo"), revision: t("library.download.revision") }) });
    } finally {
      button.removeAttribute("aria-busy");
    }
  },
};

/** An error whose sentence names the field where there is but one. */
export function fieldError(error, labels) {
  const fields = Array.isArray(error.fields) ? error.fields : [];
  if (!fields.length) return error;
  const sentences = fields.map(({ field, message }) => {
    const name = field.split(".").at(-1);
    return labels[name] ? `${labels[name]}: ${saidPlainly(message)}` : saidPlainly(message);
  });
  return Object.assign(error, { message: sentences.join("; ") });
}
