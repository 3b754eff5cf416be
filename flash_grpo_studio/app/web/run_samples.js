// <fg-run-samples>: videos by prompt and update, as they come. Only what is in sight has elements, so that a long run
// with thousands of videos scrolls as a short one does.

import { api } from "./api.js";
import { number, signed } from "./format.js";
import { Panel } from "./run_panel.js";
import { asked, go } from "./page_url.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const PAGE = 500;
const CELL = 148; // width of a cell, as studio.css has it
const TEXT = 22; // height of a line of scores
const HEAD = 52; // height of a prompt above its videos
const SPARE = 1; // rows and columns drawn beyond the edges
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const SMALL = 256; // pixels: videos up to this size, as the pocket model makes them, are shown with their pixels

/** Videos as a table: rows are prompts with a seed, columns are updates. */
export function gridOf(videos) {
  const rows = new Map();
  const columns = new Set();
  const rewards = new Set();
  for (const video of videos) {
    const key = `${video.prompt_id ?? ""}|${video.seed ?? ""}`;
    if (!rows.has(key)) rows.set(key, { key, prompt: video.prompt, seed: video.seed, cells: new Map() });
    const update = video.update ?? 0;
    rows.get(key).cells.set(update, video);
    columns.add(update);
    for (const name of Object.keys(video.scores ?? {})) rewards.add(name);
  }
  // Prompts looked at again and again come first, those of before and after alone last.
  const ordered = [...rows.values()].sort((one, other) => other.cells.size - one.cells.size);
  return { rows: ordered, columns: [...columns].sort((one, other) => one - other), rewards: [...rewards].sort() };
}

class Samples extends Panel {
  state = { loaded: false, left: 0, top: 0, width: 0, height: 0, pixel: false };
  #total = -1;
  grid = { rows: [], columns: [], rewards: [] };

