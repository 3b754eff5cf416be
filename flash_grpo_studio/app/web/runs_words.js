// Words of the list of runs.

import { currentLanguage, t } from "./texts.js";

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];

/** How long ago something was, in one unit, as a list needs it; the exact moment belongs into its title. */
export function roughlyAgo(unixSeconds) {
  const seconds = Date.now() / 1000 - unixSeconds;
  const unit = UNITS.find(([, size]) => seconds >= size);
  if (!unit) return t("time.now");
  const words = new Intl.RelativeTimeFormat(currentLanguage() === "zh" ? "zh-Hans" : "en", { numeric: "always" });
  return words.format(-Math.floor(seconds / unit[1]), unit[0]);
}

/** What kind of work a run is. */
export function kindName(kind) {
  return t(`runs.kind.${kind}`);
}

/** What became of one action on many runs: how many it was done with, and each it was not done with, with the reason. */
export function bulkSummary(action, results, names) {
  const done = results.filter((result) => result.ok).length;
  const refused = results
    .filter((result) => !result.ok)
    .map((result) => ({ id: result.id, name: names.get(result.id) || result.id, error: result.error }));
  return { action, done, refused };
}
