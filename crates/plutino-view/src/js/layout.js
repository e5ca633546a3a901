// Layered layout (Sugiyama, Tagawa and Toda, IEEE Transactions on Systems, Man and Cybernetics 11,
// 1981), module by module: what is inside of a module is laid out first, and is one box for the
// module around it. A value that leaves a module has a port at its lower edge, one that enters it a
// port at its upper edge. Everything is of the order of n log n; values that are read far away are
// drawn as a straight line where the bends would be too many.

const GAP_X = 18, GAP_Y = 34, PAD = 12, TITLE = 24, BOX_HEIGHT = 40, CENTRE = 0.15, MOST_BENDS = 12000;

// Boxes and lines of a graph. `nodes` and `values` are those of fileGraph; modules that are folded
// are one box.
function layoutGraph(graph, root) {
  const levels = new Map();
  const levelOf = (scope) => {
    if (!levels.has(scope)) levels.set(scope, { scope, items: new Map(), links: [], known: new Set() });
    return levels.get(scope);
  };
  const paths = graph.nodes.map((node, at) => {
    const path = [];
    for (let scope = node.parent; scope; scope = scope.parent) path.unshift(scope);
    const folded = path.findIndex((scope) => scope.folded);
    const item = folded < 0 ? { key: `n${at}`, node: at, first: at } : null;
    const open = folded < 0 ? path : path.slice(0, folded);
    const own = item || { key: path[folded].key, scope: path[folded], first: at };
    open.forEach((scope, depth) => {
      const level = levelOf(scope);
      const inner = depth + 1 < open.length ? { key: open[depth + 1].key, scope: open[depth + 1], open: true, first: at } : own;
      if (!level.items.has(inner.key)) level.items.set(inner.key, inner);
    });
    return { open, key: own.key };
  });
  levelOf(root);
  const link = (scope, value, from, to) => {
    const level = levelOf(scope), key = `${value} ${from} ${to}`;
    if (level.known.has(key)) return;
    level.known.add(key);
    level.links.push({ value, from, to });
  };
  graph.values.forEach((value, v) => {
    if (value.from === null) return;
    const source = paths[value.from];
    for (const reader of value.to) {
      const target = paths[reader];
      let common = 0;
      while (common < source.open.length && source.open[common] === target.open[common]) common += 1;
      const inner = (path, depth) => depth < path.open.length ? path.open[depth].key : path.key;
      const [from, to] = [inner(source, common), inner(target, common)];
      if (from === to) continue;
      link(source.open[common - 1], v, from, to);
      for (let depth = common; depth < source.open.length; depth += 1) link(source.open[depth], v, inner(source, depth + 1), "out");
      for (let depth = common; depth < target.open.length; depth += 1) link(target.open[depth], v, "in", inner(target, depth + 1));
    }
  });
  // Inner modules first: deeper ones are smaller.
  const order = [...levels.values()].sort((a, b) => b.scope.depth - a.scope.depth);
  const done = new Map();
  for (const level of order) done.set(level.scope, layoutLevel(level, graph, done));
  const boxes = [], lines = [];
  place(done.get(root), done, 0, 0, boxes, lines);
  const size = done.get(root);
  return { boxes, lines, width: size.width, height: size.height };
}

// Puts a level and what is inside of it where they lie.
function place(level, done, x, y, boxes, lines) {
  for (const item of level.nodes) {
    if (item.port || item.bend) continue;
    const box = { x: x + item.x, y: y + item.y, w: item.w, h: item.h, scope: item.item.scope, node: item.item.node, open: item.item.open };
    boxes.push(box);
    if (item.item.open) place(done.get(item.item.scope), done, box.x, box.y, boxes, lines);
  }
  for (const line of level.lines) {
    const points = line.points.map(([px, py]) => [x + px, y + py]);
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
    lines.push({
      value: line.value, points, jump: line.jump, arrow: line.arrow,
      x0: Math.min(...xs), x1: Math.max(...xs), y0: Math.min(...ys), y1: Math.max(...ys),
    });
  }
}

// With room for a number before the name.
function boxWidth(node) {
  const letters = Math.max(node.title.length * 7.7 + (node.more ? 20 : 0), node.label.length * 6.6 + (plan ? 56 : 0));
  return Math.round(Math.min(230, Math.max(84, letters + 22)));
}

