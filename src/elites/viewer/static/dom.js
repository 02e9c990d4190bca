// Short functions for elements of the page.

export const $ = (id) => document.getElementById(id);

/** Return a new element of the kind `name` that shows a text. The text is never read as HTML. */
export function createElement(name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

/**
 * Fill a select element with options, given as [value, label] pairs, and select `value` if it is
 * one of them.
 */
export function fillSelect(select, options, value) {
  select.replaceChildren(...options.map(([key, label]) => new Option(label, key)));
  if (options.some(([key]) => String(key) === String(value))) select.value = value;
}
