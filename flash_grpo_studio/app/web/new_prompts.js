// The prompts of a new run: a built-in set, a saved one, or one's own, pasted or uploaded, with a share held out.

import { api } from "./api.js";
import { promptLines, setKey } from "./form_state.js";
import { number, percent } from "./format.js";
import { problemOf, section } from "./new_goal.js";
import { categoryTitle, familyTitle, promptLists, readSource, sizesOf, sourceOf, SPLITS } from "./prompt_categories.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const SOURCES = ["built-in", "set", "own"];
const PREVIEWED = 5;
const FEW_PREVIEWED = 40; // of a set of thousands that are all of one kind
const MOST_PREVIEWED = 500;
export const ENOUGH_HELDOUT = 8; // as in jobs/prepare.py: from so many on they replace the preset's
const PARSE_AFTER = 350;

export function promptsSection(page) {
  const { form } = page.state;
  const radios = SOURCES.map(
    (name) => html`<label class="fg-card fg-choice fg-compact"><input type="radio" data-sync name="source" value="${name}" id="source-${name}"
      data-on="change:chooseSource" ${form.source === name ? html`checked` : ""}> ${t(`new.prompts.${name}`)}</label>`,
  );
  const body = { "built-in": builtIn, set: saved, own: own }[form.source](page);
  return section("prompts", 3, html`<fieldset class="fg-plain"><legend class="fg-hidden">${t("new.prompts.source")}</legend>
    <div class="fg-row fg-sources">${radios}</div></fieldset> ${body}`);
}

function builtIn(page) {
  const { prompts } = page.config();
  const sets = page.state.choices.built_in_prompts;
  const set = page.builtInSet();
  return html`<div data-key="built-in"><div class="fg-field"><label for="new-family">${t("new.prompts.family")}</label>
      <select id="new-family" data-sync="${set?.name ?? ""}" data-on="change:chooseFamily">
      ${set ? null : html`<option value="" selected>${prompts}</option>`}
      ${sets.map(({ name }) => html`<option value="${name}" ${name === set?.name ? html`selected` : ""}>${familyTitle(name)}</option>`)}
      </select></div>
    ${set?.categories.length ? categories(set, readSource(prompts).chosen) : null}
    ${set ? html`<p class="fg-small" id="new-sizes">${t("new.prompts.sizes", sizesOf(set, readSource(prompts).chosen))}</p>` : null}
    ${Object.keys(SPLITS).map((key) => problemOf(page, key))}
    ${builtInPreview(page.state.preview?.prompts)}</div>`;
}

function categories(set, chosen) {
  const boxes = set.categories.map(
    ({ name, train }) => html`<label class="fg-check"><input type="checkbox" data-sync data-category="${name}" id="category-${name}"
      data-on="change:chooseCategory" ${chosen === null || chosen.includes(name) ? html`checked` : ""}>
      <span>${t("new.prompts.category_of", { name: categoryTitle(name), count: train })}</span></label>`,
  );
  return html`<fieldset class="fg-plain" id="new-categories"><legend>${t("new.prompts.categories")}</legend>
    <div class="fg-row">${boxes}</div>
    <div class="fg-row"><button type="button" class="fg-button fg-quiet" data-on="click:chooseAllCategories">${t("new.prompts.all_categories")}</button>
      <button type="button" class="fg-button fg-quiet" data-on="click:chooseNoCategory">${t("new.prompts.clear_categories")}</button></div></fieldset>`;
}

function builtInPreview(prompts) {
  if (!prompts?.length) return null;
  return html`<details class="fg-more"><summary>${t("new.prompts.preview")}</summary>${promptLists(prompts, t("new.prompts.preview"))}</details>`;
}

function preview(prompts, title) {
  if (!prompts?.length) return null;
  return html`<details class="fg-more"><summary>${title}</summary>${promptLists(prompts, title)}</details>`;
}

function saved(page) {
  const { sets, form } = page.state;
  if (!sets.length) {
    return html`<div data-key="saved"><p>${t("new.prompts.no_sets")}</p>
      <a class="fg-button" href="/library?tab=prompts">${t("new.prompts.to_library")}</a>${problemOf(page, "own_prompts")}</div>`;
  }
  const gone = form.promptSet && !sets.some((set) => set.id === form.promptSet);
  return html`<div data-key="saved"><div class="fg-field"><label for="new-set">${t("new.prompts.saved")}</label>
    <select id="new-set" data-sync="${form.promptSet}" data-on="change:chooseSet">
      ${gone ? html`<option value="${form.promptSet}" selected>${t("new.prompts.gone")}</option>` : null}
      ${sets.map((set) => html`<option value="${set.id}" ${set.id === form.promptSet ? html`selected` : ""}>${t("new.prompts.set_of", {
        name: set.name, training: set.count, heldout: set.heldout_count,
      })}</option>`)}</select>${problemOf(page, "own_prompts")}</div>
    <p class="fg-small"><a href="/library?tab=prompts">${t("new.prompts.to_library")}</a></p></div>`;
}

