//! A browser without a window, driven through [WebDriver](https://www.w3.org/TR/webdriver2/).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// A session of chromedriver; the browser ends with it.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

/// For one command: a page of thousands of operators takes seconds in a slow browser.
const PATIENCE: Duration = Duration::from_secs(120);

impl Browser {
    /// Starts chromedriver and Chromium, with a profile of its own in `profile`.
    pub(crate) fn start(driver: &Path, profile: &Path) -> Result<Self> {
        let mut child = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                let driver = driver.display();
                format!("cannot start {driver}: Chromium and chromedriver must be installed")
            })?;
        let stdout = child.stdout.take().context("chromedriver has no output")?;
        let mut browser = Self { driver: child, port: 0, session: String::new() };
        for line in BufReader::new(stdout).lines() {
            if let Some((_, port)) = line?.split_once("started successfully on port ") {
                browser.port =
                    port.trim_end_matches('.').parse().context("port of chromedriver")?;
                break;
            }
        }
        ensure!(browser.port > 0, "chromedriver did not tell its port");
        let profile = format!("--user-data-dir={}", profile.display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1440,900",
            &profile,
        ];
        let options = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": args},
        }}});
        let answer = browser.send("POST", "/session", &options)?;
        let session = answer["sessionId"].as_str().context("no session")?;
        browser.session = format!("/session/{session}");
        Ok(browser)
    }

    /// Opens a file.
    pub(crate) fn open(&mut self, page: &Path) -> Result<()> {
        let page = page.canonicalize().with_context(|| page.display().to_string())?;
        self.command("/url", &json!({"url": format!("file://{}", page.display())})).map(|_| ())
    }

    /// What a function body returns in the page.
    pub(crate) fn eval(&mut self, script: &str) -> Result<Value> {
        self.command("/execute/sync", &json!({"script": script, "args": []}))
            .with_context(|| script.to_owned())
    }

    /// [`Browser::eval`] of what must be text.
    pub(crate) fn text(&mut self, script: &str) -> Result<String> {
        let value = self.eval(script)?;
        value.as_str().map(str::to_owned).with_context(|| format!("{script}: {value}"))
    }

    /// Keys, one after the other, wherever the focus is. `\u{e007}` is Enter, `\u{e00c}` Escape.
    pub(crate) fn keys(&mut self, keys: &str) -> Result<()> {
        let press = |key: char| {
            ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key.to_string()}))
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.act(&json!({"type": "key", "id": "keys", "actions": actions}))
    }

    /// Moves the pointer through these places, in pixels, with the button down between the first
    /// and the last: a click where there is one place, else a drag.
    pub(crate) fn drag(&mut self, places: &[(i64, i64)]) -> Result<()> {
        let go =
            |&(x, y): &(i64, i64)| json!({"type": "pointerMove", "duration": 20, "x": x, "y": y});
        let mut actions: Vec<Value> = places.first().map(go).into_iter().collect();
        actions.push(json!({"type": "pointerDown", "button": 0}));
        actions.extend(places.iter().skip(1).map(go));
        actions.push(json!({"type": "pointerUp", "button": 0}));
        let kind = json!({"pointerType": "mouse"});
        self.act(&json!({"type": "pointer", "id": "mouse", "parameters": kind, "actions": actions}))
    }

    /// Moves the pointer there without a button.
    pub(crate) fn hover(&mut self, (x, y): (i64, i64)) -> Result<()> {
        let actions = [json!({"type": "pointerMove", "duration": 20, "x": x, "y": y})];
        let kind = json!({"pointerType": "mouse"});
        self.act(&json!({"type": "pointer", "id": "mouse", "parameters": kind, "actions": actions}))
    }

    /// Turns the wheel at a place.
    pub(crate) fn wheel(&mut self, (x, y): (i64, i64), by: i64) -> Result<()> {
        let actions = [json!({"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": by})];
        self.act(&json!({"type": "wheel", "id": "wheel", "actions": actions}))
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&mut self, command: &str, parameters: &Value) -> Result<()> {
        let body = json!({"cmd": command, "params": parameters});
        self.command("/goog/cdp/execute", &body).map(|_| ())
    }

    /// What the page looks like, as PNG.
    pub(crate) fn screenshot(&mut self, file: &Path) -> Result<()> {
        let path = format!("{}/screenshot", self.session);
        self.save(&path, "GET", &Value::Null, file).map(|_| ())
    }

    /// The page on paper, as PDF; its size in bytes.
    pub(crate) fn print(&mut self, file: &Path) -> Result<usize> {
        let path = format!("{}/print", self.session);
        self.save(&path, "POST", &json!({"background": true, "orientation": "landscape"}), file)
    }

    /// What went wrong in the page since this was last asked.
    pub(crate) fn complaints(&mut self) -> Result<Vec<String>> {
        let log = self.command("/se/log", &json!({"type": "browser"}))?;
        let message = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        Ok(log.as_array().into_iter().flatten().map(message).collect())
    }

    /// Waits until the page shows what was asked for: two frames.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let script = "const done = arguments[0]; \
                      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));";
        self.command("/execute/async", &json!({"script": script, "args": []})).map(|_| ())
    }

    fn act(&mut self, device: &Value) -> Result<()> {
        self.command("/actions", &json!({"actions": [device]}))?;
        self.settle()
    }

    fn save(&mut self, path: &str, method: &str, body: &Value, file: &Path) -> Result<usize> {
        let answer = self.send(method, path, body)?;
        let bytes = decode(answer.as_str().context("no picture")?)?;
        std::fs::write(file, &bytes).with_context(|| file.display().to_string())?;
        Ok(bytes.len())
    }

    fn command(&mut self, path: &str, body: &Value) -> Result<Value> {
        let path = format!("{}{path}", self.session);
        self.send("POST", &path, body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 0 && line != "\r\n" {
            if let Some(("content-length", n)) = line.to_ascii_lowercase().split_once(':') {
                length = n.trim().parse()?;
            }
            line.clear();
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).with_context(|| format!("{method} {path}"))?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => bail!("{path}: {error}: {}", value["message"]),
            None => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.send("DELETE", &self.session, &Value::Null); // it may be gone already
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Base 64, as RFC 4648 has it.
fn decode(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0);
    for c in text.bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => bail!("no base 64"),
        };
        word = word << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend_from_slice(&(word >> bits).to_le_bytes()[..1]);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn examples_of_rfc_4648() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(decode(coded).unwrap(), plain.as_bytes());
        }
    }
}
