// Base models: what is here, what is known to work, and downloading more.

import { api } from "./api.js";
import { worded } from "./form_fields.js";
import { moment } from "./format.js";
import { downloadForm } from "./library_download.js";
import { html } from "./template.js";
import { t } from "./texts.js";

export function modelsTab(page) {
  const { bases, models } = page.state;
  const rows = bases.map((base) => html`<tr data-key="${base.id}"><th scope="row">${base.name}</th><td data-label="${t("library.models.source")}">${base.built_in ? t("library.models.built_in") : base.source}</td>
    <td data-label="${t("library.models.licence")}">${base.licence || t("library.licence_unknown")}</td><td data-label="${t("library.models.revision")}">${base.revision ? html`<code>${base.revision.slice(0, 12)}</code>` : "–"}</td><td data-label="${t("library.models.since")}">${moment(base.created)}</td>
    <td><a class="fg-button" href="${newRunWith(page, base)}">${t("library.use")}<span class="fg-hidden"> ${base.name}</span></a></td></tr>`);
  const missing = models.filter((model) => model.source !== "built in" && !bases.some((base) => base.source === model.source));
  return html`<div class="fg-table-box"><table class="fg-stacked"><caption class="fg-hidden">${t("library.tab.models")}</caption><thead><tr>
      ${["name", "models.source", "models.licence", "models.revision", "models.since", "actions"].map((key) => html`<th scope="col">${t(`library.${key}`)}</th>`)}
    </tr></thead><tbody>${rows}</tbody></table></div>
    <section class="fg-card fg-below" aria-labelledby="download-title"><h2 id="download-title">${t("library.models.more")}</h2>${downloadForm(page)}</section>
    ${missing.length ? html`<h2 class="fg-below">${t("library.models.known")}</h2><div class="fg-grid">${missing.map((model) => card(model))}</div>` : null}`;
}

/** New run with a preset made for this model, or with the usual one and this model. */
function newRunWith(page, base) {
  const card = page.state.models.find((model) => model.name === base.name || (model.source === base.source && !base.built_in));
  const query = new URLSearchParams({ preset: card?.presets[0] ?? "pocket" });
  if (!base.built_in) query.append("set", `model=${JSON.stringify(base.name)}`);
  return `/new?${query}`;
}

function card(model) {
  const words = worded("models", model.name, { title: model.title, description: model.description });
  return html`<article class="fg-card" data-key="${model.name}"><h3>${words.title}</h3><p>${words.description}</p>
    <p class="fg-small">${t("new.model.facts", { parameters: model.parameters, licence: model.licence })}</p>
    ${model.verified ? null : html`<p><span class="fg-badge fg-warned">⚠ ${t("new.unverified")}</span></p>`}
    <button type="button" class="fg-button" data-on="click:fillDownload" data-repo="${model.source}">${t("library.models.fill")}<span class="fg-hidden"> ${words.title}</span></button></article>`;
}

export const modelsActions = {
  async loadModels() {
    const [bases, models] = await Promise.all([api.get("/base-models"), api.get("/models")]);
    this.set({ bases: bases.base_models, models });
  },

  fillDownload(event, button) {
    const input = this.querySelector("#download-repo");
    input.value = button.dataset.repo;
    input.focus();
  },

  async downloaded() {
    await this.loadModels();
  },
};
