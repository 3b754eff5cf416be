// Controls made from the configuration's JSON schema: what a field takes, how it is written, and what is wrong with it.

import { said } from "./server_words.js";
import { html } from "./template.js";
import { currentLanguage, t } from "./texts.js";

let chinese = { fields: {}, presets: {}, rewards: {}, models: {} };

/** Words for what the API describes in English alone; call once before the first rendering in Chinese. */
export async function loadCatalogueWords() {
  if (currentLanguage() === "zh") chinese = await (await fetch(new URL("./form_zh.json", import.meta.url))).json();
}

/** The Chinese words of a field, preset, reward or model where there are some, else the API's own. */
export function worded(kind, name, words) {
  return { ...words, ...(chinese[kind][name] ?? {}) };
}

/** A schema entry as one simple description: type, options, bounds, whether none is a value. */
export function describe(key, entry) {
  const branches = entry.anyOf ?? [entry];
  const main = branches.find((branch) => branch.type !== "null");
  const words = { label: key.charAt(0).toUpperCase() + key.slice(1).replaceAll("_", " "), help: entry.description ?? "" };
  return {
    key,
    group: entry.group,
    type: main.enum ? "choice" : main.type,
    options: main.enum ?? main.items?.enum ?? null,
    items: main.items?.type ?? null,
    nullable: branches.some((branch) => branch.type === "null"),
    minimum: main.minimum ?? null,
    maximum: main.maximum ?? null,
    above: main.exclusiveMinimum ?? null,
    below: main.exclusiveMaximum ?? null,
    ...worded("fields", key, words),
  };
}

/** A value as a control shows it. */
export function written(field, value) {
  if (value === null || value === undefined) return "";
  if (field.type === "array" && Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** What a typed text means: {value} or {problem}, a sentence. */
export function read(field, text) {
  const trimmed = field.type === "string" ? text : text.trim();
  if (trimmed === "" && field.nullable) return { value: null };
  if (field.type === "integer" || field.type === "number") return readNumber(field, trimmed);
  if (field.type === "array") return readList(field, trimmed);
  if (field.type === "object") return readObject(trimmed);
  return { value: trimmed };
}

function readNumber(field, text) {
  const value = Number(text.replace(",", "."));
  if (text === "" || !Number.isFinite(value)) return { problem: t("form.number") };
  if (field.type === "integer" && !Number.isInteger(value)) return { problem: t("form.integer") };
  const { minimum, maximum, above, below } = field;
  if (minimum !== null && value < minimum) return { problem: t("form.minimum", { limit: minimum }) };
  if (above !== null && value <= above) return { problem: t("form.above", { limit: above }) };
  if (maximum !== null && value > maximum) return { problem: t("form.maximum", { limit: maximum }) };
  if (below !== null && value >= below) return { problem: t("form.below", { limit: below }) };
  return { value };
}

function readList(field, text) {
  const parts = text.split(/[,，]/).map((part) => part.trim()).filter(Boolean);
  if (field.items !== "integer") return { value: parts };
  const numbers = parts.map(Number);
  return numbers.every(Number.isInteger) ? { value: numbers } : { problem: t("form.integers") };
}

function readObject(text) {
  try {
    const value = JSON.parse(text);
    if (value && typeof value === "object" && !Array.isArray(value)) return { value };
  } catch {
    // said below
  }
  return { problem: t("form.json") };
}

/** A labelled control of a field. `shown` is {text, problem, changed, from}. */
export function fieldControl(field, shown) {
  const id = `field-${field.key}`;
  const note = shown.problem ? `${id}-help ${id}-problem` : `${id}-help`;
  const many = field.type === "array" && field.options;
  const label = html`${field.label} <code>${field.key}</code>`;
  const changed = shown.changed
    ? html`<p class="fg-changed-note"><span>${t("form.changed", { value: shown.from })}</span>
        <button type="button" class="fg-button fg-quiet" data-on="click:resetField" data-field="${field.key}"
          aria-label="${t("form.reset_named", { name: field.label })}">${t("form.reset")}</button></p>`
    : null;
  const inner = html`<p class="fg-small" id="${id}-help">${field.help}${bounds(field)}</p>
    ${shown.problem ? html`<p class="fg-problem" id="${id}-problem">${said(shown.problem)}</p>` : null} ${changed}`;
  const frame = `fg-field fg-form-field${shown.changed ? " fg-changed" : ""}`;
  if (many) {
    return html`<fieldset class="${frame}" data-key="${field.key}"><legend>${label}</legend>
      ${manyChoices(field, shown.text, note)} ${inner}</fieldset>`;
  }
  const control = controlOf(field, id, note, shown);
  const body = field.type === "boolean"
    ? html`<label class="fg-check" for="${id}">${control} <span>${label}</span></label>`
    : html`<label for="${id}">${label}</label> ${control}`;
  return html`<div class="${frame}" data-key="${field.key}">${body} ${inner}</div>`;
}

function bounds(field) {
  const { minimum, maximum, above, below } = field;
  const limits = [];
  if (minimum !== null && maximum !== null) limits.push(t("form.range", { low: minimum, high: maximum }));
  else {
    if (minimum !== null) limits.push(`≥ ${minimum}`);
    if (above !== null) limits.push(`> ${above}`);
    if (maximum !== null) limits.push(`≤ ${maximum}`);
    if (below !== null) limits.push(`< ${below}`);
  }
  const range = limits.length ? html` <span class="fg-nowrap">(${limits.join(", ")})</span>` : null;
  return html`${range}${field.nullable ? html` ${t("form.may_be_empty")}` : null}`;
}

function controlOf(field, id, note, shown) {
  const common = html`id="${id}" data-field="${field.key}" aria-describedby="${note}"
    ${shown.problem ? html`aria-invalid="true"` : ""}`;
  if (field.type === "boolean") {
    return html`<input type="checkbox" data-sync ${common} data-on="change:fieldChecked" ${shown.text === "true" ? html`checked` : ""}>`;
  }
  if (field.type === "choice") {
    const options = [...(field.nullable ? [""] : []), ...field.options];
    return html`<select data-sync="${shown.text}" ${common} data-on="change:fieldTyped">${options.map(
      (name) => html`<option value="${name}" ${name === shown.text ? html`selected` : ""}>${name || "–"}</option>`,
    )}</select>`;
  }
  const numeric = field.type === "integer" ? "numeric" : field.type === "number" ? "decimal" : "text";
  return html`<input type="text" data-sync inputmode="${numeric}" spellcheck="false" autocomplete="off"
    value="${shown.text}" ${common} data-on="input:fieldTyped">`;
}

function manyChoices(field, text, note) {
  const chosen = new Set(text.split(", ").filter(Boolean));
  return html`<div class="fg-row">${field.options.map(
    (name) => html`<label class="fg-check"><input type="checkbox" data-sync data-field="${field.key}" value="${name}"
      aria-describedby="${note}" data-on="change:fieldMany" ${chosen.has(name) ? html`checked` : ""}> <span>${name}</span></label>`,
  )}</div>`;
}

/**
 * Bring controls to what the markup says; `patch` leaves alone what a person has typed. The control with the focus is
 * the person's own.
 */
export function syncControls(root) {
  for (const control of root.querySelectorAll("[data-sync]")) {
    if (control.type === "checkbox" || control.type === "radio") control.checked = control.hasAttribute("checked");
    else if (control === document.activeElement) continue;
    else {
      const wanted = control.dataset.sync || control.getAttribute("value") || "";
      if (control.value !== wanted) control.value = wanted;
    }
  }
}
