//! A picture of the arena over time, as SVG: steps from left to right, bytes from below.

use crate::output::bytes;
use plutino::{Allocation, Plan};
use plutino_view::escape;
use std::fmt::Write;

/// The plot, in pixels.
const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 52.0;

/// What a character of a label takes, about.
const CHARACTER: f64 = 6.2;

/// Fills of values, in turn, so that neighbours can be told apart.
const FILLS: [&str; 6] = ["#4e79a7", "#76b7b2", "#59a14f", "#b6992d", "#9c755f", "#8472b4"];

/// Fill of scratch memory.
const SCRATCH: &str = "#e15759";

/// Draws the arena of a plan; `title` is what stands above.
pub(crate) fn draw(plan: &Plan, title: &str) -> String {
    let picture = Picture {
        steps: plan.steps().len().max(1),
        size: plan.memory().arena.max(1),
        svg: String::new(),
    };
    picture.draw(plan, title)
}

struct Picture {
    steps: usize,
    size: usize,
    svg: String,
}

impl Picture {
    fn draw(mut self, plan: &Plan, title: &str) -> String {
        let (width, height) = (LEFT + WIDTH + 24.0, TOP + HEIGHT + 74.0);
        self.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"11\">"
        ));
        self.line(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"));
        let memory = plan.memory();
        self.line(format_args!(
            "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"600\">{}</text>",
            escape(title)
        ));
        self.line(format_args!(
            "<text x=\"{LEFT}\" y=\"40\" fill=\"#555\">arena {}; most in use at one time {}; every \
             value in memory of its own {}</text>",
            bytes(memory.arena as u64),
            bytes(memory.lower_bound as u64),
            bytes(memory.unshared as u64)
        ));
        self.axes();
        let live = plan.live_bytes();
        self.steps(plan, &live);
        for (i, allocation) in plan.allocations().iter().enumerate() {
            self.piece(allocation, FILLS[i % FILLS.len()]);
        }
        self.live(&live);
        self.legend();
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "{text}");
    }

    fn x(&self, step: usize) -> f64 {
        LEFT + WIDTH * step as f64 / self.steps as f64
    }

    fn y(&self, offset: usize) -> f64 {
        TOP + HEIGHT * (1.0 - offset as f64 / self.size as f64)
    }

    /// Lines and numbers at round places.
    fn axes(&mut self) {
        let bottom = TOP + HEIGHT;
        for offset in ticks(self.size, 8) {
            let y = self.y(offset);
            self.line(format_args!(
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT + WIDTH,
                LEFT - 8.0,
                y + 4.0,
                bytes(offset as u64)
            ));
        }
        let steps = self.steps;
        for step in ticks(steps, 16).filter(|step| *step < steps) {
            let x = (self.x(step) + self.x(step + 1)) / 2.0;
            self.line(format_args!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{step}</text>",
                bottom + 16.0
            ));
        }
        self.line(format_args!(
            "<path d=\"M{LEFT} {TOP}V{bottom}H{}\" fill=\"none\" stroke=\"#333\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#333\">step</text>",
            LEFT + WIDTH,
            LEFT + WIDTH / 2.0,
            bottom + 34.0
        ));
    }

    /// A strip for each step, seen when the mouse is over it where nothing lies.
    fn steps(&mut self, plan: &Plan, live: &[usize]) {
        for (i, step) in plan.steps().enumerate() {
            let (x, width) = (self.x(i), WIDTH / self.steps as f64);
            let live = live.get(i).copied().unwrap_or(0);
            self.line(format_args!(
                "<rect x=\"{x:.2}\" y=\"{TOP}\" width=\"{width:.2}\" height=\"{HEIGHT}\" \
                 fill=\"#000\" fill-opacity=\"{}\"><title>step {i}: {} {}\n{}\n{} in use</title></rect>",
                if i % 2 == 0 { "0.015" } else { "0" },
                escape(&step.location.kind),
                escape(&step.location.name),
                escape(&step.kernel),
                bytes(live as u64)
            ));
        }
    }

    fn piece(&mut self, a: &Allocation, fill: &str) {
        let last = a.freed_by.unwrap_or(self.steps.saturating_sub(1));
        let (left, right) = (self.x(a.step), self.x(last + 1));
        let (top, bottom) = (self.y(a.offset.saturating_add(a.bytes)), self.y(a.offset));
        let (width, height) = (right - left, (bottom - top).max(0.5));
        let scratch = a.values.is_empty();
        let fill = if scratch { SCRATCH } else { fill };
        let names = if scratch { "scratch".to_owned() } else { a.values.join(", ") };
        let until = match a.freed_by {
            Some(last) => format!("steps {} to {last}", a.step),
            None => format!("step {} to the end: a result", a.step),
        };
        self.line(format_args!(
            "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{fill}\" fill-opacity=\"0.82\" stroke=\"#fff\" stroke-width=\"0.6\"><title>{}\n{}, \
             from byte {} on\n{until}</title></rect>",
            escape(&names),
            bytes(a.bytes as u64),
            a.offset
        ));
        let short = match &a.values[..] {
            [] => "scratch".to_owned(),
            [one] => one.clone(),
            [first, .., last] => format!("{first} … {last}"),
        };
        let room = short.chars().count() as f64 * CHARACTER + 6.0;
        if width >= room && height >= 13.0 {
            self.line(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#fff\" \
                 pointer-events=\"none\">{}</text>",
                (left + right) / 2.0,
                (top + bottom) / 2.0 + 4.0,
                escape(&short)
            ));
        }
    }

    /// How much is in use, as stairs.
    fn live(&mut self, live: &[usize]) {
        let mut path = String::new();
        for (step, &in_use) in live.iter().enumerate() {
            let command = if step == 0 { "M" } else { "L" };
            let y = self.y(in_use.min(self.size));
            let _ = write!(path, "{command}{:.2} {y:.2}H{:.2}", self.x(step), self.x(step + 1));
        }
        self.line(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"#111\" stroke-width=\"1.6\" \
             stroke-dasharray=\"5 3\" pointer-events=\"none\"/>"
        ));
    }

    fn legend(&mut self) {
        let y = TOP + HEIGHT + 58.0;
        self.line(format_args!(
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{y}\">a \
             value, from the step that makes it to the last that needs it</text>",
            y - 10.0,
            FILLS[0],
            LEFT + 18.0
        ));
        self.line(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{SCRATCH}\"/><text x=\"{}\" \
             y=\"{y}\">scratch memory of a step</text>",
            LEFT + 380.0,
            y - 10.0,
            LEFT + 398.0
        ));
        self.line(format_args!(
            "<path d=\"M{} {}h24\" stroke=\"#111\" stroke-width=\"1.6\" stroke-dasharray=\"5 3\"/><text \
             x=\"{}\" y=\"{y}\">bytes in use</text>",
            LEFT + 580.0,
            y - 4.0,
            LEFT + 612.0
        ));
    }
}

/// Round numbers from 0 to `most`, a few of them: `about` at most.
fn ticks(most: usize, about: usize) -> impl Iterator<Item = usize> {
    let rough = (most / about.max(1)).max(1);
    let power = 10usize.pow(rough.ilog10());
    let round = [1, 2, 5, 10].into_iter().map(|n| power.saturating_mul(n));
    let step = round.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    (0..=most).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers() {
        let all = |most, about| ticks(most, about).collect::<Vec<_>>();
        assert_eq!(all(10, 5), [0, 2, 4, 6, 8, 10]);
        assert_eq!(all(0, 8), [0]);
        assert_eq!(all(3_211_264, 4), [0, 1_000_000, 2_000_000, 3_000_000]);
        assert!(ticks(usize::MAX, 8).take(100).count() <= 9);
    }
}
