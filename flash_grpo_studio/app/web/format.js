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

export function moment(unixSeconds) {
  if (!unixSeconds) return "–";
  const options = { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(locale(), options).format(new Date(unixSeconds * 1000));
}

export function ago(unixSeconds) {
  const seconds = Date.now() / 1000 - unixSeconds;
  return seconds < 5 ? t("time.now") : t("time.ago", { time: duration(seconds) });
}
