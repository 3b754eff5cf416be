// Saving a new run to a file, loading one, copying the command and sharing a link.

import { api } from "./api.js";
import { advancedActions } from "./new_advanced.js";
import { equal, formOfAsk, linkOf, setKey } from "./form_state.js";
import { t } from "./texts.js";

const LARGEST_FILE = 20e6;

export const filesActions = {
  ...advancedActions,

  applyAdvice(event, button) {
    const { form, presets } = this.state;
    for (const assignment of JSON.parse(button.dataset.set)) {
      const place = assignment.indexOf("=");
      const key = assignment.slice(0, place);
      const text = assignment.slice(place + 1);
      let value = text;
      try {
        value = JSON.parse(text);
      } catch {
        // a word
      }
      if (key === "devices") form.devices = text;
      else setKey(form, presets, key, value);
    }
    this.touched();
  },

  async copy(event, button) {
    const { plan, form } = this.state;
    const texts = { command: plan?.command, yaml: plan?.yaml, link: linkOf(form) };
    const text = texts[button.dataset.copy];
    try {
      await navigator.clipboard.writeText(text);
      this.set({ copied: t("new.copied") });
    } catch {
      this.set({ copied: text }); // without permission: to be copied by hand
    }
    setTimeout(() => this.set({ copied: null }), 15_000);
  },

  saveJson() {
    offer("run.json", JSON.stringify(this.ask(), null, 2), "application/json");
  },

  saveYaml() {
    offer("config.yaml", this.state.plan.yaml, "application/yaml");
  },

  async loadFile(event) {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) return;
    this.set({ fileError: null });
    try {
      if (file.size > LARGEST_FILE) throw new Error(t("new.files.large"));
      this.takeOver(await api.post("/configurations/read", { text: await file.text() }));
    } catch (error) {
      this.set({ fileError: error.message });
    }
  },

  /** `ask` is a saved request, `config` a configuration as the command line reads it. */
  takeOver({ ask, config }) {
    const { presets, form } = this.state;
    let taken = ask;
    if (!ask) {
      const overrides = Object.entries(config).filter(([key, value]) => !equal(presets[form.preset].whole[key], value));
      taken = { preset: form.preset, overrides: Object.fromEntries(overrides) };
    }
    if (!(taken.preset in presets)) throw new Error(t("new.files.preset", { name: String(taken.preset) }));
    Object.assign(this.state, { form: formOfAsk(taken, presets), split: null });
    this.orderRewards();
    this.promptsChanged();
    this.touched();
  },
};

function offer(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
