// A job's situation in words: why it waits, what went wrong, and what to do about it.

import { said } from "./server_words.js";
import { t } from "./texts.js";

export const ACTIVE = ["starting", "running", "pausing", "cancelling"];
export const ENDED = ["succeeded", "failed", "cancelled"];

// The server's sentences for a waiting job; others are shown as they come.
const WAITING = [
  [/^no worker is running/, "no_worker"],
  [/^it asks for (?<count>\d+) devices on one machine, and the largest has (?<largest>\d+)/, "too_many_devices"],
  [/^it is tried again in (?<seconds>\d+) s/, "retry"],
  [/^(?<count>\d+) jobs? (is|are) before it/, "jobs_before"],
  [/^it waits for free devices/, "no_device"],
];

// What a failure's sentence tells of its cause. The first that matches counts.
const CAUSES = [
  [/device ran out of memory|CUDA out of memory/i, "device_memory"],
  [/machine ran out of memory|kernel out of memory|out of memory/i, "memory"],
  [/disk is full|no space|disk quota/i, "disk"],
  [/not finite|diverged|\bNaN\b/i, "nan"],
  [/no (model|weights|checkpoint)|not downloaded|does not exist|no such file|cannot be (found|loaded)|missing/i, "missing"],
  [/ignore_checks/i, "refused"],
  [/device or its driver/i, "device"],
  [/died \d+ times/i, "died"],
];

const ADVISED = [
  "rollouts", "disk", "drift", "determinism", "groups", "rewards", "dead_groups", "gradients", "ranks", "self_tests",
  "early_stop", "no_gain", "damaged_checkpoint", "changed_config", "repeated_prompts", "cut_prompts",
  "unreadable_video", "left_out", "no_licence",
];

export function waiting(reason) {
  if (!reason) return "";
  for (const [pattern, key] of WAITING) {
    const match = reason.match(pattern);
    if (match) return t(`run.waiting.${key}`, numbers(match.groups));
  }
  return said(reason);
}

function numbers(groups = {}) {
  return Object.fromEntries(Object.entries(groups).map(([name, value]) => [name, Number(value)]));
}

/** What kind of failure a sentence tells of; `other` where it fits none. */
export function causeOf(message) {
  return CAUSES.find(([pattern]) => pattern.test(message))?.[1] ?? "other";
}

/** What to do about a warning of the run, by its code. */
export function adviceFor(code) {
  return ADVISED.includes(code) ? t(`run.advice.${code}`) : t("run.advice.other");
}

/** One or two sentences on where the job stands, beside its state. */
export function situation(job) {
  if (job.state === "queued") {
    const place = t("run.queue_place", { place: job.queue_position ?? "?" });
    return [place, waiting(job.waiting_reason), said(job.message)].filter(Boolean);
  }
  const own = ["starting", "pausing", "paused", "cancelling", "cancelled", "lost"];
  const state = own.includes(job.state) ? [t(`run.state.${job.state}`)] : [];
  return [...state, job.state === "failed" ? "" : said(job.message)].filter(Boolean);
}
