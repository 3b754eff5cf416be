// Built-in prompt sets and their categories: how a configuration names them, as flash_grpo/prompts.py reads it.

import { html } from "./template.js";
import { t } from "./texts.js";

export const SPLITS = { prompts: "train", validation_prompts: "validation", heldout_prompts: "heldout" };

/** What `studio:train:food+text` names: its set, its split, and the categories; null stands for all of them. */
export function readSource(source) {
  const [family, split, chosen] = String(source).split(":");
  return { family, split, chosen: chosen === undefined ? null : chosen.split("+").filter(Boolean) };
}

/** The source of some categories of a set; all of them are the set itself. */
export function sourceOf(set, split, chosen) {
  const whole = `${set.name}:${split}`;
  if (!set.categories.length || chosen === null || chosen.length === set.categories.length) return whole;
  const ordered = set.categories.filter(({ name }) => chosen.includes(name)).map(({ name }) => name);
  return `${whole}:${ordered.join("+")}`;
}

/** The sizes of a set or of some categories of it. */
export function sizesOf(set, chosen = null) {
  if (chosen === null) return set;
  const parts = set.categories.filter(({ name }) => chosen.includes(name));
  const sum = (split) => parts.reduce((total, part) => total + part[split], 0);
  return { train: sum("train"), validation: sum("validation"), heldout: sum("heldout") };
}

export function familyTitle(name) {
  return t(`prompts.family.${name}`);
}

export function categoryTitle(name) {
  return t(`prompts.category.${name}`);
}

/** Prompts under the titles of their categories, or as one list where they have none; it scrolls by keys, too. */
export function promptLists(prompts, label) {
  const groups = new Map();
  for (const prompt of prompts) groups.set(prompt.category, [...(groups.get(prompt.category) ?? []), prompt]);
  const lists = [...groups].map(
    ([category, found]) => html`${category ? html`<h3>${categoryTitle(category)}</h3>` : null}
      <ol>${found.map((prompt) => html`<li>${prompt.text}</li>`)}</ol>`,
  );
  return html`<div class="fg-prompts" tabindex="0" role="group" aria-label="${label}">${lists}</div>`;
}
