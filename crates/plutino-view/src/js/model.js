// What the page knows, and words for it. Text of a model is only ever put into the page as text.

const data = JSON.parse(document.getElementById("data").textContent);
const plan = data.plan;
const times = plan && plan.times;
const $ = (id) => document.getElementById(id);

// An element with properties and children; strings become text.
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const TIMES = "\u00d7", MINUS = "\u2212", DOTS = "\u2026", ARROW = "\u2192", DOT = " \u00b7 ";

function bytesText(n) {
  if (n < 1000) return `${n} B`;
  let unit = -1;
  do { n /= 1000; unit += 1; } while (n >= 999.95 && unit < 3);
  return `${n.toFixed(n < 100 ? 1 : 0)} ${["kB", "MB", "GB", "TB"][unit]}`;
}
function msText(ms) {
  if (ms < 1) return `${(ms * 1000).toFixed(ms < 0.01 ? 2 : 1)} \u00b5s`;
  return `${ms.toFixed(ms < 100 ? 2 : 0)} ms`;
}
function countText(n, unit = "") {
  let at = 0;
  while (n >= 999.5 && at < 5) { n /= 1000; at += 1; }
  return `${at ? n.toFixed(n < 100 ? 1 : 0) : n}${at || unit ? " " : ""}${["", "k", "M", "G", "T", "P"][at]}${unit}`;
}
const numberText = (x) => x === null ? "none" : Number(x.toPrecision(5)).toString();
const errorText = (x) => x === null ? "infinite" : x.toExponential(2);
const plural = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

// Values: who makes and who reads each.
for (const value of data.values) { value.from = null; value.to = []; }
data.operators.forEach((op, at) => {
  op.index = at;
  op.steps = [];
  op.notes = [];
  op.outputs.forEach((v) => { data.values[v].from = at; });
  new Set(op.inputs.map((input) => input.value)).forEach((v) => data.values[v].to.push(at));
  op.weightBytes = op.weights.reduce((sum, w) => sum + w.bytes, 0);
  op.error = op.error === undefined ? undefined : op.error === null ? Infinity : op.error;
});
const specOf = (value) => value.planned || value.recorded;

// Steps: which operators each computes, what it costs.
if (plan) {
  plan.steps.forEach((step, at) => {
    step.index = at;
    step.operators = [...new Set([step.operator, ...step.absorbed].filter((o) => o !== null))];
    step.operators.forEach((o) => data.operators[o].steps.push(at));
    step.ms = times ? times.steps[at] || 0 : undefined;
    step.memory = step.scratch;
  });
  for (const place of plan.residents) {
    place.first = place.by === null ? 0 : place.by;
    place.last = place.fetched ? plan.steps.length - 1 : Math.max(place.first, ...place.readers.slice(-1));
    if (place.by !== null && !place.scratch) plan.steps[place.by].memory += place.bytes;
  }
  for (const pass of plan.passes) {
    for (const [list, done] of [[pass.done, true], [pass.refused, false]]) {
      for (const note of list) {
        if (note.operator !== null) data.operators[note.operator].notes.push({ pass: pass.name, done, what: note.what });
      }
    }
  }
}

// The steps of several operators, each once.
function stepsOf(operators) {
  return plan ? [...new Set(operators.flatMap((o) => data.operators[o].steps))].map((s) => plan.steps[s]) : [];
}
const sum = (list, key) => list.reduce((total, item) => total + (item[key] || 0), 0);

// What boxes can be coloured by: the number of their steps and operators, and its text.
const worst = (list) => list.reduce((most, o) => {
  const error = data.operators[o].error;
  return error === undefined ? most : Math.max(most === undefined ? 0 : most, error);
}, undefined);
const MEASURES = {
  type: { name: "operator type" },
  time: {
    name: "time", there: Boolean(times), text: msText,
    of: (steps) => steps.length ? sum(steps, "ms") : undefined,
  },
  memory: {
    name: "memory", there: Boolean(plan), text: bytesText,
    of: (steps) => steps.length ? sum(steps, "memory") : undefined,
  },
  weights: {
    name: "weights", there: data.operators.some((op) => op.weightBytes), text: bytesText,
    of: (_, operators) => operators.reduce((total, o) => total + data.operators[o].weightBytes, 0) || undefined,
  },
  flops: {
    name: "arithmetic", there: Boolean(plan), text: (n) => countText(n, "FLOP"),
    of: (steps) => steps.length ? sum(steps, "flops") : undefined,
  },
  error: {
    name: "error", there: data.operators.some((op) => op.error !== undefined), text: (x) => errorText(x === Infinity ? null : x),
    log: true, of: (_, operators) => worst(operators),
  },
};

