// Puts the parts together: what is chosen in one is shown in all.

let fileView = null, planView = null, arenaView = null, operators = null, steps = null, current = null;

function say(text) {
  $("live").textContent = text;
}
function tip(event, lines) {
  const box = $("tip");
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren(...lines.map((line) => make("div", {}, line)));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 8))}px`;
  box.style.top = `${event.clientY + 18 + h > innerHeight ? Math.max(4, event.clientY - h - 10) : event.clientY + 18}px`;
}

// Chooses an operator ({node}), a module ({scope}), a step ({step}) or nothing.
function choose(target, centre = false, stay = false) {
  current = target;
  let chosen = [], nodes = [], scope = null;
  if (target && target.node !== undefined) nodes = [target.node];
  if (target && target.scope) [scope, nodes] = [target.scope, target.scope.all()];
  if (target && target.step !== undefined) {
    chosen = [target.step];
    nodes = plan.steps[target.step].operators;
  } else if (plan && nodes.length) chosen = scope ? stepsOf(nodes).map((s) => s.index) : data.operators[nodes[0]].steps;
  const own = target && target.step !== undefined ? nodes.slice(0, 1) : scope ? [] : nodes;
  const fused = scope ? [] : chosen.flatMap((s) => plan.steps[s].operators);
  if (centre && nodes.length && !scope) {
    const box = fileView.reveal(nodes[0]);
    fileView.choose(own, scope, fused);
    fileView.centre(box);
  } else fileView.choose(own, scope, fused);
  if (planView) {
    planView.choose(scope ? [] : chosen, null, scope ? chosen : []);
    if (chosen.length && !$("pane-plan").hidden && !planView.fromPlan) planView.centre(planView.reveal(chosen[0]));
  }
  if (arenaView) arenaView.mark(chosen);
  const step = target && target.step !== undefined ? plan.steps[target.step] : null;
  const pane = step ? [make("h3", {}, step.kind), make("p", { class: "name" }, step.name), ...stepPane(step)]
    : scope ? scopePane(scope, nodes) : nodes.length ? operatorPane(data.operators[nodes[0]]) : modelPane();
  $("pane-operator").replaceChildren(...pane.filter(Boolean));
  $("pane-operator").scrollTop = 0;
  if (steps) steps.rows.forEach(({ row, element }) => element.classList.toggle("chosen", chosen.includes(row.index)));
  if (operators) operators.rows.forEach(({ row, element }) => element.classList.toggle("chosen", !scope && nodes.includes(row.index)));
  if (target && !stay && $("pane-plan").hidden && $("pane-memory").hidden) showTab("operator");
  const text = scope ? `module ${scope.path}` : nodes.length ? `${data.operators[nodes[0]].kind} ${data.operators[nodes[0]].name}` : "";
  say(text);
}

const TABS = ["operator", "plan", "memory", "passes", "operators"];
const made = new Set();
function showTab(name) {
  for (const tab of TABS) {
    $(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    $(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
    $(`pane-${tab}`).hidden = tab !== name;
  }
  if (!made.has(name)) {
    made.add(name);
    fillTab(name);
    if (current) choose(current, false, true); // what was just made does not know yet
  }
}
function fillTab(name) {
  if (name === "passes") $("pane-passes").replaceChildren(...passesPane());
  if (name === "operators") {
    operators = operatorsTable();
    $("pane-operators").replaceChildren(operators.element);
    search();
  }
  if ((name === "plan" || name === "memory") && !plan) $(`pane-${name}`).replaceChildren(make("p", { class: "none" }, "There is no plan."));
  else if (name === "plan") {
    planView = new GraphView($("plan"), planGraph(), {
      what: "step", steps: true,
      choose: (target) => {
        const step = target && target.node !== undefined ? planView.graph.nodes[target.node].step : undefined;
        planView.fromPlan = true;
        if (target && target.scope) planView.toggle(target.scope);
        else choose(step === undefined ? null : { step });
        planView.fromPlan = false;
      },
    });
    planView.measure = $("colour").value;
    planView.recolour();
    steps = stepsTable();
    $("steps").replaceChildren(steps.element);
  } else if (name === "memory") {
    const m = plan.memory;
    $("figures").replaceChildren(table(null, [
      ["total", bytesText(m.total), "what the model takes while it runs: packed weights, tables, arena, outputs, weights that were read"],
      ["arena", bytesText(m.arena), "intermediate values and scratch of a run"],
      ["lower bound", bytesText(m.lower_bound), "alive at one time: no arena can be smaller (the dashed line)"],
      ["outputs", bytesText(m.outputs), "tensors that a run returns"], ["scratch", bytesText(m.scratch), "the largest of a step, part of the arena"],
      ["constants", bytesText(m.constants), "attributes, and values computed while planning"],
      ["packed weights", bytesText(m.packed), "in the form that kernels want"], ["weights", bytesText(m.weights), "in the file"],
      ["tables", bytesText(m.tables), "tables of kernels, values computed while planning"],
      ["unshared", bytesText(m.unshared), "every value in memory of its own"]]));
    arenaView = new ArenaView($("arena"), (step) => choose({ step }));
  }
}

// Search: names, types and values of operators.
let found = [], foundAt = -1;
function search() {
  const words = $("search").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (op) => {
    const text = [op.kind, op.name, ...op.outputs.map((v) => `#${data.values[v].name}`)].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  found = words.length ? data.operators.filter(fits).map((op) => op.index) : [];
  foundAt = -1;
  fileView.matches = new Set(found);
  fileView.draw();
  $("found").textContent = words.length ? `${found.length} found` : "";
  if (operators) operators.rows.forEach(({ row, element }) => { element.hidden = words.length > 0 && !fileView.matches.has(row.index); });
}
function nextFound(by) {
  if (!found.length) return;
  foundAt = (foundAt + by + found.length) % found.length;
  $("found").textContent = `${foundAt + 1} of ${found.length}`;
  choose({ node: found[foundAt] }, true);
}

