// What happens when a person uses a generated control, on a page with `state.form`, `state.fields` and `touched()`.

import { read } from "./form_fields.js";
import { setKey } from "./form_state.js";
import { jobFields } from "./new_size.js";
import { readSource } from "./prompt_categories.js";
import { t } from "./texts.js";

export const fieldsActions = {
  field(key) {
    return this.state.fields.find((field) => field.key === key) ?? jobFields().find((field) => field.key === key);
  },

  isJobField(key) {
    return jobFields().some((field) => field.key === key);
  },

  fieldTyped(event, control) {
    const { form, presets, problems } = this.state;
    const key = control.dataset.field;
    delete problems[key];
    if (this.isJobField(key)) form[key] = this.jobText(key, control.value);
    else {
      const found = read(this.field(key), control.value);
      if ("problem" in found) form.raw[key] = control.value;
      else {
        delete form.raw[key];
        setKey(form, presets, key, found.value);
      }
    }
    this.touched();
  },

  fieldChecked(event, control) {
    const key = control.dataset.field;
    if (this.isJobField(key)) this.state.form[key] = control.checked;
    else setKey(this.state.form, this.state.presets, key, control.checked);
    this.touched();
  },

  fieldMany(event, control) {
    const key = control.dataset.field;
    const value = [...this.querySelectorAll(`input[data-field="${key}"]:checked`)].map((box) => box.value);
    setKey(this.state.form, this.state.presets, key, value);
    this.touched();
  },

  resetField(event, button) {
    const { form, presets, problems } = this.state;
    const key = button.dataset.field;
    delete form.raw[key];
    delete problems[key];
    if (this.isJobField(key)) form[key] = this.usualJobValue(key);
    else setKey(form, presets, key, this.baseline()[key]);
    this.touched();
    queueMicrotask(() => this.querySelector(`#field-${key}`)?.focus()); // once it shows the value set back
  },

  /** Problems that the controls know by themselves. */
  localProblems() {
    const { form } = this.state;
    const found = {};
    for (const [key, text] of Object.entries(form.raw)) {
      const said = read(this.field(key), text);
      if ("problem" in said) found[key] = said.problem;
    }
    for (const field of jobFields()) {
      if (field.type === "boolean") continue;
      const said = read(field, form[field.key]);
      if ("problem" in said) found[field.key] = said.problem;
    }
    if (form.source === "built-in" && readSource(this.config().prompts).chosen?.length === 0) found.prompts = t("new.prompts.no_category");
    if (form.source === "own" && this.state.promptsError) found.own_prompts = this.state.promptsError.message;
    else if (form.source === "own" && !form.text.trim()) found.own_prompts = t("new.prompts.none");
    else if (form.source === "set" && !form.promptSet) found.own_prompts = t("new.prompts.choose");
    return found;
  },
};
