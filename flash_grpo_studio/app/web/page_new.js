// New run: from a complete default, launched by one click, to every setting there is.

import { api, connection } from "./api.js";
import { fieldsActions } from "./form_actions.js";
import { describe, loadCatalogueWords, syncControls } from "./form_fields.js";
import { Draft, HERE, NOWHERE, THEIRS } from "./form_draft.js";
import { formOfAsk, formOfLink, freshForm, wholeConfig } from "./form_state.js";
import { advancedSection } from "./new_advanced.js";
import { budgetActions } from "./new_budget.js";
import { checkActions } from "./new_check.js";
import { filesActions } from "./new_files.js";
import { goalSection, modelSection, startActions } from "./new_goal.js";
import { launchActions, launchPanel } from "./new_launch.js";
import { promptsActions, promptsSection } from "./new_prompts.js";
import { reviewSection } from "./new_review.js";
import { rewardsActions, rewardsSection } from "./new_rewards.js";
import { sizeActions, sizeSection } from "./new_size.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const DEFAULT_PRESET = "pocket";
const SAVE_AFTER = 300;

class NewRun extends View {
  state = { loaded: false, form: freshForm(DEFAULT_PRESET), problems: {}, general: [], plan: null, split: null };

  async start() {
    this.search = location.search;
    this.draft = new Draft(this.search);
    const back = () => !connection.lost && this.state.kept === HERE && this.keep();
    connection.addEventListener("change", back);
    this.onStop(() => connection.removeEventListener("change", back));
    addEventListener("pagehide", () => this.saving && this.draft.hold(this.state.form)); // changed a moment ago
    addEventListener("pageshow", (event) => {
      if (event.persisted) location.reload(); // back from the run that was launched: a new form, a new key
    });
    await this.load();
  }

  async load() {
    try {
      const [presets, models, bases, rewards, choices, schema, sets, workers, rate, draft] = await Promise.all([
        api.get("/presets"), api.get("/models"), api.get("/base-models"), api.get("/rewards"), api.get("/choices"),
        api.get("/schema"), api.get("/prompt-sets?limit=500"), api.get("/workers"), api.get("/price"), this.draft.open(),
        loadCatalogueWords(),
      ]);
      Object.assign(this.state, {
        presets: Object.fromEntries(presets.map((preset) => [preset.name, preset])),
        models,
        bases: bases.base_models,
        rewards,
        choices,
        sets: sets.prompt_sets,
        workers: workers.workers,
        rate,
        fields: Object.entries(schema.properties).map(([key, entry]) => describe(key, entry)),
      });
      await this.takeForm(draft);
      this.set({ loaded: true, error: null });
      this.orderRewards();
      this.promptsChanged();
      this.check();
    } catch (error) {
      this.fail(error);
      setTimeout(() => this.isConnected && !this.state.loaded && this.load(), 2000);
    }
  }

  /** The form of the draft, the clone, or the link; else the complete default. */
  async takeForm(draft) {
    const { presets } = this.state;
    const clone = new URLSearchParams(this.search).get("clone");
    let form = null;
    if (clone) form = await this.cloned(clone);
    form ??= formOfLink(this.search, presets, DEFAULT_PRESET) ?? freshForm(DEFAULT_PRESET);
    this.state.origin = structuredClone(form);
    const usable = draft && draft.form.preset in presets;
    this.state.form = usable ? { ...draft.form, key: crypto.randomUUID() } : form;
    Object.assign(this.state, { restored: usable, kept: usable && draft.theirs ? THEIRS : "" });
  }

  async cloned(id) {
    const { presets } = this.state;
    try {
      const [job, spec] = await Promise.all([api.get(`/jobs/${encodeURIComponent(id)}`), api.get(`/jobs/${encodeURIComponent(id)}/spec`)]);
      if (spec.kind !== "alignment") throw new Error(t("new.clone.kind", { kind: spec.kind }));
      const known = spec.ask.preset in presets;
      const form = formOfAsk(known ? spec.ask : { ...spec.ask, preset: DEFAULT_PRESET }, presets);
      form.clone = id;
      this.state.cloneOf = { id, name: job.name, overrides: spec.ask.overrides ?? {}, asked: structuredClone(form) };
      return form;
    } catch (error) {
      this.set({ cloneError: error });
      return null;
    }
  }

