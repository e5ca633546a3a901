//! Progress: shown on a terminal while work goes on, and nowhere else.

use crate::timeouts::Endless;
use crate::{digits, json, ok};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

/// Clears the line that the cursor is in.
const CLEAR: &str = "\x1b[2K";

/// Runs the command with a terminal as standard error; its exit code, what it printed to standard
/// output, and all that it sent to the terminal.
fn on_terminal(args: &[&str]) -> (Option<i32>, String, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("plutino"));
    command.args(args).env("TERM", "xterm").stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(terminal).spawn().unwrap();
    drop(command); // and its end of the terminal
    let reader = std::thread::spawn(move || {
        let (mut master, mut shown, mut buffer) = (File::from(master), Vec::new(), [0; 4096]);
        // Ends with an error, once nobody has the terminal open any more.
        while let Ok(n @ 1..) = master.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..n]);
        }
        shown
    });
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(reader.join().unwrap()))
}

/// What stands in the line of the cursor at the end.
fn left(shown: &str) -> &str {
    shown.rsplit_once(CLEAR).map_or(shown, |(_, rest)| rest)
}

#[test]
fn a_bar_is_shown_on_a_terminal_and_nowhere_else() {
    let args = ["bench", &digits("model.pnnx.param"), "--shape", "1x1x8x8", "-n", "20", "--json"];
    let (code, out, shown) = on_terminal(&args);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("running") && shown.contains("/23"), "{shown:?}");
    assert_eq!(left(&shown).trim(), "", "{shown:?}");
    // Standard output has one JSON object and nothing else, whoever looks.
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["runs"], 20);
    assert_eq!(json(&args)["runs"], 20); // and nothing on standard error: `ok` looks
    assert!(!ok(&args[..6]).contains("running"));
}

#[test]
fn a_spinner_is_shown_and_gone_before_the_error() {
    let endless = Endless::new();
    let args = endless.args(&["run"], "1");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, out, shown) = on_terminal(&args);
    assert_eq!((code, out.as_str()), (Some(4), ""), "{shown}");
    let (spinner, rest) = shown.rsplit_once(CLEAR).unwrap();
    assert!(spinner.contains("running"), "{shown:?}");
    assert!(rest.contains("error: ") && !rest.contains("running"), "{shown:?}");
}
