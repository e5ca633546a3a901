//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes a file whole or not at all: beside its place first, so that nobody reads half of it, and
/// a file that is there stays as it is where writing fails. Links are followed. What is there and
/// no regular file (a device, a pipe) is written to as it is.
///
/// # Errors
/// What `write` returns, and where the file cannot be made or put in its place.
pub fn write_whole<E: From<io::Error>>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&File) -> Result<(), E>,
) -> Result<(), E> {
    let draft = Draft::create(path.as_ref())?;
    write(&draft.file)?;
    Ok(draft.publish()?)
}

/// A file that is being written; removed unless published.
pub(crate) struct Draft {
    pub(crate) file: File,
    /// Where it is and where it goes; none for what is written to as it is.
    paths: Option<(PathBuf, PathBuf)>,
}

impl Draft {
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        let found = fs::metadata(target).ok();
        if found.as_ref().is_some_and(|data| !data.is_file()) {
            return Ok(Self { file: File::options().write(true).open(target)?, paths: None });
        }
        let target = match &found {
            Some(_) => target.canonicalize()?,
            None => target.to_owned(),
        };
        let (file, path) = beside(&target)?;
        let draft = Self { file, paths: Some((path, target)) };
        if let Some(data) = found {
            draft.file.set_permissions(data.permissions())?;
        }
        Ok(draft)
    }

    pub(crate) fn publish(self) -> io::Result<()> {
        match &self.paths {
            Some((path, target)) => fs::rename(path, target),
            None => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After publishing there is nothing left to remove; a failure to tidy up is not worth
        // another error.
        if let Some((path, _)) = &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new file in the folder of another. Its name is short, however long that of the other is.
fn beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = target.with_file_name(format!(".{process}.{number}.tmp"));
        match File::options().write(true).create_new(true).open(&path) {
            // Left by a process that was killed, or put there by somebody else.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((made?, path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("plutino-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_fails_leaves_the_old_file_and_nothing_else() {
        let folder = folder("draft");
        let path = folder.join("a".repeat(255));
        let text = |text: &'static str| {
            move |mut file: &File| {
                file.write_all(text.as_bytes())?;
                if text == "bad" { Err(io::Error::other("as told")) } else { Ok(()) }
            }
        };
        assert!(write_whole(&path, text("bad")).is_err());
        assert!(names(&folder).is_empty());
        write_whole(&path, text("old")).unwrap();
        assert!(write_whole(&path, text("bad")).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_whole(&path, text("new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(write_whole(folder.join("no/a"), text("new")).is_err());
        assert!(write_whole(&folder, text("new")).is_err());
        assert_eq!(names(&folder).len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_devices_and_modes_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = folder("links");
        let (path, link) = (folder.join("a"), folder.join("b"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("a", &link).unwrap();
        write_whole(&link, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(link.is_symlink() && names(&folder) == ["a", "b"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        write_whole("/dev/null", |mut file| file.write_all(b"gone")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(&folder).unwrap();
    }
}
