//! The Python interpreter that chores run their scripts with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, ensure};

/// Names the interpreter to use in place of the one in `.venv`.
const PYTHON: &str = "PLUTINO_PYTHON";

/// Where the scripts lie, below the project's root.
pub(crate) const SCRIPTS: &str = "xtask/python";

/// An interpreter that has the packages of these files of [`SCRIPTS`]: the one of a virtual
/// environment, which is made or brought up to date where it has to be.
pub(crate) fn interpreter(root: &Path, requirements: &[&str]) -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os(PYTHON) {
        return Ok(path.into());
    }
    let venv = root.join(".venv");
    let python = venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    for &name in requirements {
        let wanted = root.join(SCRIPTS).join(name);
        let installed = venv.join(name.replace('/', "-")); // a copy of what the environment was made from
        if fs::read(&installed).ok() == Some(fs::read(&wanted)?) {
            continue;
        }
        if !python.exists() {
            succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        }
        let pip = ["-m", "pip", "install", "--quiet", "-r"];
        succeed(Command::new(&python).args(pip).arg(&wanted))?;
        fs::copy(&wanted, &installed)?;
    }
    Ok(python)
}

/// Runs a command that must end well.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