// Sorts of operators, by type: each has a colour.
const FAMILIES = [
  ["input", /^pnnx\.(Input|Output)$/],
  ["constant", /^pnnx\.Attribute$|^prim::/],
  ["convolution", /conv|pnnx\.Sdp/i],
  ["attention", /attention/i],
  ["product", /linear|matmul|\bmm\b|bmm|addmm|einsum|baddbmm|bilinear$/i],
  ["recurrent", /lstm|gru|rnn/i],
  ["normalization", /norm/i],
  ["activation", /relu|gelu|silu|sigmoid|tanh|softmax|hardswish|mish|elu|softplus|swish|activation|dropout/i],
  ["pooling", /pool|upsample|interpolate|mean|sum|amax|max|min|arg/i],
  ["arithmetic", /expression|add|mul|sub|div|pow|sqrt|exp|clamp/i],
  ["shape", /view|reshape|permute|flatten|transpose|slice|select|cat|stack|split|chunk|squeeze|expand|shuffle|roll|pad|index|embedding/i],
];
function familyOf(kind) {
  const found = FAMILIES.find(([, words]) => words.test(kind));
  return found ? found[0] : "other";
}

// The graph of the file, and that of the plan, in one form: nodes that lie in scopes, and values
// that one node makes and others read.
function fileGraph() {
  return {
    nodes: data.operators.map((op) => ({
      title: op.kind, label: op.name, scope: op.scope, operators: [op.index], family: familyOf(op.kind),
      pale: Boolean(plan) && !op.steps.length && !op.kind.startsWith("pnnx."), wrong: Boolean(op.unsupported),
    })),
    values: data.values.map((value) => ({ from: value.from, to: value.to, label: `${value.name}: ${specOf(value)}` })),
  };
}
function planGraph() {
  const nodes = plan.steps.map((step) => ({
    title: step.kernel, label: step.name, step: step.index, operators: step.operators, family: familyOf(step.kind),
    scope: step.operator === null ? [] : data.operators[step.operator].scope,
    more: step.operators.length > 1 ? `+${step.operators.length - 1}` : "",
  }));
  const values = [];
  for (const place of plan.residents.filter((p) => !p.scratch && p.space !== "constant")) {
    let from = place.by;
    const to = place.readers.slice();
    const end = (title, index) => nodes.push({ title, label: place.name, scope: [], operators: [], family: "input", place: index }) - 1;
    if (from === null) from = end("input");
    if (place.fetched) to.push(end("output"));
    values.push({ from, to, label: `${place.name}${place.bytes ? `: ${bytesText(place.bytes)}` : ""}` });
  }
  return { nodes, values };
}

// Modules, each inside another: what can be folded.
class Scope {
  constructor(name, parent) {
    Object.assign(this, { name, parent, children: new Map(), nodes: [], folded: true });
    this.path = parent && parent.path ? `${parent.path}.${name}` : name;
    this.key = `m${Scope.count += 1}`;
    this.depth = parent ? parent.depth + 1 : 0;
  }
  // All nodes inside, at any depth.
  all() {
    return [...this.nodes, ...[...this.children.values()].flatMap((child) => child.all())];
  }
  *scopes() {
    yield this;
    for (const child of this.children.values()) yield* child.scopes();
  }
}
Scope.count = 0;
function scopeTree(nodes) {
  const root = new Scope("", null);
  root.folded = false;
  nodes.forEach((node, at) => {
    let scope = root;
    for (const name of node.scope) {
      if (!scope.children.has(name)) scope.children.set(name, new Scope(name, scope));
      scope = scope.children.get(name);
    }
    scope.nodes.push(at);
    node.parent = scope;
  });
  return root;
}
// Unfolds the outer modules, as long as no more than `most` boxes are to be seen.
function unfoldSome(root, most) {
  let seen = root.nodes.length + root.children.size;
  const queue = [...root.children.values()];
  while (queue.length) {
    const scope = queue.shift();
    const more = scope.nodes.length + scope.children.size;
    scope.folded = seen + more > most;
    if (!scope.folded) {
      seen += more;
      queue.push(...scope.children.values());
    }
  }
}
