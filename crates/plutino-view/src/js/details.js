// The panes beside the graph: an operator or a module, steps, passes, and all operators as a table.

// A button that chooses an operator.
function operatorLink(at, text) {
  const op = data.operators[at];
  return make("button", { class: "link", type: "button", title: op.kind, onclick: () => choose({ node: at }, true) }, text || op.name);
}
function joined(items, between = ", ") {
  return items.flatMap((item, i) => i ? [between, item] : [item]);
}
function table(header, rows, caption) {
  if (!rows.length) return null;
  const cell = (text) => make("td", typeof text === "number" ? { class: "number" } : {}, ...[text].flat().map((t) => typeof t === "number" ? t.toLocaleString("en") : t));
  return make("table", {}, caption ? make("caption", {}, caption) : null,
    header ? make("thead", {}, make("tr", {}, ...header.map((h) => make("th", { scope: "col" }, h)))) : null,
    make("tbody", {}, ...rows.map((row) => make("tr", {}, make("th", { scope: "row" }, ...[row[0]].flat()), ...row.slice(1).map(cell)))));
}

function operatorPane(op) {
  const pane = [make("h3", {}, op.kind), make("p", { class: "name" }, op.name)];
  const where = [op.line === null ? null : `line ${op.line}`, op.scope.length ? `module ${op.scope.join(".")}` : null].filter(Boolean);
  if (where.length) pane.push(make("p", { class: "soft" }, where.join(DOT)));
  if (op.unsupported) pane.push(make("p", { class: "wrong" }, op.unsupported));
  if (op.error !== undefined) pane.push(make("p", {}, `Error: ${errorText(op.error === Infinity ? null : op.error)}`));
  pane.push(table(null, Object.entries(op.params), "Parameters"));
  // Order without data.
  if (op.after) pane.push(make("p", {}, "Comes after ", ...joined(op.after.map((o) => operatorLink(o)))));
  const value = (v, argument) => {
    const { name, recorded, planned, from, to } = data.values[v];
    return [name, argument || "", planned || recorded, planned && planned !== recorded ? recorded : "",
      joined(argument === undefined ? to.map((o) => operatorLink(o)) : from === null ? [] : [operatorLink(from)])];
  };
  const columns = ["value", "argument", "is", "recorded as"];
  pane.push(table([...columns, "made by"], op.inputs.map((input) => value(input.value, input.argument || "")), "Inputs"));
  const outputs = op.outputs.map((v) => { const row = value(v); row.splice(1, 1); return row; });
  pane.push(table(["value", "is", "recorded as", "read by"], outputs, "Outputs"));
  for (const weight of op.weights) pane.push(weightTable(weight));
  if (plan) pane.push(...stepsPane(op));
  return pane.filter(Boolean);
}
function weightTable(weight) {
  const { stats } = weight;
  const rows = [["shape", `(${weight.shape.join(",")})${weight.dtype}`], ["size", bytesText(weight.bytes)]];
  if (stats) {
    rows.push(["min", numberText(stats.min)], ["max", numberText(stats.max)], ["mean", numberText(stats.mean)],
      ["standard deviation", numberText(stats.std)], ["zeros", stats.zeros], ["NaN", stats.nan], ["infinite", stats.inf]);
  } else rows.push(["numbers", "not loaded, none, or complex"]);
  const caption = [`Weight ${weight.name}`];
  const element = table(null, rows, caption.join(""));
  if (stats && stats.nan + stats.inf > 0) element.classList.add("wrong");
  if (!stats || !stats.bars.length) return element;
  return make("div", { class: "weight" }, element, barsCanvas(stats));
}
// How numbers are spread, as bars.
function barsCanvas(stats) {
  const canvas = make("canvas", { class: "bars", width: 320, height: 96, role: "img", "aria-label": "Histogram of the weight" });
  const context = canvas.getContext("2d");
  const most = stats.bars.reduce((a, b) => Math.max(a, b), 1), wide = 320 / stats.bars.length;
  context.fillStyle = theme.accent;
  stats.bars.forEach((n, i) => context.fillRect(i * wide + 1, 96 - Math.max(n ? 2 : 0, 92 * n / most), wide - 2, 96));
  return canvas;
}
function stepsPane(op) {
  const pane = [make("h4", {}, "In the plan")];
  if (!op.steps.length && !/^pnnx\.(Input|Output)$/.test(op.kind)) {
    pane.push(make("p", {}, "No step: its result is a view of another value, or was computed while planning, or is not needed."));
  }
  for (const step of op.steps.map((s) => plan.steps[s])) pane.push(...stepPane(step, op.index));
  if (op.notes.length) {
    pane.push(make("h4", {}, "Passes"), make("ul", {}, ...op.notes.map((note) => make("li", { class: note.done ? "" : "soft" },
      make("b", {}, note.pass), note.done ? `: ${note.what}` : `: refused, ${note.what}`))));
  }
  return pane;
}
function stepPane(step, without) {
  const others = step.operators.filter((o) => o !== without);
  const rows = [
    ["step", step.index], ["kernel", step.kernel],
    others.length ? [without === undefined ? "operators" : "together with", joined(others.map((o) => operatorLink(o)))] : null,
    step.ms === undefined ? null : ["time", `${msText(step.ms)} (${(100 * step.ms / times.total).toFixed(1)} % of a run)`],
    ["arithmetic", countText(step.flops, "FLOP") + (step.ms && step.flops ? `${DOT}${(step.flops / step.ms / 1e6).toFixed(1)} GFLOP/s` : "")],
    ["traffic", bytesText(step.bytes) + (step.ms ? `${DOT}${(step.bytes / step.ms / 1e6).toFixed(1)} GB/s` : "")],
    ["memory made", bytesText(step.memory)], step.scratch ? ["scratch", bytesText(step.scratch)] : null,
  ].filter(Boolean);
  const value = (v) => [v.name, v.spec || "view", v.place];
  return [table(null, rows, `Step ${step.index}`), table(["reads", "is", "where"], step.inputs.map(value)), table(["writes", "is", "where"], step.outputs.map(value))];
}