function own(page) {
  const { form, split, uploadError, uploading } = page.state;
  const pocket = page.config().model.startsWith("pocket");
  return html`<div data-key="own">
    ${pocket ? html`<p class="fg-notice">${t("new.prompts.pocket_note")}</p>` : null}
    <div class="fg-field"><label for="new-text">${t("new.prompts.text")}</label>
      <textarea id="new-text" rows="8" spellcheck="false" data-own data-on="input:typePrompts" aria-describedby="new-text-facts problem-own_prompts"
        ${page.state.problems.own_prompts ? html`aria-invalid="true"` : ""}></textarea>
      ${problemOf(page, "own_prompts")}
      <div id="new-text-facts">${facts(form, split)}</div></div>
    ${errorBox(uploadError)}
    <div class="fg-row">
      <label class="fg-button fg-upload">${uploading ? t("new.prompts.uploading") : t("new.prompts.upload")}
        <input type="file" class="fg-hidden" accept=".txt,.csv,.jsonl,text/plain" data-on="change:uploadPrompts"></label>
      <label class="fg-check"><input type="checkbox" data-sync id="new-dedupe" data-on="change:chooseDedupe" ${form.dedupe ? html`checked` : ""}>
        <span>${t("new.prompts.dedupe")}</span></label>
    </div>
    ${heldout(form, split)}
    ${split ? html`${preview(split.prompts.slice(0, PREVIEWED), t("new.prompts.preview_training", { count: split.prompts.length }))}
      ${preview(split.heldout.slice(0, PREVIEWED), t("new.prompts.preview_heldout", { count: split.heldout.length }))}` : null}
    ${keep(page)}
  </div>`;
}

/** How many prompts there are, and what is odd about them. */
export function facts(form, split) {
  const report = split?.report;
  const count = report?.count ?? promptLines(form.text).length;
  const long = report?.long.length ?? 0;
  return html`<p class="fg-small fg-row"><strong>${t("new.prompts.count", { count })}</strong>
    ${report ? html`<span>${t("new.prompts.duplicates", { count: report.duplicates })}</span>
      <span>${t("new.prompts.words", { shortest: report.shortest_words, longest: report.longest_words })}</span>` : null}</p>
    ${long ? html`<p class="fg-notice">${t("new.prompts.long", { count: long, words: number(report.longest_words) })}</p>` : null}`;
}

function heldout(form, split) {
  const few = form.heldoutShare > 0 && split && split.heldout.length < ENOUGH_HELDOUT;
  return html`<div class="fg-field"><label for="new-share">${t("new.prompts.heldout", { share: percent(form.heldoutShare) })}</label>
    <input type="range" id="new-share" min="0" max="0.5" step="0.05" value="${form.heldoutShare}" data-sync data-on="input:chooseShare">
    <p class="fg-small">${t("new.prompts.heldout_help", { enough: ENOUGH_HELDOUT })}</p>
    ${few ? html`<p class="fg-notice">${t("new.prompts.few", { count: split.heldout.length, enough: ENOUGH_HELDOUT })}</p>` : null}</div>`;
}

function keep(page) {
  const { keepError, kept } = page.state;
  return html`<details class="fg-more"><summary>${t("new.prompts.keep")}</summary>
    <div class="fg-row fg-bottom"><div class="fg-field"><label for="new-set-name">${t("library.name")}</label>
      <input id="new-set-name" maxlength="200" autocomplete="off"></div>
    <button type="button" class="fg-button" data-on="click:keepPrompts">${t("library.save")}</button></div>
    ${errorBox(keepError)} ${kept ? html`<p class="fg-good" role="status">✓ ${t("new.prompts.kept", { name: kept })}</p>` : null}</details>`;
}

