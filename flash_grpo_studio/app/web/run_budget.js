// A run whose budget is spent goes on only with a larger one: the form that gives it one.

import { number } from "./format.js";
import { html } from "./template.js";
import { t } from "./texts.js";

/** The form, or nothing where the budget is not what the run waits for. */
export function budgetForm(job) {
  const again = ["resume", "retry"].find((action) => job.actions.includes(action));
  if (!again || !job.budget || job.device_minutes < job.budget) return "";
  const values = { used: number(job.device_minutes, 1), budget: number(job.budget, 1) };
  return html`<form class="fg-card fg-stack" id="fg-budget" data-key="budget" data-action="${again}" data-on="submit:raiseBudget">
    <p><strong>${t("run.budget.spent", values)}</strong></p>
    <label class="fg-field"><span>${t("run.budget.new")}</span>
      <input name="budget" type="number" step="any" min="${job.device_minutes}" value="${Math.ceil(2 * job.budget)}"
        aria-describedby="fg-budget-help"></label>
    <p class="fg-small" id="fg-budget-help">${t("run.budget.help")}</p>
    <button class="fg-button fg-primary">${t("run.budget.go")}</button></form>`;
}
