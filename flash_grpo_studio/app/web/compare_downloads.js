// <fg-compare-downloads>: the pair as one video, both sides beside each other, and many pairs as one picture; both are
// made by jobs.

import { api } from "./api.js";
import { bytes } from "./format.js";
import { cancelButton, isOver, jobLine, watchJob } from "./job_watch.js";
import { choices } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const LAYOUTS = ["side_by_side", "wipe"];
const FORMATS = ["mp4", "gif", "webp"];
const MOST_LETTERS = 100; // of a label
const COUNTS = [8, 16, 32, 64];

class Downloads extends View {
  state = { composition: null, contact_sheet: null };

  /** pair and its labels; sides as texts; `picked` keys, and the pages to take the first pairs of. */
  take(shown) {
    this.shown = shown;
    this.update();
  }

  render() {
    if (!this.shown?.pair) return html``;
    const { picked, pages } = this.shown;
    const chosen = picked.length > 0;
    const counts = COUNTS.filter((count, place) => !place || count <= pages.total);
    return html`${errorBox(this.state.error)}<div class="fg-columns">
      <form data-key="composition" data-on="submit:compose" aria-label="${t("compare.video")}"><h3>${t("compare.video")}</h3>
        <div class="fg-row fg-bottom"><label><span class="fg-hidden">${t("compare.layout")}</span>
          <select name="layout">${choices(LAYOUTS, "side_by_side", (name) => t(`compare.layout.${name}`))}</select></label>
        <label><span class="fg-hidden">${t("compare.format")}</span>
          <select name="format">${choices(FORMATS, "mp4", (name) => name.toUpperCase())}</select></label>
        <button class="fg-button">${t("compare.compose")}</button></div> ${this.#made("composition")}</form>
      <form data-key="contact_sheet" data-on="submit:sheet" aria-label="${t("compare.sheet")}"><h3>${t("compare.sheet")}</h3>
        <div class="fg-row fg-bottom">${
          chosen
            ? html`<span data-key="chosen">${t("compare.chosen", { count: picked.length })}</span>
              <button type="button" class="fg-button fg-quiet" data-on="click:unpick">${t("compare.unpick")}</button>`
            : html`<label data-key="top"><span class="fg-hidden">${t("compare.how_many")}</span>
              <select name="count">${choices(counts, COUNTS[0], (count) => t("compare.top", { count }))}</select></label>`
        }<button class="fg-button">${t("compare.make_sheet")}</button></div> ${this.#made("contact_sheet")}</form></div>`;
  }

  /** What a job is made of: one that was begun for another pair or other sides is not shown beside this one. */
  #subject(kind) {
    const { before, after, pair } = this.shown;
    return [before, after, kind === "composition" && pair.key].join(" ");
  }

  /** The job that makes it, then the file. */
  #made(kind) {
    const { job, file, subject } = this.state[kind] ?? {};
    if (!job || subject !== this.#subject(kind)) return "";
    if (!file) return jobLine(job, cancelButton(job));
    return html`<p data-key="file"><a class="fg-button fg-primary" href="${file.url}" download="${file.name}">
      ${t("compare.download", { name: file.name, size: bytes(file.bytes) })}</a></p>`;
  }

  async compose(event) {
    const { pair, labels } = this.shown;
    const { layout, format } = event.target.elements;
    await this.#make("composition", event.target, {
      left: pair.before.id,
      right: pair.after.id,
      labels: short(labels),
      caption: pair.prompt,
      layout: layout.value,
      format: format.value,
    });
  }

  async sheet(event) {
    const { before, after, labels, picked } = this.shown;
    const count = Number(event.target.elements.count?.value);
    const keys = picked.length ? picked : await this.act(() => this.#topKeys(count));
    if (keys) await this.#make("contact_sheet", event.target, { before, after, keys, labels: short(labels) });
  }

  async #topKeys(count) {
    const { pages } = this.shown;
    const places = Array.from({ length: Math.min(count, pages.total) }, (_, place) => place);
    return (await Promise.all(places.map((place) => pages.get(place)))).map((pair) => pair.key);
  }

  async #make(kind, form, ask) {
    const subject = this.#subject(kind);
    const present = this.state[kind];
    if (present?.subject === subject && !isOver(present.job)) return;
    const job = await this.act(() => api.post("/jobs", { kind, ...ask }), form.querySelector("button:not([type])"));
    if (!job) return;
    this.set({ [kind]: { job, subject } });
    const tell = (now, file) => this.state[kind].job.id === now.id && this.set({ [kind]: { job: now, subject, file } });
    const done = (now) => this.act(async () => {
      const { files } = await api.get(`/jobs/${now.id}/files`);
      tell(now, files.find((file) => file.kind === kind));
    });
    watchJob(this, job.id, (now) => tell(now), done);
  }

  unpick() {
    this.dispatchEvent(new CustomEvent("fg-unpick", { bubbles: true }));
  }

  async cancelJob(event, button) {
    await this.act(() => api.post(`/jobs/${button.dataset.id}/cancel`), button);
  }
}

function short(labels) {
  return labels.map((label) => label.slice(0, MOST_LETTERS));
}

customElements.define("fg-compare-downloads", Downloads);
