//! `cargo xtask view-test`: what `plutino view` writes, in a real browser.
//!
//! Pages of small and large models are opened in Chromium without a window and used as a reader
//! would use them; screenshots of each are left in target/view-test. Needs chromium and
//! chromedriver (Debian: apt-get install chromium chromium-driver), and fails without them. What
//! needs no browser is tested with the command (crates/plutino-cli/tests/commands/view.rs).

mod browser;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use plutino_fixtures::Fixture;
use serde_json::json;

use crate::project_root;
use browser::Browser;

/// Open pages of `plutino view` in Chromium and use them; screenshots go to target/view-test
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program that drives the browser.
    #[arg(long, default_value = "chromedriver")]
    driver: PathBuf,
    /// Use this `plutino` [default: that of this repository, built].
    #[arg(long)]
    plutino: Option<PathBuf>,
    /// Only the tests of these names.
    only: Vec<String>,
}

/// A test: what it is called, and what it does with an open browser.
type Test = (&'static str, fn(&mut Bench) -> Result<()>);

const TESTS: &[Test] = &[
    ("digits", digits),
    ("resnet18", resnet18),
    ("minilm", minilm),
    ("hostile", hostile),
    ("large", large),
    ("flat", flat),
    ("unsupported", unsupported),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = project_root()?.join("target/view-test");
    if args.only.is_empty() {
        let _ = fs::remove_dir_all(&folder); // it may not be there
    }
    fs::create_dir_all(&folder)?;
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        let profile = folder.join(format!("profile-{name}"));
        let browser = Browser::start(&args.driver, &profile)?;
        let plutino = args.plutino.clone();
        let mut bench = Bench { browser, folder: folder.clone(), plutino, name };
        test(&mut bench).with_context(|| format!("test {name}"))?;
        let complaints = bench.browser.complaints()?;
        ensure!(complaints.is_empty(), "test {name}: the page complains: {complaints:?}");
        drop(bench);
        let _ = fs::remove_dir_all(&profile); // large, and of no use any more
        println!("{name}: ok");
    }
    println!("screenshots: {}", folder.display());
    Ok(())
}

/// What a test works with.
struct Bench {
    browser: Browser,
    folder: PathBuf,
    plutino: Option<PathBuf>,
    name: &'static str,
}

impl Bench {
    /// Writes the page of a model and opens it.
    fn show(&mut self, model: &Path, more: &[&str]) -> Result<()> {
        let page = self.folder.join(format!("{}.html", self.name));
        let mut command = match &self.plutino {
            Some(plutino) => Command::new(plutino),
            None => {
                let mut cargo = Command::new("cargo");
                cargo.args(["run", "--quiet", "--locked", "-p", "plutino-cli", "--"]);
                cargo
            }
        };
        command.arg("view").arg(model).arg("-o").arg(&page).args(["-n", "1"]).args(more);
        let status = command.status().with_context(|| format!("{command:?}"))?;
        ensure!(status.success(), "{command:?}: {status}");
        self.browser.open(&page)?;
        let ready = self.browser.text("return document.documentElement.dataset.ready || 'not'")?;
        ensure!(ready != "not", "the page is not ready: {:?}", self.browser.complaints()?);
        self.browser.settle()
    }

    /// A fixture, with its weights.
    fn fixture(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(format!("model-{name}"));
        fs::create_dir_all(&folder)?;
        let param = folder.join("model.pnnx.param");
        Fixture::named(name)?.graph()?.save(&param, folder.join("model.pnnx.bin"))?;
        Ok(param)
    }

    fn write(&self, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{}.pnnx.param", self.name));
        fs::write(&path, text)?;
        Ok(path)
    }

    fn picture(&mut self, what: &str) -> Result<()> {
        let file = self.folder.join(format!("{}-{what}.png", self.name));
        self.browser.settle()?;
        self.browser.screenshot(&file)
    }

    fn expect(&mut self, script: &str, wanted: impl Into<serde_json::Value>) -> Result<()> {
        let (found, wanted) = (self.browser.eval(script)?, wanted.into());
        ensure!(found == wanted, "{script}: {found}, not {wanted}");
        Ok(())
    }

    /// That the text of an element contains words.
    fn contains(&mut self, id: &str, words: &[&str]) -> Result<()> {
        let text =
            self.browser.text(&format!("return document.getElementById('{id}').textContent"))?;
        match words.iter().find(|word| !text.contains(**word)) {
            Some(word) => bail!("#{id} does not contain {word:?}: {text}"),
            None => Ok(()),
        }
    }

