// Prompt sets: make, edit, upload, share, delete. Nothing that was typed is lost when saving fails.

import { api } from "./api.js";
import { percent, ago } from "./format.js";
import { promptLines } from "./form_state.js";
import { builtInSets } from "./library_built_in.js";
import { fieldError } from "./library_download.js";
import { ENOUGH_HELDOUT, readPromptFile } from "./new_prompts.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

export function promptsTab(page) {
  const { sets, editor, setSaid } = page.state;
  return html`<div class="fg-row fg-spread"><p>${t("library.prompts.intro")}</p>
      ${editor ? null : html`<button type="button" class="fg-button fg-primary" data-key="new" data-on="click:newSet">${t("library.prompts.new")}</button>`}</div>
    <p role="status" class="fg-good">${setSaid ?? ""}</p>
    ${editor ? editorForm(page, editor) : null}
    ${sets.length ? table(page, sets) : editor ? null : html`<div class="fg-card"><p>${t("library.prompts.empty")}</p></div>`}
    ${builtInSets(page)}`;
}

function table(page, sets) {
  const rows = sets.map((set) => html`<tr data-key="${set.id}"><th scope="row">${set.name}${set.shared ? html` <span class="fg-badge">${t("library.shared")}</span>` : null}</th>
    <td data-label="${t("library.prompts.training")}">${set.count}</td><td data-label="${t("library.prompts.heldout")}">${set.heldout_count}</td><td data-label="${t("library.owner")}">${set.mine ? t("library.mine") : set.owner.name}</td><td data-label="${t("library.changed")}">${ago(set.changed)}</td>
    <td><div class="fg-row">${rowActions(page, set)}</div></td></tr>`);
  return html`<div class="fg-table-box fg-below" data-key="table"><table class="fg-stacked"><caption class="fg-hidden">${t("library.tab.prompts")}</caption><thead><tr>
    ${["name", "prompts.training", "prompts.heldout", "owner", "changed", "actions"].map((key) => html`<th scope="col">${t(`library.${key}`)}</th>`)}
    </tr></thead><tbody>${rows}</tbody></table></div>`;
}

function rowActions(page, set) {
  const named = html`<span class="fg-hidden"> ${set.name}</span>`;
  if (page.state.deleting === set.id) {
    return html`<span>${t("library.prompts.really")}</span>
      <button type="button" class="fg-button fg-danger" data-on="click:deleteSet" data-id="${set.id}">${t("library.delete")}${named}</button>
      <button type="button" class="fg-button" data-on="click:keepSet">${t("library.keep")}</button>`;
  }
  return html`<a class="fg-button" href="/new?prompts=${set.id}">${t("library.use")}${named}</a>
    <button type="button" class="fg-button" data-on="click:editSet" data-id="${set.id}">${set.mine ? t("library.edit") : t("library.look")}${named}</button>
    ${set.mine ? html`<button type="button" class="fg-button fg-quiet" data-on="click:askDelete" data-id="${set.id}">${t("library.delete")}${named}</button>` : null}`;
}

