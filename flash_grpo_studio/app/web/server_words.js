// What the server says, in the user's language. It writes English sentences, for the command line and the logs too; here
// they are recognised by their templates (server_zh.json), and what is put into them is translated in its turn.

import { html } from "./template.js";
import { serverSentences } from "./texts.js";

const FEW_LETTERS = 4;
const CHINESE = /[\u3400-\u9fff]/;
const LONGEST = 1500;
const KEPT = 5000;
const found = new Map();
let compiled = null;

function compile([english, words]) {
  const parts = english.split(/\{\d+\}/);
  const pattern = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)");
  const literal = parts.join("");
  const known = parts[0] ? 1000 : 0; // what begins with words of its own is told apart best
  return {
    pattern: new RegExp(`^${pattern}$`, "is"),
    words,
    longest: parts.reduce((one, other) => (other.length > one.length ? other : one), "").toLowerCase(),
    weight: known + literal.length,
    // Little more than a comma fits anything: then something in it must be known, too.
    vague: literal.replace(/[^a-z]/gi, "").length < FEW_LETTERS && parts.length > 1,
  };
}

function templates({ sentences, more }) {
  compiled ??= [...Object.entries(sentences), ...Object.entries(more)].map(compile).sort((one, other) => other.weight - one.weight);
  return compiled;
}

/** A text that is one sentence. `clean` are those in which nothing that was put in holds an unknown sentence itself. */
function whole(text, catalogue, clean) {
  const low = text.toLowerCase();
  const word = catalogue.words[low];
  if (word) return word;
  for (const { pattern, words, longest, vague } of templates(catalogue)) {
    if (!low.includes(longest) || (vague && text.includes("; "))) continue;
    const match = text.match(pattern);
    if (!match) continue;
    const parts = match.slice(1);
    const known = parts.map((part) => wholly(part, catalogue));
    if (vague && known.every((part) => part === null)) continue;
    if (clean && parts.some((part, place) => known[place] === null && part.includes("; "))) continue;
    return words.replace(/\{(\d+)\}/g, (_, place) => known[place - 1] ?? match[place]);
  }
  return null;
}

/** A sentence about a field, whose name stands before it. */
function named(text, catalogue) {
  const match = text.match(/^([\w.]+): (.+)$/s);
  const words = match && wholly(match[2], catalogue);
  return words ? `${match[1]}：${words}` : null;
}

/** Sentences one after the other, joined by `; `, of which each must be known. */
function inTurn(text, catalogue) {
  for (let cut = text.indexOf("; "); cut > 0; cut = text.indexOf("; ", cut + 1)) {
    const first = one(text.slice(0, cut), catalogue);
    const rest = first === null ? null : wholly(text.slice(cut + 2), catalogue);
    if (rest !== null) return `${first}；${rest}`;
  }
  return null;
}

function one(text, catalogue) {
  return whole(text, catalogue, true) ?? named(text, catalogue);
}

/** A text of which every sentence is known. Pages ask for the same ones every second, and parts come again in wholes. */
function wholly(text, catalogue) {
  if (text.length > LONGEST) return null;
  if (!found.has(text)) {
    if (found.size > KEPT) found.clear();
    found.set(text, null);
    found.set(text, one(text, catalogue) ?? inTurn(text, catalogue));
  }
  return found.get(text);
}

/** A sentence of the server in the user's language; null where it is not known, and always in English. */
export function translated(text) {
  const catalogue = serverSentences();
  if (!catalogue || !text) return null;
  const [first, ...lines] = text.split("\n"); // below its sentence a failed run's last lines, as they were printed
  const bare = first.replace(/\.$/, "");
  const words = wholly(first, catalogue) ?? wholly(bare, catalogue) ?? whole(bare.slice(0, LONGEST), catalogue, false);
  return words === null ? null : [words, ...lines].join("\n");
}

/** A sentence of the server as markup, marked as English where it could not be translated. */
export function said(text) {
  if (!text) return "";
  const words = translated(String(text));
  if (words !== null) return html`${words}`;
  // A page's own words come this way too, where they stand in the place of the server's.
  return serverSentences() && !CHINESE.test(text) ? html`<span lang="en">${text}</span>` : html`${text}`;
}

/** The same as plain text, for titles and labels. */
export function saidPlainly(text) {
  return translated(String(text ?? "")) ?? text ?? "";
}
