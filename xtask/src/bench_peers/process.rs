//! A worker: one engine with one model in a process of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::protocol::{Command, Reply};

/// How long we wait for an answer. torch.compile takes minutes to load.
const PATIENCE: Duration = Duration::from_secs(900);

/// A running worker. It ends when this is dropped.
pub(super) struct Worker {
    child: Child,
    commands: ChildStdin,
    replies: Receiver<String>,
    log: PathBuf,
}

impl Worker {
    /// Starts a worker; what it prints goes to the file `log`.
    pub(super) fn start(mut process: Process, log: &Path) -> anyhow::Result<Self> {
        let mut child = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log).with_context(|| log.display().to_string())?)
            .spawn()
            .with_context(|| format!("cannot start {process:?}"))?;
        let commands = child.stdin.take().context("the worker's input is a pipe")?;
        let output = child.stdout.take().context("the worker's output is a pipe")?;
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.all(|line| sender.send(line).is_ok())
        });
        Ok(Self { child, commands, replies, log: log.to_owned() })
    }

    /// Gives a command and waits for the answer. A worker that failed or ended is an error, with
    /// its reason.
    pub(super) fn ask(&mut self, command: &Command) -> anyhow::Result<Reply> {
        // A worker that has failed does not read any more: the reason is in what it has answered.
        let _ = writeln!(self.commands, "{}", serde_json::to_string(command)?);
        self.reply()
    }

    /// The next answer.
    pub(super) fn reply(&mut self) -> anyhow::Result<Reply> {
        let line = match self.replies.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("the process ended, {status}{}", self.last_words());
            }
        };
        match serde_json::from_str(&line)
            .with_context(|| format!("the worker answered {line:?}"))?
        {
            Reply::Failed { reason } => bail!("{reason}{}", self.last_words()),
            reply => Ok(reply),
        }
    }

    /// The last lines that the worker printed, in brackets.
    fn last_words(&self) -> String {
        const LINES: usize = 2;
        const CHARS: usize = 200;
        let printed = fs::read(&self.log).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let lines: Vec<_> = printed.lines().filter(|l| !l.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("; ");
        if last.is_empty() {
            return last;
        }
        format!(" ({})", last.chars().take(CHARS).collect::<String>())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Either fails where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Worker {
        let mut process = Process::new("sh");
        process.args(["-c", script]);
        let log = format!("plutino-worker-{}-{name}.log", std::process::id());
        Worker::start(process, &std::env::temp_dir().join(log)).unwrap()
    }

    #[test]
    fn commands_are_answered_line_by_line() {
        let mut worker =
            shell("answer", r#"read x; echo '{"reply":"checked","error":0.5}'; read x"#);
        assert_eq!(worker.ask(&Command::Check).unwrap(), Reply::Checked { error: 0.5 });
        fs::remove_file(&worker.log).unwrap();
    }

    #[test]
    fn a_failure_comes_with_its_reason() {
        let mut worker = shell(
            "failure",
            r#"echo 'layer X not registered' >&2; echo '{"reply":"failed","reason":"cannot load"}'"#,
        );
        let error = worker.ask(&Command::Load).unwrap_err().to_string();
        assert_eq!(error, "cannot load (layer X not registered)");
        let error = worker.ask(&Command::Check).unwrap_err().to_string();
        assert!(error.starts_with("the process ended, exit status: 0"), "{error}");
        fs::remove_file(&worker.log).unwrap();
    }
}
