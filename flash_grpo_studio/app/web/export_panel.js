// <fg-export>: a checkpoint made ready for other programs: the format, the job that writes it, its files with what proves
// them whole, the model card, and the way to a hub.

import { api } from "./api.js";
import "./export_push.js";
import { exportedFiles } from "./export_files.js";
import { moment } from "./format.js";
import { cancelButton, isOver, jobLine, watchJob } from "./job_watch.js";
import { choices } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const FORMATS = ["adapter", "peft", "merged", "native"];
const CARD = "README.md";

class Export extends View {
  state = { checkpoints: [], exports: [], chosen: "", job: null, made: null, format: "adapter", checkpoint: "" };

  /** The run and its checkpoints, newest first. */
  take(job, checkpoints) {
    const first = !this.job;
    this.job = job;
    this.set({ checkpoints });
    if (first) this.act(() => this.#loadExports());
  }

  /** Export this checkpoint: the form shows it. */
  choose(update) {
    this.set({ checkpoint: String(update) });
    this.scrollIntoView({ block: "start" });
    this.querySelector("#fg-export-format")?.focus({ preventScroll: true });
  }

  /** Exports of this run that are there or on their way; the newest is shown. */
  async #loadExports() {
    const { jobs } = await api.get(`/jobs?kind=export&parent=${this.job.id}&limit=50`);
    const done = jobs.filter((job) => job.state === "succeeded");
    this.set({ exports: done });
    const active = jobs.find((job) => !isOver(job));
    if (active) this.#follow(active);
    if (done.length && !this.state.made) await this.#show(done[0].id);
  }

  async #show(id) {
    const [job, { files }, { ask }] = await Promise.all([api.get(`/jobs/${id}`), api.get(`/jobs/${id}/files`), api.get(`/jobs/${id}/spec`)]);
    const exported = files.filter((file) => file.kind === "export");
    const card = exported.find((file) => file.name === CARD);
    const answer = card && (await fetch(card.url));
    const text = answer?.ok ? await answer.text() : "";
    this.set({ chosen: id, made: { job, files: exported, card: text, format: ask.format } });
  }

  render() {
    const { checkpoints, checkpoint, format, job, error } = this.state;
    if (!this.job) return html``;
    const best = checkpoints.find((found) => found.best) ?? checkpoints[0];
    const updates = checkpoints.map((found) => String(found.update));
    const names = (update) => t(update === String(best?.update) ? "compare.update_best" : "compare.update", { update });
    const form = html`<form data-key="form" data-on="submit:export"><div class="fg-row fg-bottom">
        <label class="fg-field"><span>${t("export.checkpoint")}</span><select id="fg-export-checkpoint" data-on="change:pickCheckpoint">
          ${choices(updates, checkpoint || String(best?.update), names)}</select></label>
        <label class="fg-field"><span>${t("export.format")}</span><select id="fg-export-format" data-on="change:pickFormat">
          ${choices(FORMATS, format, (name) => t(`export.format.${name}`))}</select></label>
        <button class="fg-button fg-primary">${t("export.begin")}</button></div>
      <p class="fg-small">${t(`export.format.${format}_text`)}</p></form>`;
    return html`<section class="fg-card fg-stack" data-key="export" aria-labelledby="fg-export"><h2 id="fg-export">${t("export.title")}</h2>
      ${errorBox(error)} ${checkpoints.length ? form : html`<p class="fg-muted">${t("export.no_checkpoint")}</p>`}
      ${job ? jobLine(job, cancelButton(job)) : ""} ${this.#made()}</section>`;
  }

  #made() {
    const { made, exports, chosen } = this.state;
    if (!made) return "";
    const names = new Map(exports.map((job) => [job.id, `${job.name} · ${moment(job.ended)}`]));
    const which = exports.length > 1 ? html`<label class="fg-field" data-key="which"><span>${t("export.which")}</span>
      <select id="fg-export-which" data-on="change:which">${choices([...names.keys()], chosen, (id) => names.get(id))}</select></label>` : "";
    return html`${which} ${exportedFiles(made, this.state.copied)}
      <fg-push data-own data-key="push"></fg-push>`;
  }

  rendered() {
    const { checkpoint, checkpoints, made, chosen } = this.state;
    const best = checkpoints.find((found) => found.best) ?? checkpoints[0];
    for (const [id, value] of [["checkpoint", checkpoint || String(best?.update)], ["format", this.state.format], ["which", chosen]]) {
      const select = this.querySelector(`#fg-export-${id}`);
      if (select) select.value = value;
    }
    if (made) this.querySelector("fg-push").take(made.job);
  }

  pickCheckpoint(event) {
    this.set({ checkpoint: event.target.value });
  }

  pickFormat(event) {
    this.set({ format: event.target.value });
  }

  async which(event) {
    await this.act(() => this.#show(event.target.value));
  }

  async export(event) {
    const { job, format } = this.state;
    if (job && !isOver(job)) return;
    const checkpoint = this.querySelector("#fg-export-checkpoint").value;
    const ask = { kind: "export", job_id: this.job.id, checkpoint, format };
    const made = await this.act(() => api.post("/jobs", ask), event.target.querySelector("button"));
    if (made) this.#follow(made);
  }

  #follow(job) {
    this.set({ job });
    const done = () => this.act(async () => {
      this.set({ job: null, made: null });
      await this.#loadExports();
    });
    watchJob(this, job.id, (now) => this.set({ job: now }), done);
  }

  async copy(event, button) {
    const { text } = button.dataset;
    try {
      await navigator.clipboard.writeText(text);
      this.set({ copied: text });
    } catch {
      // Without https there is no clipboard; what is selected can be copied by hand.
      getSelection().selectAllChildren(button.parentElement.querySelector("code, pre"));
    }
  }

  async cancelJob(event, button) {
    await this.act(() => api.post(`/jobs/${button.dataset.id}/cancel`), button);
  }
}

customElements.define("fg-export", Export);