function legend() {
  const measure = MEASURES[$("colour").value];
  if (!measure.of) {
    const seen = new Set(fileView.graph.nodes.map((node) => node.family));
    const names = [...FAMILIES.map(([name]) => name), "other"].filter((name) => seen.has(name));
    $("legend").replaceChildren(...names.map((name) => {
      const swatch = make("i", {});
      swatch.style.background = theme[name];
      return make("span", {}, swatch, name);
    }));
    return;
  }
  const ramp = make("i", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${theme.cold}, ${theme.hot})`;
  $("legend").replaceChildren(make("span", {}, measure.log && fileView.least < Infinity ? measure.text(fileView.least) : "0",
    ramp, measure.text(fileView.most)));
}
function recolour() {
  for (const view of [fileView, planView]) if (view) { view.measure = $("colour").value; view.recolour(); }
  legend();
}

function splitter() {
  const bar = $("splitter");
  let part = 58;
  const set = (percent) => {
    part = Math.min(80, Math.max(20, percent));
    $("main").style.setProperty("--left", `${part}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(part)));
  };
  bar.setAttribute("aria-valuemin", "20");
  bar.setAttribute("aria-valuemax", "80");
  set(part);
  bar.addEventListener("pointerdown", (event) => bar.setPointerCapture(event.pointerId));
  bar.addEventListener("pointermove", (event) => {
    if (bar.hasPointerCapture(event.pointerId)) set(100 * event.clientX / innerWidth);
  });
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -3, ArrowRight: 3 }[event.key];
    if (by) { set(part + by); event.preventDefault(); }
  });
}

function summary() {
  const parts = [plural(data.operators.length, "operator"), `${bytesText(data.operators.reduce((t, op) => t + op.weightBytes, 0))} of weights`];
  if (plan) parts.push(plural(plan.steps.length, "step"), `arena ${bytesText(plan.memory.arena)}`);
  if (times) parts.push(`${msText(times.total)} a run`);
  return parts.join(DOT);
}

// On paper everything is shown, in light colours and at twice the resolution of the screen.
function printing(on) {
  document.documentElement.classList.toggle("print", on);
  if (on) for (const tab of TABS) if (!made.has(tab)) { made.add(tab); fillTab(tab); }
  readTheme();
  for (const view of [fileView, planView]) {
    if (!view) continue;
    if (on) view.before = { scale: view.scale, x: view.x, y: view.y };
    view.recolour();
    if (on) view.fitAll(0);
    else Object.assign(view, view.before);
    view.paint(on ? 2 : undefined);
  }
  if (arenaView) arenaView.paint(on ? 2 : undefined);
  legend();
}

function start() {
  readTheme();
  $("title").textContent = data.model.split(/[\\/]/).pop();
  $("title").title = data.model;
  $("summary").textContent = summary();
  if (data.notes.length) {
    $("notes").hidden = false;
    $("notes").replaceChildren(make("details", {}, make("summary", {}, plural(data.notes.length, "note")),
      make("ul", {}, ...data.notes.map((note) => make("li", {}, note)))));
  }
  for (const [key, measure] of Object.entries(MEASURES)) {
    if (measure.there !== false) $("colour").append(make("option", { value: key }, measure.name));
  }
  fileView = new GraphView($("graph"), fileGraph(), { what: "operator", choose });
  $("colour").addEventListener("change", recolour);
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextFound(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { $("search").value = ""; search(); $("graph").focus(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      $("search").focus();
      $("search").select();
    }
  });
  $("fit").addEventListener("click", () => fileView.fitAll());
  $("larger").addEventListener("click", () => fileView.zoom(1.25));
  $("smaller").addEventListener("click", () => fileView.zoom(0.8));
  $("fold").addEventListener("click", () => fileView.foldAll(true));
  $("unfold").addEventListener("click", () => fileView.foldAll(false));
  const modules = fileView.root.children.size > 0;
  $("fold").hidden = $("unfold").hidden = !modules;
  TABS.forEach((tab, i) => {
    $(`tab-${tab}`).addEventListener("click", () => showTab(tab));
    $(`tab-${tab}`).addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      const next = TABS[(i + by + TABS.length) % TABS.length];
      showTab(next);
      $(`tab-${next}`).focus();
    });
  });
  splitter();
  showTab("operator");
  choose(null);
  legend();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    recolour();
    if (arenaView) arenaView.draw();
  });
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  document.documentElement.dataset.ready = String(Math.round(fileView.arranged));
}
start();