function editorForm(page, editor) {
  const { error, busy, report, readonly } = editor;
  const lines = promptLines(editor.text).length;
  return html`<form class="fg-card" data-key="editor-${editor.id ?? "new"}" data-on="submit:saveSet" aria-labelledby="set-title" novalidate>
    <h2 id="set-title">${editor.id ? (readonly ? t("library.look") : t("library.prompts.editing", { name: editor.original })) : t("library.prompts.new")}</h2>
    <div class="fg-field"><label for="set-name">${t("library.name")}</label>
      <input id="set-name" maxlength="200" autocomplete="off" data-own data-on="input:typeSet" data-part="name" ${readonly ? html`readonly` : ""}
      ${editor.nameMissing ? html`aria-invalid="true" aria-describedby="set-name-problem"` : ""}>
      ${editor.nameMissing ? html`<p class="fg-problem" id="set-name-problem">${t("library.name_missing")}</p>` : null}</div>
    <div class="fg-field"><label for="set-text">${t("library.prompts.text")}</label>
      <textarea id="set-text" rows="8" spellcheck="false" data-own data-on="input:typeSet" data-part="text" ${readonly ? html`readonly` : ""}></textarea>
      <p class="fg-small"><strong>${t("new.prompts.count", { count: lines })}</strong>${report ? html` · ${t("new.prompts.duplicates", { count: report.duplicates })} ·
        ${t("new.prompts.words", { shortest: report.shortest_words, longest: report.longest_words })}` : null}</p>
      ${report?.long.length ? html`<p class="fg-notice">${t("new.prompts.long", { count: report.long.length, words: report.longest_words })}</p>` : null}</div>
    ${editor.id ? html`<div class="fg-field"><label for="set-heldout">${t("library.prompts.heldout_text")}</label>
        <textarea id="set-heldout" rows="4" spellcheck="false" data-own data-on="input:typeSet" data-part="heldout" ${readonly ? html`readonly` : ""}></textarea>
        <p class="fg-small">${t("new.prompts.heldout_help", { enough: ENOUGH_HELDOUT })}</p></div>`
      : html`<div class="fg-field"><label for="set-share">${t("new.prompts.heldout", { share: percent(editor.share) })}</label>
        <input type="range" id="set-share" min="0" max="0.5" step="0.05" value="${editor.share}" data-sync data-on="input:shareSet">
        <p class="fg-small">${t("new.prompts.heldout_help", { enough: ENOUGH_HELDOUT })}</p></div>`}
    ${readonly ? null : html`<div class="fg-row"><label class="fg-button fg-upload">${t("new.prompts.upload")}<input type="file" class="fg-hidden" accept=".txt,.csv,.jsonl,text/plain" data-on="change:uploadSet"></label>
      ${editor.id ? null : html`<label class="fg-check"><input type="checkbox" data-sync id="set-dedupe" data-on="change:dedupeSet" ${editor.dedupe ? html`checked` : ""}> <span>${t("new.prompts.dedupe")}</span></label>`}
      <label class="fg-check"><input type="checkbox" data-sync id="set-shared" data-on="change:sharedSet" ${editor.shared ? html`checked` : ""}> <span>${t("library.share")}</span></label></div>`}
    ${errorBox(error)}
    ${error?.code === "changed_meanwhile" ? html`<div class="fg-row"><a class="fg-button" href="/library?tab=prompts" target="_blank" rel="noopener">${t("library.prompts.theirs")}</a>
      <button type="button" class="fg-button fg-danger" data-on="click:overwriteSet">${t("library.prompts.overwrite")}</button></div>` : null}
    <div class="fg-row">${readonly ? null : html`<button class="fg-button fg-primary" aria-busy="${Boolean(busy)}">${t("library.save")}</button>`}
      <button type="button" class="fg-button" data-on="click:closeSet">${readonly ? t("library.close") : t("library.cancel")}</button></div></form>`;
}

