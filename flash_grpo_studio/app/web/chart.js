// <fg-chart>: lines with a band, drawn on a canvas; a table of the same values for those who cannot see it.

import { digitsOf, frameOf, logTicks, nearest, smooth, ticks } from "./chart_math.js";
import { number } from "./format.js";
import { t } from "./texts.js";

export { smooth, ticks };

// After Okabe and Ito, told apart by most colour-blind people, each with contrast 3 to its ground; dashes tell the
// lines apart without any colour.
const COLOURS = {
  light: ["#0072b2", "#c44e00", "#00825f", "#b0568b", "#946300", "#2a7fb0", "#7a5c22", "#5f5f5f"],
  dark: ["#56b4e9", "#ff8a4c", "#3ddc9f", "#e6a0c8", "#f2c14e", "#8fd0ff", "#c9a66b", "#b5b5b5"],
};
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]];
const MARGIN = { left: 60, right: 12, top: 10, bottom: 26 };
const TABLE_ROWS = 200;
const MOST_MARKS = 60; // more points than this are a line with a band, whatever they are

const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");
const colourOf = (place) => COLOURS[theme()][place % COLOURS.light.length];
const dashOf = (place) => DASHES[place % DASHES.length];

export class Chart extends HTMLElement {
  #lines = [];
  #options = {};
  #updates = [];
  #watchers = [];
  #width = 0;
  #seen = false;
  #stale = false;
  #drawn = null;
  #hover = null;
  #legendOf = "";

