// Every field of the configuration, made from its schema: by group, searchable, with help, changes marked.

import { fieldControl, written } from "./form_fields.js";
import { equal } from "./form_state.js";
import { jobControl } from "./new_size.js";
import { section } from "./new_goal.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const GROUPS = ["model", "prompts", "rewards", "rollout", "objective", "optimizer", "evaluation", "run"];
const MORE_JOB_FIELDS = ["name", "shared", "priority", "max_retries"];

export function advancedSection(page) {
  const { advanced, search = "", onlyChanged } = page.state;
  const changed = page.changedKeys();
  const body = advanced ? contents(page, search.trim().toLowerCase(), onlyChanged, changed) : null;
  return section("advanced", 6, html`<details class="fg-advanced" id="new-advanced" data-on="toggle:toggleAdvanced">
    <summary>${t("new.advanced.summary", { count: page.state.fields.length })}
      ${changed.length ? html` · <strong>${t("new.advanced.changed", { count: changed.length })}</strong>` : null}</summary>
    <div>${body}</div></details>`);
}

function contents(page, search, onlyChanged, changed) {
  const { fields } = page.state;
  const found = fields.filter((field) => {
    if (onlyChanged && !changed.includes(field.key)) return false;
    return !search || `${field.key} ${field.label} ${field.help}`.toLowerCase().includes(search);
  });
  const groups = [...GROUPS, ...new Set(fields.map((field) => field.group).filter((group) => !GROUPS.includes(group)))];
  return html`<div class="fg-row fg-find"><div class="fg-field"><label for="new-search">${t("new.advanced.search")}</label>
      <input type="search" id="new-search" autocomplete="off" data-on="input:searchFields"></div>
    <label class="fg-check"><input type="checkbox" id="new-only-changed" data-on="change:filterChanged"> <span>${t("new.advanced.only_changed")}</span></label></div>
    <p class="fg-small" role="status">${t("new.advanced.found", { count: found.length })}</p>
    ${search || onlyChanged ? null : html`<h3>${t("new.advanced.job")}</h3><div class="fg-grid" data-key="job">${MORE_JOB_FIELDS.map((key) => jobControl(page, key))}</div>`}
    ${groups.map((group) => {
      const mine = found.filter((field) => field.group === group);
      return mine.length ? html`<div data-key="group-${group}"><h3>${GROUPS.includes(group) ? t(`form.group.${group}`) : group}</h3>
        <div class="fg-grid">${mine.map((field) => control(page, field))}</div></div>` : null;
    })}`;
}

function control(page, field) {
  const { form, problems } = page.state;
  const { key } = field;
  const text = form.raw[key] ?? written(field, page.config()[key]);
  const shown = { text, problem: problems[key], changed: page.isChanged(key), from: written(field, page.baseline()[key]) || "–" };
  return fieldControl(field, shown);
}

export const advancedActions = {
  isChanged(key) {
    return key in this.state.form.raw || !equal(this.config()[key], this.baseline()[key]);
  },

  changedKeys() {
    return this.state.fields.map((field) => field.key).filter((key) => this.isChanged(key));
  },

  toggleAdvanced(event) {
    if (event.target.id === "new-advanced") this.set({ advanced: event.target.open });
  },

  searchFields(event) {
    this.set({ search: event.target.value });
  },

  filterChanged(event) {
    this.set({ onlyChanged: event.target.checked });
  },
};