function scopePane(scope, operators) {
  const steps = stepsOf(operators), kinds = new Map();
  operators.forEach((o) => kinds.set(data.operators[o].kind, (kinds.get(data.operators[o].kind) || 0) + 1));
  const weights = operators.reduce((total, o) => total + data.operators[o].weightBytes, 0);
  const rows = [["operators", operators.length], weights ? ["weights", bytesText(weights)] : null];
  if (plan) rows.push(["steps", steps.length], ["arithmetic", countText(sum(steps, "flops"), "FLOP")], ["memory made", bytesText(sum(steps, "memory"))]);
  if (times) rows.push(["time", `${msText(sum(steps, "ms"))} (${(100 * sum(steps, "ms") / times.total).toFixed(1)} % of a run)`]);
  const byCount = [...kinds].sort((a, b) => b[1] - a[1]);
  return [make("h3", {}, "Module"), make("p", { class: "name" }, scope.path),
    make("p", {}, make("button", { type: "button", onclick: () => { fileView.toggle(scope); } }, "Fold or unfold")),
    table(null, rows.filter(Boolean), "All inside"), table(["type", "operators"], byCount)];
}

// What is shown before anything is chosen.
function modelPane() {
  const kinds = new Map();
  data.operators.forEach((op) => kinds.set(op.kind, (kinds.get(op.kind) || 0) + 1));
  const rows = [["operators", data.operators.length], ["values", data.values.length],
    ["weights", bytesText(data.operators.reduce((t, op) => t + op.weightBytes, 0))]];
  if (plan) {
    plan.inputs.forEach(([name, spec]) => rows.push([`input ${name}`, spec]));
    rows.push(["steps", plan.steps.length], ["arithmetic", countText(sum(plan.steps, "flops"), "FLOP")]);
  }
  if (times) {
    rows.push(["time of a run", `${msText(times.total)} (mean of the faster half of ${plural(times.runs, "run")})`],
      ["between steps", msText(times.between)]);
  }
  return [make("h3", {}, "Model"), make("p", { class: "name" }, data.model), table(null, rows),
    table(["type", "operators"], [...kinds].sort((a, b) => b[1] - a[1])),
    make("p", { class: "soft" }, "Click an operator to see what is known of it. Wheel: zoom. Drag: move. Double click: fold or unfold a module."),
    make("p", { class: "soft" }, `plutino ${data.version}`)];
}

