// A run's measurements in the browser: fetched whole once, then only what is new.

import { api } from "./api.js";

const POINTS = 500;

export class Curves {
  series = {};
  evaluations = [];
  updates = 0;
  /** Grows with every change, so that nothing is drawn twice. */
  version = 0;
  loaded = false;
  #id;
  #last = null;
  #lastEvaluation = 0;
  #attempts = 0;
  #added = 0;
  #marks = [];

  constructor(id) {
    this.#id = id;
  }

  /** Ask for what is new; nothing is asked while the job shows no progress. */
  async look(job) {
    const { state, attempts, progress } = job;
    const mark = [state, attempts.length, progress.update, progress.phase, progress.time].join(" ");
    if (this.loaded && this.#marks.every((old) => old === mark)) return;
    this.#marks = [this.#marks[1], mark];
    // A resumed run measures some updates anew; and after many small steps the points are spread evenly again.
    const whole = this.#last === null || attempts.length !== this.#attempts || this.#added > POINTS / 2;
    this.#attempts = attempts.length;
    if (whole) return this.#whole();
    const answer = await this.#ask(`&after=${this.#last}&after_evaluation=${this.#lastEvaluation}`);
    if ((answer.last ?? -1) < this.#last) return this.#whole();
    this.#append(answer);
  }

  #ask(more) {
    return api.get(`/jobs/${this.#id}/metrics?points=${POINTS}${more}`);
  }

  async #whole() {
    const answer = await this.#ask("");
    this.series = answer.series;
    this.evaluations = answer.evaluations;
    this.updates = answer.updates;
    this.#last = answer.last;
    this.#lastEvaluation = answer.last_evaluation;
    this.#added = 0;
    this.loaded = true;
    this.version++;
  }

  #append(answer) {
    if (!answer.updates && !answer.evaluations.length) return;
    for (const [name, fresh] of Object.entries(answer.series)) {
      const curve = (this.series[name] ??= { update: [], value: [], low: [], high: [] });
      for (const part of ["update", "value", "low", "high"]) curve[part].push(...fresh[part]);
    }
    this.evaluations.push(...answer.evaluations);
    this.updates += answer.updates;
    this.#last = answer.last;
    this.#lastEvaluation = answer.last_evaluation;
    this.#added += answer.updates;
    this.version++;
  }

  get(name) {
    return this.series[name];
  }

  /** Names of the form PREFIX/SOMETHING/SUFFIX, as the SOMETHINGs, numbers in their order. */
  between(prefix, suffix) {
    const found = Object.keys(this.series)
      .filter((name) => name.startsWith(`${prefix}/`) && name.endsWith(suffix ? `/${suffix}` : ""))
      .map((name) => name.slice(prefix.length + 1, suffix ? -suffix.length - 1 : undefined));
    return found.sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  }

  rewards() {
    const evaluated = this.evaluations.flatMap((evaluation) => Object.keys(evaluation.rewards));
    return [...new Set([...this.between("reward", "mean"), ...evaluated])];
  }

  /** Sum of several series, at the updates where any of them has a value. */
  sum(names) {
    const total = new Map();
    for (const name of names) {
      const curve = this.series[name];
      curve.update.forEach((update, place) => {
        if (curve.value[place] !== null) total.set(update, (total.get(update) ?? 0) + curve.value[place]);
      });
    }
    const update = [...total.keys()].sort((one, other) => one - other);
    return { update, value: update.map((at) => total.get(at)) };
  }

  /** A curve of means with the band between two other series, or of `spread` around the mean. */
  banded(mean, low, high, spread) {
    const curve = this.series[mean];
    if (!curve) return null;
    const line = { update: curve.update, value: curve.value };
    if (low && this.series[low] && this.series[high]) {
      line.low = align(curve.update, this.series[low], "low");
      line.high = align(curve.update, this.series[high], "high");
    } else if (spread && this.series[spread]) {
      const wide = align(curve.update, this.series[spread], "value");
      line.low = curve.value.map((value, place) => (value === null || wide[place] === null ? null : value - wide[place]));
      line.high = curve.value.map((value, place) => (value === null || wide[place] === null ? null : value + wide[place]));
    }
    return line;
  }

  /** Evaluations of a reward on one split, with their intervals. */
  evaluated(reward, split) {
    const rows = this.evaluations.filter((row) => row.split === split && row.rewards[reward]);
    const pick = (what) => rows.map((row) => what(row.rewards[reward]) ?? null);
    return {
      update: rows.map((row) => row.update),
      value: pick((found) => found.mean),
      low: pick((found) => found.ci95?.[0]),
      high: pick((found) => found.ci95?.[1]),
      points: true,
    };
  }
}

function align(updates, curve, part) {
  const there = new Map(curve.update.map((update, place) => [update, curve[part][place]]));
  return updates.map((update) => there.get(update) ?? null);
}
