// What the studio says of a run, in the user's language where the sentence is known.

import { duration } from "./format.js";
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

/** Why a queued run waits. The API speaks English; what it may say here is known and so can be said in any language. */
export function waitingReason(reason) {
  if (!reason) return "";
  if (reason.startsWith("no worker is running")) return t("runs.wait.no_worker");
  if (reason === "it waits for free devices") return t("runs.wait.devices");
  const before = /^(\d+) jobs? (?:is|are) before it$/.exec(reason);
  if (before) return t("runs.wait.before", { count: Number(before[1]) });
  const again = /^it is tried again in (\d+) s$/.exec(reason);
  if (again) return t("runs.wait.again", { time: duration(Number(again[1])) });
  const large = /^it asks for (\d+) devices on one machine, and the largest has (\d+)$/.exec(reason);
  if (large) return t("runs.wait.large", { asked: large[1], largest: large[2] });
  return reason;
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