function passesPane() {
  if (!plan) return [make("p", {}, "There is no plan.")];
  const note = (text) => (n) => make("li", {}, n.operator === null ? n.name : operatorLink(n.operator), `: ${text}${n.what}`);
  return [make("p", { class: "soft" }, "What is done to the graph of the file before it is planned, in this order."),
    ...plan.passes.map((pass) => make("details", pass.done.length ? { open: "" } : {},
      make("summary", {}, make("b", {}, pass.name), ` ${pass.about}`, make("span", { class: "count" },
        pass.ran ? `${pass.done.length} done, ${pass.refused.length} refused` : "off")),
      make("ul", {}, ...pass.done.map(note("")), ...pass.refused.map(note("refused, ")))))];
}

// A table that is sorted by the column that is clicked.
function sortable(columns, rows, open) {
  const body = make("tbody", {}), heads = columns.map(([name], i) => make("th", { scope: "col" },
    make("button", { class: "link", type: "button", onclick: () => sortBy(i) }, name)));
  let sorted = null, up = true;
  const elements = rows.map((row) => {
    const element = make("tr", { tabindex: "0", onclick: () => open(row), onkeydown: (e) => { if (e.key === "Enter") open(row); } },
      ...columns.map(([, of, text]) => make("td", { class: text ? "number" : "" }, text ? (of(row) === undefined ? "" : text(of(row))) : of(row))));
    return { row, element };
  });
  function sortBy(i) {
    up = sorted === i ? !up : !columns[i][2];
    sorted = i;
    const key = (e) => { const k = columns[i][1](e.row); return k === undefined ? -1 : k; };
    elements.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1));
    body.append(...elements.map((e) => e.element));
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== i ? "none" : up ? "ascending" : "descending"));
  }
  body.append(...elements.map((e) => e.element));
  return { element: make("table", { class: "sortable" }, make("thead", {}, make("tr", {}, ...heads)), body), rows: elements };
}
const whole = (n) => n.toLocaleString("en");
function operatorsTable() {
  const first = (op) => stepsOf([op.index]);
  const of = (key) => (op) => first(op).length ? sum(first(op), key) : undefined;
  const columns = [["line", (op) => op.line === null ? undefined : op.line, whole], ["type", (op) => op.kind], ["name", (op) => op.name],
    ["output", (op) => op.outputs.map((v) => specOf(data.values[v])).join(", ")]];
  if (MEASURES.weights.there) columns.push(["weights", (op) => op.weightBytes || undefined, bytesText]);
  if (times) columns.push(["time", of("ms"), msText]);
  if (plan) columns.push(["memory", of("memory"), bytesText], ["arithmetic", of("flops"), (n) => countText(n)]);
  if (MEASURES.error.there) columns.push(["error", (op) => op.error, MEASURES.error.text]);
  return sortable(columns, data.operators, (op) => choose({ node: op.index }, true));
}
function stepsTable() {
  const columns = [["step", (s) => s.index, whole], ["operators", (s) => s.operators.map((o) => data.operators[o].name).join(" + ") || s.name],
    ["kernel", (s) => s.kernel]];
  if (times) columns.push(["time", (s) => s.ms, msText]);
  columns.push(["memory", (s) => s.memory, bytesText], ["arithmetic", (s) => s.flops, (n) => countText(n)]);
  return sortable(columns, plan.steps, (s) => choose({ step: s.index }, true));
}
