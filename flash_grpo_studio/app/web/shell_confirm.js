// One question before something that cannot be undone: a dialog of the browser's own, which keeps the focus inside,
// closes by Escape and gives the focus back.

import { html, patch } from "./template.js";

/**
 * Ask, and resolve to whether the answer was yes. `title` is the question, `text` what would happen, `yes` and `no` the
 * words on the buttons; `danger` marks what destroys something.
 */
export function confirmed({ title, text, yes, no, danger = false }) {
  const dialog = document.createElement("dialog");
  dialog.className = "fg-dialog";
  dialog.setAttribute("aria-labelledby", "fg-dialog-title");
  patch(
    dialog,
    html`<form method="dialog">
      <h2 id="fg-dialog-title">${title}</h2>
      <p>${text}</p>
      <div class="fg-row">
        <button class="fg-button ${danger ? "fg-danger" : "fg-primary"}" value="yes">${yes}</button>
        <button class="fg-button" value="no" autofocus>${no}</button>
      </div>
    </form>`,
  );
  const before = document.activeElement;
  document.getElementById("fg-main").append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
      if (before?.isConnected) before.focus();
    });
    dialog.showModal();
  });
}
