// Numbers, times and sizes as people read them.

import { currentLanguage, t } from "./texts.js";

function locale() {
  return currentLanguage() === "zh" ? "zh-Hans" : "en";
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return formatter(size >= 100 ? Math.min(1, digits) : digits).format(value);
}

const formatters = new Map();

/** Making one costs more than using it a thousand times. */
function formatter(digits) {
  if (!formatters.has(digits)) {
    formatters.set(digits, new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }));
  }
  return formatters.get(digits);
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + number(Math.abs(value), digits);
}

export function percent(value) {
  return new Intl.NumberFormat(locale(), { style: "percent", maximumFractionDigits: 0 }).format(value);
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place++;
  }
  return `${number(value, value < 10 && place ? 1 : 0)} ${units[place]}`;
}

/** Seconds as `2 h 5 min`, at most two units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const rest = Math.max(0, Math.round(seconds));
  if (rest < 60) return t("time.seconds", { n: rest });
  if (rest < 3600) return t("time.minutes", { n: Math.floor(rest / 60), s: rest % 60 });
  if (rest < 86400) return t("time.hours", { n: Math.floor(rest / 3600), m: Math.floor((rest % 3600) / 60) });
  return t("time.days", { n: Math.floor(rest / 86400), h: Math.floor((rest % 86400) / 3600) });
}

// Up to so many seconds a range is told in this unit of so many seconds, in such steps.
const SPANS = [
  [90, "seconds", 1, 5], [1200, "minutes", 60, 1], [5400, "minutes", 60, 5],
  [36000, "hours", 3600, 0.5], [172800, "hours", 3600, 1], [Infinity, "days", 86400, 0.5],
];

/** A range of seconds, no finer than it is known: `12–15 min`. As `span` in flash_grpo/console.py. */
export function timeSpan({ low, high }) {
  const [, unit, size, step] = SPANS.find(([limit]) => high < limit);
  const [first, last] = [low, Math.max(high, step * size)].map((value) => Math.round(value / size / step) * step);
  return t(`time.span.${unit}`, { span: first < last ? `${number(first)}–${number(last)}` : number(last) });
}

function amount(value, digits) {
  return new Intl.NumberFormat(locale(), { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
}

/** An amount of money with the label of its currency. */
export function money(value, currency) {
  if (value > 0 && value < 0.005) return `< ${money(0.01, currency)}`;
  return `${amount(value, value < 100 ? 2 : 0)} ${currency}`;
}

/** A range of money, no finer than it is known. */
export function moneySpan({ low, high }, currency) {
  const step = Math.max(0.01, 10 ** (Math.floor(Math.log10(high)) - 1));
  const [first, last] = [low, high].map((value) => Math.round(value / step) * step);
  if (first >= last) return money(high, currency);
  const digits = step < 1 ? 2 : 0;
  return `${amount(first, digits)}–${amount(last, digits)} ${currency}`;
}

export function moment(unixSeconds) {
  if (!unixSeconds) return "–";
  const options = { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(locale(), options).format(new Date(unixSeconds * 1000));
}

export function ago(unixSeconds) {
  const seconds = Date.now() / 1000 - unixSeconds;
  return seconds < 5 ? t("time.now") : t("time.ago", { time: duration(seconds) });
}
