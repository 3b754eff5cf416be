// The goal (a preset) and the base model of a new run.

import { api } from "./api.js";
import { worded } from "./form_fields.js";
import { changePreset, PROMPT_KEYS, setKey } from "./form_state.js";
import { downloadActions, downloadForm } from "./library_download.js";
import { said } from "./server_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const ORDER = ["pocket", "micro", "pocket-long", "wan2.1-1.3b", "wan2.1-14b", "flash-grpo-paper"];

export function goalTitle(name) {
  return ORDER.includes(name) ? t(`new.goal.${name}`) : name;
}

export function section(name, number, content) {
  return html`<section class="fg-card fg-step" aria-labelledby="step-${name}" data-key="${name}">
    <h2 id="step-${name}"><span class="fg-number" aria-hidden="true">${number}</span> ${t(`new.step.${name}`)}</h2>
    ${content}
  </section>`;
}

export function problemOf(page, key) {
  const problem = page.state.problems[key];
  return problem ? html`<p class="fg-problem" id="problem-${key}" tabindex="-1">${said(problem)}</p>` : null;
}

export function goalSection(page) {
  const { presets, form } = page.state;
  const names = Object.keys(presets).sort((one, other) => rank(one) - rank(other));
  const cards = names.map((name) => {
    const preset = presets[name];
    const words = worded("presets", name, { description: preset.description });
    return html`<label class="fg-card fg-choice" data-key="${name}">
      <span class="fg-choice-head"><input type="radio" data-sync name="preset" value="${name}" id="preset-${name}"
        data-on="change:choosePreset" aria-describedby="about-${name}" ${name === form.preset ? html`checked` : ""}>
      <strong>${goalTitle(name)}</strong></span>
      <span class="fg-small fg-block" id="about-${name}">${words.description}</span>
      <span class="fg-row"><span class="fg-badge">${preset.model}</span>
      ${preset.verified ? html`<span class="fg-badge">✓ ${t("new.verified")}</span>` : html`<span class="fg-badge fg-warned">⚠ ${t("new.unverified")}</span>`}</span>
    </label>`;
  });
  return section("goal", 1, html`<fieldset class="fg-plain"><legend class="fg-hidden">${t("new.step.goal")}</legend>
    <div class="fg-grid">${cards}</div></fieldset>${problemOf(page, "preset")}`);
}

function rank(name) {
  const place = ORDER.indexOf(name);
  return place < 0 ? ORDER.length : place;
}

export function modelSection(page) {
  const { bases, models, presets, form } = page.state;
  const chosen = page.config().model;
  const options = bases.map((base) => ({ value: base.name, label: base.built_in ? t("new.model.built_in", { name: base.name }) : base.name }));
  const known = (name) => options.some((option) => option.value === name);
  const own = presets[form.preset]?.whole.model;
  for (const name of [own, chosen]) if (name && !known(name)) options.push({ value: name, label: t("new.model.hub", { name }) });
  const base = bases.find((entry) => entry.name === chosen);
  const card = models.find((model) => model.name === chosen) ?? models.find((model) => model.source === (base?.source ?? chosen));
  return section("model", 2, html`
    <div class="fg-field"><label for="new-model">${t("new.model.label")}</label>
      <select id="new-model" data-sync="${chosen}" data-on="change:chooseModel" aria-describedby="new-model-about"
        ${page.state.problems.model ? html`aria-invalid="true"` : ""}>${options.map(
        ({ value, label }) => html`<option value="${value}" ${value === chosen ? html`selected` : ""}>${label}</option>`,
      )}</select>${problemOf(page, "model")}</div>
    <p class="fg-small" id="new-model-about">${modelWords(card, base)}</p>
    <details class="fg-more"><summary>${t("new.model.other")}</summary>${downloadForm(page)}</details>`);
}

function modelWords(card, base) {
  if (!card) return t("new.model.unknown", { licence: base?.licence || t("library.licence_unknown") });
  const words = worded("models", card.name, { description: card.description });
  return html`${words.description} ${t("new.model.facts", { parameters: card.parameters, licence: card.licence })}
    ${card.verified ? null : html`<span class="fg-badge fg-warned">⚠ ${t("new.unverified")}</span>`}`;
}

export const startActions = {
  ...downloadActions,

  choosePreset(event) {
    const { form, presets } = this.state;
    for (const key of [...PROMPT_KEYS, "model", "rewards", "reward_options"]) delete form.set[key]; // chosen for another goal
    form.raw = {};
    this.state.plan = null;
    changePreset(form, presets, event.target.value);
    this.orderRewards();
    this.promptsChanged();
    this.touched();
  },

  chooseModel(event) {
    setKey(this.state.form, this.state.presets, "model", event.target.value);
    this.touched();
  },

  /** A download has ended: choose what it brought. */
  async downloaded(found) {
    this.set({ bases: (await api.get("/base-models")).base_models });
    const base = this.state.bases.find((entry) => entry.source === found.repo) ?? this.state.bases.at(-1);
    if (base && !base.built_in) setKey(this.state.form, this.state.presets, "model", base.name);
    this.touched();
  },
};
