//! Files of `--input`: finds and hashes them, and uploads those that the coordinator lacks, before the step is submitted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use sluice_common::inputs::{InputFile, InputHash, MAX_INPUT_BYTES, MAX_INPUTS};

use crate::client::{Client, RetryLimit, outage_note};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::amounts::bytes;
use crate::render::safe;

/// Files of this machine that become inputs of a step.
#[derive(Debug, Default)]
pub(crate) struct InputPaths(Vec<(InputFile, PathBuf)>);

impl InputPaths {
    /// Finds and hashes the files that flags name: `FILE`, `FILE:NAME`, or directories.
    ///
    /// # Errors
    /// If one cannot be read, or is too large.
    pub(crate) fn of(flags: &[String]) -> Result<Self, Failure> {
        let mut found = Self::default();
        for flag in flags {
            let (path, name) = split(flag);
            let own_name = Path::new(path).file_name().and_then(|name| name.to_str());
            let name = name.or(own_name).ok_or_else(|| {
                refusal(Path::new(path), "has no name of its own: write FILE:NAME")
            })?;
            found.add(Path::new(path), name)?;
        }
        Ok(found)
    }

    /// The files as a request names them.
    pub(crate) fn files(&self) -> Vec<InputFile> {
        self.0.iter().map(|(input, _)| input.clone()).collect()
    }

    /// Uploads the files that are not there yet.
    ///
    /// # Errors
    /// If the coordinator refuses one, or cannot be reached.
    pub(crate) fn upload(&self, client: &Client, out: Out) -> Result<(), Failure> {
        for (input, path) in &self.0 {
            let hash = &input.sha256;
            let ask = || client.has_input(hash);
            if client.keep_trying(RetryLimit::CHANGE, outage_note(out), ask)? {
                continue;
            }
            let failed = |e: io::Error| refusal(path, &format!("cannot be read: {e}"));
            let open = || File::open(path).map_err(|e| client.lost(&e));
            File::open(path).map_err(failed)?;
            let send = || client.put_input(hash, open()?);
            client.keep_trying(RetryLimit::CHANGE, outage_note(out), send)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: &str) -> Result<(), Failure> {
        let failed = |e: io::Error| refusal(path, &format!("cannot be read: {e}"));
        let metadata = fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return self.add_directory(path, name);
        }
        if !metadata.is_file() {
            return Err(refusal(path, "is neither a file nor a directory"));
        }
        if metadata.len() > MAX_INPUT_BYTES {
            let (size, most) = (bytes(metadata.len()), bytes(MAX_INPUT_BYTES));
            let why = format!(
                "has {size}, and the maximum is {most}: put large data where hosts can read it, and name it to the step"
            );
            return Err(refusal(path, &why));
        }
        if self.0.len() >= MAX_INPUTS {
            let why = format!(
                "is one file more than the maximum of {MAX_INPUTS}: pack them into an archive"
            );
            return Err(refusal(path, &why));
        }
        let (sha256, size) = File::open(path).and_then(hashed).map_err(failed)?;
        let input = InputFile {
            name: name.to_owned(),
            sha256,
            size,
            executable: metadata.permissions().mode() & 0o100 != 0,
        };
        self.0.push((input, path.to_owned()));
        Ok(())
    }

    /// Adds the files of a directory. A link to a directory is refused, because it may lead around in a circle.
    fn add_directory(&mut self, path: &Path, name: &str) -> Result<(), Failure> {
        let failed = |e: io::Error| refusal(path, &format!("cannot be read: {e}"));
        let entries = fs::read_dir(path).map_err(failed)?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let below = entry.path();
            let Some(own) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(refusal(&below, "has a name that is not UTF-8"));
            };
            let is_link = entry.file_type().map_err(failed)?.is_symlink();
            if is_link && below.is_dir() {
                return Err(refusal(
                    &below,
                    "is a link to a directory: name that one itself",
                ));
            }
            self.add(&below, &format!("{name}/{own}"))?;
        }
        Ok(())
    }
}

/// Splits a flag at its last colon, unless the whole is a path.
fn split(flag: &str) -> (&str, Option<&str>) {
    match flag.rsplit_once(':') {
        Some((path, name)) if !Path::new(flag).exists() => (path, Some(name)),
        Some(_) | None => (flag, None),
    }
}

/// Hash and size of what is left of a file.
fn hashed(mut file: File) -> io::Result<(InputHash, u64)> {
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
    Ok((InputHash::of_digest(hash.finish().as_ref()), size))
}

fn refusal(path: &Path, why: &str) -> Failure {
    let path = safe(&path.to_string_lossy());
    Failure::Usage(format!("--input: `{path}` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(flags: &[String]) -> Vec<(String, u64, bool)> {
        let found = InputPaths::of(flags).unwrap().files().into_iter();
        found.map(|it| (it.name, it.size, it.executable)).collect()
    }

    #[test]
    fn files_and_directories_get_their_own_names_unless_others_are_given() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir_all(dir.path().join("src/deep")).unwrap();
        for (name, text) in [
            ("a.csv", "1,2"),
            ("src/b", ""),
            ("src/deep/c", "c"),
            ("d:e", "x"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::set_permissions(at("src/b"), fs::Permissions::from_mode(0o755)).unwrap();
        let file = |name: &str, size| (name.to_owned(), size, false);
        assert_eq!(names(&[at("a.csv")]), [file("a.csv", 3)]);
        assert_eq!(names(&[at("a.csv") + ":data/x"]), [file("data/x", 3)]);
        assert_eq!(names(&[at("d:e")]), [file("d:e", 1)]);
        let sources = [("s/b".to_owned(), 0, true), file("s/deep/c", 1)];
        assert_eq!(names(&[at("src") + ":s"]), sources);
    }

    #[test]
    fn what_cannot_be_sent_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(MAX_INPUT_BYTES + 1).unwrap();
        fs::create_dir(dir.path().join("round")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("round/up")).unwrap();
        for (flag, words) in [
            (at("none"), "cannot be read: No such file"),
            (at("large"), "the maximum is"),
            (at("round"), "is a link to a directory"),
            ("/".to_owned(), "write FILE:NAME"),
            ("/dev/null".to_owned(), "neither a file nor a directory"),
        ] {
            let Err(Failure::Usage(why)) = InputPaths::of(&[flag]) else {
                panic!("{words}");
            };
            assert!(
                why.starts_with("--input: `") && why.contains(words),
                "{why}"
            );
        }
    }
}
