// What all pairs say together: of each reward its mean before and after, the gain with its interval, and who won.

import { gain } from "./compare_list.js";
import { number, percent, signed } from "./format.js";
import { tableBox } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const COLUMNS = ["reward", "before", "after", "gain", "interval", "wins", "verdict"];

/** better, worse or even: a gain whose interval spans zero is none. */
export function verdictOf({ ci95 }) {
  if (!ci95) return "even";
  return ci95[0] > 0 ? "better" : ci95[1] < 0 ? "worse" : "even";
}

export function summary({ rewards, same, differences, total }) {
  if (!rewards.length) return html`<p class="fg-muted">${t("compare.no_rewards")}</p>`;
  const ordered = [...rewards].sort((one, other) => Number(other.optimised) - Number(one.optimised));
  return html`<p>${t("compare.summary_text", { count: total })}</p>
    ${same ? verdicts(ordered) : html`<div class="fg-notice"><p>${t("compare.not_alike")}</p><ul>${differenceTexts(differences).map((text) => html`<li>${text}</li>`)}</ul></div>`}
    ${tableBox("fg-summary", COLUMNS.map((name) => t(`compare.column.${name}`)), ordered.map((found) => row(found, same)), "fg-figures")}`;
}

/** What became better and what became worse, in one breath. */
function verdicts(rewards) {
  const named = { better: [], worse: [], even: [] };
  for (const found of rewards) if (found.gain !== null) named[verdictOf(found)].push(found.name);
  const line = (verdict) =>
    named[verdict].length
      ? html`<li class="fg-verdict-${verdict}"><strong>${t(`compare.verdict.${verdict}`)}</strong> ${named[verdict].join(", ")}</li>`
      : "";
  return html`<ul class="fg-verdicts">${["better", "worse", "even"].map(line)}</ul>`;
}

function row(found, same) {
  const [low, high] = found.ci95 ?? [];
  const way = verdictOf(found);
  const verdict = same && found.gain !== null ? html`<span class="fg-verdict-${way}"><strong>${t(`compare.verdict.${way}`)}</strong></span>` : "–";
  return html`<tr data-key="${found.name}"><th scope="row"><a href="/help#reward-${found.name}">${found.name}</a>
      <span class="fg-badge">${t(found.optimised ? "home.optimised" : "home.watched")}</span></th>
    <td>${number(found.before)}</td><td>${number(found.after)}</td><td>${found.gain === null ? "–" : gain(found.gain)}</td>
    <td>${low === undefined ? "–" : `${signed(low)} … ${signed(high)}`}</td>
    <td>${found.win_rate === null || found.win_rate === undefined ? "–" : percent(found.win_rate)}</td><td>${verdict}</td></tr>`;
}

/** Differences between two videos or two runs, in words. */
export function differenceTexts(differences) {
  return differences.map(({ code, before, after }) => t(`compare.difference.${code}`, { before: told(before), after: told(after) }));
}

function told(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value, 4) : String(value);
}