    fn click(&mut self, id: &str) -> Result<()> {
        self.browser.eval(&format!("document.getElementById('{id}').click()"))?;
        self.browser.settle()
    }

    /// Searches with the keyboard, and goes to the first that is found.
    fn search(&mut self, words: &str) -> Result<()> {
        self.browser.eval("document.activeElement.blur()")?;
        self.browser.keys(&format!("/{words}\u{e007}"))
    }

    fn colour(&mut self, by: &str) -> Result<()> {
        self.browser.eval(&format!(
            "const s = document.getElementById('colour'); s.value = '{by}'; \
             if (s.value !== '{by}') throw new Error('cannot be coloured by {by}'); \
             s.dispatchEvent(new Event('change'))"
        ))?;
        self.browser.settle()
    }

    /// The middle of an element, in pixels.
    fn middle(&mut self, id: &str) -> Result<(i64, i64)> {
        let at = self.browser.eval(&format!(
            "const b = document.getElementById('{id}').getBoundingClientRect(); \
             return [Math.round(b.x + b.width / 2), Math.round(b.y + b.height / 2)]"
        ))?;
        let number = |i: usize| at[i].as_i64().context("no place");
        Ok((number(0)?, number(1)?))
    }

    /// A number that a canvas tells of its picture.
    fn told(&mut self, id: &str, what: &str) -> Result<f64> {
        let script = format!("return document.getElementById('{id}').dataset.{what}");
        Ok(self.browser.text(&script)?.parse()?)
    }

    fn scheme(&mut self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.browser.devtools("Emulation.setEmulatedMedia", &features)?;
        self.browser.settle()
    }
}

