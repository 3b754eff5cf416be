// The files of an export: each with its SHA-256, all of them as one archive, the model card as text, and how to use them.

import { bytes } from "./format.js";
import { tableBox } from "./shell_parts.js";
import { html } from "./template.js";
import { t } from "./texts.js";

/** `made`: the export's job, its files, the text of its model card and its format; `copied` is what was copied last. */
export function exportedFiles({ job, files, card, format }, copied) {
  const sums = new Map(Object.entries(job.result.files ?? {}).map(([name, facts]) => [name, facts.sha256]));
  const rows = files.map((file) => {
    const sum = sums.get(nameWithin(file.path));
    return html`<tr data-key="${file.id}"><th scope="row"><a href="${file.url}" download="${file.name}">${nameWithin(file.path)}</a></th>
      <td>${bytes(file.bytes)}</td><td>${sum ? html`<div class="fg-row fg-tight"><code class="fg-sum">${sum}</code>${copyButton(sum, copied)}</div>` : "–"}</td></tr>`;
  });
  const columns = ["file", "size", "sum"].map((name) => t(`export.column.${name}`));
  return html`<section data-key="made"><div class="fg-row fg-spread"><h3 id="fg-exported">${t("export.files")}</h3>
      <a class="fg-button" href="/api/v1/jobs/${job.id}/export.zip" download>${t("export.zip")}</a></div>
      ${tableBox("fg-exported", columns, rows)}
      <h3 class="fg-below">${t("export.how_to")}</h3><p>${t(`export.how_to.${format}`)}</p>
      <p class="fg-small">${t("export.verify")} <code>sha256sum -c SHA256SUMS</code></p>
      ${card ? html`<details class="fg-more" id="fg-card"><summary>${t("export.card")}</summary><div>${copyButton(card, copied)}<pre>${card}</pre></div></details>` : ""}</section>`;
}

/** Path of a file within its export. */
function nameWithin(path) {
  return path.replace(/^(report\/)?export\//, "");
}

function copyButton(text, copied) {
  return html`<button type="button" class="fg-button" data-on="click:copy" data-text="${text}">${t(copied === text ? "run.copied" : "run.copy")}</button>`;
}
