// <fg-chart>: lines with a band, drawn on a canvas; a table of the same values for those who cannot see it.

import { number } from "./format.js";
import { t } from "./texts.js";

// Okabe and Ito's palette, told apart by most colour-blind people; dashes tell them apart without any colour.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#6b6b6b"];
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]];
const MARGIN = { left: 56, right: 12, top: 10, bottom: 26 };

/** Steps of 1, 2 or 5 times a power of ten that cut a range into about `count` parts. */
export function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

/** Exponential smoothing that starts unbiased; `amount` in 0..1, 0 changes nothing. */
export function smooth(values, amount) {
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = amount * sum + (1 - amount) * value;
    weight = amount * weight + (1 - amount);
    return sum / weight;
  });
}

export class Chart extends HTMLElement {
  #lines = [];
  #options = {};
  #observer = null;
  #drawn = null;
  #hover = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.own = "";
    this.innerHTML = `<div class="fg-plot"><canvas tabindex="0" role="img"></canvas><div class="fg-tip" hidden></div></div>
      <div class="fg-legend"></div><details class="fg-data"><summary></summary><div></div></details>`;
    this.canvas = this.querySelector("canvas");
    this.tip = this.querySelector(".fg-tip");
    this.querySelector("summary").textContent = t("chart.table");
    this.querySelector("details").addEventListener("toggle", () => this.#table());
    this.canvas.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#leave());
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.#observer = new ResizeObserver(() => this.draw());
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    this.#observer?.disconnect();
  }

  /**
   * lines: {name, update: [], value: [], low: [], high: [], points} each; low and high, if given, make a band; `points`
   * draws marks. options: label (what the chart shows), log, smoothing, unit.
   */
  show(lines, options = {}) {
    this.#lines = lines;
    this.#options = options;
    this.draw();
  }

