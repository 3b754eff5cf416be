// <fg-run-files>: checkpoints, and what can be downloaded.

import { api } from "./api.js";
import "./export_panel.js";
import { bytes, moment } from "./format.js";
import { Panel } from "./run_panel.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const KINDS = ["config", "summary", "chart", "contact_sheet", "events", "log", "output", "export", "result", "video", "composition"];

class Files extends Panel {
  state = { files: null, checkpoints: [] };

  async load() {
    if (!this.changed()) return;
    const { id } = this.job;
    const [files, checkpoints] = await Promise.all([api.get(`/jobs/${id}/files`), api.get(`/jobs/${id}/checkpoints`)]);
    this.set({ files: files.files, checkpoints: checkpoints.checkpoints });
  }

  rendered() {
    if (this.state.files) this.querySelector("fg-export")?.take(this.job, this.state.checkpoints);
  }

  render() {
    const { files, error } = this.state;
    if (!files) return html`${errorBox(error)}<p class="fg-muted">${t("run.loading")}</p>`;
    return html`<div class="fg-stack">${errorBox(error)} ${this.job.kind === "alignment" ? this.#checkpoints() : ""} ${this.#files(files)}</div>`;
  }

  #checkpoints() {
    const rows = this.state.checkpoints.map((found) => html`<tr data-key="${found.id}"><td>${found.update}</td>
      <td>${found.best ? html`<strong>${t("run.told.best")}</strong>` : ""}</td><td>${moment(found.created)}</td>
      <td><div class="fg-row fg-tight"><a class="fg-button" href="/compare?before=${this.job.id}@0&after=${this.job.id}@${found.update}">${t("compare.link")}</a>
        <button class="fg-button" data-on="click:export" data-update="${found.update}">${t("run.export")}</button></div></td></tr>`);
    return html`<section data-key="checkpoints"><h2>${t("run.checkpoints")}</h2>
      ${rows.length ? html`<div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.checkpoints")}"><table id="fg-checkpoints"><thead><tr>
        ${["update", "best", "saved", "export"].map((name) => html`<th scope="col">${t(`run.checkpoint.${name}`)}</th>`)}</tr></thead>
        <tbody>${rows}</tbody></table></div>` : html`<p class="fg-muted">${t("run.no_checkpoints")}</p>`}</section>
      <fg-export data-own data-key="export"></fg-export>`;
  }

  #files(files) {
    const rows = files.map((file) => html`<tr data-key="${file.id}"><td><a href="${file.url}" download="${file.name}">${file.path}</a></td>
      <td>${KINDS.includes(file.kind) ? t(`run.file.${file.kind}`) : file.kind}</td><td>${bytes(file.bytes)}</td></tr>`);
    const pictures = files.filter((file) => file.media_type.startsWith("image/"));
    return html`<section data-key="files"><h2>${t("run.files")}</h2>
      ${rows.length ? html`<div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.files")}"><table id="fg-files"><thead><tr>
        ${["name", "kind", "size"].map((name) => html`<th scope="col">${t(`run.file_column.${name}`)}</th>`)}</tr></thead>
        <tbody>${rows}</tbody></table></div>` : html`<p class="fg-muted">${t("run.no_files")}</p>`}
      <div class="fg-columns fg-run-pictures">${pictures.map((file) => html`<figure data-key="${file.id}"><img class="fg-image" loading="lazy"
        src="${file.url}" alt="${KINDS.includes(file.kind) ? t(`run.file.${file.kind}`) : file.name}"></figure>`)}</div></section>`;
  }

  export(event, button) {
    this.querySelector("fg-export").choose(button.dataset.update);
  }
}

customElements.define("fg-run-files", Files);