  connectedCallback() {
    if (!this.firstChild) this.#build();
    const size = new ResizeObserver(([entry]) => this.#resized(entry.contentRect.width));
    size.observe(this);
    // A chart out of sight is drawn when it comes into sight: a live update costs what can be seen.
    const sight = new IntersectionObserver((entries) => this.#sighted(entries.at(-1).isIntersecting), { rootMargin: "200px" });
    sight.observe(this);
    const colours = new MutationObserver(() => this.#invalidate());
    colours.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    this.#watchers = [size, sight, colours];
  }

  disconnectedCallback() {
    for (const watcher of this.#watchers) watcher.disconnect();
  }

  #build() {
    this.dataset.own = "";
    this.innerHTML = `<div class="fg-plot"><canvas tabindex="0" role="img"></canvas>
      <div class="fg-tip" role="status" hidden></div></div>
      <div class="fg-legend"></div><details class="fg-data"><summary></summary><div></div></details>`;
    this.canvas = this.querySelector("canvas");
    this.tip = this.querySelector(".fg-tip");
    this.details = this.querySelector("details");
    this.querySelector("summary").textContent = t("chart.table");
    this.details.addEventListener("toggle", () => this.#table());
    this.canvas.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.canvas.addEventListener("pointerdown", (event) => this.#point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#leave());
    this.canvas.addEventListener("blur", () => this.#leave());
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /**
   * lines: {name, update: [], value: [], low: [], high: [], points} each; low and high, if given, make a band; `points`
   * draws marks, with whiskers instead of a band. options: label (what the chart shows), log, zero (the axis begins
   * at 0), smoothing.
   */
  show(lines, options = {}) {
    this.#lines = lines.map((line) => ({ ...line, points: line.points && line.update.length <= MOST_MARKS }));
    this.#options = options;
    this.#updates = [...new Set(lines.flatMap((line) => line.update))].sort((one, other) => one - other);
    this.#label();
    if (this.details?.open) this.#table();
    this.#invalidate();
  }

  #resized(width) {
    this.#width = Math.round(width);
    this.#invalidate();
  }

  #sighted(seen) {
    this.#seen = seen;
    if (seen && this.#stale) this.draw();
  }

  #invalidate() {
    this.#stale = true;
    if (this.#seen) this.draw();
  }

  draw() {
    const [width, height] = [this.#width, Number(this.getAttribute("height") || 200)];
    if (!width || !this.canvas) return;
    this.#stale = false;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(this);
    const frame = frameOf(this.#lines, this.#options, width, height, MARGIN);
    this.#drawn = frame;
    this.#legend();
    if (!frame) return this.#empty(context, style, height);
    this.#axes(context, frame, style);
    this.#lines.forEach((line, place) => this.#line(context, frame, line, place));
    if (this.#hover !== null) this.#cursor(context, frame, style);
  }

  #empty(context, style, height) {
    context.fillStyle = style.getPropertyValue("--fg-muted");
    context.font = "14px system-ui, sans-serif";
    const some = this.#lines.some((line) => line.value.length);
    context.fillText(t(some && this.#options.log ? "chart.not_positive" : "chart.empty"), 12, height / 2);
  }

  #axes(context, frame, style) {
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = style.getPropertyValue("--fg-line");
    context.fillStyle = style.getPropertyValue("--fg-muted");
    context.lineWidth = 1;
    context.setLineDash([]);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const marks = frame.log ? logTicks(frame.bottom, frame.top) : ticks(frame.bottom, frame.top, 5);
    const digits = digitsOf(marks);
    for (const value of marks) {
      const y = Math.round(frame.y(value)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(frame.width - MARGIN.right, y);
      context.stroke();
      context.fillText(number(value, digits), MARGIN.left - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of ticks(frame.first, frame.last, Math.max(2, frame.width / 110))) {
      if (!Number.isInteger(tick)) continue;
      const half = context.measureText(number(tick, 0)).width / 2;
      const x = Math.min(frame.x(tick), frame.width - half - 2);
      context.fillText(number(tick, 0), x, frame.height - MARGIN.bottom + 8);
    }
  }

  #line(context, frame, line, place) {
    const smoothing = line.points ? 0 : this.#options.smoothing || 0;
    const value = smoothing ? smooth(line.value, smoothing) : line.value;
    context.strokeStyle = context.fillStyle = colourOf(place);
    if (line.low && line.high && line.points) this.#whiskers(context, frame, line, place);
    else if (line.low && line.high) this.#band(context, frame, line);
    if (smoothing) this.#path(context, frame, line.update, line.value, [], 0.25);
    this.#path(context, frame, line.update, value, dashOf(place), 1);
    if (!line.points && line.update.length > 1) return;
    line.update.forEach((update, index) => {
      if (!frame.usable(value[index])) return;
      context.beginPath();
      context.arc(frame.x(update), frame.y(value[index]), 3.5, 0, 7);
      context.fill();
    });
  }

  #band(context, frame, line) {
    context.globalAlpha = 0.18;
    context.beginPath();
    const there = line.update.map((update, place) => [update, line.low[place], line.high[place]]);
    const shown = there.filter(([, low, high]) => frame.usable(low) && frame.usable(high));
    shown.forEach(([update, low]) => context.lineTo(frame.x(update), frame.y(low)));
    shown.reverse().forEach(([update, , high]) => context.lineTo(frame.x(update), frame.y(high)));
    context.fill();
    context.globalAlpha = 1;
  }

  /** Intervals of several lines at one update stand beside each other. */
  #whiskers(context, frame, line, at) {
    context.globalAlpha = 0.6;
    context.lineWidth = 1.5;
    context.beginPath();
    line.update.forEach((update, place) => {
      const [low, high] = [line.low[place], line.high[place]];
      if (!frame.usable(low) || !frame.usable(high)) return;
      const x = frame.x(update) + at * 3;
      for (const end of [low, high]) {
        context.moveTo(x - 3, frame.y(end));
        context.lineTo(x + 3, frame.y(end));
      }
      context.moveTo(x, frame.y(low));
      context.lineTo(x, frame.y(high));
    });
    context.stroke();
    context.globalAlpha = 1;
  }

  #path(context, frame, updates, values, dash, alpha) {
    context.globalAlpha = alpha;
    context.lineWidth = 1.75;
    context.setLineDash(dash);
    context.beginPath();
    updates.forEach((update, place) => {
      if (frame.usable(values[place])) context.lineTo(frame.x(update), frame.y(values[place]));
    });
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  #cursor(context, frame, style) {
    context.strokeStyle = style.getPropertyValue("--fg-muted");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(frame.x(this.#hover) + 0.5, MARGIN.top);
    context.lineTo(frame.x(this.#hover) + 0.5, frame.height - MARGIN.bottom);
    context.stroke();
  }

  #point(x) {
    if (!this.#drawn) return;
    const update = this.#updates[nearest(this.#updates, this.#drawn.at(x))];
    if (update !== this.#hover || this.tip.hidden) this.#show(update);
  }

  #show(update) {
    this.#hover = update;
    const rows = this.#lines.flatMap((line) => {
      const place = line.update.indexOf(update);
      if (place < 0 || line.value[place] === null) return [];
      const range = line.low && line.high ? ` (${number(line.low[place])} – ${number(line.high[place])})` : "";
      return [`${line.name}: ${number(line.value[place], 4)}${range}`];
    });
    this.tip.hidden = false;
    this.tip.replaceChildren(...[t("chart.update", { update }), ...rows].map((text) => {
      const row = document.createElement("div");
      row.textContent = text;
      return row;
    }));
    const x = this.#drawn.x(update);
    const room = this.#width - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(0, x + 8 <= room ? x + 8 : x - this.tip.offsetWidth - 8)}px`;
    this.draw();
  }

  #leave() {
    if (this.#hover === null) return;
    this.#hover = null;
    this.tip.hidden = true;
    this.draw();
  }

  #key(event) {
    if (!this.#drawn || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return this.#leave();
    const [all, last] = [this.#updates, this.#updates.length - 1];
    const place = this.#hover === null ? -1 : all.indexOf(this.#hover);
    const next = { ArrowLeft: Math.max(0, place - 1), ArrowRight: Math.min(last, place + 1), Home: 0, End: last };
    this.#show(all[next[event.key]]);
  }

  #label() {
    const newest = this.#lines.map((line) => {
      const value = line.value.findLast((found) => found !== null);
      return value === undefined ? "" : `${line.name} ${number(value, 4)}`;
    });
    this.canvas?.setAttribute("aria-label", `${this.#options.label || ""}. ${newest.filter(Boolean).join(", ")}`);
  }

  #legend() {
    const names = JSON.stringify([theme(), this.#lines.map((line) => line.name)]);
    if (names === this.#legendOf) return;
    this.#legendOf = names;
    const told = this.#lines.length > 1 ? this.#lines : []; // one line is what the title says
    this.querySelector(".fg-legend").replaceChildren(...told.map((line, place) => {
      const entry = document.createElement("span");
      entry.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="${
        colourOf(place)}" stroke-width="2" stroke-dasharray="${dashOf(place).join(" ")}"/></svg>`;
      entry.append(line.name);
      return entry;
    }));
  }

  #table() {
    const box = this.querySelector("details > div");
    if (!this.details.open) return box.replaceChildren();
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const name of [t("chart.update_column"), ...this.#lines.map((line) => line.name)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.append(cell);
    }
    const places = this.#lines.map((line) => new Map(line.update.map((update, place) => [update, place])));
    const body = table.createTBody();
    for (const update of this.#updates.slice(-TABLE_ROWS)) {
      const row = body.insertRow();
      row.insertCell().textContent = update;
      this.#lines.forEach((line, at) => {
        const place = places[at].get(update);
        row.insertCell().textContent = place === undefined ? "" : number(line.value[place], 4);
      });
    }
    box.replaceChildren(table);
  }
}

customElements.define("fg-chart", Chart);
