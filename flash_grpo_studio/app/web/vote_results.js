// What the votes say: one's own, called personal, and those of all who voted.

import { number, percent } from "./format.js";
import { html } from "./template.js";
import { t } from "./texts.js";

const COUNTS = ["after_wins", "before_wins", "ties", "bad", "skipped"];

/** `found` as the API tells it, `link` the address of the votes as a table. */
export function results(found, link) {
  return html`<div class="fg-columns">${counts(found.mine, "mine")} ${found.voters > 1 ? counts(found, "all") : ""}</div>
    <p><a class="fg-button" href="${link}" download>${t("vote.csv")}</a></p>`;
}

function counts(found, whose) {
  const title = whose === "mine" ? t("vote.mine") : t("vote.all", { count: found.voters });
  const rows = COUNTS.map((name) => html`<div data-key="${name}"><dt>${t(`vote.count.${name}`)}</dt><dd>${number(found[name], 0)}</dd></div>`);
  return html`<section class="fg-card" data-key="${whose}" data-whose="${whose}"><h3>${title}
      ${found.personal || whose === "mine" ? html`<span class="fg-badge">${t("vote.personal")}</span>` : ""}
      ${found.preliminary ? html`<span class="fg-badge">${t("vote.preliminary")}</span>` : ""}</h3>
    <p><strong>${verdict(found)}</strong></p>
    <dl class="fg-run-facts">${rows}</dl>
    ${found.decided ? rate(found) : ""}</section>`;
}

function verdict(found) {
  if (!found.decided) return t("vote.verdict.none");
  if (!found.distinguishable) return t("vote.verdict.even");
  return t(found.win_rate > 0.5 ? "vote.verdict.after" : "vote.verdict.before");
}

/** The win rate with its interval, as words and as a bar whose middle is chance; then what could be wrong with it. */
function rate(found) {
  const [low, high] = found.wilson95;
  const bar = html`<div class="fg-interval" aria-hidden="true"><span style="left:${low * 100}%;right:${100 - high * 100}%"></span>
    <i style="left:${found.win_rate * 100}%"></i></div>`;
  const bias = found.left_rate === null ? "" : html`<li class="${found.left_biased ? "fg-warned" : ""}">
    ${t(found.left_biased ? "vote.left_biased" : "vote.left", { rate: percent(found.left_rate), low: percent(found.left_wilson95[0]), high: percent(found.left_wilson95[1]) })}</li>`;
  return html`<p>${t("vote.win_rate", { rate: percent(found.win_rate), low: percent(low), high: percent(high), count: found.decided })}</p> ${bar}
    <ul><li>${t("vote.tie_share", { share: percent(found.tie_share) })}</li>${bias}</ul>`;
}
