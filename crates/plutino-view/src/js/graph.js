// Draws a graph on a canvas, as much of it as is to be seen, and lets it be moved and folded.

const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "soft", "line", "box", "inside", "accent", "match", "wrong", "cold", "hot"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  for (const [name] of [...FAMILIES, ["other"]]) theme[name] = style.getPropertyValue(`--kind-${name}`).trim();
}
function mix(a, b, part) {
  const channel = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(channel(a, i) + (channel(b, i) - channel(a, i)) * part));
  return `#${mixed.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
}
const isDark = (color) => [0, 1, 2].reduce((t, i) => t + parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16) * [0.3, 0.59, 0.11][i], 0) < 140;

// Text that is cut where it is too wide. What was measured is remembered.
const cuts = new Map();
function cut(context, text, width) {
  const key = `${context.font}|${width}|${text}`;
  if (!cuts.has(key)) {
    if (cuts.size > 20000) cuts.clear();
    let fits = text;
    if (context.measureText(text).width > width) {
      let [low, high] = [0, text.length];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (context.measureText(text.slice(0, middle) + DOTS).width <= width) low = middle; else high = middle - 1;
      }
      fits = text.slice(0, low) + DOTS;
    }
    cuts.set(key, fits);
  }
  return cuts.get(key);
}

// A canvas that is as sharp as the screen.
function sharpen(canvas, ratio = window.devicePixelRatio || 1) {
  const { clientWidth: w, clientHeight: h } = canvas;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, w, h };
}

class GraphView {
  constructor(canvas, graph, options) {
    Object.assign(this, { canvas, graph, options, scale: 1, x: 0, y: 0, measure: "type", matches: new Set(), marked: new Set() });
    this.root = scopeTree(graph.nodes);
    unfoldSome(this.root, 160);
    this.arrange();
    this.pointers = new Map();
    const on = (name, call) => canvas.addEventListener(name, call.bind(this), name === "wheel" ? { passive: false } : undefined);
    on("wheel", this.onWheel);
    on("pointerdown", this.onDown);
    on("pointermove", this.onMove);
    on("pointerup", this.onUp);
    on("pointercancel", this.onUp);
    on("pointerleave", () => tip(null));
    on("dblclick", (event) => { const box = this.hit(event); if (box && box.scope) this.toggle(box.scope); });
    on("keydown", this.onKey);
    new ResizeObserver(() => { if (!this.fitted && canvas.clientWidth) this.fit(); this.draw(); }).observe(canvas);
  }

  arrange() {
    const start = performance.now();
    const { boxes, lines, width, height } = layoutGraph(this.graph, this.root);
    Object.assign(this, { boxes, lines, width, height });
    this.shown = new Map(); // the box that shows a node
    for (const box of boxes) {
      if (box.open) continue;
      const inside = box.scope ? box.scope.all() : [box.node];
      inside.forEach((node) => this.shown.set(node, box));
      box.nodes = inside;
      box.operators = [...new Set(inside.flatMap((node) => this.graph.nodes[node].operators))];
    }
    this.lines.sort((a, b) => a.y0 - b.y0);
    this.arranged = performance.now() - start;
    this.recolour();
  }

  recolour() {
    const measure = MEASURES[this.measure];
    const leaves = this.boxes.filter((box) => !box.open);
    for (const box of leaves) box.amount = measure.of ? measure.of(this.stepsIn(box), box.operators) : undefined;
    const finite = leaves.map((box) => box.amount).filter((n) => n !== undefined && Number.isFinite(n));
    this.most = finite.reduce((a, b) => Math.max(a, b), 0);
    this.least = finite.filter((n) => n > 0).reduce((a, b) => Math.min(a, b), Infinity);
    for (const box of leaves) box.colour = this.colourOf(box);
    this.draw();
  }
  // In the plan a node is a step, not all the steps of its operators.
  stepsIn(box) {
    if (!this.options.steps) return stepsOf(box.operators);
    return box.nodes.map((node) => plan.steps[this.graph.nodes[node].step]).filter(Boolean);
  }
  colourOf(box) {
    if (this.measure !== "type") return box.amount === undefined ? theme.box : mix(theme.cold, theme.hot, this.part(box.amount));
    if (box.scope) return theme.inside;
    return theme[this.graph.nodes[box.node].family] || theme.other;
  }
  part(amount) {
    if (!(amount > 0)) return 0;
    if (amount === Infinity) return 1;
    if (!MEASURES[this.measure].log) return this.most ? Math.sqrt(amount / this.most) : 0;
    return this.most > this.least ? Math.log(amount / this.least) / Math.log(this.most / this.least) : 1;
  }

  // From what is laid out to the canvas, and back.
  fit() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    if (!w || !h) return;
    this.fitted = true;
    const scale = Math.min(w / (this.width + 40), h / (this.height + 40), 1.2);
    // A tall graph is shown from its top, at a size that can be read.
    this.scale = Math.max(scale, Math.min(0.85, w / (this.width + 40)), 0.02);
    this.x = (w - this.width * this.scale) / 2;
    this.y = this.height * this.scale > h ? 20 : (h - this.height * this.scale) / 2;
    this.draw();
  }
  // All of it; of a graph of thousands as much as does not make it a thread.
  fitAll(least = 0.04) {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const scale = Math.min(w / (this.width + 40), h / (this.height + 40), 1.2);
    this.scale = Math.max(scale, Math.min(least, w / (this.width + 40)), 0.002);
    this.x = (w - this.width * this.scale) / 2;
    this.y = this.height * this.scale > h ? 20 : (h - this.height * this.scale) / 2;
    this.draw();
  }
  // A part of the graph is always in sight.
  hold() {
    const { clientWidth: w, clientHeight: h } = this.canvas, part = 60;
    this.x = Math.min(w - part, Math.max(part - this.width * this.scale, this.x));
    this.y = Math.min(h - part, Math.max(part - this.height * this.scale, this.y));
    this.draw();
  }
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.005, this.scale * factor));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.hold();
  }
  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.hold();
  }
  centre(box) {
    if (!box) return;
    this.scale = Math.max(this.scale, 0.7);
    this.x = this.canvas.clientWidth / 2 - (box.x + box.w / 2) * this.scale;
    this.y = this.canvas.clientHeight / 2 - (box.y + box.h / 2) * this.scale;
    this.fitted = true;
    this.draw();
  }
  position(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }
  // The innermost box at a place of the canvas.
  hit(event) {
    const [px, py] = this.position(event);
    const x = (px - this.x) / this.scale, y = (py - this.y) / this.scale;
    let found = null;
    for (const box of this.boxes) {
      if (x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h) found = box;
    }
    return found;
  }

  // Folds or unfolds a module, which stays where it is on the screen.
  toggle(scope, folded = !scope.folded) {
    const before = this.boxes.find((box) => box.scope === scope);
    scope.folded = folded;
    this.arrange();
    const after = this.boxes.find((box) => box.scope === scope);
    if (before && after) {
      this.x += (before.x + before.w / 2 - after.x - after.w / 2) * this.scale;
      this.y += (before.y - after.y) * this.scale;
    }
    this.draw();
    say(`${scope.path} ${folded ? "folded" : "unfolded"}`);
  }
  foldAll(folded) {
    for (const scope of this.root.scopes()) if (scope.parent) scope.folded = folded;
    this.arrange();
    this.fit();
  }
  // Unfolds whatever hides a node.
  reveal(node) {
    let hidden = false;
    for (let scope = this.graph.nodes[node].parent; scope; scope = scope.parent) {
      hidden = hidden || scope.folded;
      scope.folded = false;
    }
    if (hidden) this.arrange();
    return this.shown.get(node);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }
  paint(ratio) {
    const start = performance.now();
    const { context, w, h } = sharpen(this.canvas, ratio);
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, w, h);
    context.save();
    context.translate(this.x, this.y);
    context.scale(this.scale, this.scale);
    const view = { x0: -this.x / this.scale, y0: -this.y / this.scale };
    view.x1 = view.x0 + w / this.scale;
    view.y1 = view.y0 + h / this.scale;
    const seen = this.boxes.filter((b) => b.x < view.x1 && b.x + b.w > view.x0 && b.y < view.y1 && b.y + b.h > view.y0);
    seen.filter((box) => box.open).forEach((box) => this.paintModule(context, box));
    this.paintLines(context, view);
    seen.filter((box) => !box.open).forEach((box) => this.paintBox(context, box));
    context.restore();
    // For tests.
    const told = { scale: this.scale, left: this.x, top: this.y, boxes: this.boxes.length, arranged: this.arranged, painted: performance.now() - start };
    for (const [name, number] of Object.entries(told)) this.canvas.dataset[name] = number.toFixed(3);
  }
  paintModule(context, box) {
    context.fillStyle = mix(theme.paper, theme.inside, 0.5);
    context.strokeStyle = this.chosen === box.scope ? theme.accent : theme.line;
    context.lineWidth = this.chosen === box.scope ? 2.5 : 1;
    context.beginPath();
    context.roundRect(box.x, box.y, box.w, box.h, 8);
    context.fill();
    context.stroke();
    if (this.scale < 0.25) return;
    context.font = "600 12px system-ui, sans-serif";
    context.fillStyle = theme.soft;
    context.textAlign = "left";
    context.fillText(cut(context, `${MINUS} ${box.scope.name}`, box.w - 16), box.x + 8, box.y + 16);
  }
  paintLines(context, view) {
    const near = new Set();
    const paths = [new Path2D(), new Path2D(), new Path2D()];
    if (this.chosenNodes) this.graph.values.forEach((value, v) => {
      if (this.chosenNodes.has(value.from) || value.to.some((node) => this.chosenNodes.has(node))) near.add(v);
    });
    const heads = [];
    for (const line of this.lines) {
      if (line.y0 > view.y1) break;
      if (line.y1 < view.y0 || line.x0 > view.x1 || line.x1 < view.x0) continue;
      const path = paths[near.has(line.value) ? 1 : line.jump ? 2 : 0];
      let [x, y] = line.points[0];
      path.moveTo(x, y);
      for (let i = 1; i < line.points.length; i += 1) {
        const [nx, ny] = line.points[i];
        if (Math.abs(nx - x) < 0.5 || this.scale < 0.12) path.lineTo(nx, ny);
        else path.bezierCurveTo(x, (y + ny) / 2, nx, (y + ny) / 2, nx, ny);
        [x, y] = [nx, ny];
      }
      if (line.arrow && this.scale > 0.3) heads.push([x, y, near.has(line.value)]);
    }
    context.lineWidth = Math.max(1.2, 0.6 / this.scale);
    context.strokeStyle = theme.line;
    context.stroke(paths[0]);
    context.setLineDash([5, 5]);
    context.stroke(paths[2]);
    context.setLineDash([]);
    context.lineWidth = Math.max(2.2, 1 / this.scale);
    context.strokeStyle = theme.accent;
    context.stroke(paths[1]);
    for (const [x, y, chosen] of heads) {
      context.fillStyle = chosen ? theme.accent : theme.line;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x - 4, y - 7);
      context.lineTo(x + 4, y - 7);
      context.fill();
    }
  }
  paintBox(context, box) {
    const node = box.scope ? null : this.graph.nodes[box.node];
    const is = (set) => set && box.nodes.some((n) => set.has(n));
    const found = this.matches.size && is(this.matches), chosen = is(this.chosenNodes) || (box.scope && this.chosen === box.scope);
    const marked = is(this.marked);
    context.globalAlpha = this.matches.size && !found && !chosen && !marked ? 0.35 : 1;
    context.fillStyle = box.colour;
    context.beginPath();
    context.roundRect(box.x, box.y, box.w, box.h, box.scope ? 8 : 5);
    context.fill();
    context.lineWidth = chosen ? 3 : found || marked ? 2.5 : 1;
    context.strokeStyle = chosen || marked ? theme.accent : found ? theme.match : node && node.wrong ? theme.wrong : theme.line;
    if (node && node.wrong && !chosen) context.lineWidth = 3;
    if ((node && node.pale) || (marked && !chosen)) context.setLineDash([4, 3]);
    context.stroke();
    context.setLineDash([]);
    if (box.scope) {
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(box.x + 3, box.y + 3, box.w - 6, box.h - 6, 5);
      context.stroke();
    }
    if (this.scale >= 0.28) {
      const ink = isDark(box.colour) ? "#ffffff" : "#16181d";
      const amount = box.amount !== undefined && this.measure !== "type" ? MEASURES[this.measure].text(box.amount) : null;
      const title = node ? node.title : `+ ${box.scope.name}`;
      const label = amount !== null && node ? `${amount}${DOT}${node.label}`
        : amount !== null ? `${amount}${DOT}${box.nodes.length}` : node ? node.label : plural(box.nodes.length, this.options.what);
      context.textAlign = "center";
      context.fillStyle = ink;
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(cut(context, node && node.more ? `${title} ${node.more}` : title, box.w - 12), box.x + box.w / 2, box.y + 17);
      context.font = "11px system-ui, sans-serif";
      context.globalAlpha *= 0.85;
      context.fillText(cut(context, label, box.w - 12), box.x + box.w / 2, box.y + 32);
    }
    context.globalAlpha = 1;
  }

  // What is chosen: a set of nodes, or a module.
  choose(nodes, scope = null, marked = []) {
    this.chosen = scope;
    this.chosenNodes = nodes.length ? new Set(nodes) : null;
    this.marked = new Set(marked);
    this.draw();
  }

  onWheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey) return this.pan(-(event.deltaX || event.deltaY) * lines, 0);
    this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...this.position(event));
  }
  onDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.position(event));
    this.moved = 0;
    tip(null);
  }
  onMove(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(event);
    const now = this.position(event);
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      this.zoom(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else {
      this.moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      if (this.moved > 3) this.pan(now[0] - before[0], now[1] - before[1]);
    }
    this.pointers.set(event.pointerId, now);
  }
  onUp(event) {
    if (!this.pointers.delete(event.pointerId) || this.moved > 3 || event.type === "pointercancel") return;
    const box = this.hit(event);
    const glyph = box && box.scope && this.position(event)[0] < this.x + (box.x + 22) * this.scale
      && this.position(event)[1] < this.y + (box.y + TITLE) * this.scale;
    if (glyph) this.toggle(box.scope);
    else this.options.choose(box ? (box.scope ? { scope: box.scope } : { node: box.node }) : null);
  }
  hover(event) {
    const box = this.hit(event);
    this.canvas.style.cursor = box && !box.open ? "pointer" : "grab";
    if (!box || box.open) return tip(null);
    const node = box.scope ? null : this.graph.nodes[box.node];
    const made = this.graph.values.filter((value) => value.from === box.node).map((value) => value.label);
    tip(event, node ? [node.title, node.label, ...made.slice(0, 4)] : [box.scope.path, plural(box.nodes.length, this.options.what)]);
  }
  onKey(event) {
    const step = 60, moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    const key = event.key;
    if (moves[key] && (event.shiftKey || !this.current())) this.pan(...moves[key]);
    else if (moves[key]) this.walk(key);
    else if (key === "+" || key === "=") this.zoom(1.25);
    else if (key === "-") this.zoom(0.8);
    else if (key === "0") this.fitAll();
    else if (key === "Home") this.fit();
    else if (key === "Enter") {
      const box = this.current();
      if (!box && this.boxes.length) this.options.choose(this.targetOf(this.boxes.find((b) => !b.open)));
      else if (box && box.scope) this.toggle(box.scope);
      else if (box && this.graph.nodes[box.node].parent.parent) this.toggle(this.graph.nodes[box.node].parent);
    } else if (key === "Escape") this.options.choose(null);
    else return;
    event.preventDefault();
  }
  targetOf(box) {
    return box.scope ? { scope: box.scope } : { node: box.node };
  }
  current() {
    if (this.chosen) return this.boxes.find((box) => box.scope === this.chosen);
    return this.chosenNodes ? this.shown.get([...this.chosenNodes][0]) : null;
  }
  // To the nearest box along the lines, or beside it.
  walk(key) {
    const here = this.current();
    const centre = (box) => [box.x + box.w / 2, box.y + box.h / 2];
    const inside = new Set(here.nodes || here.scope.all());
    let boxes;
    if (key === "ArrowDown" || key === "ArrowUp") {
      const down = key === "ArrowDown";
      boxes = this.graph.values.flatMap((value) => {
        if (down) return inside.has(value.from) ? value.to.map((node) => this.shown.get(node)) : [];
        return value.from !== null && value.to.some((node) => inside.has(node)) ? [this.shown.get(value.from)] : [];
      });
    } else {
      const side = key === "ArrowRight" ? 1 : -1;
      boxes = this.boxes.filter((box) => !box.open && (centre(box)[0] - centre(here)[0]) * side > 1
        && Math.abs(centre(box)[1] - centre(here)[1]) < here.h);
    }
    const far = (box) => Math.hypot(centre(box)[0] - centre(here)[0], centre(box)[1] - centre(here)[1]);
    const next = boxes.filter((box) => box && box !== here).sort((a, b) => far(a) - far(b))[0];
    if (!next) return;
    this.options.choose(this.targetOf(next));
    this.keepInSight(next);
  }
  keepInSight(box) {
    const x = this.x + box.x * this.scale, y = this.y + box.y * this.scale;
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const out = (at, size, most) => at < 20 ? 20 - at : at + size > most - 20 ? Math.max(most - 20 - at - size, 20 - at) : 0;
    this.pan(out(x, box.w * this.scale, w), out(y, box.h * this.scale, h));
  }
}
