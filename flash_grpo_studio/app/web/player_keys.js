// Keys for a page with a player: the player's own work wherever the focus is, and the page's beside them.

const TYPED_INTO = "input:not([type=range], [type=checkbox], [type=radio]), select, textarea, dialog, dialog *, [contenteditable]";
const OWN_KEYS = "button, a, summary, input"; // Enter and Space are theirs
const SPACE = " ";

/** Whether a key is meant for a page: nobody took it, nothing is typed, and it is no short cut of the browser. */
export function forPage(event) {
  const target = event.composedPath()[0];
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return false;
  return !(target instanceof Element && target.matches(TYPED_INTO));
}

/** Hand keys that were pressed beside the player to it, and all others to `pressed(event)`; returns how to stop. */
export function pageKeys(view, pressed) {
  const heard = (event) => {
    if (!forPage(event)) return;
    const player = view.querySelector("fg-player");
    const elsewhere = player && !event.composedPath().includes(player);
    const target = event.composedPath()[0];
    if (elsewhere && !(event.key === SPACE && target.matches?.(OWN_KEYS)) && handOn(player, event)) event.preventDefault();
    else if (event.type === "keydown") pressed(event);
  };
  document.addEventListener("keydown", heard);
  document.addEventListener("keyup", heard);
  return () => {
    document.removeEventListener("keydown", heard);
    document.removeEventListener("keyup", heard);
  };
}

/** Whether the player took it. */
function handOn(player, { type, key, code, repeat }) {
  return !player.dispatchEvent(new KeyboardEvent(type, { key, code, repeat, cancelable: true }));
}
