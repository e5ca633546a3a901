// The arena over time: each value is a rectangle, as wide as the steps during which it is needed
// and as high as its bytes.

class ArenaView {
  constructor(canvas, choose) {
    Object.assign(this, { canvas, choose, chosen: null, margin: { left: 64, right: 12, top: 10, bottom: 34 } });
    this.places = plan.residents.filter((place) => place.space === "arena" && place.bytes);
    canvas.addEventListener("pointermove", (event) => {
      const place = this.hit(event);
      canvas.style.cursor = place ? "pointer" : "default";
      tip(place ? event : null, place && this.words(place));
    });
    canvas.addEventListener("pointerleave", () => tip(null));
    canvas.addEventListener("click", (event) => this.select(this.hit(event)));
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!move || !this.places.length) return;
      event.preventDefault();
      const at = this.places.indexOf(this.chosen);
      this.select(this.places[(at + move + this.places.length) % this.places.length]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }
  words(place) {
    const step = plan.steps[place.by];
    return [
      place.scratch ? `scratch of ${place.name}` : `value ${place.name}`,
      `${bytesText(place.bytes)} at ${place.offset.toLocaleString("en")}`,
      `steps ${place.first} to ${place.last}` + (place.fetched ? ", fetched" : ""),
      step ? `by ${step.name} (${step.kernel})` : "",
    ].filter(Boolean);
  }
  select(place) {
    this.chosen = place;
    $("resident").textContent = place ? this.words(place).join(DOT) : "";
    this.draw();
    if (place && place.by !== null) this.choose(place.by);
  }
  mark(steps) {
    this.marked = new Set(steps);
    this.draw();
  }
  scales() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const { left, right, top, bottom } = this.margin;
    const wide = (w - left - right) / Math.max(1, plan.steps.length), high = (h - top - bottom) / Math.max(1, plan.memory.arena);
    return { w, h, x: (step) => left + step * wide, y: (offset) => h - bottom - offset * high };
  }
  hit(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const { x, y } = this.scales();
    const inside = (p) => px >= x(p.first) && px < x(p.last + 1) && py <= y(p.offset) && py >= y(p.offset + p.bytes);
    return this.places.findLast(inside) || null;
  }
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }
  paint(ratio) {
    const { context, w, h } = sharpen(this.canvas, ratio);
    const { x, y } = this.scales();
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, w, h);
    context.font = "11px system-ui, sans-serif";
    if (!this.places.length) {
      context.fillStyle = theme.soft;
      context.textAlign = "center";
      context.fillText("Nothing lies in the arena.", w / 2, h / 2);
      return;
    }
    this.paintAxes(context, x, y, w, h);
    for (const place of this.places) {
      const [x0, x1, y0, y1] = [x(place.first), x(place.last + 1), y(place.offset + place.bytes), y(place.offset)];
      const step = plan.steps[place.by];
      const colour = place.scratch ? theme.inside : theme[familyOf(step ? step.kind : "")] || theme.other;
      const marked = this.marked && this.marked.has(place.by);
      context.fillStyle = colour;
      context.strokeStyle = place === this.chosen || marked ? theme.accent : theme.paper;
      context.lineWidth = place === this.chosen ? 3 : marked ? 2 : 1;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      if (x1 - x0 > 3 || marked || place === this.chosen) context.strokeRect(x0 + 0.5, y0 + 0.5, x1 - x0 - 1, y1 - y0 - 1);
      if (x1 - x0 > 26 && y1 - y0 > 13) {
        context.fillStyle = isDark(colour) ? "#ffffff" : "#16181d";
        context.textAlign = "left";
        context.fillText(cut(context, place.scratch ? "scratch" : place.name, Math.round(x1 - x0 - 8)), x0 + 4, Math.min(y1 - 4, y0 + 14));
      }
    }
    const bound = y(plan.memory.lower_bound);
    context.strokeStyle = theme.accent;
    context.lineWidth = 1;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(this.margin.left, bound);
    context.lineTo(w - this.margin.right, bound);
    context.stroke();
    context.setLineDash([]);
  }
  paintAxes(context, x, y, w, h) {
    context.strokeStyle = mix(theme.paper, theme.line, 0.5);
    context.fillStyle = theme.soft;
    context.lineWidth = 1;
    context.textAlign = "right";
    for (let i = 0; i <= 4; i += 1) {
      const offset = plan.memory.arena * i / 4, at = Math.round(y(offset)) + 0.5;
      context.beginPath();
      context.moveTo(this.margin.left, at);
      context.lineTo(w - this.margin.right, at);
      context.stroke();
      context.fillText(bytesText(Math.round(offset)), this.margin.left - 6, at + 4);
    }
    context.textAlign = "center";
    const count = plan.steps.length, every = niceStep(count / Math.max(2, Math.floor(w / 70)));
    for (let step = 0; step < count; step += every) context.fillText(String(step), x(step + 0.5), h - this.margin.bottom + 14);
    context.fillText("step", w / 2, h - 4);
  }
}
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) || 1;
}
