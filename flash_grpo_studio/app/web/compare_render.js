// <fg-compare-render>: a prompt and a seed rendered on the spot for both sides, as jobs with their progress. Tells the end
// by `fg-rendered`, detail {prompt, seed}.

import { api } from "./api.js";
import { parseSide, rendering } from "./compare_sides.js";
import { cancelButton, isOver, jobLine, watchJob } from "./job_watch.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const UNDER_WAY = ["queued", "starting", "running"];

class Render extends View {
  state = { jobs: [] };

  /** Render for the two sides of a comparison; `offer` (compare_offer.js) is what they lack. */
  take(comparison, offer) {
    this.offer = offer;
    const sides = [comparison.before, comparison.after];
    this.lost = sides.filter((side) => !side.checkpoint);
    const shown = sides.map((side) => side.side).join(" ");
    if (shown === this.shown) return this.update();
    this.shown = shown;
    this.sides = sides.map((side) => parseSide(side.side));
    this.set({ jobs: [] });
    this.act(() => this.#look(shown));
  }

  /** What is being rendered already, perhaps since before a reload. */
  async #look(shown) {
    const jobs = [...new Set(this.sides.map((side) => side.job))];
    const states = UNDER_WAY.map((state) => `state=${state}`).join("&");
    const active = await Promise.all(jobs.map((id) => api.get(`/jobs?kind=preview&parent=${id}&${states}`)));
    const found = active.flatMap((page) => page.jobs);
    if (shown === this.shown && found.length) this.#follow(found, null);
  }

  render() {
    const { jobs, error } = this.state;
    if (!this.sides) return html``;
    const lines = jobs.map((job) => jobLine(job, cancelButton(job)));
    if (this.lost.length) return html`${errorBox(error)}<p class="fg-notice">${lostText(this.lost)}</p> ${lines}`;
    return html`${errorBox(error)} ${this.offer ? this.#offered() : ""}
      <form class="fg-row fg-bottom" data-key="form" data-on="submit:ask"><label class="fg-field fg-grow"><span>${t("compare.prompt")}</span>
          <input name="prompt" required maxlength="4000" autocomplete="off"></label>
        <label class="fg-field fg-seed"><span>${t("compare.seed_label")}</span>
          <input name="seed" type="number" min="0" max="2147483647" step="1" value="0" required></label>
        <button class="fg-button ${this.offer ? "" : "fg-primary"}">${t("compare.render")}</button></form>
      <p class="fg-small">${t("compare.render_text")}</p> ${lines}`;
  }

  #offered() {
    const { prompts } = this.offer;
    return html`<p data-key="offer"><button type="button" class="fg-button fg-primary" data-on="click:askOffered">
      ${t("compare.render_offered", { count: prompts.length })}</button></p>`;
  }

  /** Put a prompt and a seed into the form. */
  askFor(prompt, seed) {
    const form = this.querySelector("form");
    if (!form) return this.scrollIntoView();
    Object.assign(form.elements.prompt, { value: prompt });
    Object.assign(form.elements.seed, { value: seed });
    form.querySelector("button").focus();
  }

  ask(event) {
    const { prompt, seed } = event.target.elements;
    return this.#ask(this.sides, [prompt.value.trim()], [Number(seed.value)], event.target.querySelector("button"));
  }

  askOffered(event, button) {
    const { sides, prompts, seeds } = this.offer;
    return this.#ask(sides.map(parseSide), prompts, seeds, button);
  }

  async #ask(sides, prompts, seeds, button) {
    const jobs = await this.act(async () => {
      const made = [];
      try {
        for (const ask of rendering(sides, prompts, seeds)) made.push(await api.post("/jobs", ask));
      } catch (error) {
        // One side without the other shows nothing.
        await Promise.all(made.map((job) => api.post(`/jobs/${job.id}/cancel`).catch(() => {})));
        throw error;
      }
      return made;
    }, button);
    if (jobs) this.#follow(jobs, { prompt: prompts[0], seed: seeds[0] });
  }

  #follow(jobs, wanted) {
    this.set({ jobs: [...jobs, ...this.state.jobs.filter((job) => !isOver(job))] });
    const done = new Set();
    for (const { id } of jobs) {
      const tell = (job) => this.set({ jobs: this.state.jobs.map((known) => (known.id === id ? job : known)) });
      watchJob(this, id, tell, () => {
        done.add(id);
        if (done.size < jobs.length) return;
        this.set({ jobs: this.state.jobs.filter((job) => !done.has(job.id)) });
        this.dispatchEvent(new CustomEvent("fg-rendered", { bubbles: true, detail: wanted }));
      });
    }
  }

  async cancelJob(event, button) {
    await this.act(() => api.post(`/jobs/${button.dataset.id}/cancel`), button);
  }
}

function lostText(sides) {
  const updates = sides.map((side) => side.update).filter(Boolean);
  return updates.length ? t("compare.checkpoint_gone", { updates: updates.join(", ") }) : t("compare.no_checkpoint");
}

customElements.define("fg-compare-render", Render);