  /** What fields are compared with: the cloned run, else the preset. */
  baseline() {
    const { cloneOf, presets, form } = this.state;
    if (cloneOf) return wholeConfig(cloneOf.asked, presets);
    return presets[form.preset]?.whole ?? {};
  }

  /** The configuration as the form shows it; what a link or file holds may be of any kind, and the API says so. */
  config() {
    const config = wholeConfig(this.state.form, this.state.presets);
    const mapping = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
    const options = Object.entries(mapping(config.reward_options)).map(([name, set]) => [name, mapping(set)]);
    return { ...config, model: String(config.model), rewards: mapping(config.rewards), reward_options: Object.fromEntries(options) };
  }

  /** Something was changed by a person: another request, so another key; kept, checked and planned anew. */
  touched() {
    const { form } = this.state;
    form.key = crypto.randomUUID();
    Object.assign(this.state.problems, this.localProblems());
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.keep(), SAVE_AFTER);
    this.checkSoon();
    this.update();
  }

  async keep() {
    this.saving = clearTimeout(this.saving);
    this.set({ kept: await this.draft.save(this.state.form) });
  }

  /** Of two windows with one draft: what the other made of it, in the place of this form. */
  async takeTheirs(event, button) {
    this.saving = clearTimeout(this.saving);
    const found = await this.act(async () => ({ draft: await this.draft.takeTheirs() }), button);
    if (!found) return;
    const form = found.draft?.form ?? this.state.form; // gone by now: this one is the draft
    Object.assign(this.state, { form: { ...form, key: crypto.randomUUID() }, kept: "", split: null });
    this.orderRewards();
    this.promptsChanged();
    this.check();
  }

  async keepMine(event, button) {
    const kept = await this.act(() => this.draft.keepMine(this.state.form), button);
    if (kept) this.set({ kept });
  }

  async startOver() {
    this.saving = clearTimeout(this.saving);
    await this.draft.drop();
    if (this.search) location.assign("/new");
    else location.reload();
  }

  render() {
    const { loaded, error } = this.state;
    if (!loaded) {
      return html`<h1>${t("page.new")}</h1>${errorBox(error)}
        <div class="fg-card fg-launch"><p class="fg-muted">${t("new.loading")}</p></div>`;
    }
    return html`<h1>${t("page.new")}</h1> ${this.notices()}
      <div class="fg-new-run">
        <div class="fg-new-side" data-key="side">${launchPanel(this, "top")}</div>
        <div class="fg-new-main fg-stack" data-key="main">
          ${goalSection(this)} ${modelSection(this)} ${promptsSection(this)} ${rewardsSection(this)} ${sizeSection(this)}
          ${advancedSection(this)} ${reviewSection(this)}
        </div>
      </div>`;
  }

  notices() {
    const { restored, cloneOf, cloneError, kept } = this.state;
    return html`<div data-key="notices">
      ${cloneError ? errorBox(cloneError) : null}
      ${cloneOf ? html`<p class="fg-notice fg-row fg-spread"><span>${t("new.clone.of")}
        <a href="/run?id=${cloneOf.id}">${cloneOf.name}</a>. ${t("new.clone.hint")}</span></p>` : null}
      ${restored ? html`<p class="fg-notice fg-row fg-spread" id="fg-restored"><span>${t("new.restored")}</span>
        <button type="button" class="fg-button" data-on="click:startOver">${t("new.start_over")}</button></p>` : null}
      ${kept === NOWHERE || kept === HERE ? html`<p class="fg-notice" id="fg-kept">${t(kept === HERE ? "new.kept_here" : "new.unsaved")}</p>` : null}
      ${kept === THEIRS ? html`<div class="fg-notice fg-row fg-spread" id="fg-theirs" role="alert"><span>${t("new.theirs")}</span>
        <button type="button" class="fg-button" data-on="click:takeTheirs">${t("new.take_theirs")}</button>
        <button type="button" class="fg-button" data-on="click:keepMine">${t("new.keep_mine")}</button></div>` : null}
    </div>`;
  }

  rendered() {
    syncControls(this);
  }
}

Object.assign(
  NewRun.prototype,
  fieldsActions,
  startActions,
  promptsActions,
  rewardsActions,
  sizeActions,
  budgetActions,
  checkActions,
  launchActions,
  filesActions,
);
customElements.define("fg-new-run", NewRun);