export const promptsActions = {
  /** After the preset or the source changed: the preview of a built-in set, or what own prompts hold. */
  async promptsChanged() {
    const { form } = this.state;
    queueMicrotask(() => this.showText());
    if (form.source !== "built-in") return;
    const set = this.builtInSet();
    const wanted = () => set && sourceOf(set, "train", readSource(this.config().prompts).chosen);
    const name = wanted();
    if (this.state.preview?.name === name) return;
    this.state.preview = null;
    if (!set || name.endsWith(":")) return; // of no category there is nothing to show
    const limit = set.categories.length ? MOST_PREVIEWED : FEW_PREVIEWED;
    try {
      const preview = await api.get(`/built-in-prompts?name=${encodeURIComponent(name)}&limit=${limit}`);
      if (wanted() === name) this.set({ preview });
    } catch (error) {
      this.fail(error);
    }
  },

  /** The text belongs to the person; it is put there only where another one was taken over. */
  showText() {
    requestAnimationFrame(() => {
      const area = this.querySelector("#new-text");
      if (area && area.value !== this.state.form.text) area.value = this.state.form.text;
    });
  },

  chooseSource(event) {
    const { form, sets } = this.state;
    form.source = event.target.value;
    if (form.source === "set" && !form.promptSet && sets.length) form.promptSet = sets[0].id;
    this.promptsChanged();
    this.touched();
  },

  /** The built-in set that the configuration trains on; undefined where it names a file. */
  builtInSet() {
    const { family, split } = readSource(this.config().prompts);
    return split === "train" ? this.state.choices.built_in_prompts.find(({ name }) => name === family) : undefined;
  },

  /** Train and judge on some categories of a built-in set; null takes all. */
  useBuiltIn(set, chosen) {
    for (const [key, split] of Object.entries(SPLITS)) {
      setKey(this.state.form, this.state.presets, key, sourceOf(set, split, chosen));
      delete this.state.problems[key];
    }
    this.promptsChanged();
    this.touched();
  },

  chooseFamily(event) {
    const set = this.state.choices.built_in_prompts.find(({ name }) => name === event.target.value);
    if (set) this.useBuiltIn(set, null);
  },

  chooseCategory() {
    const boxes = this.querySelectorAll("[data-category]:checked");
    this.useBuiltIn(this.builtInSet(), [...boxes].map((box) => box.dataset.category));
  },

  chooseAllCategories() {
    this.useBuiltIn(this.builtInSet(), null);
  },

  chooseNoCategory() {
    this.useBuiltIn(this.builtInSet(), []);
  },

  chooseSet(event) {
    this.state.form.promptSet = event.target.value;
    this.touched();
  },

  typePrompts(event) {
    this.state.form.text = event.target.value;
    delete this.state.problems.own_prompts;
    this.parseSoon();
  },

  chooseDedupe(event) {
    this.state.form.dedupe = event.target.checked;
    this.parseSoon();
  },

  chooseShare(event) {
    this.state.form.heldoutShare = Number(event.target.value);
    this.parseSoon();
  },

  parseSoon() {
    clearTimeout(this.parseTimer);
    this.parseTimer = setTimeout(() => this.parsePrompts(), PARSE_AFTER);
    this.touched();
  },

  splitSignature() {
    const { text, dedupe, heldoutShare } = this.state.form;
    return `${dedupe} ${heldoutShare} ${text}`;
  },

  freshSplit() {
    const { form, split } = this.state;
    return form.source === "own" && split?.signature === this.splitSignature() ? split : null;
  },

  /** What the API makes of the own prompts; nothing to do where it is known. */
  async parsePrompts() {
    clearTimeout(this.parseTimer);
    const { form } = this.state;
    const signature = this.splitSignature();
    if (this.freshSplit()) return;
    if (!form.text.trim()) {
      this.set({ split: null, promptsError: null });
      return;
    }
    try {
      const body = { text: form.text, remove_duplicates: form.dedupe, heldout_share: form.heldoutShare };
      const found = await api.post("/prompt-sets/parse", body);
      if (signature === this.splitSignature()) this.set({ split: { ...found, signature }, promptsError: null });
    } catch (error) {
      if (error.code === "away") throw error;
      this.set({ split: null, promptsError: error });
    }
  },

  async uploadPrompts(event) {
    const file = event.target.files[0];
    event.target.value = "";
    if (!file) return;
    this.set({ uploading: true, uploadError: null });
    try {
      const texts = await readPromptFile(file);
      const { form } = this.state;
      form.text = [form.text.trimEnd(), ...texts].filter(Boolean).join("\n");
      this.showText();
      this.parseSoon();
    } catch (error) {
      this.set({ uploadError: error });
    }
    this.set({ uploading: false });
  },

  async keepPrompts(event, button) {
    const name = this.querySelector("#new-set-name").value.trim();
    const { form } = this.state;
    this.set({ keepError: null, kept: null });
    try {
      const body = { name, text: form.text, remove_duplicates: form.dedupe, heldout_share: form.heldoutShare };
      button.setAttribute("aria-busy", "true");
      const made = await api.post("/prompt-sets", body);
      const sets = (await api.get("/prompt-sets?limit=500")).prompt_sets;
      this.set({ kept: made.name, sets });
    } catch (error) {
      this.set({ keepError: error });
    } finally {
      button.removeAttribute("aria-busy");
    }
  },
};

/** The prompts of a .txt, .csv or .jsonl file as the API reads them, one line each. */
export async function readPromptFile(file) {
  const body = new FormData();
  body.append("file", file);
  const upload = await api.upload("/uploads", body);
  try {
    const found = await api.post("/prompt-sets/parse", { file_id: upload.id });
    return found.prompts.map((prompt) => prompt.text.replace(/\s*\n\s*/g, " "));
  } finally {
    await api.remove(`/uploads/${upload.id}`).catch(() => {}); // only its prompts were wanted
  }
}
