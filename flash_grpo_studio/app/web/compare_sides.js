// A side as addresses and the API write it: JOB@UPDATE, or JOB@UPDATE*STRENGTH; update 0 is the base model.

import { number } from "./format.js";
import { t } from "./texts.js";

const SIDE = /^([0-9a-f]{1,32})@(\d{1,9})(?:\*(\d{1,3}(?:\.\d{1,6})?))?$/;

/** {job, update, strength} of a text; null for what names no side. */
export function parseSide(text) {
  const found = SIDE.exec(text ?? "");
  if (!found) return null;
  const [, job, update, strength = "1"] = found;
  return { job, update: Number(update), strength: Number(strength) };
}

export function sideText({ job, update, strength = 1 }) {
  return update && strength !== 1 ? `${job}@${update}*${strength}` : `${job}@${update}`;
}

/** What a side is called beside its run: the base model, or an update with its strength where that is not 1. */
export function sideName({ update, strength = 1 }) {
  if (!update) return t("compare.base");
  if (strength === 1) return t("compare.update", { update });
  return t("compare.update_at", { update, strength: number(strength, 2) });
}

/** Names of both sides, with their runs' names where they are of two runs. */
export function sideLabels(before, after) {
  if (before.job_id === after.job_id) return [sideName(before), sideName(after)];
  return [before, after].map((side) => `${side.job_name}: ${sideName(side)}`);
}

/** What to queue so that the sides show the prompts: one job where one run gives both, else one for each side. */
export function rendering(sides, prompts, seeds) {
  const common = { kind: "preview", prompts, seeds };
  const [first, second = first] = [...sides].sort((one, other) => one.update - other.update);
  if (first.job === second.job && !first.update && second.update && second.strength === 1) {
    return [{ ...common, job_id: first.job, checkpoint: String(second.update), side: "both" }];
  }
  const wanted = sideText(first) === sideText(second) ? [first] : [first, second];
  return wanted.map(({ job, update, strength }) =>
    update
      ? { ...common, job_id: job, side: "after", checkpoint: String(update), strength }
      : { ...common, job_id: job, side: "before" },
  );
}
