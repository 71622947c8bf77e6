//! Contexts by name. Each is a file in the user's configuration: `context.json` is `default`, `contexts/NAME.json` any
//! other. `current-context` has the name of the one in use; without that file it is `default`.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_common::id::{MAX_NAME_BYTES, PoolName};
use sluice_common::nearest::nearest;

use super::{ContextError, ContextFile, config_dir, read};

/// Name of the context in `context.json`.
pub(crate) const DEFAULT: &str = "default";

/// Fields of a context file that hold paths relative to it.
const PATHS: [&str; 3] = ["ca", "cert", "key"];

/// The user's contexts.
#[derive(Clone, Debug)]
pub(crate) struct NamedContexts {
    dir: PathBuf,
}

impl NamedContexts {
    /// Finds those of the caller.
    ///
    /// # Errors
    /// If there is no home directory.
    pub(crate) fn of_user() -> Result<Self, ContextError> {
        let dir = config_dir(|name| std::env::var_os(name).map(PathBuf::from));
        Ok(Self {
            dir: dir.ok_or(ContextError::NoHome)?,
        })
    }

    #[cfg(test)]
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Returns the file of a context, whether it exists or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match name {
            DEFAULT => self.dir.join("context.json"),
            name => self.dir.join("contexts").join(format!("{name}.json")),
        }
    }

    /// Lists the names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.join("contexts"));
        let files = entries.into_iter().flatten().flatten();
        let names = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            name.strip_suffix(".json").map(str::to_owned)
        });
        let default = self.path(DEFAULT).exists().then(|| DEFAULT.to_owned());
        let mut names: Vec<String> = names
            .filter(|name| check_name(name).is_ok() && name != DEFAULT)
            .chain(default)
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns the name of the context in use.
    pub(crate) fn current(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("current-context"));
        let name = text.ok().map(|text| text.trim().to_owned());
        let name = name.filter(|name| check_name(name).is_ok());
        name.unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Chooses the context that commands use from now on.
    pub(crate) fn choose(&self, name: &str) -> io::Result<()> {
        let file = self.dir.join("current-context");
        if name == DEFAULT {
            return match std::fs::remove_file(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            };
        }
        write_private(&file, format!("{name}\n").as_bytes())
    }

    /// Returns the file of a context.
    ///
    /// # Errors
    /// If there is none of this name; the message has the nearest.
    pub(crate) fn existing(&self, name: &str) -> Result<PathBuf, ContextError> {
        let path = self.path(name);
        if check_name(name).is_ok() && path.exists() {
            return Ok(path);
        }
        let names = self.names();
        let near = nearest(name, names.iter().map(String::as_str));
        let way_out = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "`sluice login --name NAME` makes one".to_owned(),
            None => format!("there are {}", names.join(", ")),
        };
        Err(ContextError::Unknown {
            name: name.to_owned(),
            way_out,
        })
    }

    /// Gives a context another name. Paths in the file stay those of the same files.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub(crate) fn rename(&self, old: &str, new: &str) -> Result<(), ContextError> {
        let (from, to) = (self.existing(old)?, self.path(new));
        let was_current = self.current() == old;
        let failed = |source| ContextError::Unwritable {
            path: to.clone(),
            source,
        };
        let text = std::fs::read(&from).map_err(failed)?;
        let malformed = |source| ContextError::Malformed {
            path: from.clone(),
            source,
        };
        let mut value: Value = serde_json::from_slice(&text).map_err(malformed)?;
        let beside = from.parent().unwrap_or(Path::new("."));
        for name in PATHS {
            let path = value.get_mut(name);
            if let Some(Value::String(path)) = path {
                *path = beside.join(&*path).to_string_lossy().into_owned();
            }
        }
        let text = serde_json::to_vec_pretty(&value).map_err(malformed)?;
        write_private(&to, &[&text[..], b"\n"].concat()).map_err(failed)?;
        std::fs::remove_file(&from).map_err(failed)?;
        match was_current {
            true => self.choose(new).map_err(failed),
            false => Ok(()),
        }
    }

    /// Deletes a context. If it was in use, `default` is.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub(crate) fn delete(&self, name: &str) -> Result<(), ContextError> {
        let path = self.existing(name)?;
        let failed = |source| ContextError::Unwritable {
            path: path.clone(),
            source,
        };
        let was_current = self.current() == name;
        std::fs::remove_file(&path).map_err(failed)?;
        match was_current {
            true => self.choose(DEFAULT).map_err(failed),
            false => Ok(()),
        }
    }

    /// Reads a context, to be changed.
    ///
    /// # Errors
    /// If it is that of a running `sluice dev`.
    pub(crate) fn changeable(&self, name: &str) -> Result<(), ContextError> {
        let path = self.existing(name)?;
        match read(&path) {
            Ok(file) if file.dev_lives() => Err(ContextError::OfDev {
                name: name.to_owned(),
                pid: file.dev_pid.unwrap_or_default(),
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Returns the file that `--context` or `SLUICE_CONTEXT` means: a name, or a path with `/` or the ending `.json`.
pub(crate) fn chosen_path(
    chosen: &Path,
    contexts: &NamedContexts,
) -> Result<PathBuf, ContextError> {
    match as_name(chosen) {
        None => Ok(chosen.to_owned()),
        Some(name) => match contexts.existing(name) {
            Err(_) if chosen.exists() => Ok(chosen.to_owned()),
            found => found,
        },
    }
}

/// Returns the name in `--context`, if it is no path.
pub(crate) fn as_name(chosen: &Path) -> Option<&str> {
    let text = chosen.to_str()?;
    (!text.contains('/') && !text.ends_with(".json")).then_some(text)
}

/// Checks the name of a context.
///
/// # Errors
/// If it has characters beyond those of names of pools, or is too long.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    match PoolName::new(name) {
        Ok(_) if !name.ends_with(".json") => Ok(()),
        _ => Err(format!(
            "write 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`, with a letter or digit first and no `.json` at the end"
        )),
    }
}

/// Writes a file atomically, readable by its owner alone.
pub(super) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(content)?;
    std::fs::rename(&draft, path)
}

impl ContextFile {
    /// Names the credential that calls present.
    pub(crate) fn credential(&self) -> &'static str {
        match (&self.token, &self.cert) {
            (Some(_), _) => "token",
            (None, Some(_)) => "certificate",
            (None, None) => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(http: &str) -> ContextFile {
        ContextFile {
            http: http.into(),
            ..ContextFile::default()
        }
    }

    #[test]
    fn contexts_are_side_by_side_and_one_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let contexts = NamedContexts::in_dir(dir.path());
        assert_eq!(
            (contexts.names().len(), contexts.current()),
            (0, "default".into())
        );
        file("a:1").write(&contexts.path("default")).unwrap();
        file("b:1").write(&contexts.path("lab.2")).unwrap();
        assert_eq!(contexts.names(), ["default", "lab.2"]);
        contexts.choose("lab.2").unwrap();
        assert_eq!(contexts.current(), "lab.2");
        contexts.rename("lab.2", "prod").unwrap();
        assert_eq!(
            (contexts.names(), contexts.current()),
            (vec!["default".into(), "prod".into()], "prod".into())
        );
        contexts.delete("prod").unwrap();
        assert_eq!(contexts.current(), "default");
        contexts.choose("default").unwrap();
        let error = contexts.existing("prod").unwrap_err().to_string();
        assert_eq!(error, "there is no context `prod`: there are default");
        let error = contexts.existing("defalt").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no context `defalt`: did you mean `default`?"
        );
    }

    #[test]
    fn a_renamed_context_keeps_its_files_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let contexts = NamedContexts::in_dir(dir.path());
        let text = r#"{"http": "https://a:1", "ca": "ca.pem", "of_a_later_version": 1}"#;
        std::fs::write(contexts.path("default"), text).unwrap();
        contexts.rename("default", "prod").unwrap();
        let path = contexts.path("prod");
        let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(written["ca"], dir.path().join("ca.pem").to_str().unwrap());
        assert_eq!(written["of_a_later_version"], 1);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!contexts.path("default").exists());
    }

    #[test]
    fn a_word_is_a_name_and_a_path_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let contexts = NamedContexts::in_dir(dir.path());
        file("a:1").write(&contexts.path("prod")).unwrap();
        let chosen = |text: &str| chosen_path(Path::new(text), &contexts);
        assert_eq!(chosen("prod").unwrap(), contexts.path("prod"));
        assert_eq!(chosen("./prod").unwrap(), Path::new("./prod"));
        assert_eq!(chosen("ci.json").unwrap(), Path::new("ci.json"));
        assert!(chosen("pord").is_err());
        for bad in ["", "-a", ".a", "a/b", "a.json", "ä", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_context_of_a_running_dev_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let contexts = NamedContexts::in_dir(dir.path());
        let ours = ContextFile {
            dev_pid: Some(std::process::id()),
            ..file("a:1")
        };
        ours.write(&contexts.path("default")).unwrap();
        let error = contexts.changeable("default").unwrap_err().to_string();
        assert!(
            error.contains("belongs to a running `sluice dev`"),
            "{error}"
        );
    }
}