function layoutLevel(level, graph, done) {
  const nodes = [], index = new Map();
  const add = (key, node) => { index.set(key, nodes.length); nodes.push(node); return nodes.length - 1; };
  for (const item of level.items.values()) {
    let size;
    if (item.open) size = { w: done.get(item.scope).width, h: done.get(item.scope).height };
    else if (item.scope) size = { w: boxWidth({ title: item.scope.name, label: "0000 operators  " }) + 16, h: BOX_HEIGHT };
    else size = { w: boxWidth(graph.nodes[item.node]), h: BOX_HEIGHT };
    add(item.key, { item, ...size, first: item.first, ins: [], outs: [] });
  }
  // One link for each value, maker and reader; ports for values that come from outside or leave.
  const links = [];
  for (const { value, from, to } of level.links) {
    const port = (end, at) => {
      const key = `${end}${value}`;
      return index.has(key) ? index.get(key) : add(key, { port: end, value, w: 4, h: 0, first: nodes[at].first, ins: [], outs: [] });
    };
    const a = from === "in" ? port("in", index.get(to)) : index.get(from);
    const b = to === "out" ? port("out", index.get(from)) : index.get(to);
    links.push({ value, from: a, to: b });
  }
  const layers = assignLayers(nodes, links);
  const rows = bend(nodes, links, layers);
  const inner = (at, value, end) => {
    const node = nodes[at];
    const ports = node.item && node.item.open && done.get(node.item.scope)[end];
    return ports && ports.has(value) ? ports.get(value) : node.w / 2;
  };
  for (const node of nodes) {
    node.ins.forEach((e) => { e.offsets = [inner(e.from, e.value, "outs"), inner(e.to, e.value, "ins")]; });
  }
  orderRows(rows, nodes);
  alignRows(rows, nodes);
  return measure(level, nodes, links, rows, inner);
}

// Marks links that close a circle, and finds a layer for each node: behind all that it reads.
function assignLayers(nodes, links) {
  const outs = nodes.map(() => []), degree = new Array(nodes.length).fill(0);
  links.forEach((link) => outs[link.from].push(link));
  const state = new Uint8Array(nodes.length);
  for (let start = 0; start < nodes.length; start += 1) {
    if (state[start]) continue;
    const stack = [[start, 0]];
    state[start] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1];
      const link = outs[top[0]][top[1]];
      top[1] += 1;
      if (!link) { state[top[0]] = 2; stack.pop(); }
      else if (state[link.to] === 1) link.back = true;
      else if (!state[link.to]) { state[link.to] = 1; stack.push([link.to, 0]); }
    }
  }
  links.forEach((link) => { if (!link.back) degree[link.to] += 1; });
  const layers = new Array(nodes.length).fill(0), sources = degree.map((d) => d === 0);
  const ready = nodes.map((_, at) => at).filter((at) => sources[at]);
  const ports = nodes.some((node) => node.port === "in");
  nodes.forEach((node, at) => { layers[at] = ports && node.port !== "in" ? 1 : 0; });
  const order = [];
  while (ready.length) {
    const at = ready.pop();
    order.push(at);
    for (const link of outs[at]) {
      if (link.back) continue;
      layers[link.to] = Math.max(layers[link.to], layers[at] + 1);
      degree[link.to] -= 1;
      if (!degree[link.to]) ready.push(link.to);
    }
  }
  // What reads nothing stands right above its first reader.
  for (const at of order) {
    const readers = outs[at].filter((link) => !link.back).map((link) => layers[link.to]);
    if (sources[at] && readers.length && nodes[at].port !== "in") layers[at] = readers.reduce((a, b) => Math.min(a, b)) - 1;
  }
  const last = layers.reduce((most, layer, at) => nodes[at].port === "out" ? most : Math.max(most, layer), 0);
  nodes.forEach((node, at) => { if (node.port === "out") layers[at] = last + 1; });
  return layers;
}