/// Every pane, the keyboard, the pointer, dark colours, a narrow window, paper.
fn digits(bench: &mut Bench) -> Result<()> {
    let errors = bench.folder.join("errors.json");
    fs::write(&errors, r#"{"convbn2d_0": 1e-7, "convbn2d_1": 3e-6, "head": null}"#)?;
    let model = project_root()?.join("fixtures/digits/model.pnnx.param");
    let errors = errors.display().to_string();
    bench.show(&model, &["--shape", "4x1x8x8", "--errors", &errors])?;
    bench.expect("return document.title.endsWith('model.pnnx.param')", true)?;
    bench.picture("start")?;
    bench.search("head")?;
    bench.contains("pane-operator", &["nn.Linear", "head", "in_features", "256", "(10,256)f32"])?;
    bench.contains("pane-operator", &["standard deviation", "GFLOP/s", "of a run"])?;
    bench.contains("found", &["1 of 1"])?;
    // It stands in the middle of the canvas: a click there chooses it, one beside it nothing.
    let (x, y) = bench.middle("graph")?;
    bench.browser.drag(&[(x + 300, y)])?;
    bench.contains("pane-operator", &["Model", "12"])?;
    bench.browser.drag(&[(x, y)])?;
    bench.contains("pane-operator", &["nn.Linear"])?;
    bench.browser.hover((x, y + 2))?;
    bench.contains("tip", &["nn.Linear", "head"])?;
    // Up along the edge, by keyboard.
    bench.browser.eval("document.getElementById('graph').focus()")?;
    bench.browser.keys("\u{e013}")?;
    bench.contains("pane-operator", &["torch.flatten"])?;
    let scale = bench.told("graph", "scale")?;
    bench.browser.wheel((x, y), -300)?;
    ensure!(bench.told("graph", "scale")? > scale * 1.2, "the wheel does not zoom");
    let before = bench.told("graph", "left")?;
    bench.browser.drag(&[(x + 200, y), (x + 240, y + 10), (x + 290, y + 20)])?;
    ensure!((bench.told("graph", "left")? - before - 90.0).abs() < 10.0, "dragging does not move");
    bench.browser.keys("0")?;
    for by in ["time", "memory", "weights", "flops", "error", "type"] {
        bench.colour(by)?;
        if by == "time" || by == "error" {
            bench.picture(by)?;
        }
    }
    bench.search("convbn2d_1")?;
    bench.click("tab-plan")?;
    bench.contains("steps", &["convbn2d_1", "kernel", "head"])?;
    bench.expect("return document.querySelectorAll('#steps tr.chosen').length", 1)?;
    bench.picture("plan")?;
    bench.click("tab-memory")?;
    bench.contains("figures", &["arena", "lower bound"])?;
    bench.browser.eval("document.getElementById('arena').focus()")?;
    bench.browser.keys("\u{e014}")?;
    bench.contains("resident", &["value", "steps"])?;
    bench.picture("memory")?;
    bench.click("tab-passes")?;
    bench.contains("pane-passes", &["batch_norm", "fuse", "done"])?;
    bench.picture("passes")?;
    bench.click("tab-operators")?;
    bench.browser.eval("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")?;
    bench.expect("return document.querySelectorAll('#pane-operators tbody tr').length", 12)?;
    bench.picture("operators")?;
    bench.scheme("dark")?;
    bench.search("convbn2d_2")?;
    bench.click("tab-operator")?;
    bench.picture("dark")?;
    let pdf = bench.folder.join("digits.pdf");
    ensure!(bench.browser.print(&pdf)? > 10_000, "the page prints as nothing");
    bench.scheme("light")?;
    let narrow = json!({"width": 420, "height": 800, "deviceScaleFactor": 2, "mobile": true});
    bench.browser.devtools("Emulation.setDeviceMetricsOverride", &narrow)?;
    bench.picture("narrow")
}

/// Modules that fold and unfold.
fn resnet18(bench: &mut Bench) -> Result<()> {
    let model = bench.fixture("resnet18")?;
    bench.show(&model, &["--shape", "1x3x64x64"])?;
    bench.picture("start")?;
    bench.click("fold")?;
    let folded = bench.told("graph", "boxes")?;
    bench.picture("folded")?;
    bench.search("layer2.0.relu")?; // hidden in two modules
    ensure!(bench.told("graph", "boxes")? > folded, "what is found is not unfolded");
    bench.contains("pane-operator", &["layer2.0"])?;
    bench.picture("found")?;
    // Enter folds the module of what is chosen, and unfolds it again.
    bench.browser.eval("document.getElementById('graph').focus()")?;
    let open = bench.told("graph", "boxes")?;
    bench.browser.keys("\u{e007}")?;
    ensure!(bench.told("graph", "boxes")? < open, "Enter does not fold");
    bench.click("unfold")?;
    bench.colour("time")?;
    bench.picture("time")?;
    bench.search("layer3.0.relu")?;
    bench.click("tab-plan")?;
    bench.picture("plan")?;
    bench.click("tab-memory")?;
    bench.picture("memory")
}

/// A transformer, without its weights.
fn minilm(bench: &mut Bench) -> Result<()> {
    let model = bench.fixture("minilm")?;
    bench.show(&model, &[])?;
    bench.picture("start")?;
    bench.search("torch.matmul")?;
    bench.contains("pane-operator", &["torch.matmul", "In the plan"])?;
    bench.picture("found")?;
    bench.click("unfold")?;
    bench.click("fit")?;
    bench.picture("unfolded")?;
    bench.click("tab-plan")?;
    bench.picture("plan")?;
    bench.click("tab-memory")?;
    bench.picture("memory")
}

/// Names that would be markup and scripts.
fn hostile(bench: &mut Bench) -> Result<()> {
    let name = "</script><img/src=x/onerror=document.title='broken'>";
    let model = bench.write(&format!(
        "7767517\n3 2\npnnx.Input <b>in 0 1 <b>0 #<b>0=(1,3)f32\n\
         nn.ReLU {name} 1 1 <b>0 <b>1 #<b>1=(1,3)f32\npnnx.Output {{{{data}}}} 1 0 <b>1\n"
    ))?;
    bench.show(&model, &[])?;
    bench.search("onerror")?;
    bench.contains("pane-operator", &["In the plan", "elementwise"])?;
    for tab in ["plan", "memory", "passes", "operators", "operator"] {
        bench.click(&format!("tab-{tab}"))?;
    }
    bench.contains("pane-operator", &[name])?;
    bench.contains("pane-operators", &[name, "<b>in", "{{data}}"])?;
    bench.expect("return document.images.length", 0)?;
    bench.expect("return document.querySelectorAll('b b, i i, main img').length", 0)?;
    bench.expect("return document.title.endsWith('hostile.pnnx.param')", true)?;
    // The policy holds, whoever puts markup into the page.
    bench.expect(
        "try { document.body.innerHTML = '<p>'; return false } catch { return true }",
        true,
    )?;
    bench.browser.complaints()?; // about that
    bench.picture("start")
}

/// 2,000 operators in modules: folded at first, and usable when all are shown.
fn large(bench: &mut Bench) -> Result<()> {
    let blocks = 333;
    let mut lines = String::from("pnnx.Input in 0 1 0 #0=(1,4,8,8)f32\n");
    for b in 0..blocks {
        let (v, stage) = (b * 6, b / 40);
        let name = format!("stage{stage}.blocks.{}", b % 40);
        for (i, (kind, part)) in
            [("nn.ReLU", "act1"), ("nn.Sigmoid", "gate"), ("nn.Tanh", "inner"), ("nn.ReLU", "act2")]
                .iter()
                .enumerate()
        {
            let (from, to) = (
                if i == 1 {
                    v
                } else if i == 2 {
                    v + 1
                } else {
                    v + i
                },
                v + i + 1,
            );
            writeln!(lines, "{kind} {name}.{part} 1 1 {from} {to} #{to}=(1,4,8,8)f32")?;
        }
        let (a, g, sum, out) = (v + 4, v + 2, v + 5, v + 6);
        writeln!(
            lines,
            "pnnx.Expression pnnx_expr_{b} 2 1 {a} {g} {sum} expr=mul(@0,@1) #{sum}=(1,4,8,8)f32"
        )?;
        writeln!(
            lines,
            "pnnx.Expression pnnx_expr_r{b} 2 1 {sum} {v} {out} expr=add(@0,@1) #{out}=(1,4,8,8)f32"
        )?;
    }
    let end = blocks * 6;
    writeln!(lines, "pnnx.Output out 1 0 {end}")?;
    let model = bench.write(&format!("7767517\n{} {}\n{lines}", end + 2, end + 1))?;
    bench.show(&model, &[])?;
    ensure!(bench.told("graph", "boxes")? < 170.0, "a large graph is not folded");
    bench.picture("start")?;
    bench.search("stage5.blocks.17.gate")?;
    bench.contains("pane-operator", &["nn.Sigmoid", "stage5.blocks.17"])?;
    bench.picture("found")?;
    bench.click("unfold")?;
    ensure!(bench.told("graph", "boxes")? > 2000.0, "not all is unfolded");
    bench.click("fit")?;
    usable(bench)?;
    bench.click("tab-plan")?;
    bench.click("tab-memory")?;
    bench.picture("memory")
}

/// 2,000 operators without modules, with values that are read far away.
fn flat(bench: &mut Bench) -> Result<()> {
    let count = 2000;
    let mut lines = String::from("pnnx.Input in 0 1 0 #0=(1,16)f32\n");
    for i in 0..count {
        let to = i + 1;
        match i % 5 {
            4 => writeln!(
                lines,
                "pnnx.Expression e{i} 2 1 {i} {} {to} expr=add(@0,@1) #{to}=(1,16)f32",
                i / 2
            )?,
            _ => writeln!(lines, "nn.ReLU r{i} 1 1 {i} {to} #{to}=(1,16)f32")?,
        }
    }
    writeln!(lines, "pnnx.Output out 1 0 {count}")?;
    let model = bench.write(&format!("7767517\n{} {}\n{lines}", count + 2, count + 1))?;
    bench.show(&model, &["--no-profile"])?;
    ensure!(bench.told("graph", "boxes")? >= 2002.0, "operators are missing");
    usable(bench)
}

/// A graph of thousands is laid out in seconds and painted in a few frames on a slow machine
/// without a graphics processor: bounds that only an algorithm of a higher order exceeds.
fn usable(bench: &mut Bench) -> Result<()> {
    let layout = bench.told("graph", "arranged")?;
    ensure!(layout < 8000.0, "layout takes {layout} ms");
    let (x, y) = bench.middle("graph")?;
    let mut slowest = 0f64;
    bench.picture("whole")?;
    for zoom in [0, -400, -400, -800] {
        bench.browser.wheel((x, y), zoom)?;
        bench.browser.drag(&[(x, y), (x + 40, y - 30), (x + 80, y - 80)])?;
        slowest = slowest.max(bench.told("graph", "painted")?);
    }
    println!("  layout {layout:.0} ms, slowest painting {slowest:.1} ms");
    ensure!(slowest < 250.0, "painting takes {slowest} ms");
    bench.picture("near")
}

/// Operators that cannot be run, in a model without a plan.
fn unsupported(bench: &mut Bench) -> Result<()> {
    let model = bench.write(
        "7767517\n4 3\npnnx.Input a 0 1 0 #0=(1)f32\nmy.Op m.b 1 1 0 1\nnn.ReLU m.c 1 1 1 2\npnnx.Output d 1 0 2\n",
    )?;
    bench.show(&model, &[])?;
    bench.contains("notes", &["my.Op"])?;
    bench.search("my.Op")?;
    bench.contains("pane-operator", &["not supported"])?;
    bench.click("tab-plan")?;
    bench.contains("pane-plan", &["There is no plan."])?;
    bench.picture("start")
}