  draw() {
    const width = this.clientWidth;
    const height = Number(this.getAttribute("height") || 200);
    if (!width || !this.canvas) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== width * scale || this.canvas.height !== height * scale) {
      this.canvas.width = width * scale;
      this.canvas.height = height * scale;
      this.canvas.style.height = `${height}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(this);
    const frame = this.#frame(width, height);
    this.#drawn = frame;
    this.#label();
    if (!frame) {
      context.fillStyle = style.getPropertyValue("--fg-muted");
      context.font = "14px system-ui, sans-serif";
      context.fillText(t("chart.empty"), MARGIN.left, height / 2);
      return;
    }
    this.#axes(context, frame, style);
    this.#lines.forEach((line, place) => this.#line(context, frame, line, place));
    if (this.#hover !== null) this.#cursor(context, frame, style);
    this.#legend();
    if (this.querySelector("details").open) this.#table();
  }

  #frame(width, height) {
    const { log } = this.#options;
    const usable = (value) => value !== null && Number.isFinite(value) && (!log || value > 0);
    let [first, last, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of this.#lines) {
      line.update.forEach((update, place) => {
        for (const value of [line.value[place], line.low?.[place], line.high?.[place]]) {
          if (value === undefined || !usable(value)) continue;
          first = Math.min(first, update);
          last = Math.max(last, update);
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      });
    }
    if (low > high) return null;
    const turn = log ? Math.log10 : (value) => value;
    let [bottom, top] = [turn(low), turn(high)];
    const room = (top - bottom || Math.abs(top) || 1) * 0.06;
    bottom -= room;
    top += room;
    if (first === last) last = first + 1;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    return {
      width, height, first, last, bottom, top, log, usable,
      x: (update) => MARGIN.left + ((update - first) / (last - first)) * inner.width,
      y: (value) => MARGIN.top + (1 - (turn(value) - bottom) / (top - bottom)) * inner.height,
      at: (x) => first + ((x - MARGIN.left) / inner.width) * (last - first),
    };
  }

  #axes(context, frame, style) {
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = style.getPropertyValue("--fg-line");
    context.fillStyle = style.getPropertyValue("--fg-muted");
    context.lineWidth = 1;
    context.setLineDash([]);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of ticks(frame.bottom, frame.top, 4)) {
      const value = frame.log ? 10 ** tick : tick;
      const y = Math.round(frame.y(value)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(frame.width - MARGIN.right, y);
      context.stroke();
      context.fillText(number(value), MARGIN.left - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of ticks(frame.first, frame.last, Math.max(2, frame.width / 110))) {
      if (Number.isInteger(tick)) context.fillText(String(tick), frame.x(tick), frame.height - MARGIN.bottom + 8);
    }
  }

  #line(context, frame, line, place) {
    const colour = line.colour || COLOURS[place % COLOURS.length];
    const smoothing = line.points ? 0 : this.#options.smoothing || 0;
    const value = smooth(line.value, smoothing);
    context.strokeStyle = context.fillStyle = colour;
    if (line.low && line.high) this.#band(context, frame, line);
    if (smoothing) this.#path(context, frame, line.update, line.value, [], 0.25);
    this.#path(context, frame, line.update, value, DASHES[place % DASHES.length], 1);
    if (!line.points && line.update.length > 1) return;
    line.update.forEach((update, index) => {
      if (!frame.usable(value[index])) return;
      context.beginPath();
      context.arc(frame.x(update), frame.y(value[index]), 3, 0, 7);
      context.fill();
    });
  }

  #band(context, frame, line) {
    context.globalAlpha = 0.18;
    context.beginPath();
    const there = line.update.map((update, place) => [update, line.low[place], line.high[place]]);
    const shown = there.filter(([, low, high]) => frame.usable(low) && frame.usable(high));
    shown.forEach(([update, low]) => context.lineTo(frame.x(update), frame.y(low)));
    [...shown].reverse().forEach(([update, , high]) => context.lineTo(frame.x(update), frame.y(high)));
    context.fill();
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
    context.beginPath();
    context.moveTo(frame.x(this.#hover) + 0.5, MARGIN.top);
    context.lineTo(frame.x(this.#hover) + 0.5, frame.height - MARGIN.bottom);
    context.stroke();
  }

  #updates() {
    return [...new Set(this.#lines.flatMap((line) => line.update))].sort((one, other) => one - other);
  }

  #point(x) {
    if (!this.#drawn) return;
    const wanted = this.#drawn.at(x);
    this.#show(this.#updates().reduce((best, update) => (Math.abs(update - wanted) < Math.abs(best - wanted) ? update : best)));
  }

  #show(update) {
    this.#hover = update;
    const rows = this.#lines.flatMap((line) => {
      const place = line.update.indexOf(update);
      if (place < 0 || line.value[place] === null) return [];
      const range = line.low && line.high ? ` (${number(line.low[place])} – ${number(line.high[place])})` : "";
      return [`${line.name}: ${number(line.value[place])}${range}`];
    });
    this.tip.hidden = false;
    this.tip.replaceChildren(...[t("chart.update", { update }), ...rows].map((text) => {
      const row = document.createElement("div");
      row.textContent = text;
      return row;
    }));
    const x = this.#drawn.x(update);
    this.tip.style.left = `${Math.min(x + 8, Math.max(0, this.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.draw();
  }

  #leave() {
    this.#hover = null;
    this.tip.hidden = true;
    this.draw();
  }

  #key(event) {
    if (!this.#drawn || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return this.#leave();
    const all = this.#updates();
    const place = this.#hover === null ? -1 : all.indexOf(this.#hover);
    const next = { ArrowLeft: Math.max(0, place - 1), ArrowRight: Math.min(all.length - 1, place + 1), Home: 0, End: all.length - 1 };
    this.#show(all[next[event.key]]);
  }

  #label() {
    const last = this.#lines.map((line) => {
      const value = [...line.value].reverse().find((found) => found !== null);
      return value === undefined ? "" : `${line.name} ${number(value)}`;
    });
    this.canvas.setAttribute("aria-label", `${this.#options.label || ""}. ${last.filter(Boolean).join(", ")}`);
  }

  #legend() {
    const legend = this.querySelector(".fg-legend");
    legend.replaceChildren(...this.#lines.map((line, place) => {
      const entry = document.createElement("span");
      const dash = DASHES[place % DASHES.length].join(" ");
      entry.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="${
        line.colour || COLOURS[place % COLOURS.length]}" stroke-width="2" stroke-dasharray="${dash}"/></svg>`;
      entry.append(line.name);
      return entry;
    }));
  }

  #table() {
    const box = this.querySelector("details > div");
    if (!this.querySelector("details").open) return box.replaceChildren();
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const name of [t("chart.update_column"), ...this.#lines.map((line) => line.name)]) {
      const cell = document.createElement("th");
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const update of this.#updates().slice(-200)) {
      const row = body.insertRow();
      row.insertCell().textContent = update;
      for (const line of this.#lines) {
        const place = line.update.indexOf(update);
        row.insertCell().textContent = place < 0 ? "" : number(line.value[place]);
      }
    }
    box.replaceChildren(table);
  }
}

customElements.define("fg-chart", Chart);