export const promptSetActions = {
  async loadSets() {
    const [{ prompt_sets: sets }, choices] = await Promise.all([api.get("/prompt-sets?limit=500"), api.get("/choices")]);
    this.set({ sets, builtIn: choices.built_in_prompts });
  },

  unsaved() {
    return Boolean(this.state.editor?.dirty);
  },

  /** Open the editor; its texts are put into the controls once, then they are the person's own. */
  openEditor(editor) {
    this.set({ editor: { name: "", text: "", heldout: "", share: 0, dedupe: true, shared: false, ...editor }, setSaid: null });
    requestAnimationFrame(() => {
      this.fillEditor();
      this.querySelector("#set-name")?.focus();
    });
  },

  fillEditor() {
    for (const part of ["name", "text", "heldout"]) {
      const control = this.querySelector(`#set-${part}`);
      if (control && control.value !== this.state.editor[part]) control.value = this.state.editor[part];
    }
  },

  newSet() {
    this.openEditor({});
  },

  async editSet(event, button) {
    const set = await this.act(() => api.get(`/prompt-sets/${button.dataset.id}`), button);
    if (!set) return;
    const lines = (prompts) => prompts.map((prompt) => prompt.text.replace(/\s*\n\s*/g, " ")).join("\n");
    const ids = new Map([...set.prompts, ...set.heldout].map((prompt) => [prompt.text.replace(/\s*\n\s*/g, " "), prompt]));
    this.openEditor({
      id: set.id, original: set.name, name: set.name, shared: set.shared, changed: set.changed, readonly: !set.mine, ids,
      text: lines(set.prompts), heldout: lines(set.heldout),
    });
  },

  typeSet(event, control) {
    const { editor } = this.state;
    editor[control.dataset.part] = control.value;
    Object.assign(editor, { dirty: true, nameMissing: false });
    if (control.dataset.part !== "name") this.reportSoon();
    this.update();
  },

  shareSet(event) {
    this.state.editor.share = Number(event.target.value);
    this.update();
  },

  dedupeSet(event) {
    this.state.editor.dedupe = event.target.checked;
  },

  sharedSet(event) {
    Object.assign(this.state.editor, { shared: event.target.checked, dirty: true });
  },

  reportSoon() {
    clearTimeout(this.reportTimer);
    this.reportTimer = setTimeout(() => this.reportSet(), 400);
  },

  async reportSet() {
    const { editor } = this.state;
    const text = editor?.text;
    if (!text?.trim()) return editor && this.set({ editor: { ...editor, report: null } });
    try {
      const { report } = await api.post("/prompt-sets/parse", { text });
      if (this.state.editor === editor && editor.text === text) Object.assign(editor, { report, error: null });
    } catch (error) {
      if (error.code !== "away") Object.assign(editor, { report: null, error });
    }
    this.update();
  },

  async uploadSet(event) {
    const file = event.target.files[0];
    const { editor } = this.state;
    event.target.value = "";
    if (!file) return;
    try {
      editor.text = [editor.text.trimEnd(), ...(await readPromptFile(file))].filter(Boolean).join("\n");
      editor.name ||= file.name.replace(/\.\w+$/, "").slice(0, 200);
      Object.assign(editor, { dirty: true, error: null });
      this.fillEditor();
      this.reportSoon();
    } catch (error) {
      editor.error = error;
    }
    this.update();
  },

  overwriteSet() {
    this.state.editor.changed = null;
    this.saveSet();
  },

  async saveSet() {
    const { editor } = this.state;
    if (editor.busy || editor.readonly) return;
    if (!editor.name.trim()) {
      editor.nameMissing = true;
      this.update();
      this.querySelector("#set-name").focus();
      return;
    }
    Object.assign(editor, { busy: true, error: null });
    this.update();
    try {
      const saved = editor.id ? await api.patch(`/prompt-sets/${editor.id}`, edits(editor)) : await api.post("/prompt-sets", made(editor));
      this.set({ editor: null, setSaid: t("library.prompts.saved", { name: saved.name }) });
      await this.loadSets();
    } catch (error) {
      const labels = { name: t("library.name"), text: t("library.prompts.text"), prompts: t("library.prompts.text") };
      Object.assign(editor, { busy: false, error: fieldError(error, labels) });
      this.update();
    }
  },

  closeSet() {
    this.set({ editor: null });
  },

  askDelete(event, button) {
    this.set({ deleting: button.dataset.id });
  },

  keepSet() {
    this.set({ deleting: null });
  },

  async deleteSet(event, button) {
    const done = await this.act(() => api.remove(`/prompt-sets/${button.dataset.id}`), button);
    this.set({ deleting: null });
    if (done) await this.loadSets();
  },
};

function made({ name, text, dedupe, share, shared }) {
  return { name: name.trim(), text, remove_duplicates: dedupe, heldout_share: share, shared };
}

/** Prompts that stay keep their ids, by which videos are named. */
function edits({ name, text, heldout, shared, changed, ids }) {
  const items = (lines) => {
    const taken = new Set();
    return promptLines(lines).map((line) => {
      const known = ids.get(line);
      if (!known || taken.has(known.id)) return line;
      taken.add(known.id);
      return known;
    });
  };
  return { name: name.trim(), shared, prompts: items(text), heldout: items(heldout), unless_changed_since: changed ?? null };
}
