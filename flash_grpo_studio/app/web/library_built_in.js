// The prompt sets that ship with the studio: how many prompts of which categories, to look at and to start a run with.

import { api } from "./api.js";
import { number } from "./format.js";
import { categoryTitle, familyTitle, promptLists, sizesOf, sourceOf, SPLITS } from "./prompt_categories.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const REAL = ["studio", "starter"]; // for models that know more than the pocket world
const REAL_PRESET = "wan2.1-1.3b";
const FEW = 40;

export function builtInSets(page) {
  const { builtIn, looking } = page.state;
  if (!builtIn) return null;
  const rows = builtIn.map((set) => html`<tr data-key="${set.name}"><th scope="row">${familyTitle(set.name)}</th>
    ${Object.values(SPLITS).map((split) => html`<td data-label="${t(`library.built_in.${split}`)}">${number(set[split])}</td>`)}
    <td data-label="${t("library.built_in.categories")}">${set.categories.length || "–"}</td>
    <td><div class="fg-row"><a class="fg-button" href="${linkOf(set)}">${t("library.use")}<span class="fg-hidden"> ${familyTitle(set.name)}</span></a>
      <button type="button" class="fg-button" data-on="click:lookAtSet" data-name="${set.name}" aria-expanded="${String(looking?.set.name === set.name)}">
        ${t("library.look")}<span class="fg-hidden"> ${familyTitle(set.name)}</span></button></div></td></tr>`);
  const columns = ["library.name", ...Object.values(SPLITS).map((split) => `library.built_in.${split}`), "library.built_in.categories", "library.actions"];
  return html`<section class="fg-stack fg-below" data-key="built-in" aria-labelledby="fg-built-in"><h2 id="fg-built-in">${t("library.built_in.title")}</h2>
    <div class="fg-table-box"><table class="fg-stacked"><thead><tr>${columns.map((key) => html`<th scope="col">${t(key)}</th>`)}</tr></thead>
      <tbody>${rows}</tbody></table></div>
    ${looking ? lookedAt(looking) : null}</section>`;
}

/** A new run of a preset for its model, on all prompts of the set. */
function linkOf(set) {
  const query = new URLSearchParams(REAL.includes(set.name) ? { preset: REAL_PRESET } : {});
  for (const [key, split] of Object.entries(SPLITS)) query.append("set", `${key}=${JSON.stringify(`${set.name}:${split}`)}`);
  return `/new?${query}`;
}

function lookedAt({ set, category, found }) {
  const options = set.categories.map(({ name }) => html`<option value="${name}" ${name === category ? html`selected` : ""}>${categoryTitle(name)}
    (${sizesOf(set, [name]).train})</option>`);
  const lists = Object.values(SPLITS).map((split) => {
    const title = t(`library.built_in.${split}`);
    return html`<h3>${title}</h3> ${promptLists(found[split].map((prompt) => ({ ...prompt, category: null })), title)}`;
  });
  return html`<div class="fg-card" id="fg-looked-at" data-key="look-${set.name}"><h3>${familyTitle(set.name)}</h3>
    ${options.length ? html`<div class="fg-field"><label for="fg-category">${t("library.built_in.category")}</label>
      <select id="fg-category" data-sync="${category}" data-on="change:lookAtCategory">${options}</select></div>`
      : html`<p class="fg-small">${t("library.built_in.first", { count: FEW })}</p>`}
    ${lists}</div>`;
}

export const builtInActions = {
  async lookAtSet(event, button) {
    const { builtIn, looking } = this.state;
    if (looking?.set.name === button.dataset.name) return this.set({ looking: null });
    const set = builtIn.find(({ name }) => name === button.dataset.name);
    await this.look(set, set.categories[0]?.name ?? null, button);
  },

  async lookAtCategory(event) {
    await this.look(this.state.looking.set, event.target.value);
  },

  /** Load the prompts of one category, split by split. */
  async look(set, category, button = null) {
    await this.act(async () => {
      const splits = Object.values(SPLITS);
      const names = splits.map((split) => encodeURIComponent(sourceOf(set, split, category && [category])));
      const answers = await Promise.all(names.map((name) => api.get(`/built-in-prompts?name=${name}&limit=${FEW}`)));
      this.set({ looking: { set, category, found: Object.fromEntries(splits.map((split, place) => [split, answers[place].prompts])) } });
    }, button);
  },
};