// Rows of nodes, with a bend in every row that a value passes; all readers share them.
function bend(nodes, links, layers) {
  const spans = links.map((link) => layers[link.to] - layers[link.from] - 1).sort((a, b) => b - a);
  let bends = spans.reduce((total, span) => total + Math.max(0, span), 0), longest = Infinity;
  for (const span of spans) {
    if (bends <= MOST_BENDS) break;
    bends -= span;
    longest = Math.min(longest, span - 1);
  }
  const groups = new Map();
  for (const link of links) {
    const span = layers[link.to] - layers[link.from];
    link.jump = link.back || span < 1 || span - 1 > longest;
    if (link.jump) continue;
    const key = `${link.value}/${link.from}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(link);
  }
  const connect = (from, to, value) => {
    const edge = { from, to, value };
    nodes[from].outs.push(edge);
    nodes[to].ins.push(edge);
  };
  for (const group of groups.values()) {
    group.sort((a, b) => layers[a.to] - layers[b.to]);
    const chain = [];
    const { from, value } = group[0];
    for (const link of group) {
      const needed = layers[link.to] - layers[from] - 1;
      while (chain.length < needed) {
        const at = nodes.length;
        nodes.push({ bend: true, w: 2, h: 0, first: nodes[link.to].first, ins: [], outs: [] });
        layers.push(layers[from] + chain.length + 1);
        connect(chain.length ? chain[chain.length - 1] : from, at, value);
        chain.push(at);
      }
      connect(needed ? chain[needed - 1] : from, link.to, value);
      link.chain = chain.slice(0, needed);
    }
  }
  const rows = [];
  layers.forEach((layer, at) => { (rows[layer] = rows[layer] || []).push(at); });
  return Array.from(rows, (row) => row || []);
}

// Orders rows so that few lines cross: each node goes to the mean place of its neighbours, down
// and up again, and the best order is kept.
function orderRows(rows, nodes) {
  rows.forEach((row) => row.sort((a, b) => nodes[a].first - nodes[b].first));
  const number = () => rows.forEach((row) => row.forEach((at, i) => { nodes[at].rank = i; }));
  number();
  let best = rows.map((row) => row.slice()), least = crossings(rows, nodes);
  for (let round = 0; round < 8 && least > 0; round += 1) {
    const down = round % 2 === 0;
    const list = down ? rows.slice(1) : rows.slice(0, -1).reverse();
    for (const row of list) {
      for (const at of row) {
        const near = (down ? nodes[at].ins : nodes[at].outs).map((e) => spot(nodes, e, down ? 0 : 1));
        nodes[at].mean = near.length ? near.reduce((total, x) => total + x, 0) / near.length : nodes[at].rank;
      }
      row.sort((a, b) => nodes[a].mean - nodes[b].mean || nodes[a].rank - nodes[b].rank);
      row.forEach((at, i) => { nodes[at].rank = i; });
    }
    const count = crossings(rows, nodes);
    if (count < least) [least, best] = [count, rows.map((row) => row.slice())];
  }
  best.forEach((row, i) => { rows[i] = row; });
  number();
}

// Where a line starts (0) or ends (1) in its row: modules have ports side by side.
function spot(nodes, edge, end) {
  const node = nodes[end ? edge.to : edge.from];
  return node.rank + edge.offsets[end] / (node.w + 1);
}

// Pairs of lines that cross (Barth, Juenger and Mutzel, Journal of Graph Algorithms and
// Applications 8, 2004): inversions, counted with a tree of sums.
function crossings(rows, nodes) {
  let count = 0;
  for (const row of rows) {
    const lines = row.flatMap((at) => nodes[at].outs.map((e) => [spot(nodes, e, 0), spot(nodes, e, 1)]));
    lines.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const ends = [...new Set(lines.map((line) => line[1]))].sort((a, b) => a - b);
    const place = new Map(ends.map((end, i) => [end, i + 1]));
    const tree = new Uint32Array(ends.length + 1);
    lines.forEach((line, seen) => {
      let below = 0;
      for (let k = place.get(line[1]); k > 0; k -= k & -k) below += tree[k];
      count += seen - below;
      for (let k = place.get(line[1]); k <= ends.length; k += k & -k) tree[k] += 1;
    });
  }
  return count;
}

// Finds a place for each node that is near those of its neighbours, in the order of its row. The
// best places of a row are an isotonic regression: pools of adjacent violators.
function alignRows(rows, nodes) {
  for (const row of rows) {
    let x = 0;
    for (const at of row) { nodes[at].x = x; x += nodes[at].w + gap(nodes[at]); }
    row.forEach((at) => { nodes[at].x -= x / 2; });
  }
  const wish = (at, ins, outs) => {
    // A little to the middle: chains of modules with an entry and an exit at different sides would
    // drift away.
    let total = -CENTRE * nodes[at].w / 2, weight = CENTRE;
    const pull = (other, own, theirs, stiff) => { total += stiff * (nodes[other].x + theirs - own); weight += stiff; };
    const stiff = (other) => nodes[at].bend && nodes[other].bend ? 8 : nodes[at].bend || nodes[other].bend ? 2 : 1;
    if (ins) nodes[at].ins.forEach((e) => pull(e.from, e.offsets[1], e.offsets[0], stiff(e.from)));
    if (outs) nodes[at].outs.forEach((e) => pull(e.to, e.offsets[0], e.offsets[1], stiff(e.to)));
    return weight > CENTRE ? [total / weight, weight] : [nodes[at].x, 0.1];
  };
  for (let round = 0; round < 12; round += 1) {
    const down = round % 2 === 0, both = round >= 8;
    for (const row of down ? rows : rows.slice().reverse()) settle(row, nodes, (at) => wish(at, down || both, !down || both));
  }
}
const gap = (node) => node.bend || node.port ? 8 : GAP_X;

function settle(row, nodes, wish) {
  const pools = [];
  let before = 0;
  for (const at of row) {
    const [want, weight] = wish(at);
    let pool = { at: want - before, weight, items: [[at, before]] };
    while (pools.length && pools[pools.length - 1].at >= pool.at) {
      const last = pools.pop();
      const both = last.weight + pool.weight;
      const items = last.items;
      for (const item of pool.items) items.push(item);
      pool = { at: (last.at * last.weight + pool.at * pool.weight) / both, weight: both, items };
    }
    pools.push(pool);
    before += nodes[at].w + gap(nodes[at]);
  }
  for (const pool of pools) for (const [at, offset] of pool.items) nodes[at].x = pool.at + offset;
}

// Heights of rows, the size of the whole, and the lines.
function measure(level, nodes, links, rows, inner) {
  const isRoot = !level.scope.parent;
  let left = Infinity, right = -Infinity;
  for (const node of nodes) { left = Math.min(left, node.x); right = Math.max(right, node.x + node.w); }
  if (!nodes.length) { left = 0; right = 0; }
  const title = isRoot ? 0 : level.scope.name.length * 7 + 44;
  const margin = isRoot ? 0 : PAD, spare = Math.max(0, title - (right - left) - 2 * PAD) / 2;
  const shift = margin + spare - left;
  nodes.forEach((node) => { node.x += shift; });
  let y = isRoot ? 0 : TITLE;
  const tops = [];
  rows.forEach((row, i) => {
    const height = row.reduce((most, at) => Math.max(most, nodes[at].h), 0);
    tops.push([y, y + height]);
    for (const at of row) {
      const node = nodes[at];
      node.y = node.bend ? y : y + (height - node.h) / 2;
      node.low = node.bend ? y + height : node.y + node.h;
    }
    const ports = (r) => r.every((at) => nodes[at].port);
    if (i + 1 < rows.length) y += height + (ports(row) || ports(rows[i + 1]) ? 10 : GAP_Y);
    else y += height;
  });
  const width = right - left + 2 * (margin + spare), height = y + (isRoot ? 0 : PAD);
  const ports = { in: new Map(), out: new Map() };
  for (const node of nodes) {
    if (!node.port) continue;
    ports[node.port].set(node.value, node.x + node.w / 2);
    node.y = node.low = node.port === "in" ? 0 : height;
  }
  const lines = links.map((link) => {
    const [a, b] = [nodes[link.from], nodes[link.to]];
    const points = [[a.x + (a.port ? a.w / 2 : inner(link.from, link.value, "outs")), a.low]];
    for (const at of link.chain || []) {
      const bendX = nodes[at].x + nodes[at].w / 2;
      points.push([bendX, nodes[at].y]);
      if (nodes[at].low > nodes[at].y) points.push([bendX, nodes[at].low]);
    }
    points.push([b.x + (b.port ? b.w / 2 : inner(link.to, link.value, "ins")), b.y]);
    return { value: link.value, points, jump: link.jump, arrow: !b.port && !(b.item && b.item.open) };
  });
  return { nodes, lines, width, height, ins: ports.in, outs: ports.out };
}
