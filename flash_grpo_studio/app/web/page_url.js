// What a page shows is all in its address, so that a reload, a link or the Back button shows it again.

/** Fires `change` whenever the address of this page changes without leaving the page. */
export const address = new EventTarget();

window.addEventListener("popstate", () => address.dispatchEvent(new Event("change")));

export function query() {
  return new URLSearchParams(location.search);
}

/** A value of the address, or `otherwise`. */
export function asked(name, otherwise = "") {
  return query().get(name) ?? otherwise;
}

/** The present address with some values changed; null or "" takes one out. */
export function link(changes) {
  const values = query();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "" || value === undefined) values.delete(name);
    else values.set(name, value);
  }
  return `${location.pathname}?${String(values).replaceAll("%40", "@")}`; // a query may hold it, and people read it
}

/** Go there: a step the Back button undoes, or, for what changes by small steps, in place of the present one. */
export function go(changes, { step = true } = {}) {
  const target = link(changes);
  if (target === location.pathname + location.search) return;
  history[step ? "pushState" : "replaceState"](null, "", target);
  address.dispatchEvent(new Event("change"));
}

/** For data-on="click:…" of links within the page: true if the page itself follows the link. */
export function follow(event, anchor) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return false;
  event.preventDefault();
  const values = Object.fromEntries(new URL(anchor.href).searchParams);
  const left = [...query().keys()].filter((name) => !(name in values));
  go({ ...Object.fromEntries(left.map((name) => [name, null])), ...values });
  return true;
}
