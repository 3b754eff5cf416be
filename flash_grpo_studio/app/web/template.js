// Markup from values: `html` escapes everything put into it, `patch` brings a part of the page to new markup without
// rebuilding what stays, so that focus, scroll positions, open details and playing videos survive every update.

class Markup {
  constructor(text) {
    this.text = text;
  }
  toString() {
    return this.text;
  }
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export function escape(value) {
  return String(value).replace(/[&<>"']/g, (sign) => ESCAPES[sign]);
}

function piece(value) {
  if (value === null || value === undefined || value === false) return "";
  if (value instanceof Markup) return value.text;
  if (Array.isArray(value)) return value.map(piece).join("");
  return escape(value);
}

/** Markup with every value escaped; null, undefined and false leave nothing, arrays are joined. */
export function html(parts, ...values) {
  let text = parts[0];
  for (let place = 0; place < values.length; place++) text += piece(values[place]) + parts[place + 1];
  return new Markup(text);
}

/** Bring the children of `root` to `markup`. Elements with the same `data-key` are taken for the same one. */
export function patch(root, markup) {
  const template = document.createElement("template");
  template.innerHTML = piece(markup);
  morphChildren(root, template.content);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let present = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = wanted.dataset?.key;
    const known = key ? keyed.get(key) : null;
    if (known && known.nodeName === wanted.nodeName) {
      if (known !== present) old.insertBefore(known, present);
      else present = present.nextSibling;
      keyed.delete(key);
      morph(known, wanted);
    } else if (present && !key && alike(present, wanted)) {
      const next = present.nextSibling;
      morph(present, wanted);
      present = next;
    } else {
      old.insertBefore(wanted, present);
    }
  }
  while (present) {
    const next = present.nextSibling;
    present.remove();
    present = next;
  }
}

function alike(one, other) {
  return one.nodeName === other.nodeName && !one.dataset?.key;
}

/** What is not the markup's to say: who opened it decides, and a button is busy until its work is done (View.act). */
function keeps(element, name) {
  return (name === "open" && element.nodeName === "DETAILS") || (name === "aria-busy" && element.nodeName === "BUTTON");
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !keeps(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "open" && old.nodeName === "DETAILS") continue; // who opened it decides
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // What a person is typing or has chosen stays, unless the page says otherwise by a new default.
  if (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA" || old.nodeName === "SELECT") {
    if (old.nodeName === "SELECT") morphChildren(old, fresh);
    return;
  }
  if (old.hasAttribute("data-own")) return; // the element fills itself
  morphChildren(old, fresh);
}