  async start() {
    this.addEventListener("scroll", () => this.#scrolled(), { capture: true, passive: true });
    this.addEventListener("loadedmetadata", (event) => this.#sized(event.target), true);
    const size = new ResizeObserver(() => this.#scrolled());
    size.observe(this);
    this.onStop(() => size.disconnect());
  }

  async load() {
    if (!this.changed()) return;
    const address = `/jobs/${this.job.id}/videos`;
    const { total } = await api.get(`${address}?limit=1`);
    if (total !== this.#total) {
      const found = [];
      let cursor = "";
      do {
        const page = await api.get(`${address}?limit=${PAGE}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
        found.push(...page.videos);
        cursor = page.next;
      } while (cursor);
      this.#total = found.length;
      this.grid = gridOf(found);
    }
    this.set({ loaded: true });
  }

  #scrolled() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const box = this.querySelector(".fg-samples");
      if (!box) return;
      const { scrollLeft: left, scrollTop: top, clientWidth: width, clientHeight: height } = box;
      this.set({ left, top, width, height });
    });
  }

  #sized(video) {
    if (!this.state.pixel && video.videoWidth && video.videoWidth <= SMALL) this.set({ pixel: true });
  }

  /** Place of the chosen cell; the first one where the address names none. */
  #chosen() {
    const row = this.grid.rows.findIndex((found) => found.key === asked("prompt"));
    const column = this.grid.columns.indexOf(Number(asked("update", "-1")));
    return { row: Math.max(0, row), column: Math.max(0, column), named: row >= 0 && column >= 0 };
  }

  rowHeight() {
    return HEAD + CELL + TEXT * Math.max(1, this.grid.rewards.length) + 16;
  }

  render() {
    const { loaded, error } = this.state;
    if (!loaded) return html`${errorBox(error)}<p class="fg-muted">${t("run.loading")}</p>`;
    if (!this.grid.rows.length) return html`${errorBox(error)}<p class="fg-card">${t("run.no_samples")}</p>`;
    const place = this.#chosen();
    return html`${errorBox(error)}<p class="fg-small">${t("run.samples_keys")}</p>
      <div class="fg-sample-page">${this.#table(place)} ${place.named ? this.#detail(place) : ""}</div>`;
  }

  rendered() {
    if (!this.state.width && this.querySelector(".fg-samples")) {
      const { row, column, named } = this.#chosen();
      if (named) this.#reveal(row, column); // a link to a cell shows that cell
      this.#scrolled();
    }
    if (this.focusCell) {
      this.querySelector('[role="gridcell"][tabindex="0"]')?.focus({ preventScroll: true });
      this.focusCell = false;
    }
  }

  #window() {
    const { left, top, width, height } = this.state;
    const tall = this.rowHeight();
    const firstRow = Math.max(0, Math.floor(top / tall) - SPARE);
    const lastRow = Math.min(this.grid.rows.length, Math.ceil((top + (height || 600)) / tall) + SPARE);
    const firstColumn = Math.max(0, Math.floor(left / CELL) - SPARE);
    const lastColumn = Math.min(this.grid.columns.length, Math.ceil((left + (width || 900)) / CELL) + SPARE);
    return { firstRow, lastRow, firstColumn, lastColumn, tall };
  }

  #table(place) {
    const { rows, columns } = this.grid;
    const { firstRow, lastRow, firstColumn, lastColumn, tall } = this.#window();
    const shown = columns.slice(firstColumn, lastColumn);
    const wide = columns.length * CELL;
    const titles = shown.map((update) => html`<div role="columnheader" class="fg-sample-update" data-key="${update}">${updateName(update)}</div>`);
    const indent = `padding-left:${firstColumn * CELL}px`;
    return html`<div class="fg-samples" role="grid" data-key="grid" aria-label="${t("run.tab.samples")}"
        aria-rowcount="${rows.length + 1}" aria-colcount="${columns.length}">
      <div role="row" class="fg-sample-head" style="width:${wide}px"><div role="presentation" class="fg-sample-cells" style="${indent}">${titles}</div></div>
      <div role="presentation" style="height:${firstRow * tall}px"></div>
      ${rows.slice(firstRow, lastRow).map((row, at) => html`<div role="row" class="fg-sample-row" data-key="${row.key}"
        aria-rowindex="${firstRow + at + 2}" style="height:${tall}px;width:${wide}px">
        <div role="rowheader" class="fg-sample-prompt" title="${row.prompt}">${row.prompt}${
          row.seed === null ? "" : html` <span class="fg-muted">· ${t("run.seed", { seed: row.seed })}</span>`}</div>
        <div role="presentation" class="fg-sample-cells" style="${indent}">${shown.map((update, number_) =>
          this.#cell(row, update, firstColumn + number_, place.row === firstRow + at && place.column === firstColumn + number_))}</div>
      </div>`)}
      <div role="presentation" style="height:${(rows.length - lastRow) * tall}px"></div>
    </div>`;
  }

  #cell(row, update, column, chosen) {
    const video = row.cells.get(update);
    const scores = this.grid.rewards.map((name) => [name, video?.scores?.[name]]).filter(([, value]) => value !== undefined);
    const words = [updateName(update), row.prompt, ...scores.map(([name, value]) => `${name} ${number(value)}`)].join(", ");
    const attributes = html`role="gridcell" data-key="${update}" tabindex="${chosen ? 0 : -1}" aria-colindex="${column + 1}"
      aria-selected="${chosen}" data-row="${row.key}" data-update="${update}" data-on="keydown:key click:choose"`;
    if (!video) return html`<div class="fg-sample fg-sample-none" aria-label="${words}. ${t("run.no_video")}" ${attributes}>–</div>`;
    return html`<div class="fg-sample" aria-label="${words}" ${attributes}>
      <video class="fg-video ${this.state.pixel ? "fg-pixel" : ""}" data-key="${video.id}" src="${video.url}" preload="metadata"
        muted loop playsinline tabindex="-1"></video>
      ${scores.map(([name, value]) => html`<span class="fg-sample-score" title="${name}">${name} <b>${number(value)}</b></span>`)}</div>`;
  }

  #detail({ row: at, column }) {
    const row = this.grid.rows[at];
    const update = this.grid.columns[column];
    const [before, after] = [row.cells.get(this.grid.columns[0]), row.cells.get(update)];
    const pair = before && after && before.id !== after.id ? [before, after] : [after ?? before];
    const compared = pair.length === 2;
    const names = this.grid.rewards.filter((name) => pair.at(-1).scores?.[name] !== undefined);
    return html`<section class="fg-card fg-stack" aria-label="${t("run.chosen")}" id="fg-chosen">
      <h3>${row.prompt}</h3>
      <div class="fg-sample-pair">${pair.map((video) => html`<figure data-key="${video.id}"><video loop muted playsinline
        preload="metadata" class="fg-video ${this.state.pixel ? "fg-pixel" : ""}" src="${video.url}"
        aria-label="${updateName(video.update ?? 0)}"></video><figcaption>${updateName(video.update ?? 0)}</figcaption></figure>`)}</div>
      <p class="fg-row"><button class="fg-button" data-on="click:playPair" aria-pressed="${this.state.playing ?? false}">${
        t(this.state.playing ? "run.stop_pair" : "run.play_pair")}</button>
        <a class="fg-button" href="${pair.at(-1).url}" download>${t("run.download")}</a></p>
      <div class="fg-table-box" tabindex="0" role="region" aria-label="${t("run.reward")}"><table><thead><tr><th>${t("run.reward")}</th>${pair.map((video) => html`<th>${updateName(video.update ?? 0)}</th>`)}
        ${compared ? html`<th>${t("run.change")}</th>` : ""}</tr></thead>
      <tbody>${names.map((name) => html`<tr><td>${name}</td>${pair.map((video) => html`<td>${number(video.scores?.[name])}</td>`)}
        ${compared ? html`<td>${signed(after.scores[name] - (before.scores?.[name] ?? NaN))}</td>` : ""}</tr>`)}</tbody></table></div></section>`;
  }

  choose(event, cell) {
    this.#select(cell.dataset.row, cell.dataset.update);
    this.#play(cell);
  }

  key(event, cell) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#select(cell.dataset.row, cell.dataset.update);
      return this.#play(cell);
    }
    const { rows, columns } = this.grid;
    let row = rows.findIndex((found) => found.key === cell.dataset.row);
    let column = columns.indexOf(Number(cell.dataset.update));
    if (event.key in MOVES) [row, column] = [row + MOVES[event.key][0], column + MOVES[event.key][1]];
    else if (event.key === "Home") column = 0;
    else if (event.key === "End") column = columns.length - 1;
    else return;
    event.preventDefault();
    if (!rows[row] || columns[column] === undefined) return;
    this.#reveal(row, column);
    this.focusCell = true;
    this.#select(rows[row].key, columns[column]);
  }

  #select(prompt, update) {
    if (prompt !== asked("prompt") || String(update) !== asked("update")) this.state.playing = false;
    go({ prompt, update: String(update) }, { step: false });
  }

  /** Both from their first frames, so that they move together. */
  playPair() {
    const playing = !this.state.playing;
    for (const video of this.querySelectorAll("#fg-chosen video")) {
      if (playing) Object.assign(video, { currentTime: 0 }).play().catch(() => {});
      else video.pause();
    }
    this.set({ playing });
  }

  /** Scroll so that a cell is in sight, also one that has no element yet. */
  #reveal(row, column) {
    const box = this.querySelector(".fg-samples");
    const tall = this.rowHeight();
    const [x, y] = [column * CELL, row * tall];
    if (x < box.scrollLeft) box.scrollLeft = x;
    else if (x + CELL > box.scrollLeft + box.clientWidth) box.scrollLeft = x + CELL - box.clientWidth;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + tall > box.scrollTop + box.clientHeight - 40) box.scrollTop = y + tall - box.clientHeight + 40;
    Object.assign(this.state, { left: box.scrollLeft, top: box.scrollTop });
  }

  #play(cell) {
    const video = cell.querySelector("video");
    if (!video) return;
    if (video.paused) video.play().catch(() => {}); // one that cannot be played shows that itself
    else video.pause();
  }
}

/** An update as the columns name it: 0 is before alignment. */
export function updateName(update) {
  return update ? t("run.after_update", { update }) : t("run.before");
}

customElements.define("fg-run-samples", Samples);
