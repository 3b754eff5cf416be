// What the New run page remembers: the ask as a person builds it.

export const PROMPT_KEYS = ["prompts", "validation_prompts", "heldout_prompts"];

export function equal(one, other) {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const keys = Object.keys(one);
  if (Array.isArray(one) !== Array.isArray(other) || keys.length !== Object.keys(other).length) return false;
  return keys.every((key) => key in other && equal(one[key], other[key]));
}

/** A form nobody has touched. `set` holds configuration keys that differ from the preset. */
export function freshForm(preset = "") {
  return {
    preset,
    set: {},
    raw: {},
    source: "built-in",
    promptSet: "",
    text: "",
    dedupe: true,
    heldoutShare: 0,
    name: "",
    devices: "1",
    budget: "",
    budgetUnit: "minutes",
    shared: false,
    priority: "0",
    max_retries: "3",
    planFor: "",
    clone: null,
    key: crypto.randomUUID(),
  };
}

/** The configuration with every key, as far as the form knows it. */
export function wholeConfig(form, presets) {
  return { ...(presets[form.preset]?.whole ?? {}), ...form.set };
}

/** Set a configuration key; what equals the preset is not kept, so that a link and a command stay short. */
export function setKey(form, presets, key, value) {
  if (equal(presets[form.preset]?.whole[key], value)) delete form.set[key];
  else form.set[key] = value;
}

/** Another preset, with what was set by hand; values that the new preset has anyway are dropped. */
export function changePreset(form, presets, name) {
  const kept = Object.entries(form.set);
  form.preset = name;
  form.set = {};
  for (const [key, value] of kept) setKey(form, presets, key, value);
}

export function promptLines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

function number(text) {
  return text.trim() === "" ? null : Number(text);
}

/** The request of this form; `split` is what the API made of own prompts. */
export function askOf(form, split = null) {
  const overrides = { ...form.set };
  const ask = { preset: form.preset, overrides, devices: number(form.devices) ?? 1, shared: form.shared };
  if (form.name.trim()) ask.name = form.name.trim();
  if (number(form.budget) !== null) ask.budget = number(form.budget);
  ask.priority = number(form.priority) ?? 0;
  ask.max_retries = number(form.max_retries) ?? 3;
  if (form.source === "built-in") return ask;
  for (const key of PROMPT_KEYS) delete overrides[key];
  if (form.source === "set") ask.prompts = form.promptSet || null;
  else {
    ask.prompts = split ? split.prompts.map((prompt) => prompt.text) : promptLines(form.text);
    if (split?.heldout.length) ask.heldout = split.heldout.map((prompt) => prompt.text);
  }
  return ask;
}

/** Take over a request as it was submitted, saved or cloned. */
export function formOfAsk(ask, presets) {
  const form = freshForm(ask.preset);
  const merged = {};
  for (const [key, value] of Object.entries(ask.overrides ?? {})) {
    const [head, ...rest] = key.split(".");
    if (rest.length && head === "rewards") {
      merged.rewards = { ...(merged.rewards ?? presets[ask.preset]?.whole.rewards), [rest.join(".")]: value };
    } else if (rest.length && head === "reward_options") {
      const options = structuredClone(merged.reward_options ?? presets[ask.preset]?.whole.reward_options ?? {});
      const reward = rest.slice(0, -1).join(".") || rest[0];
      options[reward] = rest.length > 1 ? { ...options[reward], [rest.at(-1)]: value } : value;
      merged.reward_options = options;
    } else merged[key] = value;
  }
  if (ask.rewards) merged.rewards = ask.rewards;
  if (merged.rewards && !merged.reward_options) {
    const options = presets[ask.preset]?.whole.reward_options ?? {};
    merged.reward_options = Object.fromEntries(Object.entries(options).filter(([name]) => name in merged.rewards));
  }
  for (const [key, value] of Object.entries(merged)) setKey(form, presets, key, value);
  if (typeof ask.prompts === "string") Object.assign(form, { source: "set", promptSet: ask.prompts });
  if (Array.isArray(ask.prompts)) {
    const heldout = Array.isArray(ask.heldout) ? ask.heldout : [];
    Object.assign(form, { source: "own", text: [...ask.prompts, ...heldout].join("\n"), dedupe: false });
    form.heldoutShare = heldout.length / (heldout.length + ask.prompts.length);
  }
  for (const key of ["name", "devices", "budget", "priority", "max_retries"]) {
    if (ask[key] !== null && ask[key] !== undefined) form[key] = String(ask[key]);
  }
  form.shared = Boolean(ask.shared);
  return form;
}

/** The form that a share link describes: ?preset=NAME&set=KEY=JSON&set=…; null where the link describes none. */
export function formOfLink(search, presets, fallback) {
  const query = new URLSearchParams(search);
  if (!["preset", "set", "prompts"].some((key) => query.has(key))) return null;
  const preset = query.get("preset") in presets ? query.get("preset") : fallback;
  const overrides = {};
  for (const entry of query.getAll("set")) {
    const place = entry.indexOf("=");
    if (place < 1) continue;
    const text = entry.slice(place + 1);
    try {
      overrides[entry.slice(0, place)] = JSON.parse(text);
    } catch {
      overrides[entry.slice(0, place)] = text;
    }
  }
  return formOfAsk({ preset, overrides, prompts: query.get("prompts") || null }, presets);
}

/** A link to this form for others; own prompts do not fit into one. */
export function linkOf(form) {
  const query = new URLSearchParams({ preset: form.preset });
  for (const [key, value] of Object.entries(form.set)) query.append("set", `${key}=${JSON.stringify(value)}`);
  if (form.source === "set" && form.promptSet) query.set("prompts", form.promptSet);
  return `${location.origin}/new?${query}`;
}
